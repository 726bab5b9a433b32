package io.situ.client;

/**
 * A way to store objects as values.
 *
 * @param <T> the type of the objects
 */
public interface Serializer<T> {
    /**
     * Returns the bytes of an object.
     *
     * @throws SituException if the object cannot be stored
     */
    byte[] serialize(T object);

    /** Returns the flags that an object is stored with. */
    default int flags(T object) {
        return 0;
    }

    /**
     * Returns the object of bytes and flags.
     *
     * @throws SituException if they are not those of an object
     */
    T deserialize(byte[] bytes, int flags);
}
