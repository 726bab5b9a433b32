package io.situ.client.spy;

/**
 * A value with its cas id.
 *
 * @param <T> the type of the value
 */
public final class CASValue<T> {
    private final long cas;
    private final T value;

    /** Makes a pair. */
    public CASValue(long cas, T value) {
        this.cas = cas;
        this.value = value;
    }

    /** Returns the cas id. */
    public long getCas() {
        return cas;
    }

    /** Returns the value. */
    public T getValue() {
        return value;
    }
}
