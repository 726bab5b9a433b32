package io.situ.store;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.foreign.ValueLayout;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicBoolean;
import org.junit.jupiter.api.Test;

/** Threads that share a store. */
class ThreadsTest extends StoreTest {
    /** Runs work in threads of their own, and throws what one of them throws. */
    private static void run(ExecutorService threads, List<Callable<Void>> works) throws Exception {
        try (threads) {
            List<Future<Void>> ends = new ArrayList<>();
            works.forEach(work -> ends.add(threads.submit(work)));
            for (Future<Void> end : ends) {
                end.get();
            }
        }
    }

    private static byte[] key(int number) {
        return bytes(String.format("%04d", number));
    }

    /**
     * A writer changes all keys of a group to the same value, by one batch. A walk sees one moment: keys in order,
     * within its bounds, all with one value.
     */
    @Test
    void walksSeeOneMomentWhileOthersWrite() throws Exception {
        int keys = 300;
        int walks = 60;
        AtomicBoolean isOver = new AtomicBoolean();
        try (Store store = Store.open(directory.resolve("store"), new Options().set("memtable_bytes", 64 << 10));
                Keyspace map = store.keyspace("map")) {
            Callable<Void> writer = () -> {
                try (Batch batch = new Batch()) {
                    for (int round = 0; !isOver.get(); round++) {
                        for (int i = 0; i < keys; i++) {
                            batch.put(map, key(i), key(round % 10000));
                        }
                        store.write(batch);
                    }
                }
                return null;
            };
            Callable<Void> walker = () -> {
                Random random = new Random(Thread.currentThread().threadId());
                try {
                    for (int i = 0; i < walks; i++) {
                        walk(map, random.nextInt(keys), random.nextInt(keys), random.nextBoolean());
                    }
                } finally {
                    isOver.set(true);
                }
                return null;
            };
            run(Executors.newFixedThreadPool(4), List.of(writer, walker, walker, walker));
        }
    }

    private static void walk(Keyspace map, int one, int other, boolean isReverse) {
        int low = Math.min(one, other);
        int high = Math.max(one, other);
        ReadOptions range = ReadOptions.DEFAULT.range(key(low), key(high));
        byte[] value = null;
        int seen = 0;
        try (EntryIterator entries = map.iterator(isReverse ? range.reverse() : range)) {
            while (entries.hasNext()) {
                Entry entry = entries.next();
                assertArrayEquals(key(isReverse ? high - 1 - seen : low + seen), entry.key());
                value = value == null ? entry.value() : value;
                assertArrayEquals(value, entry.value());
                seen++;
            }
        }
        // Nothing is there before the first batch.
        assertTrue(seen == high - low || seen == 0, seen + " entries from " + low + " to " + high);
    }

    /** Garbage is collected, and objects move, while calls of all kinds are under way. */
    @Test
    void callsSurviveTheGarbageCollector() throws Exception {
        AtomicBoolean isOver = new AtomicBoolean();
        long leaksBefore = Leaks.found();
        quietly(() -> {
            try (Store store = open(); Keyspace map = store.keyspace("map")) {
                Callable<Void> collector = () -> {
                    long until = System.nanoTime() + 1_500_000_000L;
                    while (System.nanoTime() < until) {
                        System.gc();
                    }
                    isOver.set(true);
                    return null;
                };
                Callable<Void> caller = () -> {
                    Random random = new Random(Thread.currentThread().threadId());
                    while (!isOver.get()) {
                        mix(store, map, random);
                    }
                    return null;
                };
                run(Executors.newFixedThreadPool(3), List.of(collector, caller, caller));
            }
            collectLeaks();
        });
        assertTrue(Leaks.found() > leaksBefore, "the test leaks cursors");
    }

    private static void mix(Store store, Keyspace map, Random random) {
        byte[] key = key(random.nextInt(1000));
        byte[] value = new byte[random.nextInt(3000)];
        Arrays.fill(value, key[3]);
        map.put(key, value);
        for (byte one : map.get(key)) {
            assertEquals(key[3], one);
        }
        // The keyspace and this cursor are not closed: they are freed while calls go on.
        store.keyspace("map").get(key);
        map.cursor().seek(key);
        map.putAsync(key, value).join();
        assertTrue(map.getMany(List.of(key, key)).get(1) != null);
        try (Value found = map.getValue(key); Batch batch = new Batch(); Transaction transaction = store.begin();
                Snapshot snapshot = store.snapshot();
                EntryIterator entries = map.iterator(ReadOptions.DEFAULT.at(snapshot).lower(key))) {
            assertEquals(key[3], found.segment().byteSize() == 0
                    ? key[3] : found.segment().get(ValueLayout.JAVA_BYTE, 0));
            assertTrue(entries.hasNext());
            store.write(batch.put(map, key, value));
            transaction.get(map, key);
        }
    }

    @Test
    void virtualThreadsShareMemory() throws Exception {
        try (Store store = open(); Keyspace map = store.keyspace("map")) {
            List<Callable<Void>> works = new ArrayList<>();
            for (int i = 0; i < 2000; i++) {
                byte[] key = key(i);
                works.add(() -> {
                    map.put(key, key);
                    Thread.yield();
                    assertArrayEquals(key, map.get(key));
                    map.putAsync(key, new byte[20_000]).join();
                    assertEquals(20_000, map.get(key).length);
                    try (EntryIterator entries = map.iterator(ReadOptions.DEFAULT.prefix(key))) {
                        assertEquals(20_000, entries.next().value().length);
                    }
                    map.delete(key);
                    return null;
                });
            }
            run(Executors.newVirtualThreadPerTaskExecutor(), works);
            assertEquals("", texts(map.iterator()));
        }
    }
}
