package io.situ.store;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.BufferedReader;
import java.util.List;
import org.junit.jupiter.api.Test;

/** A process that is killed while it writes. */
class CrashTest extends StoreTest {
    private static final int SIGKILL = 9;

    @Test
    void syncedBatchesSurviveAKilledProcess() throws Exception {
        int last = -1;
        for (int round = 1; round <= 3; round++) {
            last = writeAndKill(last + 1, 100 * round);
            try (Store store = open(); Keyspace one = store.existingKeyspace("one");
                    Keyspace two = store.existingKeyspace("two")) {
                int kept = 0;
                try (EntryIterator ones = one.iterator(); EntryIterator twos = two.iterator()) {
                    while (ones.hasNext()) {
                        Entry entry = ones.next();
                        assertArrayEquals(Writer.key(kept), entry.key());
                        assertEquals(500, entry.value().length);
                        assertEquals(new Entry(entry.key(), entry.key()), twos.next());
                        kept++;
                    }
                    assertTrue(!twos.hasNext(), "a batch is there by halves");
                }
                assertTrue(kept > last, kept + " batches are there, and " + last + " was acknowledged");
                last = kept - 1;
            }
        }
    }

    /** Runs the writer from a number on, kills it after some batches, and returns the last number that it printed. */
    private int writeAndKill(int from, int batches) throws Exception {
        List<String> options = List.of("-Dsitu.library=" + LibraryFileTest.library());
        Process process = java(options, System.getProperty("java.class.path"), Writer.class.getName(),
                directory.resolve("store").toString(), Integer.toString(from));
        int last = from - 1;
        try (BufferedReader numbers = process.inputReader()) {
            for (String line = numbers.readLine(); line != null; line = numbers.readLine()) {
                assertEquals(++last, Integer.parseInt(line));
                if (last == from + batches) {
                    process.toHandle().destroyForcibly();
                }
            }
        }
        assertEquals(128 + SIGKILL, process.waitFor());
        assertTrue(last >= from + batches, "the writer ended early");
        return last;
    }
}
