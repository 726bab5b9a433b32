package io.situ.client.spy;

import io.situ.client.DeadlineException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * The result of a call that runs.
 *
 * @param <T> the type of the result
 */
public final class OperationFuture<T> implements Future<T> {
    private final String key;
    private final CompletableFuture<T> future;

    OperationFuture(String key, CompletableFuture<T> future) {
        this.key = key;
        this.future = future;
    }

    /** Returns the key of the call. */
    public String getKey() {
        return key;
    }

    /** Returns the future that this one wraps. */
    public CompletableFuture<T> toCompletableFuture() {
        return future;
    }

    @Override
    public boolean cancel(boolean mayInterruptIfRunning) {
        return future.cancel(mayInterruptIfRunning);
    }

    /** Cancels the call, if it has not ended. */
    public boolean cancel() {
        return cancel(true);
    }

    @Override
    public boolean isCancelled() {
        return future.isCancelled();
    }

    @Override
    public boolean isDone() {
        return future.isDone();
    }

    @Override
    public T get() throws InterruptedException, ExecutionException {
        return future.get();
    }

    /** Waits for the result. A deadline of the client is a {@link TimeoutException}, too. */
    @Override
    public T get(long duration, TimeUnit unit) throws InterruptedException, TimeoutException, ExecutionException {
        try {
            return future.get(duration, unit);
        } catch (ExecutionException failed) {
            if (failed.getCause() instanceof DeadlineException deadline) {
                TimeoutException timeout = new TimeoutException(deadline.getMessage());
                timeout.initCause(deadline);
                throw timeout;
            }
            throw failed;
        }
    }

    @Override
    public T resultNow() {
        return future.resultNow();
    }

    @Override
    public State state() {
        return future.state();
    }

    /** Returns true if the call has ended with a result that says that it was done. */
    public boolean isSuccessful() {
        return future.state() == State.SUCCESS && !Boolean.FALSE.equals(future.resultNow());
    }

    /** Returns a text for logs. */
    @Override
    public String toString() {
        return "OperationFuture of " + key + ": " + future.state();
    }
}
