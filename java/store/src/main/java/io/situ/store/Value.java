package io.situ.store;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.ref.Reference;
import java.nio.ByteBuffer;

/**
 * A value where it lies, in the store's memory, without a copy. It may keep a block of the cache in memory: close it
 * soon. It outlives the store. The thread that read it uses and closes it; its memory cannot be accessed later.
 */
public final class Value implements AutoCloseable {
    private final Arena arena = Arena.ofConfined();
    private final Leaks.Handle handle;
    private final MemorySegment segment;

    /** Takes the {@code situ_value} at a place. */
    Value(Scratch scratch, int place) {
        handle = Leaks.watch(this, "value", scratch.number(place + 16), Scratch::freeValue);
        // The segment refers to the value: the garbage collector frees neither while the other is in use.
        segment = MemorySegment.ofAddress(scratch.number(place))
                .reinterpret(scratch.number(place + 8), arena, ignored -> Reference.reachabilityFence(this))
                .asReadOnly();
    }

    /** Returns the bytes, read-only. */
    public MemorySegment segment() {
        return segment;
    }

    /** Returns the bytes as a new read-only buffer. */
    public ByteBuffer buffer() {
        return segment.asByteBuffer();
    }

    /**
     * Frees the value. A second call does nothing.
     *
     * @throws WrongThreadException if another thread has read the value
     */
    @Override
    public void close() {
        if (arena.scope().isAlive()) {
            arena.close();
            handle.close();
        }
    }
}
