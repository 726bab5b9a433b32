package io.situ.client;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.BooleanSupplier;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Deadlines, broken connections, bounded queues, and servers that break the format. */
@Timeout(120)
class FailureTest {
    private static final byte[] VALUE = "value".getBytes(UTF_8);

    private static Throwable failure(CompletableFuture<?> future) {
        return assertThrows(CompletionException.class, future::join).getCause();
    }

    private static void eventually(BooleanSupplier condition) {
        long end = System.nanoTime() + 20_000_000_000L;
        while (!condition.getAsBoolean()) {
            assertTrue(System.nanoTime() < end, "this does not come true");
            TestServer.pause(20);
        }
    }

    private static boolean works(SituClient client) {
        try {
            client.set("probe", VALUE, 0);
            return true;
        } catch (SituException notYet) {
            return false;
        }
    }

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void aServerThatStopsCostsNoMoreThanTheDeadline(boolean rings) throws Exception {
        try (TestServer server = TestServer.memcached(true);
                RingBridge bridge = new RingBridge(server.address(), RingBridge.Way.GOOD, 65536, 0);
                SituClient client = SituClient.builder()
                        .servers(List.of(rings ? bridge.address() : server.address()))
                        .timeout(Duration.ofMillis(200)).build()) {
            client.withTimeout(Duration.ofSeconds(10)).set("key", VALUE, 0);
            server.signal("STOP");
            long begin = System.nanoTime();
            assertThrows(DeadlineException.class, () -> client.get("key"));
            assertThrows(DeadlineException.class, () -> client.set("key", new byte[500_000], 0));
            CompletableFuture<byte[]> first = client.async().get("key");
            assertInstanceOf(DeadlineException.class, failure(first));
            assertTrue(System.nanoTime() - begin >= 600_000_000L);
            server.signal("CONT");
            SituClient patient = client.withTimeout(Duration.ofSeconds(10));
            assertArrayEquals(VALUE, patient.get("key"), "the value that was sent in part is not stored");
            assertArrayEquals(VALUE, patient.async().get("key").join());
        }
    }

    @Test
    void manyCallsInVainTakeAServerOutOfService() throws Exception {
        try (TestServer server = TestServer.memcached(false);
                SituClient client = SituClient.builder().servers(List.of(server.address()))
                        .timeout(Duration.ofMillis(50)).connectTimeout(Duration.ofMillis(50)).build()) {
            eventually(() -> works(client));
            server.signal("STOP");
            eventually(() -> assertThrows(SituException.class, () -> client.get("key"))
                    instanceof UnavailableException);
            server.signal("CONT");
            eventually(() -> works(client));
        }
    }

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void keysOfADeadServerGoToAnotherOne(boolean failover) throws Exception {
        try (TestServer one = TestServer.memcached(false); TestServer two = TestServer.memcached(false);
                SituClient client = SituClient.builder().servers(List.of(one.address(), two.address()))
                        .timeout(Duration.ofSeconds(10)).failover(failover).build()) {
            AsyncSituClient async = client.async();
            List<String> keys = new ArrayList<>();
            for (int i = 0; i < 100; i++) {
                keys.add("key-" + i);
                client.set("key-" + i, VALUE, 0);
            }
            long ofOne = keys.stream().filter(key -> client.serverOf(key).equals(one.address())).count();
            assertTrue(ofOne > 20 && ofOne < 80, "keys are spread: " + ofOne);
            String key = keys.stream().filter(any -> client.serverOf(any).equals(one.address())).findFirst().get();
            assertEquals(100, async.getAll(keys).join().size());
            one.kill();
            if (failover) {
                assertNull(client.get(key));
                assertEquals(100 - ofOne, client.getAll(keys).size());
                assertEquals(100 - ofOne, async.getAll(keys).join().size());
                async.set(key, VALUE, 0).join();
                assertArrayEquals(VALUE, client.get(key));
            } else {
                assertThrows(UnavailableException.class, () -> client.get(key));
                assertThrows(UnavailableException.class, () -> client.getAll(keys));
                assertInstanceOf(UnavailableException.class, failure(async.get(key)));
                assertInstanceOf(UnavailableException.class, failure(async.getAll(keys)));
            }
            assertThrows(UnavailableException.class, client::flush);
            one.start();
            try (SituClient direct = SituClient.builder().servers(List.of(one.address())).build()) {
                eventually(() -> {
                    try {
                        client.set(key, VALUE, 0);
                    } catch (UnavailableException backOff) {
                        return false;
                    }
                    return direct.get(key) != null;
                });
            }
        }
    }

    @Test
    void theFirstAsynchronousCallAfterADeathFindsAnotherServer() throws Exception {
        try (TestServer one = TestServer.memcached(false); TestServer two = TestServer.memcached(false);
                SituClient client = SituClient.builder().servers(List.of(one.address(), two.address()))
                        .timeout(Duration.ofSeconds(10)).build()) {
            one.kill();
            for (int i = 0; i < 20; i++) {
                client.async().set("key-" + i, VALUE, 0).join();
                assertArrayEquals(VALUE, client.async().get("key-" + i).join());
            }
        }
    }

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void aConnectionThatEndedIsReplaced(boolean idle) throws Exception {
        try (TestServer server = TestServer.memcached(true);
                RingBridge bridge = new RingBridge(server.address(), RingBridge.Way.GOOD, 65536, 0);
                SituClient client = SituClient.builder().servers(List.of(bridge.address()))
                        .timeout(Duration.ofSeconds(10)).build()) {
            client.set("key", VALUE, 0);
            client.async().set("key", VALUE, 0).join();
            bridge.cut();
            if (idle) {
                TestServer.pause(700);
                client.set("key", VALUE, 0);
            } else {
                assertArrayEquals(VALUE, client.get("key"), "a retrieval is repeated");
            }
            eventually(() -> {
                try {
                    return client.async().get("key").join() != null;
                } catch (CompletionException lost) {
                    return false;
                }
            });
            assertTrue(bridge.rings.get() >= 3, "connections: " + bridge.rings);
        }
    }

    @Test
    void theQueueIsBounded() throws Exception {
        try (TestServer server = TestServer.memcached(false);
                SituClient client = SituClient.builder().servers(List.of(server.address()))
                        .queue(10, 1_000_000).timeout(Duration.ofSeconds(20)).build()) {
            AsyncSituClient async = client.async();
            async.set("key", VALUE, 0).join();
            server.signal("STOP");
            List<CompletableFuture<byte[]>> futures = new ArrayList<>();
            for (int i = 0; i < 30; i++) {
                futures.add(async.get("key"));
            }
            long full = futures.stream().filter(CompletableFuture::isCompletedExceptionally).count();
            assertEquals(20, full);
            assertInstanceOf(QueueFullException.class, failure(futures.get(29)));
            server.signal("CONT");
            for (CompletableFuture<byte[]> future : futures.subList(0, 10)) {
                assertArrayEquals(VALUE, future.join());
            }
            server.signal("STOP");
            List<CompletableFuture<Void>> sets = new ArrayList<>();
            for (int i = 0; i < 3; i++) {
                sets.add(async.set("large", new byte[400_000], 0));
            }
            assertInstanceOf(QueueFullException.class, failure(sets.get(2)));
            server.signal("CONT");
            sets.get(0).join();
            sets.get(1).join();
            eventually(() -> async.get("key").join() != null);
        }
    }

    @ParameterizedTest
    @EnumSource(value = RingBridge.Way.class,
            names = {"NO_DESCRIPTOR", "BAD_MAGIC", "SHORT_MEMORY", "BAD_SIZE", "SILENT", "ERROR", "SERVER_ERROR"})
    void aServerThatDoesNotGreetAsItShould(RingBridge.Way way) throws Exception {
        try (TestServer server = TestServer.memcached(true);
                RingBridge bridge = new RingBridge(server.address(), way, 65536, 0);
                SituClient any = SituClient.builder().servers(List.of(bridge.address()))
                        .connectTimeout(Duration.ofMillis(way == RingBridge.Way.SILENT ? 300 : 5000))
                        .timeout(Duration.ofSeconds(10)).build();
                SituClient strict = SituClient.builder().servers(List.of(bridge.address()))
                        .transport(TransportChoice.SHARED_MEMORY)
                        .connectTimeout(Duration.ofMillis(way == RingBridge.Way.SILENT ? 300 : 5000))
                        .timeout(Duration.ofSeconds(10)).build()) {
            assertThrows(UnavailableException.class, () -> strict.set("key", VALUE, 0));
            if (way == RingBridge.Way.ERROR || way == RingBridge.Way.SERVER_ERROR) {
                any.set("key", VALUE, 0);
                assertEquals(TransportKind.UNIX_SOCKET, any.transports().get(bridge.address()));
            } else {
                assertThrows(UnavailableException.class, () -> any.set("key", VALUE, 0));
            }
        }
    }

    @ParameterizedTest
    @EnumSource(value = RingBridge.Way.class, names = {"BREACH_WRITTEN", "BREACH_READ", "CLOSE_ON_REQUEST"})
    void aServerThatBreaksTheFormatLosesItsConnection(RingBridge.Way way) throws Exception {
        try (TestServer server = TestServer.memcached(true);
                RingBridge bridge = new RingBridge(server.address(), way, 4096, 0);
                SituClient client = SituClient.builder().servers(List.of(bridge.address()))
                        .timeout(Duration.ofSeconds(10)).build()) {
            // A breach of the count of bytes read shows when the ring has been full.
            SituException blocking =
                    assertThrows(SituException.class, () -> client.set("key", new byte[100_000], 0));
            assertFalse(blocking instanceof DeadlineException, () -> "it is found at once: " + blocking);
            Throwable later = failure(client.async().set("key", new byte[100_000], 0));
            assertInstanceOf(SituException.class, later);
            assertFalse(later instanceof DeadlineException, () -> "it is found at once: " + later);
        }
    }

    @Test
    void aRingThatNoOneReadsIsADeadline() throws Exception {
        try (TestServer server = TestServer.memcached(true);
                RingBridge bridge = new RingBridge(server.address(), RingBridge.Way.STALL, 4096, 0);
                SituClient client = SituClient.builder().servers(List.of(bridge.address()))
                        .timeout(Duration.ofMillis(300)).connectTimeout(Duration.ofSeconds(5)).build()) {
            assertThrows(SituException.class, () -> client.set("key", new byte[100_000], 0));
            assertInstanceOf(DeadlineException.class, failure(client.async().set("key", new byte[100_000], 0)));
        }
    }

    @Test
    void bothSidesWakeEachOther() throws Exception {
        try (TestServer server = TestServer.memcached(true);
                RingBridge bridge = new RingBridge(server.address(), RingBridge.Way.GOOD, 4096, 0);
                SituClient client = SituClient.builder().servers(List.of(bridge.address()))
                        .timeout(Duration.ofSeconds(20)).build()) {
            byte[] large = new byte[500_000];
            new Random(1).nextBytes(large);
            for (int i = 0; i < 20; i++) {
                client.set("large", large, 0);
                assertArrayEquals(large, client.get("large"));
                TestServer.pause(2);
            }
            assertTrue(bridge.bellsReceived.get() > 0, "the server slept");
            server.signal("STOP");
            CompletableFuture<byte[]> later = client.async().get("large");
            TestServer.pause(200);
            server.signal("CONT");
            assertArrayEquals(large, later.join());
            assertTrue(bridge.bellsSent.get() > 0, "the client slept");
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"situ", "bridge"})
    void usersAuthenticate(String by) throws Exception {
        Path file = Files.createTempFile("situ-users", "");
        Files.writeString(file, "user:secret\n");
        try (TestServer server = by.equals("situ") ? TestServer.situ(true, "--auth-file", file.toString())
                        : TestServer.memcached(true);
                RingBridge bridge = new RingBridge(server.address(), RingBridge.Way.GOOD, 65536, 0)) {
            ServerAddress address = by.equals("situ") ? server.address() : bridge.address();
            SituClient.Builder builder = SituClient.builder().servers(List.of(address)).timeout(Duration.ofSeconds(10));
            if (by.equals("situ")) {
                builder.transport(TransportChoice.SOCKET);
                try (SituClient client = builder.build()) {
                    assertThrows(UnavailableException.class, () -> client.set("key", VALUE, 0));
                }
            }
            try (SituClient client = builder.user("user", "wrong").build()) {
                assertThrows(UnavailableException.class, () -> client.set("key", VALUE, 0));
            }
            try (SituClient client = builder.user("user", "secret").build()) {
                client.set("key", VALUE, 0);
                assertArrayEquals(VALUE, client.async().get("key").join());
            }
        } finally {
            Files.delete(file);
        }
    }

    @Test
    void aClosedClientRefusesCalls() throws Exception {
        try (TestServer server = TestServer.memcached(false)) {
            SituClient client = SituClient.builder().servers(List.of(server.address()))
                    .timeout(Duration.ofSeconds(20)).build();
            client.set("key", VALUE, 0);
            client.async().set("key", VALUE, 0).join();
            server.signal("STOP");
            CompletableFuture<byte[]> pending = client.async().get("key");
            client.close();
            assertInstanceOf(IllegalStateException.class, failure(pending));
            assertThrows(IllegalStateException.class, () -> client.get("key"));
            assertInstanceOf(IllegalStateException.class, failure(client.async().get("key")));
            server.signal("CONT");
        }
    }

    @Test
    void aSegmentThatIsClosedFailsItsOwnCall() throws Exception {
        try (TestServer server = TestServer.memcached(true);
                SituClient client = SituClient.builder().servers(List.of(server.address()))
                        .timeout(Duration.ofSeconds(20)).build()) {
            MemorySegment closed;
            try (Arena arena = Arena.ofShared()) {
                closed = arena.allocate(1000);
            }
            assertThrows(IllegalStateException.class, () -> client.set("key", closed, 0, 0));
            assertInstanceOf(SituException.class, failure(client.async().set("key", closed, 0, 0)));
            try (Arena confined = Arena.ofConfined()) {
                MemorySegment own = confined.allocate(1000);
                assertInstanceOf(SituException.class, failure(client.async().set("key", own, 0, 0)));
            }
            eventually(() -> works(client));
            assertArrayEquals(VALUE, client.async().get("probe").join());
        }
    }

    @Test
    void aServerThatWasKilledIsFoundAgain() throws Exception {
        try (TestServer server = TestServer.situ(true);
                SituClient client = SituClient.builder().servers(List.of(server.address()))
                        .timeout(Duration.ofSeconds(10)).build()) {
            server.requireSharedMemory();
            for (int round = 0; round < 3; round++) {
                client.set("key", VALUE, 0);
                assertEquals(TransportKind.SHARED_MEMORY, client.transports().get(server.address()));
                assertArrayEquals(VALUE, client.async().get("key").join());
                server.kill();
                assertThrows(UnavailableException.class, () -> client.get("key"));
                assertInstanceOf(UnavailableException.class, failure(client.async().get("key")));
                server.start();
                eventually(() -> works(client));
            }
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"socket", "bridge", "situ"})
    void manyThreadsShareFewConnections(String by) throws Exception {
        boolean rings = by.equals("bridge");
        try (TestServer server = by.equals("situ") ? TestServer.situ(true) : TestServer.memcached(true);
                RingBridge bridge = new RingBridge(server.address(), RingBridge.Way.GOOD, 16384, 0);
                SituClient client = SituClient.builder()
                        .servers(List.of(rings ? bridge.address() : server.address()))
                        .connections(2).timeout(Duration.ofSeconds(60)).build()) {
            AtomicReference<Throwable> wrong = new AtomicReference<>();
            AtomicInteger done = new AtomicInteger();
            List<Thread> threads = new ArrayList<>();
            for (int t = 0; t < 6; t++) {
                int id = t;
                threads.add(Thread.ofPlatform().start(() -> {
                    Random random = new Random(id);
                    try {
                        for (int i = 0; i < 200; i++) {
                            byte[] value = new byte[random.nextInt(20_000)];
                            random.nextBytes(value);
                            String key = "key-" + id + "-" + random.nextInt(5);
                            if (random.nextBoolean()) {
                                client.set(key, value, 0);
                                assertArrayEquals(value, client.get(key));
                            } else {
                                client.async().set(key, value, 0).join();
                                assertArrayEquals(value, client.async().get(key).join());
                            }
                            done.incrementAndGet();
                        }
                    } catch (Throwable thrown) {
                        wrong.compareAndSet(null, thrown);
                    }
                }));
            }
            for (Thread thread : threads) {
                thread.join();
            }
            assertNull(wrong.get(), () -> "" + wrong.get());
            assertEquals(1200, done.get());
            assertFalse(rings && bridge.rings.get() > 3, "connections: " + bridge.rings);
        }
    }
}
