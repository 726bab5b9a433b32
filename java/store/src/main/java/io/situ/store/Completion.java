package io.situ.store;

import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.System.Logger.Level;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executor;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;

/**
 * The end of an asynchronous call. The library calls one function for all of them, with a number as context.
 *
 * <p>The library completes a call on the caller's thread, before the call returns, or later on a thread of its own. On
 * the caller's thread, the future has no dependents yet, and is completed at once. On the library's thread, later
 * completions wait until the function returns, so dependents that block would hold up all calls, and one that waits for
 * another call would wait forever. That is why a virtual thread of its own completes each future there. The common pool
 * was rejected: it has one thread less than the machine has processors, and a dependent that waits for a latch takes
 * one away. On two processors, one such dependent held up all other futures.
 */
final class Completion {
    private static final ConcurrentHashMap<Long, Completion> WAITING = new ConcurrentHashMap<>();
    private static final AtomicLong NUMBERS = new AtomicLong();

    private static final Executor THREADS = Executors.newVirtualThreadPerTaskExecutor();

    /** Open until the library's thread has called {@link #done}: since then, it is a thread of the virtual machine. */
    private static final CountDownLatch IS_ATTACHED = new CountDownLatch(1);
    private static final int ATTACH_MAX_MS = 10_000;

    /** The address of the function. */
    private static final long DONE = stub().address();

    static {
        try {
            Runtime.getRuntime().addShutdownHook(new Thread(Completion::awaitAttached, "situ-exit"));
        } catch (IllegalStateException tooLate) {
            // The virtual machine ends already, and the caller is another hook.
        }
    }

    private final Thread caller = Thread.currentThread();
    private final CompletableFuture<byte[]> future = new CompletableFuture<>();

    private Completion() {}

    /** Begins a call of the library with the address of its function and with a context. */
    interface Call {
        void begin(long done, long context);
    }

    /** Begins a call and returns its future. */
    static CompletableFuture<byte[]> of(Call call) {
        Completion completion = new Completion();
        long number = NUMBERS.incrementAndGet();
        WAITING.put(number, completion);
        try {
            call.begin(DONE, number);
        } catch (Throwable refused) {
            // The library was not called: an argument is null.
            WAITING.remove(number);
            throw refused;
        }
        return completion.future;
    }

    /** Returns the number of calls that are not done. */
    static int waiting() {
        return WAITING.size();
    }

    /** Begins a call whose future has no value, and returns the future. */
    @SuppressWarnings("unchecked")
    static CompletableFuture<Void> ofWrite(Call call) {
        // The value is always null, which every type has.
        return (CompletableFuture<Void>) (CompletableFuture<?>) of(call);
    }

    private static MemorySegment stub() {
        try {
            MethodHandle done = MethodHandles.lookup().findStatic(Completion.class, "done",
                    MethodType.methodType(void.class, long.class, int.class, long.class, long.class));
            return Linker.nativeLinker().upcallStub(
                    done, FunctionDescriptor.ofVoid(JAVA_LONG, JAVA_INT, JAVA_LONG, JAVA_LONG), Arena.global());
        } catch (ReflectiveOperationException impossible) {
            throw new AssertionError(impossible);
        }
    }

    /**
     * Waits until the library's thread is one of the virtual machine, or has no call to complete. The end of the
     * machine stops its threads. It ends the process with an error if a foreign thread calls Java then.
     */
    private static void awaitAttached() {
        try {
            for (int i = 0; i < ATTACH_MAX_MS && !WAITING.isEmpty(); i++) {
                if (IS_ATTACHED.await(1, TimeUnit.MILLISECONDS)) {
                    return;
                }
            }
        } catch (InterruptedException ended) {
            Thread.currentThread().interrupt();
        }
    }

    /** Takes the answer of a call. An exception must not cross into the library: it would end the process. */
    private static void done(long context, int status, long value, long error) {
        try {
            WAITING.remove(context).take(status, value, error);
        } catch (Throwable thrown) {
            System.getLogger("io.situ.store").log(Level.ERROR, "the completion of a call failed", thrown);
        }
    }

    private void take(int status, long value, long error) {
        byte[] found = null;
        Throwable failure = null;
        try {
            if (status < 0) {
                failure = Native.failure(status, error);
            } else if (value != 0) {
                found = Native.takeValue(value);
            }
        } catch (Throwable thrown) {
            failure = thrown;
        }
        if (Thread.currentThread() == caller) {
            complete(found, failure);
            return;
        }
        IS_ATTACHED.countDown();
        byte[] answer = found;
        Throwable reason = failure;
        THREADS.execute(() -> complete(answer, reason));
    }

    private void complete(byte[] found, Throwable failure) {
        if (failure == null) {
            future.complete(found);
        } else {
            future.completeExceptionally(failure);
        }
    }
}
