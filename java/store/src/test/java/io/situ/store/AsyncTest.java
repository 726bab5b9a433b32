package io.situ.store;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;

class AsyncTest extends StoreTest {
    @Test
    void everyCallHasAFuture() {
        try (Store store = open(); Keyspace map = store.keyspace("map"); Batch batch = new Batch()) {
            map.putAsync(bytes("a"), bytes("1")).join();
            map.putAsync(bytes("b"), bytes("2"), Durability.SYNCED).join();
            map.putAsync(bytes("c"), new byte[300_000], Durability.BUFFERED).join();
            assertEquals("1", text(map.getAsync(bytes("a")).join()));
            assertEquals(300_000, map.getAsync(bytes("c")).join().length);
            assertNull(map.getAsync(bytes("none")).join());
            try (Snapshot before = store.snapshot()) {
                map.deleteAsync(bytes("a")).join();
                map.deleteAsync(bytes("c"), Durability.SYNCED).join();
                assertEquals("1", text(map.getAsync(bytes("a"), ReadOptions.DEFAULT.at(before)).join()));
            }
            batch.put(map, bytes("d"), bytes("4")).delete(map, bytes("b"));
            CompletableFuture<Void> written = store.writeAsync(batch, Durability.SYNCED);
            assertEquals(0, batch.size());
            written.join();
            assertEquals("d=4", texts(map.iterator()));
            store.writeAsync(batch.delete(map, bytes("d"))).join();
            assertEquals("", texts(map.iterator()));
        }
    }

    @Test
    void thousandsAreUnderWay() {
        try (Store store = open(); Keyspace map = store.keyspace("map")) {
            List<CompletableFuture<Void>> writes = new ArrayList<>();
            for (int i = 0; i < 5000; i++) {
                writes.add(map.putAsync(bytes("key " + i), bytes("value " + i), Durability.SYNCED));
            }
            CompletableFuture.allOf(writes.toArray(CompletableFuture[]::new)).join();
            List<CompletableFuture<byte[]>> reads = IntStream.range(0, 5000)
                    .mapToObj(i -> map.getAsync(bytes("key " + i))).toList();
            for (int i = 0; i < 5000; i++) {
                assertEquals("value " + i, text(reads.get(i).join()));
            }
        }
    }

    /** A dependent on the library's thread would wait for the completion that this very thread has to deliver. */
    @Test
    void dependentsMayWaitForOtherCalls() throws Exception {
        try (Store store = open(); Keyspace map = store.keyspace("map")) {
            List<CompletableFuture<String>> chains = new ArrayList<>();
            for (int i = 0; i < 200; i++) {
                byte[] key = bytes("key " + i);
                chains.add(map.putAsync(key, key, Durability.SYNCED).thenApply(nothing -> {
                    map.putAsync(key, bytes("again"), Durability.SYNCED).join();
                    return text(map.getAsync(key).join());
                }));
            }
            for (CompletableFuture<String> chain : chains) {
                assertEquals("again", chain.get(60, TimeUnit.SECONDS));
            }
        }
    }

    /** Each dependent waits for a thread, and this for another call. A pool with a bound had no thread for the call. */
    @Test
    void dependentsMayWaitForOtherThreads() throws Exception {
        try (Store store = open(); Keyspace map = store.keyspace("map");
                ExecutorService others = Executors.newCachedThreadPool()) {
            byte[] key = bytes("key");
            List<CompletableFuture<Boolean>> chains = new ArrayList<>();
            for (int i = 0; i < 100; i++) {
                chains.add(map.putAsync(key, key, Durability.SYNCED).thenApply(nothing -> {
                    try {
                        return others.submit(() -> map.putAsync(key, key, Durability.SYNCED).join() == null)
                                .get(20, TimeUnit.SECONDS);
                    } catch (ExecutionException | InterruptedException | TimeoutException failed) {
                        throw new CompletionException(failed);
                    }
                }));
            }
            for (CompletableFuture<Boolean> chain : chains) {
                assertTrue(chain.get(60, TimeUnit.SECONDS));
            }
        }
    }

    /** Each call begins in the dependent of the one before. The stack ended in a completion, and so did the process. */
    @Test
    void callsAreALoop() throws Exception {
        try (Store store = open(); Keyspace map = store.keyspace("map")) {
            assertEquals(50_000, puts(map, 0, 50_000).get(60, TimeUnit.SECONDS));
        }
    }

    private static CompletableFuture<Integer> puts(Keyspace map, int done, int all) {
        return done == all ? CompletableFuture.completedFuture(all)
                : map.putAsync(bytes("key"), bytes("value")).thenCompose(written -> puts(map, done + 1, all));
    }

    @Test
    void dependentsThatThrowDoNoHarm() {
        try (Store store = open(); Keyspace map = store.keyspace("map")) {
            for (int i = 0; i < 100; i++) {
                CompletableFuture<Void> thrown = map.putAsync(bytes("a"), bytes("b"), Durability.SYNCED).thenRun(() -> {
                    throw new IllegalArgumentException("own");
                });
                CompletionException failed = assertThrows(CompletionException.class, thrown::join);
                assertInstanceOf(IllegalArgumentException.class, failed.getCause());
            }
            CompletableFuture<Void> cancelled = map.putAsync(bytes("a"), bytes("b"), Durability.SYNCED);
            cancelled.cancel(true);
            map.putAsync(bytes("c"), bytes("d"), Durability.SYNCED).join();
        }
    }

    @Test
    void errorsCompleteTheFuture() {
        Store store = open();
        try (Keyspace map = store.keyspace("map"); Batch batch = new Batch()) {
            SituException invalid = (SituException) map.putAsync(bytes(""), bytes("")).exceptionNow();
            assertEquals(SituException.Kind.INVALID, invalid.kind());
            assertTrue(invalid.getMessage().contains("key"), invalid.getMessage());
            store.close();
            CompletionException failed =
                    assertThrows(CompletionException.class, () -> map.getAsync(bytes("a")).join());
            assertEquals(SituException.Kind.CLOSED, ((SituException) failed.getCause()).kind());
            assertThrows(CompletionException.class, () -> map.putAsync(bytes("a"), bytes("a")).join());
            assertThrows(IllegalStateException.class, () -> store.writeAsync(batch));
            map.close();
            assertThrows(IllegalStateException.class, () -> map.getAsync(bytes("a")));
        }
    }

    /** A thread that first called Java when the virtual machine had ended brought the process down. */
    @Test
    void theProcessEndsBehindItsFirstCall() throws Exception {
        Process process = java(List.of("-Dsitu.library=" + LibraryFileTest.library()),
                System.getProperty("java.class.path"), LastCall.class.getName(), directory.resolve("store").toString());
        String printed = new String(process.getInputStream().readAllBytes(), UTF_8);
        assertEquals(0, process.waitFor(), printed);
        assertTrue(printed.endsWith("the end waits\n"), printed);
    }

    @Test
    void closingCompletesAllFutures() throws Exception {
        Store store = open();
        Keyspace map = store.keyspace("map");
        List<CompletableFuture<Void>> writes = new ArrayList<>();
        for (int i = 0; i < 2000; i++) {
            writes.add(map.putAsync(bytes("key " + i), bytes("value"), Durability.SYNCED));
        }
        map.close();
        store.close();
        int written = 0;
        for (CompletableFuture<Void> write : writes) {
            try {
                write.get(60, TimeUnit.SECONDS);
                written++;
            } catch (ExecutionException failed) {
                assertEquals(SituException.Kind.CLOSED, ((SituException) failed.getCause()).kind());
            }
        }
        try (Store again = open(); Keyspace same = again.existingKeyspace("map");
                var stream = same.stream(ReadOptions.DEFAULT)) {
            assertTrue(stream.count() >= written);
        }
    }
}
