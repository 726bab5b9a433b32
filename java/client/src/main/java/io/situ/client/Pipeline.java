package io.situ.client;

import java.io.IOException;
import java.net.SocketTimeoutException;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Predicate;

/**
 * The asynchronous calls to one server, on one connection. Callers put exchanges into a bounded queue. A thread of
 * the pipeline, which starts with the first call, sends them without waiting for answers, and completes their futures
 * in the order in which they were sent.
 *
 * <p>A future whose deadline passes fails at once. Its exchange stays where it is, so that its answer is not taken for
 * another one's. When the server still has not answered a second after the deadline of the oldest exchange, the
 * connection is closed.
 *
 * <p><b>Failure.</b> When the connection ends, retrievals that wait for an answer are sent again once; other calls
 * fail, because the server may have executed them. Calls that were not sent go to another server if there is one.
 *
 * <p><b>Threads.</b> The queue, the two counts, {@code waiting} and {@code connection} are for all threads. The rest
 * belongs to the pipeline's thread.
 */
final class Pipeline {
    private static final long STALL_NS = TimeUnit.SECONDS.toNanos(1);
    /** Exchanges that are sent before answers are read. */
    private static final int BATCH = 64;

    private final Server server;
    private final Options options;
    /** Gives an exchange that was not sent to another server. Returns false if there is none. */
    private final Predicate<AsyncExchange<?>> reroute;

    private final ConcurrentLinkedQueue<AsyncExchange<?>> queue = new ConcurrentLinkedQueue<>();
    private final AtomicInteger calls = new AtomicInteger();
    private final AtomicLong bytes = new AtomicLong();
    private volatile Connection connection;
    private volatile boolean waiting;
    private volatile boolean closed;
    private final Object monitor = new Object();
    private Thread thread;

    private final ArrayDeque<AsyncExchange<?>> sent = new ArrayDeque<>();
    private final ArrayDeque<AsyncExchange<?>> again = new ArrayDeque<>();
    private AsyncExchange<?> sending;
    /** True if the transport has bytes that wait for room. */
    private boolean unflushed;

    Pipeline(Server server, Options options, Predicate<AsyncExchange<?>> reroute) {
        this.server = server;
        this.options = options;
        this.reroute = reroute;
    }

    /** Adds an exchange to the queue. Its future fails if the queue is full. */
    void submit(AsyncExchange<?> exchange) {
        int callsNow = calls.incrementAndGet();
        long bytesNow = bytes.addAndGet(exchange.bytes);
        // A single call may be larger than the limit.
        if (callsNow > options.queueCallsMax() || callsNow > 1 && bytesNow > options.queueBytesMax()) {
            uncount(exchange);
            exchange.future.completeExceptionally(
                    new QueueFullException("the queue of calls to " + server.address + " is full"));
            return;
        }
        queue.add(exchange);
        Connection open = connection;
        if (open == null) {
            startOrNotify();
        } else if (waiting) {
            open.transport.wake();
        }
    }

    private void uncount(AsyncExchange<?> exchange) {
        calls.decrementAndGet();
        bytes.addAndGet(-exchange.bytes);
    }

    private void startOrNotify() {
        synchronized (monitor) {
            if (closed) {
                failQueue(closedException());
            } else if (thread == null) {
                thread = Thread.ofPlatform().name("situ-client-" + server.address).daemon().unstarted(this::run);
                thread.start();
            } else {
                monitor.notifyAll();
            }
        }
    }

    private static IllegalStateException closedException() {
        return new IllegalStateException("the client is closed");
    }

    void close() {
        synchronized (monitor) {
            closed = true;
            monitor.notifyAll();
            if (thread == null) {
                failQueue(closedException());
            }
        }
        Connection open = connection;
        if (open != null) {
            open.transport.wake();
        }
    }

    private void run() {
        while (!closed) {
            try {
                if (connection != null) {
                    turn();
                } else if (!again.isEmpty() || awaitQueue()) {
                    connection = server.connect(System.nanoTime() + options.connectTimeoutNs());
                }
            } catch (IOException lost) {
                lost(server.failure(lost));
            } catch (SituException failed) {
                lost(failed);
            } catch (RuntimeException | Error failed) {
                lost(new SituException("the thread of " + server.address + " failed", failed));
            } catch (InterruptedException interrupted) {
                closed = true;
            }
        }
        lost(closedException());
        synchronized (monitor) {
            failQueue(closedException());
        }
    }

    /** Returns true if there is something to send. */
    private boolean awaitQueue() throws InterruptedException {
        synchronized (monitor) {
            while (queue.isEmpty() && !closed) {
                monitor.wait();
            }
            return !closed;
        }
    }

    private void turn() throws IOException {
        boolean progressed = sendBatch();
        progressed |= receiveAll();
        if (progressed) {
            return;
        }
        long deadline = Transport.NO_DEADLINE;
        AsyncExchange<?> oldest = sent.isEmpty() ? sending : sent.getFirst();
        if (oldest != null) {
            deadline = oldest.deadline + STALL_NS;
            if (System.nanoTime() - deadline >= 0) {
                throw new SocketTimeoutException();
            }
        }
        waiting = true;
        try {
            if (sending != null || queue.isEmpty() && !closed) {
                // An early answer to a command that is not sent yet waits.
                boolean readable = !sent.isEmpty() || sending == null;
                connection.transport.await(readable, sending != null || unflushed, deadline);
            }
        } finally {
            waiting = false;
        }
    }

    private boolean sendBatch() throws IOException {
        Transport transport = connection.transport;
        boolean progressed = false;
        for (int count = 0; count < BATCH; count++) {
            if (sending == null) {
                sending = nextToSend();
                if (sending == null) {
                    break;
                }
            }
            if (!send(transport)) {
                break;
            }
            progressed = true;
        }
        unflushed = !transport.flush();
        return progressed;
    }

    /** Gives the present exchange to the transport. Returns false if there was no room for all of it. */
    private boolean send(Transport transport) throws IOException {
        AsyncExchange<?> present = sending;
        try {
            if (!present.exchange().send(transport)) {
                return false;
            }
        } catch (RuntimeException unreadable) {
            // The caller's segment was closed, or belongs to another thread.
            sending = null;
            fail(present, new SituException("the value cannot be read", unreadable));
            if (present.exchange().isPartlySent()) {
                throw new IOException("a value became unreadable while it was sent", unreadable);
            }
            return true;
        }
        sent.add(present);
        sending = null;
        return true;
    }

    private AsyncExchange<?> nextToSend() {
        while (true) {
            AsyncExchange<?> next = again.poll();
            if (next == null) {
                next = queue.poll();
            }
            if (next == null || !next.future.isDone()) {
                return next;
            }
            uncount(next);
        }
    }

    private boolean receiveAll() throws IOException {
        boolean progressed = false;
        while (!sent.isEmpty()) {
            AsyncExchange<?> oldest = sent.getFirst();
            if (!oldest.exchange().receive(connection.input)) {
                return progressed;
            }
            sent.removeFirst();
            uncount(oldest);
            progressed = true;
            try {
                oldest.complete();
            } catch (IOException breach) {
                oldest.future.completeExceptionally(server.failure(breach));
                throw breach;
            }
        }
        if (!progressed && sending == null) {
            connection.transport.checkIdle();
        }
        return progressed;
    }

    /** Ends the connection, if there is one, and decides what becomes of every call. */
    private void lost(RuntimeException reason) {
        boolean wasConnected = connection != null;
        if (wasConnected) {
            connection.close();
            connection = null;
        }
        if (sending != null) {
            // A command that was sent in part was not executed. It is sent once more, unless it may be the cause.
            if (!closed && sending.attempts++ == 0) {
                sending.exchange().restart();
                again.addFirst(sending);
            } else {
                fail(sending, reason);
            }
            sending = null;
        }
        ArrayList<AsyncExchange<?>> repeated = new ArrayList<>();
        for (AsyncExchange<?> exchange : sent) {
            boolean repeat = !closed && exchange.exchange().isRepeatable() && exchange.attempts++ == 0
                    && !exchange.future.isDone();
            if (repeat) {
                exchange.exchange().restart();
                repeated.add(exchange);
            } else {
                fail(exchange, reason);
            }
        }
        sent.clear();
        while (!repeated.isEmpty()) {
            again.addFirst(repeated.removeLast());
        }
        if (!wasConnected || closed) {
            // Nothing waits for a server that cannot be reached.
            for (AsyncExchange<?> exchange : again) {
                rerouteOrFail(exchange, reason);
            }
            again.clear();
            AsyncExchange<?> queued;
            while ((queued = queue.poll()) != null) {
                rerouteOrFail(queued, reason);
            }
        }
    }

    private void rerouteOrFail(AsyncExchange<?> exchange, RuntimeException reason) {
        boolean alive = !closed && !exchange.future.isDone();
        if (alive && exchange.attempts++ < options.servers().size() && reroute.test(exchange)) {
            uncount(exchange);
        } else {
            fail(exchange, reason);
        }
    }

    private void fail(AsyncExchange<?> exchange, RuntimeException reason) {
        uncount(exchange);
        exchange.future.completeExceptionally(reason);
    }

    private void failQueue(RuntimeException reason) {
        AsyncExchange<?> queued;
        while ((queued = queue.poll()) != null) {
            fail(queued, reason);
        }
    }
}
