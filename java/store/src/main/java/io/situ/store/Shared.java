package io.situ.store;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.lang.ref.Reference;
import java.util.concurrent.atomic.AtomicIntegerArray;
import java.util.function.LongConsumer;

/**
 * A handle that threads share. A call enters it and exits it. Closing lets no further call enter, and the last call that
 * exits frees the handle. Closing itself is such a call.
 *
 * <p>Closing does not wait for other calls. A call that ends with a {@link StackOverflowError} may lack the stack to
 * exit: it would be waited for forever. Such a handle is not freed.
 *
 * <p>Threads count their calls in different cache lines, or calls of many threads would wait for one line. That is why
 * this is no shared {@code Arena}: it has one counter, and a segment in a struct ({@code situ_read.snapshot}) does not
 * count there at all.
 *
 * <p><b>Invariant.</b> A call adds itself to a counter before it reads the address, and subtracts itself before it reads
 * it again. The address is cleared before counters are read. So no call that has entered is overlooked, and of the calls
 * on a closed handle, the last one sees that it is the last.
 */
abstract sealed class Shared implements AutoCloseable permits Keyspace, Snapshot, Store {
    private static final int STRIPES =
            Integer.highestOneBit(Math.clamp(Runtime.getRuntime().availableProcessors(), 1, 16));
    private static final int INTS_PER_LINE = 16;
    private static final VarHandle ADDRESS;

    static {
        try {
            ADDRESS = MethodHandles.lookup().findVarHandle(Shared.class, "address", long.class);
        } catch (ReflectiveOperationException impossible) {
            throw new AssertionError(impossible);
        }
    }

    private final AtomicIntegerArray calls = new AtomicIntegerArray((STRIPES + 1) * INTS_PER_LINE);
    private final Leaks.Handle handle;
    private volatile long address;

    Shared(String kind, long address, LongConsumer free) {
        this.address = address;
        handle = Leaks.watch(this, kind, address, free);
    }

    /** Returns the address of the handle, which is not freed before {@link #exit}. */
    final long enter(Scratch scratch) {
        calls.getAndIncrement(line(scratch.number));
        long open = address;
        if (open == 0) {
            exit(scratch);
            throw new IllegalStateException(this + " is closed");
        }
        return open;
    }

    /** Ends a call that has entered. */
    final void exit(Scratch scratch) {
        calls.getAndDecrement(line(scratch.number));
        if (address == 0 && isIdle()) {
            handle.close();
        }
        // Or the garbage collector might find the object unreachable during the call, and free the handle.
        Reference.reachabilityFence(this);
    }

    /** Returns the place of a thread's counter. The first line has the array's length, too, which all calls read. */
    private static int line(int number) {
        return ((number & STRIPES - 1) + 1) * INTS_PER_LINE;
    }

    private boolean isIdle() {
        for (int number = 0; number < STRIPES; number++) {
            if (calls.get(line(number)) != 0) {
                return false;
            }
        }
        return true;
    }

    /** Does what belongs to closing, while other calls may go on. */
    void beforeClose(long open) {}

    /** Closes the handle. Calls of other threads that have begun go on. A second call does nothing. */
    @Override
    public void close() {
        Scratch scratch = Scratch.borrow();
        calls.getAndIncrement(line(scratch.number));
        try {
            long open = (long) ADDRESS.getAndSet(this, 0L);
            if (open != 0) {
                beforeClose(open);
            }
        } finally {
            exit(scratch);
            scratch.giveBack();
        }
    }
}
