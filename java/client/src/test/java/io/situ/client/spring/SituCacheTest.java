package io.situ.client.spring;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.situ.client.Serializers;
import io.situ.client.SituClient;
import io.situ.client.TestServer;
import java.time.Duration;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;
import org.springframework.cache.Cache;
import org.springframework.cache.CacheManager;
import org.springframework.cache.annotation.CacheEvict;
import org.springframework.cache.annotation.Cacheable;
import org.springframework.cache.annotation.EnableCaching;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;

class SituCacheTest {
    private static SituClient client(TestServer server) {
        return SituClient.builder().servers(server.address().toString()).timeout(Duration.ofSeconds(10)).build();
    }

    @Test
    void theCallsOfACache() throws Exception {
        try (TestServer server = TestServer.memcached(false); SituClient client = client(server)) {
            CacheManager manager = new SituCacheManager(client, Serializers.java(), Duration.ofMinutes(1));
            Cache cache = manager.getCache("books");
            assertSame(cache, manager.getCache("books"));
            assertEquals(Set.of("books"), Set.copyOf(manager.getCacheNames()));
            assertNull(cache.get("a"));
            cache.put("a", 5L);
            assertEquals(5L, cache.get("a", Long.class));
            assertThrows(IllegalStateException.class, () -> cache.get("a", String.class));
            cache.put("null", null);
            assertNotNull(cache.get("null"));
            assertNull(cache.get("null").get());
            assertEquals(5L, cache.putIfAbsent("a", 6L).get());
            assertNull(cache.putIfAbsent("b", 6L));
            assertEquals(6L, cache.get("b", () -> 7L));
            assertEquals(7L, cache.get("c", () -> 7L));
            assertEquals(7L, cache.get("c").get());
            assertThrows(Cache.ValueRetrievalException.class, () -> cache.get("d", () -> {
                throw new Exception("no value");
            }));
            assertNull(cache.retrieve("d").get());
            assertEquals(8L, cache.retrieve("d", () -> CompletableFuture.completedFuture(8L)).get());
            assertEquals(8L, cache.retrieve("d", () -> CompletableFuture.completedFuture(9L)).get());
            assertTrue(cache.evictIfPresent("a"));
            assertFalse(cache.evictIfPresent("a"));
            cache.clear();
            assertNull(cache.get("b"));
            assertThrows(IllegalArgumentException.class, () -> cache.get(new Object()));
        }
    }

    /** A bean whose method is cached. */
    public static class Books {
        static final AtomicInteger CALLS = new AtomicInteger();

        @Cacheable("books")
        public String find(String author, int year) {
            CALLS.incrementAndGet();
            return author + " " + year;
        }

        @CacheEvict(value = "books", allEntries = true)
        public void forget() {}
    }

    @Configuration
    @EnableCaching
    static class Application {
        @Bean
        Books books() {
            return new Books();
        }
    }

    @Test
    void anApplicationWithAnnotations() throws Exception {
        try (TestServer server = TestServer.memcached(false); SituClient client = client(server);
                AnnotationConfigApplicationContext context = new AnnotationConfigApplicationContext()) {
            context.registerBean(CacheManager.class,
                    () -> new SituCacheManager(client, Serializers.java(), Duration.ofMinutes(1)));
            context.register(Application.class);
            context.refresh();
            Books books = context.getBean(Books.class);
            assertEquals("x 1", books.find("x", 1));
            assertEquals("x 1", books.find("x", 1));
            assertEquals("x 2", books.find("x", 2));
            books.forget();
            assertEquals("x 1", books.find("x", 1));
            assertEquals(3, Books.CALLS.get());
        }
    }
}
