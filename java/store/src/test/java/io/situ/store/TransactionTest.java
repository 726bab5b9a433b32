package io.situ.store;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.Callable;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

class TransactionTest extends StoreTest {
    private static final TransactionOptions AT_ONCE = TransactionOptions.DEFAULT.lockTimeout(Duration.ZERO);

    @Test
    void aWaitMayBeForever() throws Exception {
        try (Store store = open(); Keyspace map = store.keyspace("map"); Transaction blocker = store.begin();
                ExecutorService other = Executors.newSingleThreadExecutor();
                Transaction transaction = store.begin(
                        TransactionOptions.DEFAULT.lockTimeout(ChronoUnit.FOREVER.getDuration()))) {
            blocker.lock(map, bytes("key"));
            Future<?> waits = other.submit(() -> transaction.put(map, bytes("key"), bytes("value")));
            assertThrows(TimeoutException.class, () -> waits.get(50, TimeUnit.MILLISECONDS));
            blocker.rollback();
            waits.get();
            transaction.commit();
            assertEquals("value", text(map.get(bytes("key"))));
        }
    }

    @Test
    void writesTakeEffectTogether() {
        try (Store store = open(); Keyspace one = store.keyspace("one"); Keyspace two = store.keyspace("two")) {
            fill(one, "a", "b");
            try (Transaction transaction = store.begin()) {
                transaction.put(one, bytes("c"), bytes("new"));
                transaction.delete(one, bytes("a"));
                transaction.put(two, bytes("x"), bytes("y"));
                assertEquals("new", text(transaction.get(one, bytes("c"))));
                assertNull(transaction.get(one, bytes("a")));
                assertEquals("b=b c=new", texts(transaction.iterator(one, ReadOptions.DEFAULT)));
                assertEquals("c=new", texts(transaction.iterator(one, ReadOptions.DEFAULT.lower(bytes("bb")))));
                try (Cursor cursor = transaction.cursor(one);
                        Cursor bounded = transaction.cursor(one, ReadOptions.DEFAULT.upper(bytes("c")))) {
                    assertTrue(cursor.seekToLast());
                    assertEquals("c", text(cursor.key()));
                    assertTrue(bounded.seekToLast());
                    assertEquals("b", text(bounded.key()));
                }
                assertEquals("a=a b=b", texts(one.iterator()));
                transaction.commit();
                assertThrows(IllegalStateException.class, transaction::commit);
                assertThrows(IllegalStateException.class, () -> transaction.get(one, bytes("a")));
            }
            assertEquals("b=b c=new", texts(one.iterator()));
            assertEquals("x=y", texts(two.iterator()));
        }
    }

    @Test
    void aTransactionThatIsNotCommittedLeavesNoTrace() {
        try (Store store = open(); Keyspace map = store.keyspace("map")) {
            try (Transaction transaction = store.begin()) {
                transaction.put(map, bytes("a"), bytes("a"));
                transaction.rollback();
                assertThrows(IllegalStateException.class, transaction::rollback);
            }
            try (Transaction transaction = store.begin()) {
                transaction.put(map, bytes("a"), bytes("a"));
            }
            assertEquals("", texts(map.iterator()));
            assertEquals(0, store.property("transactions"));
            assertEquals(0, store.property("locks"));
        }
    }

    @Test
    void commitReturnsTheSequenceNumber() {
        try (Store store = open(); Keyspace map = store.keyspace("map"); Transaction transaction = store.begin()) {
            transaction.put(map, bytes("a"), bytes("a"));
            long sequence = transaction.commit();
            assertEquals(store.property("last_sequence"), sequence);
        }
    }

    @Test
    void savepointsLieInEachOther() {
        try (Store store = open(); Keyspace map = store.keyspace("map"); Transaction transaction = store.begin()) {
            transaction.put(map, bytes("a"), bytes("a"));
            transaction.setSavepoint();
            transaction.put(map, bytes("b"), bytes("b"));
            transaction.setSavepoint();
            transaction.put(map, bytes("c"), bytes("c"));
            transaction.popSavepoint();
            assertEquals("a=a b=b c=c", texts(transaction.iterator(map, ReadOptions.DEFAULT)));
            transaction.rollbackToSavepoint();
            assertEquals("a=a", texts(transaction.iterator(map, ReadOptions.DEFAULT)));
            assertKind(SituException.Kind.INVALID, transaction::rollbackToSavepoint);
            assertKind(SituException.Kind.INVALID, transaction::popSavepoint);
            transaction.commit();
            assertEquals("a=a", texts(map.iterator()));
        }
    }

    @Test
    void locksKeepOthersAway() {
        try (Store store = open(); Keyspace map = store.keyspace("map")) {
            fill(map, "a", "b");
            try (Transaction first = store.begin(AT_ONCE); Transaction second = store.begin(AT_ONCE)) {
                assertEquals("a", text(first.getForUpdate(map, bytes("a"))));
                assertEquals("b", text(first.getForUpdate(map, bytes("b"), LockMode.SHARED)));
                assertNull(first.getForUpdate(map, bytes("none")));
                assertEquals("b", text(second.getForUpdate(map, bytes("b"), LockMode.SHARED)));
                second.lock(map, bytes("b"), LockMode.SHARED);
                assertKind(SituException.Kind.LOCK_TIMEOUT, () -> second.lock(map, bytes("a")));
                assertKind(SituException.Kind.LOCK_TIMEOUT, () -> second.put(map, bytes("a"), bytes("x")));
                assertKind(SituException.Kind.LOCK_TIMEOUT, () -> second.delete(map, bytes("none")));
                assertEquals("a", text(second.get(map, bytes("a"))));
                first.put(map, bytes("a"), bytes("first"));
                first.commit();
            }
            assertEquals("a=first b=b", texts(map.iterator()));
        }
    }

    @Test
    void anOptimisticTransactionFindsOutAtItsEnd() {
        try (Store store = open(); Keyspace map = store.keyspace("map");
                Transaction transaction = store.begin(TransactionOptions.DEFAULT.optimistic())) {
            transaction.getForUpdate(map, bytes("a"));
            transaction.put(map, bytes("b"), bytes("b"));
            fill(map, "a");
            SituException failed = assertThrows(SituException.class, transaction::commit);
            assertEquals(SituException.Kind.CONFLICT, failed.kind());
            assertTrue(failed.isRetryable());
            assertThrows(IllegalStateException.class, transaction::commit);
            assertEquals("a=a", texts(map.iterator()));
        }
    }

    @Test
    void isolationDecidesWhatReadsSee() {
        try (Store store = open(); Keyspace map = store.keyspace("map");
                Transaction committed = store.begin(TransactionOptions.DEFAULT.readCommitted());
                Transaction snapshot = store.begin(TransactionOptions.DEFAULT.durability(Durability.SYNCED))) {
            assertNull(committed.get(map, bytes("a")));
            assertNull(snapshot.get(map, bytes("a")));
            fill(map, "a");
            assertEquals("a", text(committed.get(map, bytes("a"))));
            assertNull(snapshot.get(map, bytes("a")));
        }
    }

    @Test
    void theMemoryOfATransactionHasABound() {
        try (Store store = open(); Keyspace map = store.keyspace("map");
                Transaction transaction = store.begin(TransactionOptions.DEFAULT.bytesMax(4000))) {
            assertKind(SituException.Kind.TRANSACTION_TOO_LARGE,
                    () -> transaction.put(map, bytes("a"), new byte[100_000]));
        }
        assertThrows(IllegalArgumentException.class, () -> TransactionOptions.DEFAULT.bytesMax(0));
        assertThrows(IllegalArgumentException.class,
                () -> TransactionOptions.DEFAULT.lockTimeout(Duration.ofMillis(-1)));
    }

    @Test
    void aDeadlockEnds() throws Exception {
        TransactionOptions patient = TransactionOptions.DEFAULT.lockTimeout(Duration.ofSeconds(60));
        try (Store store = open(); Keyspace map = store.keyspace("map");
                ExecutorService threads = Executors.newFixedThreadPool(2)) {
            CyclicBarrier both = new CyclicBarrier(2);
            List<Future<SituException.Kind>> ends = new ArrayList<>();
            for (String[] keys : new String[][] {{"a", "b"}, {"b", "a"}}) {
                ends.add(threads.submit(() -> {
                    try (Transaction transaction = store.begin(patient)) {
                        transaction.lock(map, bytes(keys[0]));
                        both.await();
                        transaction.lock(map, bytes(keys[1]));
                        return null;
                    } catch (SituException failed) {
                        return failed.kind();
                    }
                }));
            }
            List<SituException.Kind> kinds = new ArrayList<>();
            for (Future<SituException.Kind> end : ends) {
                kinds.add(end.get());
            }
            assertTrue(kinds.contains(SituException.Kind.DEADLOCK), kinds.toString());
            assertTrue(kinds.contains(null), kinds.toString());
        }
    }

    @Test
    void commitsCanBeAsynchronous() {
        try (Store store = open(); Keyspace map = store.keyspace("map"); Transaction transaction = store.begin();
                Transaction late = store.begin(TransactionOptions.DEFAULT.optimistic())) {
            late.put(map, bytes("a"), bytes("late"));
            transaction.put(map, bytes("a"), bytes("a"));
            transaction.commitAsync().join();
            assertThrows(IllegalStateException.class, transaction::commitAsync);
            Throwable failed = late.commitAsync().exceptionNow();
            assertEquals(SituException.Kind.CONFLICT, ((SituException) failed).kind());
            assertEquals("a=a", texts(map.iterator()));
        }
    }

    @Test
    void transactRunsAgainWhileOthersAreInTheWay() {
        try (Store store = open(); Keyspace map = store.keyspace("map")) {
            AtomicInteger runs = new AtomicInteger();
            // The function hides the error of the store behind one of its own.
            String result = store.transact(AT_ONCE, transaction -> {
                Transaction blocker = runs.get() < 2 ? store.begin() : null;
                try {
                    if (blocker != null) {
                        blocker.lock(map, bytes("a"));
                    }
                    runs.incrementAndGet();
                    transaction.put(map, bytes("a"), bytes("run " + runs));
                } catch (SituException failed) {
                    throw new IllegalArgumentException("hidden", failed);
                } finally {
                    if (blocker != null) {
                        blocker.close();
                    }
                }
                return "done";
            });
            assertEquals("done", result);
            assertEquals(3, runs.get());
            assertEquals("run 3", text(map.get(bytes("a"))));
        }
    }

    @Test
    void transactThrowsWhatTheFunctionThrows() {
        try (Store store = open(); Keyspace map = store.keyspace("map")) {
            AtomicInteger runs = new AtomicInteger();
            IllegalArgumentException own = new IllegalArgumentException("own");
            assertSame(own, assertThrows(IllegalArgumentException.class, () -> store.transact(transaction -> {
                runs.incrementAndGet();
                transaction.put(map, bytes("a"), bytes("a"));
                throw own;
            })));
            assertThrows(StackOverflowError.class, () -> store.transact(transaction -> {
                transaction.put(map, bytes("a"), bytes("a"));
                throw new StackOverflowError();
            }));
            // A failure that a savepoint took back does not count.
            assertSame(own, assertThrows(IllegalArgumentException.class, () -> store.transact(AT_ONCE, transaction -> {
                runs.incrementAndGet();
                try (Transaction blocker = store.begin()) {
                    blocker.lock(map, bytes("b"));
                    transaction.setSavepoint();
                    assertThrows(SituException.class, () -> transaction.lock(map, bytes("b")));
                    transaction.rollbackToSavepoint();
                    throw own;
                }
            })));
            assertEquals(2, runs.get());
            assertFalse(map.contains(bytes("a")));
        }
    }

    @Test
    void transactGivesUp() {
        try (Store store = open(); Keyspace map = store.keyspace("map"); Transaction blocker = store.begin()) {
            blocker.lock(map, bytes("a"));
            AtomicInteger runs = new AtomicInteger();
            assertKind(SituException.Kind.LOCK_TIMEOUT, () -> store.transact(AT_ONCE, transaction -> {
                runs.incrementAndGet();
                transaction.lock(map, bytes("a"));
                return null;
            }));
            assertEquals(100, runs.get());
        }
    }

    @ParameterizedTest
    @EnumSource(TransactionKind.class)
    void transfersKeepTheSum(TransactionKind kind) throws Exception {
        int accounts = 5;
        int threads = 4;
        int transfers = 60;
        TransactionOptions options = kind == TransactionKind.OPTIMISTIC
                ? TransactionOptions.DEFAULT.optimistic() : TransactionOptions.DEFAULT;
        try (Store store = open(); Keyspace map = store.keyspace("map")) {
            for (int account = 0; account < accounts; account++) {
                map.put(new byte[] {(byte) account}, bytes("100"));
            }
            List<Callable<Void>> works = new ArrayList<>();
            for (int thread = 0; thread < threads; thread++) {
                Random random = new Random(thread);
                works.add(() -> {
                    for (int i = 0; i < transfers; i++) {
                        byte[] from = {(byte) random.nextInt(accounts)};
                        byte[] to = {(byte) random.nextInt(accounts)};
                        int amount = random.nextInt(10);
                        store.transact(options, transaction -> {
                            add(transaction, map, from, -amount);
                            add(transaction, map, to, amount);
                            return null;
                        });
                        try (Snapshot snapshot = store.snapshot()) {
                            assertEquals(100 * accounts, sum(map, ReadOptions.DEFAULT.at(snapshot)));
                        }
                    }
                    return null;
                });
            }
            try (ExecutorService executor = Executors.newFixedThreadPool(threads)) {
                for (Future<Void> work : executor.invokeAll(works)) {
                    work.get();
                }
            }
            assertEquals(100 * accounts, sum(map, ReadOptions.DEFAULT));
            assertEquals(0, store.property("locks"));
        }
    }

    private static void add(Transaction transaction, Keyspace map, byte[] account, int amount) {
        int balance = Integer.parseInt(text(transaction.getForUpdate(map, account)));
        transaction.put(map, account, bytes(Integer.toString(balance + amount)));
    }

    private static int sum(Keyspace map, ReadOptions options) {
        try (var stream = map.stream(options)) {
            return stream.mapToInt(entry -> Integer.parseInt(text(entry.value()))).sum();
        }
    }
}
