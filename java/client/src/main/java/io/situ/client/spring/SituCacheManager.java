package io.situ.client.spring;

import io.situ.client.Serializer;
import io.situ.client.SituClient;
import java.time.Duration;
import java.util.Collection;
import java.util.Collections;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.springframework.cache.Cache;
import org.springframework.cache.CacheManager;

/**
 * A cache manager whose caches are on the servers of a client. A cache comes into being when it is first asked for.
 *
 * <pre>{@code
 * @Bean
 * CacheManager cacheManager(SituClient client) {
 *     return new SituCacheManager(client, Serializers.java("com.example.model.*"), Duration.ofMinutes(10));
 * }
 * }</pre>
 *
 * <p>The manager does not close the client.
 */
public final class SituCacheManager implements CacheManager {
    private final SituClient client;
    private final Serializer<Object> serializer;
    private final Duration timeToLive;
    private final Map<String, SituCache> caches = new ConcurrentHashMap<>();
    private final Map<String, Duration> times;

    /** Makes a manager whose items live for {@code timeToLive}; null for no expiry. */
    public SituCacheManager(SituClient client, Serializer<Object> serializer, Duration timeToLive) {
        this(client, serializer, timeToLive, Map.of());
    }

    /** Makes a manager with other times for some caches, by their names. */
    public SituCacheManager(SituClient client, Serializer<Object> serializer, Duration timeToLive,
            Map<String, Duration> times) {
        this.client = client;
        this.serializer = serializer;
        this.timeToLive = timeToLive;
        this.times = Map.copyOf(times);
    }

    @Override
    public Cache getCache(String name) {
        return caches.computeIfAbsent(
                name, any -> new SituCache(client, name, serializer, times.getOrDefault(name, timeToLive)));
    }

    @Override
    public Collection<String> getCacheNames() {
        return Collections.unmodifiableSet(caches.keySet());
    }
}
