package io.situ.client;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Date;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;

/** Addresses, expiry times, serialisers and namespaces. */
class NamespaceTest {
    private static SituClient patient(TestServer server) {
        return SituClient.builder().servers(server.address().toString()).timeout(Duration.ofSeconds(10)).build();
    }

    @Test
    void aClearedNamespaceIsEmptyForAllClients() throws Exception {
        try (TestServer server = TestServer.memcached(false); SituClient client = patient(server);
                SituClient other = patient(server)) {
            Namespace mine = new Namespace(client, "users");
            Namespace theirs = new Namespace(other, "users");
            Namespace another = new Namespace(client, "orders");
            List<String> keys = List.of("a", "with space", "ü", "", "#a", "x".repeat(300));
            for (String key : keys) {
                client.set(mine.key(key), key.getBytes(UTF_8), 0);
                assertArrayEquals(key.getBytes(UTF_8), other.get(theirs.key(key)));
            }
            client.set(another.key("a"), new byte[1], 0);
            assertEquals(keys.size(), keys.stream().map(mine::key).distinct().count());
            mine.clear();
            for (String key : keys) {
                assertNull(client.get(mine.key(key)));
            }
            TestServer.pause(1100);
            assertEquals(mine.key("a"), theirs.key("a"));
            assertEquals(1, client.get(another.key("a")).length);
            String before = mine.key("a");
            client.flush();
            TestServer.pause(1100);
            assertNotEquals(before, mine.key("a"), "a lost generation is not used again");
        }
    }

    @Test
    void addressesAreParsed() {
        assertEquals(ServerAddress.tcp("a", 11211), ServerAddress.parse("a"));
        assertEquals(ServerAddress.tcp("a", 1), ServerAddress.parse("a:1"));
        assertEquals(ServerAddress.tcp("::1", 2), ServerAddress.parse("[::1]:2"));
        assertEquals(ServerAddress.tcp("::1", 11211), ServerAddress.parse("[::1]"));
        assertEquals(ServerAddress.unix("/a"), ServerAddress.parse("/a"));
        for (String text : List.of("a:1", "[::1]:2", "unix:/a/b", "127.0.0.1:11211")) {
            assertEquals(text, ServerAddress.parse(text).toString());
        }
        for (String text : List.of("", ":1", "a:0", "a:65536", "a:b", "::1", "unix:a",
                "/" + "x".repeat(107), "[::1]2")) {
            assertThrows(IllegalArgumentException.class, () -> ServerAddress.parse(text), text);
        }
    }

    @Test
    void expiryTimesAreThoseOfMemcached() {
        assertEquals(1, Expiry.after(Duration.ofMillis(1)));
        assertEquals(60, Expiry.after(Duration.ofMinutes(1)));
        assertEquals(2592000, Expiry.after(Duration.ofDays(30)));
        assertEquals(-1, Expiry.after(Duration.ZERO));
        long later = Expiry.after(Duration.ofDays(31)) - Instant.now().getEpochSecond();
        assertTrue(Math.abs(later - 31 * 86400) < 5, "seconds: " + later);
        assertEquals(Expiry.NEVER, Expiry.after(Duration.ofDays(100_000)));
        assertEquals(100, Expiry.at(Instant.now().plusSeconds(100)), 1);
    }

    @Test
    void onlyAllowedClassesAreRead() {
        Serializer<Object> strict = Serializers.java();
        Serializer<Object> open = Serializers.java("io.situ.client.*");
        List<Object> value = new ArrayList<>(List.of("a", 1, Map.of("k", new Date(5)), new long[] {1, 2}));
        List<?> read = (List<?>) strict.deserialize(strict.serialize(value), 0);
        assertEquals(value.subList(0, 3), read.subList(0, 3));
        byte[] own = strict.serialize(new ServerErrorException("x"));
        assertThrows(SituException.class, () -> strict.deserialize(own, 0));
        assertEquals("x", ((Exception) open.deserialize(own, 0)).getMessage());
        assertThrows(SituException.class, () -> open.deserialize(new byte[] {1, 2}, 0));
        assertThrows(SituException.class, () -> open.serialize(new Object()));
        for (String pattern : List.of("!a", "a;b", "", "*", "maxdepth=5")) {
            assertThrows(IllegalArgumentException.class, () -> Serializers.java(pattern), pattern);
        }
    }
}
