package io.situ.client.spring;

import io.situ.client.Expiry;
import io.situ.client.Item;
import io.situ.client.Namespace;
import io.situ.client.Serializer;
import io.situ.client.SituClient;
import java.time.Duration;
import java.util.Arrays;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.locks.Lock;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Supplier;
import org.springframework.cache.support.AbstractValueAdaptingCache;
import org.springframework.cache.support.NullValue;
import org.springframework.cache.support.SimpleValueWrapper;

/**
 * A cache of Spring on the servers of a client. Its keys are the texts of the keys' {@code toString}. A null is stored
 * as an item without bytes and with flags of its own.
 */
public final class SituCache extends AbstractValueAdaptingCache {
    private static final int NULL_FLAGS = 0x4e55_4c4c;
    private static final int LOCKS = 64;

    private final SituClient client;
    private final String name;
    private final Namespace namespace;
    private final Serializer<Object> serializer;
    private final Duration timeToLive;
    /** A value is computed once at a time in this process, if callers ask for that. */
    private final Lock[] locks = new Lock[LOCKS];

    SituCache(SituClient client, String name, Serializer<Object> serializer, Duration timeToLive) {
        super(true);
        this.client = client;
        this.name = name;
        namespace = new Namespace(client, name);
        this.serializer = serializer;
        this.timeToLive = timeToLive;
        Arrays.setAll(locks, index -> new ReentrantLock());
    }

    @Override
    public String getName() {
        return name;
    }

    /** Returns the client. */
    @Override
    public SituClient getNativeCache() {
        return client;
    }

    private String itemKey(Object key) {
        return namespace.key(KeyTexts.of(key));
    }

    private int expiry() {
        return timeToLive == null ? Expiry.NEVER : Expiry.after(timeToLive);
    }

    private Object stored(Item item) {
        if (item == null) {
            return null;
        }
        boolean isNull = item.flags() == NULL_FLAGS && item.value().length == 0;
        return isNull ? NullValue.INSTANCE : serializer.deserialize(item.value(), item.flags());
    }

    private byte[] bytes(Object value) {
        return value == null ? new byte[0] : serializer.serialize(value);
    }

    private int flags(Object value) {
        return value == null ? NULL_FLAGS : serializer.flags(value);
    }

    @Override
    protected Object lookup(Object key) {
        return stored(client.gets(itemKey(key)));
    }

    @Override
    @SuppressWarnings("unchecked")
    public <T> T get(Object key, Callable<T> loader) {
        ValueWrapper present = get(key);
        if (present != null) {
            return (T) present.get();
        }
        Lock lock = locks[Math.floorMod(key.hashCode(), LOCKS)];
        lock.lock();
        try {
            present = get(key);
            if (present != null) {
                return (T) present.get();
            }
            T value;
            try {
                value = loader.call();
            } catch (Exception failed) {
                throw new ValueRetrievalException(key, loader, failed);
            }
            put(key, value);
            return value;
        } finally {
            lock.unlock();
        }
    }

    @Override
    public CompletableFuture<?> retrieve(Object key) {
        return client.async().gets(itemKey(key)).thenApply(item -> toValueWrapper(stored(item)));
    }

    @Override
    @SuppressWarnings("unchecked")
    public <T> CompletableFuture<T> retrieve(Object key, Supplier<CompletableFuture<T>> loader) {
        String itemKey = itemKey(key);
        return client.async().gets(itemKey).thenCompose(item -> {
            Object stored = stored(item);
            if (stored != null) {
                return CompletableFuture.completedFuture((T) fromStoreValue(stored));
            }
            return loader.get().thenCompose(value -> client.async()
                    .set(itemKey, bytes(value), expiry(), flags(value)).thenApply(done -> value));
        });
    }

    @Override
    public void put(Object key, Object value) {
        client.set(itemKey(key), bytes(value), expiry(), flags(value));
    }

    @Override
    public ValueWrapper putIfAbsent(Object key, Object value) {
        String itemKey = itemKey(key);
        while (!client.add(itemKey, bytes(value), expiry(), flags(value))) {
            Object present = stored(client.gets(itemKey));
            if (present != null) {
                return new SimpleValueWrapper(fromStoreValue(present));
            }
            // The item went between the two calls.
        }
        return null;
    }

    @Override
    public void evict(Object key) {
        client.delete(itemKey(key));
    }

    @Override
    public boolean evictIfPresent(Object key) {
        return client.delete(itemKey(key));
    }

    @Override
    public void clear() {
        namespace.clear();
    }
}
