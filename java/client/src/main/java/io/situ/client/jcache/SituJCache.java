package io.situ.client.jcache;

import io.situ.client.CasResult;
import io.situ.client.Expiry;
import io.situ.client.Item;
import io.situ.client.Namespace;
import io.situ.client.Serializer;
import io.situ.client.SituClient;
import java.time.Duration;
import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import javax.cache.Cache;
import javax.cache.CacheManager;
import javax.cache.configuration.CacheEntryListenerConfiguration;
import javax.cache.configuration.CompleteConfiguration;
import javax.cache.configuration.Configuration;
import javax.cache.configuration.MutableConfiguration;
import javax.cache.expiry.ExpiryPolicy;
import javax.cache.integration.CompletionListener;
import javax.cache.processor.EntryProcessor;
import javax.cache.processor.EntryProcessorException;
import javax.cache.processor.EntryProcessorResult;
import javax.cache.processor.MutableEntry;

/**
 * A cache of JCache. Keys are told apart by their {@code toString}; values are stored by value. Changes that depend on
 * the present value compare the item's cas id, so they are atomic among all clients.
 *
 * <p>An expiry policy's duration for access is set with the read. An update sets the duration for update, and where the
 * policy has none, the one for creation: the protocol cannot keep an item's time when its value changes.
 */
final class SituJCache<K, V> implements Cache<K, V> {
    private final SituJCacheManager manager;
    private final String name;
    private final MutableConfiguration<K, V> configuration;
    private final SituClient client;
    private final Serializer<Object> serializer;
    private final Namespace namespace;
    private final ExpiryPolicy policy;
    private volatile boolean closed;

    SituJCache(SituJCacheManager manager, String name, Configuration<K, V> given, SituClient client,
            Serializer<Object> serializer) {
        this.manager = manager;
        this.name = name;
        this.client = client;
        this.serializer = serializer;
        namespace = new Namespace(client, "jcache:" + name);
        configuration = given instanceof CompleteConfiguration<K, V> complete
                ? new MutableConfiguration<>(complete)
                : new MutableConfiguration<K, V>().setTypes(given.getKeyType(), given.getValueType());
        if (configuration.isReadThrough() || configuration.isWriteThrough() || configuration.isStatisticsEnabled()
                || configuration.isManagementEnabled() || !configuration.isStoreByValue()
                || configuration.getCacheEntryListenerConfigurations().iterator().hasNext()) {
            throw new UnsupportedOperationException("a cache has no read-through, write-through, statistics, "
                    + "management, listeners, and no store by reference");
        }
        policy = configuration.getExpiryPolicyFactory().create();
    }

    void checkTypes(Class<?> keyType, Class<?> valueType) {
        if (configuration.getKeyType() != keyType || configuration.getValueType() != valueType) {
            throw new ClassCastException("the cache " + name + " has keys of " + configuration.getKeyType()
                    + " and values of " + configuration.getValueType());
        }
    }

    private String itemKey(K key) {
        checkOpen();
        if (!configuration.getKeyType().isInstance(Objects.requireNonNull(key, "key"))) {
            throw new ClassCastException("not a key of " + configuration.getKeyType() + ": " + key.getClass());
        }
        return namespace.key(key.toString());
    }

    private void checkOpen() {
        if (closed) {
            throw new IllegalStateException("the cache is closed");
        }
    }

    @SuppressWarnings("unchecked")
    private V value(Item item) {
        return item == null ? null : (V) serializer.deserialize(item.value(), item.flags());
    }

    private byte[] bytes(V value) {
        if (!configuration.getValueType().isInstance(Objects.requireNonNull(value, "value"))) {
            throw new ClassCastException("not a value of " + configuration.getValueType() + ": " + value.getClass());
        }
        return serializer.serialize(value);
    }

    private static int expiry(javax.cache.expiry.Duration duration) {
        if (duration.isEternal()) {
            return Expiry.NEVER;
        }
        return Expiry.after(Duration.ofMillis(duration.getTimeUnit().toMillis(duration.getDurationAmount())));
    }

    private int expiryOfCreation() {
        return expiry(policy.getExpiryForCreation());
    }

    private int expiryOfUpdate() {
        javax.cache.expiry.Duration duration = policy.getExpiryForUpdate();
        return duration == null ? expiryOfCreation() : expiry(duration);
    }

    /** Reads an item, and sets the expiry time that the policy wants after a read. */
    private Item read(String key) {
        javax.cache.expiry.Duration access = policy.getExpiryForAccess();
        if (access == null) {
            return client.gets(key);
        }
        return client.gat(key, expiry(access));
    }

    @Override
    public V get(K key) {
        return value(read(itemKey(key)));
    }

    @Override
    public Map<K, V> getAll(Set<? extends K> keys) {
        Map<String, K> byItem = new HashMap<>();
        keys.forEach(key -> byItem.put(itemKey(key), key));
        Map<K, V> values = new HashMap<>();
        if (policy.getExpiryForAccess() == null) {
            client.getsAll(byItem.keySet()).forEach((key, item) -> values.put(byItem.get(key), value(item)));
        } else {
            byItem.forEach((itemKey, key) -> {
                Item item = read(itemKey);
                if (item != null) {
                    values.put(key, value(item));
                }
            });
        }
        return values;
    }

    @Override
    public boolean containsKey(K key) {
        return client.get(itemKey(key)) != null;
    }

    @Override
    public void loadAll(Set<? extends K> keys, boolean replaceExistingValues, CompletionListener listener) {
        // Without a loader there is nothing to load.
        keys.forEach(this::itemKey);
        if (listener != null) {
            listener.onCompletion();
        }
    }

    @Override
    public void put(K key, V value) {
        byte[] bytes = bytes(value);
        String itemKey = itemKey(key);
        int creation = expiryOfCreation();
        int update = expiryOfUpdate();
        if (creation == update || !client.add(itemKey, bytes, creation, serializer.flags(value))) {
            client.set(itemKey, bytes, update, serializer.flags(value));
        }
    }

    /** What becomes of an item: it stays, or it gets a value, or it is removed if that is null. */
    private record Outcome<V>(boolean stays, V value) {
        static <V> Outcome<V> keep() {
            return new Outcome<>(true, null);
        }

        static <V> Outcome<V> store(V value) {
            return new Outcome<>(false, value);
        }
    }

    /** A function from the present value, which may be null. */
    private interface Change<V> {
        Outcome<V> of(V present);
    }

    /** Changes an item in one step, and returns the value that it had. */
    private V change(K key, Change<V> change) {
        String itemKey = itemKey(key);
        while (true) {
            Item item = client.gets(itemKey);
            V present = value(item);
            Outcome<V> outcome = change.of(present);
            V next = outcome.value;
            if (outcome.stays || next == null && item == null) {
                return present;
            }
            boolean done;
            if (item == null) {
                done = client.add(itemKey, bytes(next), expiryOfCreation(), serializer.flags(next));
            } else if (next == null) {
                // An item that expires at once, because delete cannot compare.
                done = client.cas(itemKey, new byte[0], item.cas(), -1, 0) == CasResult.STORED;
            } else {
                done = client.cas(itemKey, bytes(next), item.cas(), expiryOfUpdate(), serializer.flags(next))
                        == CasResult.STORED;
            }
            if (done) {
                return present;
            }
        }
    }

    @Override
    public V getAndPut(K key, V value) {
        Objects.requireNonNull(value, "value");
        return change(key, present -> Outcome.store(value));
    }

    @Override
    public void putAll(Map<? extends K, ? extends V> map) {
        map.forEach((key, value) -> {
            Objects.requireNonNull(key, "key");
            Objects.requireNonNull(value, "value");
        });
        map.forEach(this::put);
    }

    @Override
    public boolean putIfAbsent(K key, V value) {
        byte[] bytes = bytes(value);
        return client.add(itemKey(key), bytes, expiryOfCreation(), serializer.flags(value));
    }

    @Override
    public boolean remove(K key) {
        return client.delete(itemKey(key));
    }

    @Override
    public boolean remove(K key, V oldValue) {
        Objects.requireNonNull(oldValue, "oldValue");
        return oldValue.equals(change(key, present -> oldValue.equals(present) ? Outcome.store(null) : Outcome.keep()));
    }

    @Override
    public V getAndRemove(K key) {
        return change(key, present -> Outcome.store(null));
    }

    @Override
    public boolean replace(K key, V oldValue, V newValue) {
        Objects.requireNonNull(oldValue, "oldValue");
        Objects.requireNonNull(newValue, "newValue");
        return oldValue.equals(
                change(key, present -> oldValue.equals(present) ? Outcome.store(newValue) : Outcome.keep()));
    }

    @Override
    public boolean replace(K key, V value) {
        byte[] bytes = bytes(value);
        return client.replace(itemKey(key), bytes, expiryOfUpdate(), serializer.flags(value));
    }

    @Override
    public V getAndReplace(K key, V value) {
        Objects.requireNonNull(value, "value");
        return change(key, present -> present == null ? Outcome.keep() : Outcome.store(value));
    }

    @Override
    public void removeAll(Set<? extends K> keys) {
        keys.forEach(Objects::requireNonNull);
        keys.forEach(this::remove);
    }

    @Override
    public void removeAll() {
        clear();
    }

    @Override
    public void clear() {
        checkOpen();
        namespace.clear();
    }

    @Override
    public <C extends Configuration<K, V>> C getConfiguration(Class<C> type) {
        if (!type.isInstance(configuration)) {
            throw new IllegalArgumentException("not a " + type);
        }
        return type.cast(configuration);
    }

    /** The entry that a processor sees. */
    private final class ProcessedEntry implements MutableEntry<K, V> {
        private final K key;
        private V value;
        private boolean changed;

        ProcessedEntry(K key, V value) {
            this.key = key;
            this.value = value;
        }

        @Override
        public boolean exists() {
            return value != null;
        }

        @Override
        public void remove() {
            value = null;
            changed = true;
        }

        @Override
        public void setValue(V next) {
            value = Objects.requireNonNull(next, "value");
            changed = true;
        }

        @Override
        public K getKey() {
            return key;
        }

        @Override
        public V getValue() {
            return value;
        }

        @Override
        public <T> T unwrap(Class<T> type) {
            if (type.isInstance(this)) {
                return type.cast(this);
            }
            throw new IllegalArgumentException("not a " + type);
        }
    }

    /** Runs the processor again if another client was faster. */
    @Override
    public <T> T invoke(K key, EntryProcessor<K, V, T> processor, Object... arguments) {
        Objects.requireNonNull(processor, "processor");
        Object[] result = new Object[1];
        change(key, present -> {
            ProcessedEntry entry = new ProcessedEntry(key, present);
            try {
                result[0] = processor.process(entry, arguments);
            } catch (EntryProcessorException failed) {
                throw failed;
            } catch (RuntimeException failed) {
                throw new EntryProcessorException(failed);
            }
            return entry.changed ? Outcome.store(entry.value) : Outcome.keep();
        });
        @SuppressWarnings("unchecked")
        T typed = (T) result[0];
        return typed;
    }

    @Override
    public <T> Map<K, EntryProcessorResult<T>> invokeAll(
            Set<? extends K> keys, EntryProcessor<K, V, T> processor, Object... arguments) {
        Map<K, EntryProcessorResult<T>> results = new HashMap<>();
        for (K key : keys) {
            try {
                T result = invoke(key, processor, arguments);
                if (result != null) {
                    results.put(key, () -> result);
                }
            } catch (EntryProcessorException failed) {
                results.put(key, () -> {
                    throw failed;
                });
            }
        }
        return results;
    }

    @Override
    public String getName() {
        return name;
    }

    @Override
    public CacheManager getCacheManager() {
        return manager;
    }

    @Override
    public void close() {
        closed = true;
        manager.forget(name);
    }

    @Override
    public boolean isClosed() {
        return closed;
    }

    @Override
    public <T> T unwrap(Class<T> type) {
        if (type.isInstance(this)) {
            return type.cast(this);
        }
        throw new IllegalArgumentException("not a " + type);
    }

    @Override
    public void registerCacheEntryListener(CacheEntryListenerConfiguration<K, V> listener) {
        throw new UnsupportedOperationException("a cache has no listeners");
    }

    @Override
    public void deregisterCacheEntryListener(CacheEntryListenerConfiguration<K, V> listener) {
        throw new UnsupportedOperationException("a cache has no listeners");
    }

    @Override
    public Iterator<Entry<K, V>> iterator() {
        throw new UnsupportedOperationException("the protocol cannot list the items of a cache");
    }
}
