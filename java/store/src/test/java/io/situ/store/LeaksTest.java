package io.situ.store;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.foreign.MemorySegment;
import java.util.Arrays;
import java.util.List;
import org.junit.jupiter.api.Test;

class LeaksTest extends StoreTest {
    @Test
    void handlesThatAreNotClosedAreFreedAndCounted() {
        quietly(() -> {
            long before = Leaks.found();
            leak();
            List<String> made = Leaks.open().stream().map(Throwable::getMessage).sorted().toList();
            assertEquals(List.of("a batch was made here, and not closed", "a cursor was made here, and not closed",
                    "a cursor was made here, and not closed", "a keyspace was made here, and not closed",
                    "a snapshot was made here, and not closed", "a store was made here, and not closed",
                    "a transaction was made here, and not closed", "a value was made here, and not closed"), made);
            assertTrue(Leaks.open().stream().allMatch(each -> Arrays.stream(each.getStackTrace())
                    .anyMatch(frame -> frame.getMethodName().equals("leak"))));
            collectLeaks();
            assertEquals(before + 8, Leaks.found());
            // The library has let go of it, too: the lock of the directory is free.
            open().close();
        });
    }

    private void leak() {
        Store store = open();
        Keyspace map = store.keyspace("map");
        fill(map, "a", "b");
        new Batch().put(map, bytes("c"), bytes("c"));
        map.cursor().seekToFirst();
        map.iterator().next();
        store.begin().put(map, bytes("d"), bytes("d"));
        store.snapshot();
        map.getValue(bytes("a"));
    }

    @Test
    void anIteratorAtItsEndIsClosed() {
        try (Store store = open(); Keyspace map = store.keyspace("map")) {
            fill(map, "a", "b");
            int open = Leaks.open().size();
            map.iterator().forEachRemaining(entry -> {});
            map.iterator(ReadOptions.DEFAULT.lower(bytes("c")));
            assertEquals(open, Leaks.open().size());
        }
    }

    /** Segments keep what they show from the garbage collector. */
    @Test
    void segmentsKeepTheirOwner() {
        quietly(() -> {
            try (Store store = open(); Keyspace map = store.keyspace("map")) {
                fill(map, "a", "b");
                useSegments(map);
            }
            collectLeaks();
        });
    }

    private static void useSegments(Keyspace map) throws InterruptedException {
        MemorySegment value = map.getValue(bytes("a")).segment();
        MemorySegment key = keyOfTheLast(map);
        int open = Leaks.open().size();
        for (int i = 0; i < 20; i++) {
            System.gc();
            Thread.sleep(1);
            assertEquals("a", text(value));
            assertEquals("b", text(key));
        }
        assertEquals(open, Leaks.open().size());
    }

    private static MemorySegment keyOfTheLast(Keyspace map) {
        Cursor cursor = map.cursor();
        assertTrue(cursor.seekToLast());
        return cursor.keySegment();
    }
}
