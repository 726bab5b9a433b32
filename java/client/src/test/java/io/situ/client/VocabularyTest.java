package io.situ.client;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** All commands, blocking and asynchronous, by every transport, to memcached and to Situ. */
class VocabularyTest {
    enum Place {
        MEMCACHED_TCP(TransportKind.TCP),
        MEMCACHED_UNIX(TransportKind.UNIX_SOCKET),
        MEMCACHED_BRIDGE(TransportKind.SHARED_MEMORY),
        MEMCACHED_SMALL_RING(TransportKind.SHARED_MEMORY),
        SITU_TCP(TransportKind.TCP),
        SITU_UNIX(TransportKind.UNIX_SOCKET),
        SITU_BRIDGE(TransportKind.SHARED_MEMORY),
        SITU_SHARED_MEMORY(TransportKind.SHARED_MEMORY);

        final TransportKind kind;

        Place(TransportKind kind) {
            this.kind = kind;
        }
    }

    private static final class Opened implements AutoCloseable {
        final TestServer server;
        final RingBridge bridge;
        final SituClient client;

        Opened(Place place) throws Exception {
            boolean unix = place.kind != TransportKind.TCP;
            boolean situ = place.name().startsWith("SITU");
            server = situ ? TestServer.situ(unix) : TestServer.memcached(unix);
            boolean small = place == Place.MEMCACHED_SMALL_RING;
            bridge = place.kind != TransportKind.SHARED_MEMORY || place == Place.SITU_SHARED_MEMORY ? null
                    : new RingBridge(server.address(), RingBridge.Way.GOOD, small ? 4096 : 1 << 20, small ? 0 : 50_000);
            SituClient.Builder builder = SituClient.builder()
                    .servers(List.of(bridge == null ? server.address() : bridge.address()))
                    .timeout(java.time.Duration.ofSeconds(10));
            if (place.kind == TransportKind.UNIX_SOCKET) {
                builder.transport(TransportChoice.SOCKET);
            }
            client = builder.build();
            if (place == Place.SITU_SHARED_MEMORY) {
                server.requireSharedMemory();
            }
        }

        @Override
        public void close() throws Exception {
            client.close();
            if (bridge != null) {
                bridge.close();
            }
            server.close();
        }
    }

    private static byte[] bytes(String text) {
        return text.getBytes(UTF_8);
    }

    @ParameterizedTest
    @EnumSource(Place.class)
    void blocking(Place place) throws Exception {
        try (Opened opened = new Opened(place)) {
            SituClient client = opened.client;
            assertNull(client.get("a"));
            client.set("a", bytes("one"), 0, 7);
            assertArrayEquals(bytes("one"), client.get("a"));
            assertEquals(Map.of(opened.client.serverOf("a"), place.kind), client.transports());
            Item item = client.gets("a");
            assertEquals(7, item.flags());
            assertEquals(CasResult.STORED, client.cas("a", bytes("two"), item.cas(), 0, -1));
            assertEquals(CasResult.EXISTS, client.cas("a", bytes("three"), item.cas(), 0, 0));
            assertEquals(CasResult.NOT_FOUND, client.cas("none", bytes("three"), item.cas(), 0, 0));
            assertEquals(-1, client.gets("a").flags());
            assertFalse(client.add("a", bytes("x"), 0, 0));
            assertTrue(client.add("b", bytes("x"), 0, 0));
            assertTrue(client.replace("b", bytes("y"), 0, 1));
            assertFalse(client.replace("c", bytes("y"), 0, 0));
            assertTrue(client.append("b", bytes("z")));
            assertTrue(client.prepend("b", bytes("x")));
            assertFalse(client.append("c", bytes("z")));
            assertFalse(client.prepend("c", bytes("z")));
            assertArrayEquals(bytes("xyz"), client.get("b"));
            assertTrue(client.delete("b"));
            assertFalse(client.delete("b"));
            client.set("n", bytes("10"), 0);
            assertEquals(OptionalLong.of(15), client.incr("n", 5));
            assertEquals(OptionalLong.of(0), client.decr("n", 20));
            assertEquals(OptionalLong.of(-1), client.incr("n", -1), "2^64 - 1");
            assertEquals(OptionalLong.of(0), client.incr("n", 1), "it wraps around");
            assertEquals(OptionalLong.empty(), client.incr("c", 1));
            assertThrows(ServerErrorException.class, () -> client.incr("a", 1));
            assertTrue(client.touch("a", 100));
            assertFalse(client.touch("c", 100));
            assertArrayEquals(bytes("two"), client.gat("a", Expiry.after(java.time.Duration.ofDays(60))).value());
            assertNull(client.gat("c", 1));
            assertArrayEquals(bytes("two"), client.get("a"));
            assertTrue(client.touch("a", -1));
            assertNull(client.get("a"), "expired at once");
            client.set("empty", new byte[0], 0);
            assertEquals(0, client.get("empty").length);
            client.set("schlüssel", bytes("wert"), 0);
            assertArrayEquals(bytes("wert"), client.get("schlüssel"));
            client.set("k".repeat(250), bytes("long"), 0);
            assertArrayEquals(bytes("long"), client.get("k".repeat(250)));
            for (String key : List.of("", "a b", "a\r\nflush_all", "k".repeat(251), "ü".repeat(126))) {
                assertThrows(IllegalArgumentException.class, () -> client.get(key));
            }
            Map<String, byte[]> all = new HashMap<>();
            for (int i = 0; i < 200; i++) {
                all.put("many-" + i, bytes("value " + i));
                client.set("many-" + i, all.get("many-" + i), 0);
            }
            List<String> keys = new ArrayList<>(all.keySet());
            keys.add("missing");
            keys.add("many-0");
            Map<String, byte[]> found = client.getAll(keys);
            assertEquals(all.keySet(), found.keySet());
            all.forEach((key, value) -> assertArrayEquals(value, found.get(key)));
            assertTrue(client.getsAll(keys).get("many-3").cas() != 0);
            assertTrue(client.getAll(List.of()).isEmpty());
            assertTrue(client.version().values().iterator().next().startsWith("1."));
            assertTrue(client.stats().values().iterator().next().containsKey("curr_items"));
            assertTrue(client.stats("settings").values().iterator().next().containsKey("maxbytes"));
            client.flush();
            assertNull(client.get("many-0"));
            client.flush(100);
        }
    }

    @ParameterizedTest
    @EnumSource(Place.class)
    void asynchronous(Place place) throws Exception {
        try (Opened opened = new Opened(place)) {
            AsyncSituClient client = opened.client.async();
            assertNull(client.get("a").join());
            client.set("a", bytes("one"), 0, 7).join();
            assertArrayEquals(bytes("one"), client.get("a").join());
            Item item = client.gets("a").join();
            assertEquals(7, item.flags());
            assertEquals(CasResult.STORED, client.cas("a", bytes("two"), item.cas(), 0, 0).join());
            assertFalse(client.add("a", bytes("x"), 0, 0).join());
            assertTrue(client.replace("a", bytes("y"), 0, 0).join());
            assertTrue(client.append("a", bytes("z")).join());
            assertTrue(client.prepend("a", bytes("x")).join());
            assertArrayEquals(bytes("xyz"), client.gat("a", 0).join().value());
            assertTrue(client.touch("a", 100).join());
            assertTrue(client.delete("a").join());
            client.set("n", bytes("10"), 0).join();
            assertEquals(OptionalLong.of(15), client.incr("n", 5).join());
            assertEquals(OptionalLong.of(0), client.decr("n", 20).join());
            client.set("text", bytes("text"), 0).join();
            CompletionException refused =
                    assertThrows(CompletionException.class, () -> client.incr("text", 1).join());
            assertEquals(ServerErrorException.class, refused.getCause().getClass());
            List<CompletableFuture<Void>> sets = new ArrayList<>();
            for (int i = 0; i < 1000; i++) {
                sets.add(client.set("many-" + i, bytes("value " + i), 0));
            }
            List<CompletableFuture<byte[]>> gets = new ArrayList<>();
            for (int i = 0; i < 1000; i++) {
                gets.add(client.get("many-" + i));
            }
            sets.forEach(CompletableFuture::join);
            for (int i = 0; i < 1000; i++) {
                assertArrayEquals(bytes("value " + i), gets.get(i).join());
            }
            List<String> keys = new ArrayList<>();
            for (int i = 0; i < 300; i++) {
                keys.add("many-" + i);
            }
            keys.add("missing");
            assertEquals(300, client.getAll(keys).join().size());
            assertEquals(300, client.getsAll(keys).join().size());
            assertTrue(client.version().join().values().iterator().next().startsWith("1."));
            assertTrue(client.stats().join().values().iterator().next().containsKey("curr_items"));
            client.flush().join();
            assertNull(client.get("many-0").join());
        }
    }

    @ParameterizedTest
    @EnumSource(Place.class)
    void valuesOfAllLengths(Place place) throws Exception {
        try (Opened opened = new Opened(place); Arena arena = Arena.ofShared()) {
            SituClient client = opened.client;
            AsyncSituClient async = client.async();
            Random random = new Random(7);
            List<CompletableFuture<?>> pending = new ArrayList<>();
            for (int length : new int[] {0, 1, 100, 4000, 4095, 4096, 4097, 16384, 65535, 262144, 300_001, 1_000_000}) {
                byte[] value = new byte[length];
                random.nextBytes(value);
                byte[] key = bytes("length-" + length);
                client.set(key, value, 0, 0);
                assertArrayEquals(value, client.get("length-" + length));
                byte[] place1 = new byte[length + 3];
                assertEquals(length, client.get(key, place1));
                assertArrayEquals(value, Arrays.copyOf(place1, length));
                byte[] part = new byte[length / 2];
                assertEquals(length, client.get(key, part));
                assertArrayEquals(Arrays.copyOf(value, length / 2), part);

                MemorySegment segment = arena.allocateFrom(ValueLayout.JAVA_BYTE, value);
                client.set("segment", segment, 0, 0);
                MemorySegment destination = arena.allocate(length + 1);
                assertEquals(length, client.get("segment", destination));
                assertEquals(-1, destination.asSlice(0, length).mismatch(segment));
                byte[] heap = new byte[length];
                assertEquals(length, client.get("segment", MemorySegment.ofArray(heap)));
                assertArrayEquals(value, heap);
                client.set("segment", MemorySegment.ofArray(heap), 0, 0);
                assertEquals(SituClient.MISS, client.get("missing", destination));

                pending.add(async.set("async-" + length, segment, 0, 0));
                pending.add(async.get("async-" + length).thenAccept(got -> assertArrayEquals(value, got)));
                MemorySegment later = arena.allocate(length / 2 + 1);
                pending.add(async.get("async-" + length, later).thenAccept(got -> {
                    assertEquals(length, got);
                    assertEquals(-1, later.asSlice(0, length / 2).mismatch(segment.asSlice(0, length / 2)));
                }));
            }
            pending.forEach(CompletableFuture::join);
            assertThrows(ServerErrorException.class, () -> client.set("large", new byte[8 << 20], 0));
            client.set("after", bytes("works"), 0);
            assertArrayEquals(bytes("works"), client.get("after"));
        }
    }
}
