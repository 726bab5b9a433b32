package io.situ.client.jcache;

import io.situ.client.SituClient;
import java.net.URI;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import javax.cache.CacheException;
import javax.cache.CacheManager;
import javax.cache.configuration.OptionalFeature;
import javax.cache.spi.CachingProvider;

/**
 * The provider of JCache. The URI of a manager names the servers: {@code situ:ADDRESS,ADDRESS}, with addresses as
 * {@link io.situ.client.ServerAddress#parse} accepts them, such as {@code situ:/run/situ.sock} or
 * {@code situ:127.0.0.1:11211}, which is the default. The property {@value #ALLOWED} lists classes and packages that
 * values may have, separated by commas: see {@link io.situ.client.Serializers#java}.
 */
public final class SituCachingProvider implements CachingProvider {
    /** The property that lists the allowed classes of values. */
    public static final String ALLOWED = "io.situ.client.allowed";

    private static final URI DEFAULT_URI = URI.create("situ:127.0.0.1:11211");

    private record Key(URI uri, ClassLoader loader) {}

    private final Map<Key, SituJCacheManager> managers = new ConcurrentHashMap<>();

    /** Makes a provider. JCache does that. */
    public SituCachingProvider() {}

    @Override
    public CacheManager getCacheManager(URI uri, ClassLoader classLoader, Properties properties) {
        Key chosen = key(uri, classLoader);
        Properties given = properties == null ? new Properties() : properties;
        if (!"situ".equals(chosen.uri.getScheme())) {
            throw new CacheException("the URI of a cache manager is situ:ADDRESS,ADDRESS: " + chosen.uri);
        }
        return managers.compute(chosen, (key, present) -> present != null && !present.isClosed()
                ? present : new SituJCacheManager(this, key.uri, key.loader, given, client(key.uri)));
    }

    private Key key(URI uri, ClassLoader loader) {
        return new Key(uri == null ? DEFAULT_URI : uri, loader == null ? getDefaultClassLoader() : loader);
    }

    private static SituClient client(URI uri) {
        try {
            return SituClient.connect(uri.getSchemeSpecificPart().split(","));
        } catch (IllegalArgumentException wrong) {
            throw new CacheException("not addresses of servers: " + uri, wrong);
        }
    }

    @Override
    public ClassLoader getDefaultClassLoader() {
        return getClass().getClassLoader();
    }

    @Override
    public URI getDefaultURI() {
        return DEFAULT_URI;
    }

    @Override
    public Properties getDefaultProperties() {
        return new Properties();
    }

    @Override
    public CacheManager getCacheManager(URI uri, ClassLoader classLoader) {
        return getCacheManager(uri, classLoader, null);
    }

    @Override
    public CacheManager getCacheManager() {
        return getCacheManager(null, null, null);
    }

    @Override
    public void close() {
        managers.values().forEach(SituJCacheManager::close);
        managers.clear();
    }

    @Override
    public void close(ClassLoader classLoader) {
        managers.forEach((key, manager) -> {
            if (key.loader == classLoader) {
                close(key.uri, key.loader);
            }
        });
    }

    @Override
    public void close(URI uri, ClassLoader classLoader) {
        SituJCacheManager manager = managers.remove(key(uri, classLoader));
        if (manager != null) {
            manager.close();
        }
    }

    @Override
    public boolean isSupported(OptionalFeature optionalFeature) {
        return false;
    }
}
