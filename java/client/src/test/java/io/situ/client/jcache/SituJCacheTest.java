package io.situ.client.jcache;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.situ.client.SituClient;
import io.situ.client.TestServer;
import java.net.URI;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import javax.cache.Cache;
import javax.cache.CacheException;
import javax.cache.CacheManager;
import javax.cache.Caching;
import javax.cache.configuration.MutableConfiguration;
import javax.cache.expiry.CreatedExpiryPolicy;
import javax.cache.expiry.Duration;
import javax.cache.expiry.TouchedExpiryPolicy;
import javax.cache.processor.EntryProcessorException;
import javax.cache.spi.CachingProvider;
import org.junit.jupiter.api.Test;

class SituJCacheTest {
    @Test
    void theCallsOfACache() throws Exception {
        try (TestServer server = TestServer.memcached(false)) {
            CachingProvider provider = Caching.getCachingProvider();
            assertEquals(SituCachingProvider.class, provider.getClass());
            CacheManager manager = provider.getCacheManager(URI.create("situ:" + server.address()), null);
            manager.unwrap(SituClient.class);
            MutableConfiguration<String, Integer> configuration =
                    new MutableConfiguration<String, Integer>().setTypes(String.class, Integer.class);
            Cache<String, Integer> cache = manager.createCache("numbers", configuration);
            assertThrows(CacheException.class, () -> manager.createCache("numbers", configuration));
            assertSame(cache, manager.getCache("numbers", String.class, Integer.class));
            assertThrows(ClassCastException.class, () -> manager.getCache("numbers", String.class, String.class));
            assertNull(cache.get("a"));
            cache.put("a", 1);
            assertEquals(1, cache.get("a"));
            assertTrue(cache.containsKey("a"));
            assertEquals(1, cache.getAndPut("a", 2));
            assertNull(cache.getAndPut("b", 3));
            assertFalse(cache.putIfAbsent("a", 9));
            assertTrue(cache.putIfAbsent("c", 4));
            assertEquals(Map.of("a", 2, "b", 3, "c", 4), cache.getAll(Set.of("a", "b", "c", "d")));
            assertFalse(cache.replace("a", 1, 5));
            assertTrue(cache.replace("a", 2, 5));
            assertTrue(cache.replace("a", 6));
            assertFalse(cache.replace("d", 6));
            assertEquals(6, cache.getAndReplace("a", 7));
            assertNull(cache.getAndReplace("d", 7));
            assertFalse(cache.remove("a", 1));
            assertTrue(cache.remove("a", 7));
            assertNull(cache.get("a"));
            assertEquals(3, cache.getAndRemove("b"));
            assertNull(cache.getAndRemove("b"));
            assertTrue(cache.remove("c"));
            assertFalse(cache.remove("c"));
            cache.putAll(Map.of("x", 1, "y", 2));
            cache.removeAll(Set.of("x"));
            assertNull(cache.get("x"));
            cache.removeAll();
            assertNull(cache.get("y"));
            assertThrows(NullPointerException.class, () -> cache.put("a", null));
            assertThrows(NullPointerException.class, () -> cache.get(null));
            assertThrows(UnsupportedOperationException.class, cache::iterator);
            manager.destroyCache("numbers");
            assertThrows(IllegalStateException.class, () -> cache.get("a"));
            provider.close();
            assertTrue(manager.isClosed());
        }
    }

    @Test
    void processorsAreAtomicAmongThreads() throws Exception {
        try (TestServer server = TestServer.memcached(false); CachingProvider provider = new SituCachingProvider()) {
            CacheManager manager = provider.getCacheManager(URI.create("situ:" + server.address()), null);
            Cache<String, Long> cache = manager.createCache(
                    "counters", new MutableConfiguration<String, Long>().setTypes(String.class, Long.class));
            List<Thread> threads = new ArrayList<>();
            for (int t = 0; t < 4; t++) {
                threads.add(Thread.ofPlatform().start(() -> {
                    for (int i = 0; i < 50; i++) {
                        cache.invoke("n", (entry, arguments) -> {
                            entry.setValue(entry.exists() ? entry.getValue() + 1 : 1);
                            return null;
                        });
                    }
                }));
            }
            for (Thread thread : threads) {
                thread.join();
            }
            assertEquals(200, cache.get("n"));
            assertEquals(200L, cache.<Long>invoke("n", (entry, arguments) -> {
                long old = entry.getValue();
                entry.remove();
                return old;
            }));
            assertFalse(cache.containsKey("n"));
            assertThrows(EntryProcessorException.class, () -> cache.invoke("n", (entry, arguments) -> {
                throw new IllegalStateException("no");
            }));
            assertEquals(Set.of("a"), cache.invokeAll(Set.of("a"), (entry, arguments) -> 1L).keySet());
        }
    }

    @Test
    void expiryPoliciesAreKept() throws Exception {
        try (TestServer server = TestServer.memcached(false); CachingProvider provider = new SituCachingProvider()) {
            CacheManager manager = provider.getCacheManager(URI.create("situ:" + server.address()), null);
            Cache<Object, Object> none = manager.createCache("none", new MutableConfiguration<>()
                    .setExpiryPolicyFactory(CreatedExpiryPolicy.factoryOf(Duration.ZERO)));
            none.put("a", "b");
            assertNull(none.get("a"));
            Cache<Object, Object> touched = manager.createCache("touched", new MutableConfiguration<>()
                    .setExpiryPolicyFactory(TouchedExpiryPolicy.factoryOf(new Duration(TimeUnit.SECONDS, 3))));
            touched.put("a", "b");
            for (int i = 0; i < 5; i++) {
                Thread.sleep(1000);
                assertEquals("b", touched.get("a"));
            }
            assertEquals(Map.of("a", "b"), touched.getAll(Set.of("a", "c")));
            Thread.sleep(5000);
            assertNull(touched.get("a"));
            assertThrows(UnsupportedOperationException.class,
                    () -> manager.createCache("x", new MutableConfiguration<>().setStatisticsEnabled(true)));
        }
    }
}
