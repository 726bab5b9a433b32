package io.situ.store;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Assertions;
import org.junit.jupiter.api.io.TempDir;

/** A test that has a directory, and that fails if it leaves a handle open. */
abstract class StoreTest {
    @TempDir
    Path directory;

    @AfterEach
    void noHandleIsLeft() {
        List<Throwable> open = Leaks.open();
        if (!open.isEmpty()) {
            AssertionError left = new AssertionError(open.size() + " handles were not closed");
            open.forEach(left::addSuppressed);
            throw left;
        }
    }

    Store open() {
        return Store.open(directory.resolve("store"));
    }

    static byte[] bytes(String text) {
        return text.getBytes(UTF_8);
    }

    static String text(byte[] bytes) {
        return bytes == null ? null : new String(bytes, UTF_8);
    }

    static String text(MemorySegment segment) {
        return segment == null ? null : text(segment.toArray(ValueLayout.JAVA_BYTE));
    }

    /** Returns the entries of an iterator as text, and closes it. */
    static String texts(EntryIterator entries) {
        try (entries) {
            StringBuilder all = new StringBuilder();
            while (entries.hasNext()) {
                String peeked = text(entries.peekKey());
                Entry entry = entries.next();
                Assertions.assertEquals(peeked, text(entry.key()));
                all.append(all.isEmpty() ? "" : " ").append(entry);
            }
            Assertions.assertNull(entries.peekKey());
            return all.toString();
        }
    }

    /** Puts entries with keys and values of the same text. */
    static void fill(Keyspace keyspace, String... keys) {
        for (String key : keys) {
            keyspace.put(bytes(key), bytes(key));
        }
    }

    static void assertKind(SituException.Kind kind, org.junit.jupiter.api.function.Executable call) {
        SituException failed = Assertions.assertThrows(SituException.class, call);
        Assertions.assertEquals(kind, failed.kind(), failed.getMessage());
        Assertions.assertFalse(failed.getMessage().isBlank());
    }

    static String sorted(Map<String, ?> map) {
        return map.entrySet().stream().map(Object::toString).collect(Collectors.joining(" "));
    }
}
