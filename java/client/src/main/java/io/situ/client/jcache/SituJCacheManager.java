package io.situ.client.jcache;

import io.situ.client.Serializer;
import io.situ.client.Serializers;
import io.situ.client.SituClient;
import java.net.URI;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import javax.cache.Cache;
import javax.cache.CacheException;
import javax.cache.CacheManager;
import javax.cache.configuration.Configuration;
import javax.cache.spi.CachingProvider;

/** The caches of one list of servers. Closing it closes its client. */
final class SituJCacheManager implements CacheManager {
    private final SituCachingProvider provider;
    private final URI uri;
    private final ClassLoader loader;
    private final Properties properties;
    private final SituClient client;
    private final Serializer<Object> serializer;
    private final Map<String, SituJCache<?, ?>> caches = new ConcurrentHashMap<>();
    private volatile boolean closed;

    SituJCacheManager(
            SituCachingProvider provider, URI uri, ClassLoader loader, Properties properties, SituClient client) {
        this.provider = provider;
        this.uri = uri;
        this.loader = loader;
        this.properties = properties;
        this.client = client;
        String allowed = properties.getProperty(SituCachingProvider.ALLOWED, "").trim();
        serializer = Serializers.java(allowed.isEmpty() ? new String[0] : allowed.split("\\s*,\\s*"));
    }

    private void checkOpen() {
        if (closed) {
            throw new IllegalStateException("the cache manager is closed");
        }
    }

    @Override
    public CachingProvider getCachingProvider() {
        return provider;
    }

    @Override
    public URI getURI() {
        return uri;
    }

    @Override
    public ClassLoader getClassLoader() {
        return loader;
    }

    @Override
    public Properties getProperties() {
        return properties;
    }

    @Override
    public <K, V, C extends Configuration<K, V>> Cache<K, V> createCache(String name, C configuration) {
        checkOpen();
        SituJCache<K, V> cache = new SituJCache<>(this, name, configuration, client, serializer);
        if (caches.putIfAbsent(name, cache) != null) {
            throw new CacheException("there is already a cache " + name);
        }
        return cache;
    }

    @Override
    @SuppressWarnings("unchecked")
    public <K, V> Cache<K, V> getCache(String name, Class<K> keyType, Class<V> valueType) {
        checkOpen();
        SituJCache<?, ?> cache = caches.get(name);
        if (cache == null) {
            return null;
        }
        cache.checkTypes(keyType, valueType);
        return (Cache<K, V>) cache;
    }

    @Override
    @SuppressWarnings("unchecked")
    public <K, V> Cache<K, V> getCache(String name) {
        checkOpen();
        return (Cache<K, V>) caches.get(name);
    }

    @Override
    public Iterable<String> getCacheNames() {
        checkOpen();
        return List.copyOf(caches.keySet());
    }

    @Override
    public void destroyCache(String name) {
        checkOpen();
        SituJCache<?, ?> cache = caches.remove(name);
        if (cache != null) {
            cache.clear();
            cache.close();
        }
    }

    void forget(String name) {
        caches.remove(name);
    }

    @Override
    public void enableManagement(String name, boolean enabled) {
        refuse(enabled, "management");
    }

    @Override
    public void enableStatistics(String name, boolean enabled) {
        refuse(enabled, "statistics");
    }

    private void refuse(boolean enabled, String feature) {
        checkOpen();
        if (enabled) {
            throw new UnsupportedOperationException("there is no " + feature + " of caches");
        }
    }

    @Override
    public void close() {
        if (!closed) {
            closed = true;
            caches.values().forEach(SituJCache::close);
            client.close();
        }
    }

    @Override
    public boolean isClosed() {
        return closed;
    }

    @Override
    public <T> T unwrap(Class<T> type) {
        if (type.isInstance(client)) {
            return type.cast(client);
        }
        if (type.isInstance(this)) {
            return type.cast(this);
        }
        throw new IllegalArgumentException("not a " + type);
    }
}
