package io.situ.store;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.net.URI;
import java.nio.ByteBuffer;
import java.nio.file.FileSystems;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.AbstractList;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;

/** Use of handles that is wrong: it has to end in an exception, and never in a crash. */
class BadUseTest extends StoreTest {
    private static final byte[] KEY = bytes("key");

    private static void assertClosed(Executable... calls) {
        for (Executable call : calls) {
            IllegalStateException refused = assertThrows(IllegalStateException.class, call);
            assertTrue(refused.getMessage().endsWith("is closed"), refused.getMessage());
        }
    }

    @Test
    void aClosedHandleIsRefused() {
        Store store = open();
        Keyspace map = store.keyspace("map");
        fill(map, "a", "b");
        Snapshot snapshot = store.snapshot();
        Batch batch = new Batch();
        Cursor cursor = map.cursor();
        cursor.seekToFirst();
        EntryIterator entries = map.iterator();
        assertTrue(entries.hasNext());
        EntryIterator finished = map.iterator();
        finished.forEachRemaining(entry -> {});
        Transaction transaction = store.begin();
        try (Batch open = new Batch(); Transaction active = store.begin()) {
            for (int i = 0; i < 2; i++) {
                snapshot.close();
                batch.close();
                cursor.close();
                entries.close();
                finished.close();
                transaction.close();
            }
            ReadOptions then = ReadOptions.DEFAULT.at(snapshot);
            assertClosed(() -> map.get(KEY, then), () -> map.iterator(then), () -> map.getAsync(KEY, then),
                    () -> map.getMany(List.of(KEY), then), () -> map.contains(KEY, then),
                    () -> map.getValue(KEY, then), () -> active.cursor(map, then));
            assertClosed(() -> batch.put(map, KEY, KEY), () -> batch.delete(map, KEY), batch::size, batch::bytes,
                    batch::clear, () -> batch.deleteRange(map, KEY, KEY), () -> store.write(batch),
                    () -> store.writeAsync(batch), () -> batch.put(map, MemorySegment.NULL, MemorySegment.NULL),
                    () -> batch.delete(map, MemorySegment.NULL));
            assertClosed(cursor::next, cursor::prev, cursor::seekToFirst, cursor::seekToLast, cursor::key,
                    cursor::value, cursor::keySegment, cursor::valueSegment, () -> cursor.seek(KEY),
                    () -> cursor.seekForPrev(KEY));
            assertClosed(entries::hasNext, entries::next, entries::peekKey);
            assertFalse(finished.hasNext());
            assertClosed(transaction::commit, transaction::commitAsync, transaction::rollback,
                    transaction::setSavepoint, transaction::popSavepoint, transaction::rollbackToSavepoint,
                    () -> transaction.get(map, KEY), () -> transaction.getForUpdate(map, KEY),
                    () -> transaction.lock(map, KEY), () -> transaction.put(map, KEY, KEY),
                    () -> transaction.delete(map, KEY), () -> transaction.cursor(map),
                    () -> transaction.iterator(map, ReadOptions.DEFAULT));
            map.close();
            map.close();
            assertClosed(() -> map.get(KEY), () -> map.get(KEY, ByteBuffer.allocate(1)), () -> map.getValue(KEY),
                    () -> map.getMany(List.of(KEY)), () -> map.contains(KEY), () -> map.put(KEY, KEY),
                    () -> map.put(MemorySegment.NULL, MemorySegment.NULL), () -> map.delete(KEY),
                    () -> map.deleteRange(KEY, KEY), () -> map.getAsync(KEY), () -> map.putAsync(KEY, KEY),
                    () -> map.deleteAsync(KEY), map::cursor, map::iterator, () -> map.stream(ReadOptions.DEFAULT),
                    map::popFirst, map::popLast, map::flush, map::compact, () -> map.approximateBytes(KEY, KEY),
                    () -> map.property("tables"), () -> open.put(map, KEY, KEY), () -> open.delete(map, KEY),
                    () -> active.get(map, KEY), () -> active.put(map, KEY, KEY), () -> active.cursor(map));
            assertEquals("map", map.name());
        }
        store.close();
        store.close();
        assertClosed(() -> store.keyspace("map"), () -> store.existingKeyspace("map"), () -> store.dropKeyspace("map"),
                store::keyspaceNames, store::snapshot, store::begin,
                () -> store.transact(each -> null), store::sync, store::flush, store::waitIdle,
                () -> store.checkpoint(directory), () -> store.property("locks"));
    }

    @Test
    void handlesOfAClosedStoreFail() {
        Store store = open();
        try (Keyspace map = store.keyspace("map"); Snapshot snapshot = store.snapshot(); Batch batch = new Batch();
                Transaction transaction = store.begin(); Cursor cursor = map.cursor()) {
            fill(map, "a");
            store.close();
            assertKind(SituException.Kind.CLOSED, () -> map.get(KEY));
            assertKind(SituException.Kind.CLOSED, () -> map.put(KEY, KEY));
            assertKind(SituException.Kind.CLOSED, () -> map.get(KEY, ReadOptions.DEFAULT.at(snapshot)));
            assertKind(SituException.Kind.CLOSED, map::iterator);
            assertKind(SituException.Kind.CLOSED, () -> transaction.get(map, KEY));
            batch.put(map, KEY, KEY);
            assertClosed(() -> store.write(batch));
        }
    }

    @Test
    void handlesAreClosedInAnyOrder() {
        List<AutoCloseable> handles = new ArrayList<>();
        for (int seed = 0; seed < 10; seed++) {
            Store store = Store.open(directory.resolve("store"));
            Keyspace map = store.keyspace("map");
            fill(map, "a", "b", "c");
            Snapshot snapshot = store.snapshot();
            Cursor cursor = map.cursor(ReadOptions.DEFAULT.at(snapshot));
            assertTrue(cursor.seekToLast());
            Transaction transaction = store.begin();
            transaction.put(map, KEY, KEY);
            EntryIterator entries = transaction.iterator(map, ReadOptions.DEFAULT);
            assertTrue(entries.hasNext());
            handles.addAll(List.of(store, map, snapshot, cursor, transaction, entries, map.getValue(bytes("a"))));
            Collections.shuffle(handles, new Random(seed));
            for (AutoCloseable handle : handles) {
                try {
                    handle.close();
                } catch (Exception failed) {
                    throw new AssertionError(handle + " of seed " + seed, failed);
                }
            }
            handles.clear();
        }
    }

    @Test
    void nothingIsNull() {
        try (Store store = open(); Keyspace map = store.keyspace("map"); Batch batch = new Batch();
                Transaction transaction = store.begin(); Cursor cursor = map.cursor()) {
            Executable[] calls = {() -> map.get(null), () -> map.get(KEY, (ReadOptions) null),
                () -> map.get(KEY, (ByteBuffer) null), () -> map.put(null, KEY), () -> map.put(KEY, (byte[]) null),
                () -> map.put(KEY, KEY, null), () -> map.put((MemorySegment) null, MemorySegment.NULL),
                () -> map.delete(null), () -> map.deleteRange(KEY, null), () -> map.getMany(null),
                () -> map.getMany(Arrays.asList(KEY, null)), () -> map.getAsync(null), () -> map.putAsync(KEY, null),
                () -> map.deleteAsync(KEY, null), () -> map.cursor(null), () -> map.property(null),
                () -> map.approximateBytes(null, KEY), () -> batch.put(map, KEY, (byte[]) null),
                () -> batch.put(null, KEY, KEY), () -> batch.delete(map, (byte[]) null), () -> cursor.seek(null),
                () -> transaction.get(null, KEY), () -> transaction.put(map, null, KEY),
                () -> transaction.lock(map, KEY, null), () -> store.keyspace(null), () -> store.write(null),
                () -> store.write(batch, null), () -> store.begin(null), () -> store.transact(null),
                () -> store.checkpoint(null), () -> Store.open(null), () -> store.dropKeyspace(null)};
            for (int i = 0; i < calls.length; i++) {
                assertThrows(NullPointerException.class, calls[i], "call " + i);
            }
            assertThrows(NullPointerException.class, () -> map.putAsync(KEY, KEY, null));
            assertThrows(NullPointerException.class, () -> map.deleteAsync(KEY, (Durability) null));
            assertThrows(NullPointerException.class, () -> store.writeAsync(batch, null));
            // The handles were left as they should be.
            assertEquals(0, Completion.waiting());
            fill(map, "a");
            store.write(batch.put(map, bytes("b"), bytes("b")));
            transaction.put(map, bytes("c"), bytes("c"));
            transaction.commit();
            assertEquals("a=a b=b c=c", texts(map.iterator()));
        }
    }

    @Test
    void segmentsThatAreClosedAreRefused() throws Exception {
        try (Store store = open(); Keyspace map = store.keyspace("map"); Batch batch = new Batch();
                ExecutorService other = Executors.newSingleThreadExecutor()) {
            Arena arena = Arena.ofConfined();
            MemorySegment segment = arena.allocate(3);
            ByteBuffer buffer = segment.asByteBuffer();
            Future<?> elsewhere = other.submit(() -> map.put(segment, segment));
            assertInstanceOf(WrongThreadException.class,
                    assertThrows(ExecutionException.class, elsewhere::get).getCause());
            arena.close();
            assertThrows(IllegalStateException.class, () -> map.put(segment, segment));
            assertThrows(IllegalStateException.class, () -> map.getValue(segment));
            assertThrows(IllegalStateException.class, () -> map.put(buffer, buffer));
            assertThrows(IllegalStateException.class, () -> batch.put(map, segment, segment));
            assertThrows(IllegalStateException.class, () -> batch.delete(map, segment));
            fill(map, "a");
            assertThrows(IllegalStateException.class, () -> map.get(bytes("a"), buffer));
            assertEquals("a=a", texts(map.iterator()));
        }
    }

    @Test
    void handlesOfTwoStoresDoNotMix() {
        try (Store one = open(); Store other = Store.open(directory.resolve("other"));
                Keyspace map = one.keyspace("map"); Keyspace foreign = other.keyspace("map");
                Batch batch = new Batch(); Transaction transaction = one.begin();
                Snapshot snapshot = other.snapshot()) {
            batch.put(foreign, KEY, KEY);
            assertKind(SituException.Kind.INVALID, () -> one.write(batch));
            assertEquals(0, batch.size());
            assertKind(SituException.Kind.INVALID, () -> transaction.put(foreign, KEY, KEY));
            assertKind(SituException.Kind.INVALID, () -> map.get(KEY, ReadOptions.DEFAULT.at(snapshot)));
            assertKind(SituException.Kind.INVALID, () -> map.iterator(ReadOptions.DEFAULT.at(snapshot)));
        }
    }

    /** A list that computes its elements by calls on the same store. */
    @Test
    void keysMayBeComputedByOtherCalls() {
        try (Store store = open(); Keyspace map = store.keyspace("map")) {
            fill(map, "a", "b");
            map.put(bytes("large"), new byte[60_000]);
            List<byte[]> keys = new AbstractList<>() {
                @Override
                public byte[] get(int place) {
                    map.get(bytes("large"));
                    return map.get(bytes(place % 2 == 0 ? "a" : "b"));
                }

                @Override
                public int size() {
                    return 100;
                }
            };
            String all = map.getMany(keys).stream().map(StoreTest::text).collect(Collectors.joining());
            assertEquals("ab".repeat(50), all);
        }
    }

    /** The text of such a path has another character in the place of the byte. It was the path of another directory. */
    @Test
    void aPathThatIsNoText() throws Exception {
        Path named = Path.of(URI.create(directory.toUri() + "a%20+%FF"));
        SituException refused = assertThrows(SituException.class, () -> Store.open(named));
        assertEquals("the directory is not in UTF-8", refused.getMessage());
        try (var files = Files.list(directory)) {
            assertEquals(List.of(), files.toList());
        }
        Path text = Path.of(URI.create(directory.toUri() + "a%20+%C3%A9"));
        Store.open(text).close();
        assertTrue(Files.isDirectory(text));
    }

    @Test
    void placesThatAreNone() throws Exception {
        Path file = directory.resolve("file");
        Files.writeString(file, "text");
        assertThrows(SituException.class, () -> Store.open(file));
        assertThrows(SituException.class, () -> Store.destroy(directory.resolve("none")));
        try (var archive = FileSystems.newFileSystem(URI.create("jar:" + directory.resolve("a.zip").toUri()),
                Map.of("create", "true"))) {
            assertThrows(IllegalArgumentException.class, () -> Store.open(archive.getPath("store")));
        }
        try (Store store = open()) {
            assertThrows(IllegalArgumentException.class, () -> store.keyspace("a\0b"));
            assertKind(SituException.Kind.INVALID, () -> store.keyspace(""));
            assertKind(SituException.Kind.INVALID, () -> store.dropKeyspace("default"));
        }
    }

    /** A transaction waits for a lock in one thread: another thread may neither use it nor close it. */
    @Test
    void aSecondThreadIsRefused() throws Exception {
        // After a failure, the blocker is closed first, so the other thread ends.
        try (Store store = open(); Keyspace map = store.keyspace("map");
                ExecutorService other = Executors.newSingleThreadExecutor(); Transaction blocker = store.begin()) {
            Transaction transaction = store.begin(TransactionOptions.DEFAULT.lockTimeout(Duration.ofSeconds(60)));
            blocker.lock(map, KEY);
            Future<?> waits = other.submit(() -> transaction.put(map, KEY, KEY));
            while (store.property("lock_waits") == 0) {
                Thread.sleep(1);
            }
            for (Executable call : List.<Executable>of(() -> transaction.get(map, bytes("another")),
                    transaction::commit, transaction::close)) {
                assertEquals("the transaction is in use by another thread",
                        assertThrows(IllegalStateException.class, call).getMessage());
            }
            // Closing the keyspace refuses later calls. The one that has begun goes on, and its end frees the keyspace.
            int open = Leaks.open().size();
            map.close();
            assertTrue(isRefused(() -> map.get(KEY)));
            assertThrows(TimeoutException.class, () -> waits.get(50, TimeUnit.MILLISECONDS));
            assertEquals(open, Leaks.open().size());
            blocker.rollback();
            waits.get();
            // That of the blocker is free, too.
            assertEquals(open - 2, Leaks.open().size());
            transaction.commit();
            try (Keyspace again = store.keyspace("map")) {
                assertArrayEquals(KEY, again.get(KEY));
            }
        }
    }

    /** A call that had no stack left to end kept the store from closing. */
    @Test
    void aStackThatOverflowsDoesNotKeepTheStoreOpen() throws Exception {
        try (ExecutorService other = Executors.newSingleThreadExecutor()) {
            quietly(() -> {
                for (int round = 0; round < 20; round++) {
                    Store store = open();
                    Keyspace map = store.keyspace("map");
                    Thread deep = new Thread(null, () -> assertThrows(StackOverflowError.class, () -> putForever(map)),
                            "deep", 512 << 10);
                    deep.start();
                    deep.join();
                    other.submit(() -> {
                        map.close();
                        store.close();
                    }).get(60, TimeUnit.SECONDS);
                }
                collectLeaks();
            });
        }
    }

    private static void putForever(Keyspace map) {
        map.putAsync(KEY, KEY);
        putForever(map);
    }

    private static boolean isRefused(Runnable call) {
        try {
            call.run();
            return false;
        } catch (IllegalStateException refused) {
            return true;
        }
    }

    /** Threads hammer one handle that is not theirs alone. */
    @Test
    void twoThreadsOnOneHandleGetExceptions() throws Exception {
        try (Store store = open(); Keyspace map = store.keyspace("map")) {
            fill(map, "a", "b", "c");
            AtomicInteger refused = new AtomicInteger();
            for (int round = 0; round < 20; round++) {
                try (Cursor cursor = map.cursor(); Batch batch = new Batch(); Transaction transaction = store.begin()) {
                    hammer(refused, List.of(
                            random -> cursor.seek(bytes("b")), random -> cursor.next(), random -> cursor.key(),
                            random -> cursor.value(), random -> batch.put(map, bytes("d"), new byte[100]),
                            random -> batch.clear(), random -> store.write(batch), random -> transaction.get(map, KEY),
                            random -> transaction.put(map, KEY, KEY), random -> transaction.setSavepoint(),
                            random -> {
                                if (random.nextInt(500) == 0) {
                                    cursor.close();
                                }
                            },
                            random -> {
                                if (random.nextInt(500) == 0) {
                                    transaction.close();
                                }
                            }));
                }
            }
            assertTrue(refused.get() > 0, "no call was refused");
        }
    }

    private interface Act {
        void run(Random random);
    }

    private static void hammer(AtomicInteger refused, List<Act> acts) throws Exception {
        try (ExecutorService threads = Executors.newFixedThreadPool(3)) {
            List<Future<?>> ends = new ArrayList<>();
            for (int thread = 0; thread < 3; thread++) {
                Random random = new Random(thread);
                ends.add(threads.submit(() -> {
                    for (int i = 0; i < 3000; i++) {
                        try {
                            acts.get(random.nextInt(acts.size())).run(random);
                        } catch (IllegalStateException | WrongThreadException expected) {
                            refused.incrementAndGet();
                        }
                    }
                }));
            }
            for (Future<?> end : ends) {
                end.get();
            }
        }
    }

    @Test
    void closingWhileOthersCall() throws Exception {
        for (int round = 0; round < 12; round++) {
            Store store = open();
            Keyspace map = store.keyspace("map");
            Snapshot snapshot = store.snapshot();
            fill(map, "a", "b", "c");
            AtomicBoolean isOver = new AtomicBoolean();
            CountDownLatch begun = new CountDownLatch(3);
            try (ExecutorService threads = Executors.newFixedThreadPool(3)) {
                List<Future<?>> ends = new ArrayList<>();
                for (int thread = 0; thread < 3; thread++) {
                    Random random = new Random(thread);
                    ends.add(threads.submit(() -> {
                        begun.countDown();
                        while (!isOver.get()) {
                            try {
                                callSomething(store, map, snapshot, random.nextInt(9));
                            } catch (IllegalStateException closed) {
                                assertTrue(closed.getMessage().endsWith("is closed"), closed.getMessage());
                            } catch (SituException closed) {
                                assertEquals(SituException.Kind.CLOSED, closed.kind());
                            }
                        }
                    }));
                }
                begun.await();
                Thread.sleep(20);
                // In turns, each of the three is the first to go.
                List<AutoCloseable> handles = new ArrayList<>(List.of(store, map, snapshot));
                Collections.rotate(handles, round);
                for (AutoCloseable handle : handles) {
                    handle.close();
                    Thread.sleep(5);
                }
                isOver.set(true);
                for (Future<?> end : ends) {
                    end.get();
                }
            }
        }
    }

    private static void callSomething(Store store, Keyspace map, Snapshot snapshot, int call) {
        switch (call) {
            case 0 -> map.get(bytes("a"));
            case 1 -> map.put(KEY, KEY);
            case 2 -> map.get(bytes("a"), ReadOptions.DEFAULT.at(snapshot));
            case 3 -> map.getMany(List.of(KEY, KEY));
            case 4 -> {
                try (EntryIterator entries = map.iterator()) {
                    entries.forEachRemaining(entry -> {});
                }
            }
            case 5 -> store.flush();
            case 6 -> {
                try (Batch batch = new Batch(); Transaction transaction = store.begin()) {
                    transaction.put(map, bytes("t"), KEY);
                    store.write(batch.put(map, KEY, KEY));
                }
            }
            case 7 -> {
                try (Snapshot own = store.snapshot(); Keyspace same = store.keyspace("map")) {
                    same.get(KEY, ReadOptions.DEFAULT.at(own));
                }
            }
            default -> map.putAsync(KEY, KEY).handle((nothing, failed) -> null).join();
        }
    }

    @Test
    void aValueBelongsToItsThread() throws Exception {
        try (Store store = open(); Keyspace map = store.keyspace("map");
                ExecutorService other = Executors.newSingleThreadExecutor()) {
            fill(map, "a", "b");
            try (Value value = map.getValue(bytes("a")); Cursor cursor = map.cursor()) {
                cursor.seekToFirst();
                MemorySegment key = cursor.keySegment();
                for (Executable elsewhere : List.<Executable>of(() -> value.segment().toArray(
                        ValueLayout.JAVA_BYTE), value::close, cursor::next, cursor::close)) {
                    Future<?> end = other.submit(() -> assertThrows(WrongThreadException.class, elsewhere));
                    end.get();
                }
                assertEquals("a", text(value.segment()));
                assertEquals("a", text(key));
                // A new segment for each call would live as long as the cursor stays there.
                assertSame(key, cursor.keySegment());
                assertSame(cursor.valueSegment(), cursor.valueSegment());
                assertTrue(cursor.next());
                assertEquals("b", text(other.submit(cursor::key).get()));
                assertFalse(cursor.next());
                assertNull(cursor.key());
            }
        }
    }
}
