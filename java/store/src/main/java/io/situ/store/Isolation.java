package io.situ.store;

/** The moment that the reads of a transaction see. */
public enum Isolation {
    /** All reads see one moment. */
    SNAPSHOT,
    /** Each read sees the state that is committed when the read begins. */
    READ_COMMITTED
}
