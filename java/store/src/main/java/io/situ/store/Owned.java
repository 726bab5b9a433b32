package io.situ.store;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.lang.ref.Reference;
import java.util.function.LongConsumer;

/**
 * A handle that one thread at a time uses. A call enters it and exits it; a call that finds another one inside is
 * refused, and so is closing.
 */
abstract sealed class Owned implements AutoCloseable permits Batch, Cursor, Transaction {
    private static final int IDLE = 0;
    private static final int BUSY = 1;
    private static final int CLOSED = 2;
    private static final VarHandle STATE;

    static {
        try {
            STATE = MethodHandles.lookup().findVarHandle(Owned.class, "state", int.class);
        } catch (ReflectiveOperationException impossible) {
            throw new AssertionError(impossible);
        }
    }

    private final Leaks.Handle handle;
    private final long address;
    private volatile int state;

    Owned(String kind, long address, LongConsumer free) {
        this.address = address;
        handle = Leaks.watch(this, kind, address, free);
    }

    /** Returns the address of the handle, which no other thread uses before {@link #exit}. */
    final long enter() {
        if (!STATE.compareAndSet(this, IDLE, BUSY)) {
            throw refused();
        }
        return address;
    }

    /** Ends a call that has entered. */
    final void exit() {
        STATE.setRelease(this, IDLE);
        // Or the garbage collector might find the object unreachable during the call, and free the handle.
        Reference.reachabilityFence(this);
    }

    /** Frees the handle, in a call that has entered. Later calls are refused. */
    final void end() {
        STATE.setRelease(this, CLOSED);
        handle.close();
        Reference.reachabilityFence(this);
    }

    /** Returns true if the handle was freed. */
    final boolean isEnded() {
        return state == CLOSED;
    }

    private IllegalStateException refused() {
        return new IllegalStateException(
                this + (state == CLOSED ? " is closed" : " is in use by another thread"));
    }

    /** Lets go of what belongs to the handle, before it is freed. */
    void beforeClose() {}

    /**
     * Closes the handle. A second call does nothing.
     *
     * @throws IllegalStateException if another thread is in a call
     */
    @Override
    public void close() {
        if (STATE.compareAndSet(this, IDLE, BUSY)) {
            try {
                beforeClose();
            } catch (RuntimeException refused) {
                exit();
                throw refused;
            }
            end();
        } else if (state != CLOSED) {
            throw refused();
        }
    }
}
