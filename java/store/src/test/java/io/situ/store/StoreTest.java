package io.situ.store;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.logging.Level;
import java.util.logging.Logger;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Assertions;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.api.io.TempDir;

/** A test that has a directory, and that fails if it leaves a handle open. */
abstract class StoreTest {
    @TempDir
    Path directory;

    /** The handles that tests before have left open. */
    private Set<Throwable> openBefore;

    @BeforeAll
    static void needTheLibrary() {
        Path named = Path.of(System.getProperty("situ.library"));
        if (!Files.exists(Files.isDirectory(named) ? named.resolve("libsitu.so") : named)) {
            String reason = "the tests of the store for Java: there is no libsitu.so in " + named
                    + " (cargo build --release -p situ-c)";
            System.err.println("SKIPPED: " + reason);
            Assumptions.abort(reason);
        }
    }

    @BeforeEach
    void lookForHandles() {
        openBefore = Set.copyOf(Leaks.open());
    }

    @AfterEach
    void noHandleIsLeft() {
        List<Throwable> open = Leaks.open().stream().filter(made -> !openBefore.contains(made)).toList();
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

    static void assertKind(SituException.Kind kind, Executable call) {
        SituException failed = Assertions.assertThrows(SituException.class, call);
        Assertions.assertEquals(kind, failed.kind(), failed.getMessage());
        Assertions.assertFalse(failed.getMessage().isBlank());
    }

    /** Runs a test that leaks handles on purpose, without the warnings. */
    static void quietly(ThrowingRunnable test) {
        Logger logger = Logger.getLogger("io.situ.store");
        logger.setLevel(Level.OFF);
        try {
            test.run();
        } catch (Exception failed) {
            throw new AssertionError(failed);
        } finally {
            logger.setLevel(null);
        }
    }

    interface ThrowingRunnable {
        void run() throws Exception;
    }

    /** Waits until the garbage collector has found all handles that are open. */
    static void collectLeaks() throws InterruptedException {
        for (int i = 0; !Leaks.open().isEmpty(); i++) {
            Assertions.assertTrue(i < 2000, () -> "handles are still reachable: " + Leaks.open());
            System.gc();
            Thread.sleep(1);
        }
    }

    /** Starts another Java process, in the directory of the test. The program is a class or a file with one. */
    Process java(List<String> options, String classPath, String program, String... arguments) throws IOException {
        List<String> command = new ArrayList<>(List.of(
                Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                "--enable-native-access=ALL-UNNAMED", "-Xmx128m", "-cp", classPath));
        command.addAll(options);
        command.add(program);
        command.addAll(List.of(arguments));
        return new ProcessBuilder(command).directory(directory.toFile()).redirectErrorStream(true).start();
    }
}
