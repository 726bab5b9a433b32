package io.situ.client.spy;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.situ.client.TestServer;
import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Date;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

/** The drop-in and the original read what the other one wrote. */
class MemcachedClientTest {
    @Test
    void bothClientsUnderstandEachOther() throws Exception {
        try (TestServer server = TestServer.memcached(false)) {
            InetSocketAddress address = new InetSocketAddress(server.address().host(), server.address().port());
            var original = new net.spy.memcached.MemcachedClient(address);
            try (MemcachedClient ours = new MemcachedClient(address)) {
                List<Object> values = new ArrayList<>(Arrays.asList("text", "", "ü", 0, 1, -1, Integer.MIN_VALUE, 300,
                        0L, -1L, Long.MAX_VALUE, Long.MIN_VALUE, true, false, new Date(1_700_000_000_000L), (byte) -5,
                        (byte) 0, 1.5f, -0.0f, Math.PI, Double.NaN, "long ".repeat(10_000), List.of("a", 1)));
                for (int i = 0; i < values.size(); i++) {
                    Object value = values.get(i);
                    assertTrue(ours.set("ours-" + i, 0, value).get(10, TimeUnit.SECONDS));
                    assertTrue(original.set("theirs-" + i, 0, value).get(10, TimeUnit.SECONDS));
                    assertEquals(value, original.get("ours-" + i), "the original reads " + value);
                    assertEquals(value, ours.get("theirs-" + i), "we read " + value);
                }
                byte[] random = new byte[20_000];
                new java.util.Random(3).nextBytes(random);
                ours.set("ours", 0, random).get();
                original.set("theirs", 0, random).get();
                assertArrayEquals(random, (byte[]) original.get("ours"));
                assertArrayEquals(random, (byte[]) ours.get("theirs"));
            } finally {
                original.shutdown();
            }
        }
    }

    @Test
    void theCommonCalls() throws Exception {
        try (TestServer server = TestServer.memcached(false)) {
            String list = server.address().host() + ":" + server.address().port();
            try (MemcachedClient client = new MemcachedClient(AddrUtil.getAddresses(list))) {
                assertNull(client.get("a"));
                assertTrue(client.add("a", 0, "x").get());
                assertFalse(client.add("a", 0, "x").get());
                assertTrue(client.replace("a", 0, "y").get());
                assertTrue(client.append("a", "z").get());
                assertTrue(client.prepend("a", "x").get());
                assertEquals("xyz", client.asyncGet("a").get(5, TimeUnit.SECONDS));
                CASValue<Object> value = client.gets("a");
                assertEquals("xyz", value.getValue());
                assertEquals(CASResponse.OK, client.cas("a", value.getCas(), "new"));
                assertEquals(CASResponse.EXISTS, client.cas("a", value.getCas(), "newer"));
                assertEquals(CASResponse.NOT_FOUND, client.cas("b", value.getCas(), "newer"));
                assertEquals("new", client.asyncGets("a").get().getValue());
                assertEquals("new", client.getAndTouch("a", 100).getValue());
                assertTrue(client.touch("a", 100).get());
                assertEquals(-1, client.incr("n", 1));
                assertEquals(5, client.incr("n", 1, 5));
                assertEquals(6, client.incr("n", 1, 5));
                assertEquals(4, client.decr("n", 2));
                assertEquals(Map.of("a", "new", "n", "4"), client.getBulk("a", "n", "missing"));
                assertEquals(Set.of("a"), client.asyncGetBulk(List.of("a", "b")).get().keySet());
                OperationFuture<Boolean> deleted = client.delete("a");
                assertTrue(deleted.get());
                assertTrue(deleted.isSuccessful());
                assertEquals("a", deleted.getKey());
                assertFalse(client.delete("a").get());
                assertTrue(client.waitForQueues(5, TimeUnit.SECONDS));
                assertTrue(client.flush().get());
                assertNull(client.get("n"));
                assertEquals(1, client.getStats().size());
                assertEquals(1, client.getVersions().size());
                assertTrue(client.shutdown(5, TimeUnit.SECONDS));
            }
        }
    }
}
