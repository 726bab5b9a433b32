package io.situ.store;

/** The durability of a write: the failures that it survives once the call has returned. */
public enum Durability {
    /** That of the store's option {@code durability}, which is {@link #BUFFERED} unless it was set. */
    AS_STORE,
    /** The write survives the end of the process. Power failure may take the latest writes. */
    BUFFERED,
    /** The write survives power failure. */
    SYNCED
}
