package io.situ.store;

/** The kind of a transaction: the way in which it meets other writers. */
public enum TransactionKind {
    /** The transaction locks the keys that it writes or reads for update. */
    PESSIMISTIC,
    /** The transaction takes no locks. Its commit fails if another writer changed a key that it needs. */
    OPTIMISTIC
}
