package io.situ.client;

import java.io.IOException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeoutException;

/** An exchange of a pipeline with the future of its call. */
final class AsyncExchange<T> {
    /** A function from a complete answer to a result. */
    interface Result<E extends Exchange, T> {
        T of(E exchange) throws IOException;
    }

    /** A call without a key stays with its server. */
    static final long NO_HASH = -1;

    /** A future that fails with the client's own exception when its time is over. */
    private static final class CallFuture<T> extends CompletableFuture<T> {
        @Override
        public boolean completeExceptionally(Throwable reason) {
            return super.completeExceptionally(reason instanceof TimeoutException
                    ? new DeadlineException("the server did not answer in time") : reason);
        }

        @Override
        public <U> CompletableFuture<U> newIncompleteFuture() {
            return new CompletableFuture<>();
        }
    }

    private final Exchange exchange;
    private final Result<Exchange, T> result;
    final CompletableFuture<T> future = new CallFuture<>();
    final long hash;
    final long deadline;
    final long bytes;
    /** How often this was given to another server, or sent again. */
    int attempts;

    @SuppressWarnings("unchecked")
    <E extends Exchange> AsyncExchange(E exchange, long hash, long deadline, Result<E, T> result) {
        this.exchange = exchange;
        this.hash = hash;
        this.deadline = deadline;
        this.result = (Result<Exchange, T>) result;
        bytes = exchange.requestBytes();
    }

    Exchange exchange() {
        return exchange;
    }

    /** Completes the future from a complete answer. Throws if the answer is a breach of the protocol. */
    void complete() throws IOException {
        if (exchange.isError()) {
            future.completeExceptionally(new ServerErrorException(exchange.text()));
        } else {
            future.complete(result.of(exchange));
        }
    }
}
