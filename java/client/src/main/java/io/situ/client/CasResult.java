package io.situ.client;

/** The outcome of a {@code cas} call. */
public enum CasResult {
    /** The item was stored. */
    STORED,
    /** The item has another cas id, so it was not stored. */
    EXISTS,
    /** There is no such item, so it was not stored. */
    NOT_FOUND
}
