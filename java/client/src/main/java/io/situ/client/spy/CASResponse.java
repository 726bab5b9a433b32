package io.situ.client.spy;

/** The outcome of a {@code cas} call. */
public enum CASResponse {
    /** The item was stored. */
    OK,
    /** There is no such item. */
    NOT_FOUND,
    /** The item has another cas id. */
    EXISTS
}
