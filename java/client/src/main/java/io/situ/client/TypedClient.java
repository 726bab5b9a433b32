package io.situ.client;

import java.util.Collection;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.CompletableFuture;

/**
 * A view of a client whose values are objects.
 *
 * @param <T> the type of the objects
 */
public final class TypedClient<T> {
    private final SituClient client;
    private final Serializer<T> serializer;

    TypedClient(SituClient client, Serializer<T> serializer) {
        this.client = client;
        this.serializer = serializer;
    }

    private T object(Item item) {
        return item == null ? null : serializer.deserialize(item.value(), item.flags());
    }

    /**
     * An object with the cas id of its item.
     *
     * @param <T> the type of the object
     * @param value the object
     * @param cas the cas id
     */
    public record Versioned<T>(T value, long cas) {}

    /** Returns an object; null if there is no such item. */
    public T get(String key) {
        return object(client.gets(key));
    }

    /** Returns an object with its cas id; null if there is no such item. */
    public Versioned<T> gets(String key) {
        Item item = client.gets(key);
        return item == null ? null : new Versioned<>(object(item), item.cas());
    }

    /** Returns the objects that exist among keys. */
    public Map<String, T> getAll(Collection<String> keys) {
        Map<String, T> objects = new HashMap<>();
        client.getsAll(keys).forEach((key, item) -> objects.put(key, object(item)));
        return objects;
    }

    /** Sets an item's expiry time and returns its object; null if there is no such item. */
    public T gat(String key, int expiry) {
        return object(client.gat(key, expiry));
    }

    /** Stores an object. */
    public void set(String key, T value, int expiry) {
        client.set(key, serializer.serialize(value), expiry, serializer.flags(value));
    }

    /** Stores an object if there is no such item. Returns false if there is one. */
    public boolean add(String key, T value, int expiry) {
        return client.add(key, serializer.serialize(value), expiry, serializer.flags(value));
    }

    /** Stores an object if there is such an item. Returns false if there is none. */
    public boolean replace(String key, T value, int expiry) {
        return client.replace(key, serializer.serialize(value), expiry, serializer.flags(value));
    }

    /** Stores an object if the item still has this cas id. */
    public CasResult cas(String key, T value, long cas, int expiry) {
        return client.cas(key, serializer.serialize(value), cas, expiry, serializer.flags(value));
    }

    /** Deletes an item. Returns false if there is no such item. */
    public boolean delete(String key) {
        return client.delete(key);
    }

    /** Returns an object later; null if there is no such item. */
    public CompletableFuture<T> getAsync(String key) {
        return client.async().gets(key).thenApply(this::object);
    }

    /** Stores an object later. */
    public CompletableFuture<Void> setAsync(String key, T value, int expiry) {
        return client.async().set(key, serializer.serialize(value), expiry, serializer.flags(value));
    }
}
