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
import java.util.concurrent.Executor;
import java.util.concurrent.ForkJoinPool;
import java.util.concurrent.atomic.AtomicLong;

/**
 * The end of an asynchronous call. The library calls one function for all of them, with a number as context.
 *
 * <p>The library completes a call on the caller's thread, before the call returns, or later on a thread of its own. On
 * the caller's thread, the future has no dependents yet, and is completed at once. On the library's thread, later
 * completions wait until the function returns, so dependents that block would hold up all calls, and one that waits for
 * another call would wait forever. That is why the common pool completes the future there.
 */
final class Completion {
    private static final ConcurrentHashMap<Long, Completion> WAITING = new ConcurrentHashMap<>();
    private static final AtomicLong NUMBERS = new AtomicLong();

    /** The common pool; without threads it would run nothing, so futures have another executor then. */
    private static final Executor POOL = ForkJoinPool.getCommonPoolParallelism() > 0
            ? ForkJoinPool.commonPool() : new CompletableFuture<>().defaultExecutor();

    /** The address of the function. */
    private static final long DONE = stub().address();

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
        call.begin(DONE, number);
        return completion.future;
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
        byte[] answer = found;
        Throwable reason = failure;
        POOL.execute(() -> complete(answer, reason));
    }

    private void complete(byte[] found, Throwable failure) {
        if (failure == null) {
            future.complete(found);
        } else {
            future.completeExceptionally(failure);
        }
    }
}
