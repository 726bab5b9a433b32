package io.situ.client;

/**
 * A value with its flags and its cas id.
 *
 * @param value the value
 * @param flags the flags that it was stored with, an unsigned number
 * @param cas the cas id, an unsigned number; 0 if the call did not ask for it
 */
public record Item(byte[] value, int flags, long cas) {}
