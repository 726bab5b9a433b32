package io.situ.store;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

/** The memory on the heap that calls allocate. */
class AllocationTest extends StoreTest {
    private static final com.sun.management.ThreadMXBean THREADS =
            (com.sun.management.ThreadMXBean) ManagementFactory.getThreadMXBean();
    private static final int ROUNDS = 2000;

    /** Asserts the bytes of a call, once the compiler has done its work. A byte more is for measuring itself. */
    private static void check(String what, double bytesMax, Runnable call) {
        double least = Double.MAX_VALUE;
        long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(20);
        while (least > bytesMax + 1 && System.nanoTime() < until) {
            long before = THREADS.getCurrentThreadAllocatedBytes();
            for (int i = 0; i < ROUNDS; i++) {
                call.run();
            }
            least = Math.min(least, (double) (THREADS.getCurrentThreadAllocatedBytes() - before) / ROUNDS);
        }
        assertTrue(least <= bytesMax + 1, what + " allocates " + least + " bytes");
    }

    @Test
    void hotCallsAllocateNothingButTheirResult() {
        try (Store store = open(); Keyspace map = store.keyspace("map"); Batch batch = new Batch();
                Arena arena = Arena.ofConfined(); Cursor cursor = map.cursor()) {
            byte[] key = bytes("key");
            byte[] value = new byte[96];
            map.put(key, value);
            ByteBuffer heap = ByteBuffer.allocate(96);
            MemorySegment nativeKey = arena.allocate(3);
            MemorySegment nativeValue = arena.allocate(96);
            nativeKey.copyFrom(MemorySegment.ofArray(key));
            check("put", 0, () -> map.put(key, value));
            check("put of segments", 0, () -> map.put(nativeKey, nativeValue));
            check("delete", 0, () -> map.delete(key));
            map.put(key, value);
            check("get", 96 + 16, () -> assertEquals(96, map.get(key).length));
            check("get into a buffer", 0, () -> map.get(key, heap.clear()));
            check("contains", 0, () -> map.contains(key));
            check("batch", 0, () -> {
                batch.put(map, key, value).delete(map, key);
                batch.clear();
            });
            check("cursor", 0, () -> {
                cursor.seekToFirst();
                cursor.next();
            });
        }
    }
}
