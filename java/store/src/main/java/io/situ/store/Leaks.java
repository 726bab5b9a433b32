package io.situ.store;

import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.lang.ref.Cleaner;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.LongAdder;
import java.util.function.LongConsumer;

/**
 * The handles that are open, and those that the garbage collector found open. A handle that was not closed is freed
 * once it is unreachable, and a warning is logged: each time with the system property {@code situ.leaks=true}, which
 * also records the place where the handle was made, and otherwise once.
 */
final class Leaks {
    private static final boolean IS_TRACED = Boolean.getBoolean("situ.leaks");
    private static final Logger LOGGER = System.getLogger("io.situ.store");
    private static final Cleaner CLEANER = Cleaner.create();
    private static final Set<Handle> OPEN = ConcurrentHashMap.newKeySet();
    private static final LongAdder FOUND = new LongAdder();
    private static final AtomicBoolean IS_REPORTED = new AtomicBoolean();

    private Leaks() {}

    /** The duty to free a handle once. It does not refer to the object that has the handle. */
    static final class Handle implements Runnable {
        private final long address;
        private final LongConsumer free;
        private final String name;
        private final Throwable made;
        private Cleaner.Cleanable cleanable;
        private volatile boolean isClosed;

        private Handle(long address, LongConsumer free, String name) {
            this.address = address;
            this.free = free;
            this.name = name;
            made = IS_TRACED ? new Throwable("a " + name + " was made here, and not closed") : null;
        }

        /** Frees the handle, if it is not freed yet. */
        void close() {
            isClosed = true;
            cleanable.clean();
        }

        @Override
        public void run() {
            if (!isClosed) {
                found(this);
            }
            free.accept(address);
            if (IS_TRACED) {
                OPEN.remove(this);
            }
        }
    }

    /** Sees to it that a handle is freed when its owner closes it, or is unreachable. */
    static Handle watch(Object owner, String name, long address, LongConsumer free) {
        Handle handle = new Handle(address, free, name);
        if (IS_TRACED) {
            OPEN.add(handle);
        }
        handle.cleanable = CLEANER.register(owner, handle);
        return handle;
    }

    private static void found(Handle leaked) {
        FOUND.increment();
        if (IS_TRACED) {
            LOGGER.log(Level.WARNING, "a " + leaked.name + " was not closed", leaked.made);
        } else if (IS_REPORTED.compareAndSet(false, true)) {
            LOGGER.log(Level.WARNING, "a " + leaked.name
                    + " was not closed, and kept memory until now; -Dsitu.leaks=true shows the place of each");
        }
    }

    /** Returns the places where the handles that are open now were made, if they are recorded. */
    static List<Throwable> open() {
        return OPEN.stream().map(handle -> handle.made).toList();
    }

    /** Returns the number of handles that the garbage collector found open. */
    static long found() {
        return FOUND.sum();
    }
}
