package io.situ.store;

/** The mode of a lock of a transaction. */
public enum LockMode {
    /** No other transaction may lock the key. */
    EXCLUSIVE,
    /** Others may lock the key shared, too. No transaction may write it. */
    SHARED
}
