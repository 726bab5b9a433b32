package io.situ.client;

import java.io.IOException;
import java.lang.foreign.MemorySegment;

/**
 * A stream of bytes to a server and one back. One thread at a time uses it, except for {@link #wake}. Only
 * {@link #await} waits.
 */
interface Transport extends AutoCloseable {
    /** The deadline of a wait without one. */
    long NO_DEADLINE = Long.MAX_VALUE;

    TransportKind kind();

    /**
     * Takes bytes to send, and returns how many: fewer than {@code length} if there is no room for more. The server may
     * see them at any time, and sees them after a {@link #flush} that returned true.
     */
    int write(byte[] source, int offset, int length) throws IOException;

    /** The same for bytes of a segment. */
    int write(MemorySegment source, long offset, int length) throws IOException;

    /** Returns true if all bytes taken are on their way. Otherwise the caller waits for room and calls again. */
    boolean flush() throws IOException;

    /** Copies received bytes, and returns how many; 0 if there are none. Throws when the server has closed. */
    int read(byte[] destination, int offset, int length) throws IOException;

    /** The same into a segment. */
    int read(MemorySegment destination, long offset, int length) throws IOException;

    /**
     * Waits until there is something to read or room to write, as far as asked for, or {@link #wake} is called, or the
     * server closes, or the deadline (of {@link System#nanoTime}) has passed. It may return early.
     */
    void await(boolean readable, boolean writable, long deadline) throws IOException;

    /** Ends a present or the next {@link #await}. Any thread may call this. */
    void wake();

    /** Throws if the server has closed the connection while it was idle. */
    void checkIdle() throws IOException;

    /** Closes the connection. Errors are of no interest any more. */
    @Override
    void close();
}
