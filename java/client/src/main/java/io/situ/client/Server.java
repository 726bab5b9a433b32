package io.situ.client;

import java.io.IOException;
import java.net.SocketTimeoutException;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Predicate;

/**
 * One server: its pool of connections for blocking calls, its health, and its pipeline for asynchronous calls.
 *
 * <p><b>Health.</b> A failed connect takes the server out of service for a time that doubles with each failure. So do
 * {@value #TIMEOUTS_MAX} calls in a row that the server did not answer in time. When the time is over, one call tries
 * to connect; meanwhile the server counts as out of service for the others.
 */
final class Server {
    private static final int TIMEOUTS_MAX = 5;
    private static final long BACK_OFF_MIN_NS = TimeUnit.MILLISECONDS.toNanos(50);
    private static final long BACK_OFF_MAX_NS = TimeUnit.SECONDS.toNanos(10);
    /** A connection that was idle for longer is looked at before it is used. */
    private static final long IDLE_NS = TimeUnit.MILLISECONDS.toNanos(500);

    final ServerAddress address;
    private final Options options;
    final Pipeline pipeline;

    private final ReentrantLock lock = new ReentrantLock();
    private final Condition returned = lock.newCondition();
    /** Idle connections; the last one was used last. */
    private final Connection[] idle;
    private int idleCount;
    private int openCount;
    private boolean closed;

    private volatile TransportKind transport;
    private volatile String version;

    private volatile int failures;
    private volatile long retryAt;
    private volatile int timeouts;

    Server(ServerAddress address, Options options, Predicate<AsyncExchange<?>> reroute) {
        this.address = address;
        this.options = options;
        idle = new Connection[options.connectionsMax()];
        pipeline = new Pipeline(this, options, reroute);
    }

    /** Returns the transport of the latest connection; null if there was none. */
    TransportKind transport() {
        return transport;
    }

    String version() {
        return version;
    }

    /** Returns true if calls may be sent to this server now. */
    boolean isUsable() {
        return failures == 0 || System.nanoTime() - retryAt >= 0;
    }

    /** Borrows a connection; {@link #giveBack} or {@link #discard} must follow. */
    Connection borrow(long deadline) {
        while (true) {
            Connection connection = takeIdle(deadline);
            if (connection == null) {
                return connectCounted(deadline);
            }
            if (System.nanoTime() - connection.idleSince < IDLE_NS) {
                return connection;
            }
            try {
                connection.transport.checkIdle();
                return connection;
            } catch (IOException ended) {
                discard(connection);
            }
        }
    }

    /** Returns an idle connection, or null if the caller has to make one. */
    private Connection takeIdle(long deadline) {
        lock.lock();
        try {
            while (true) {
                if (closed) {
                    throw new IllegalStateException("the client is closed");
                }
                if (idleCount > 0) {
                    Connection connection = idle[--idleCount];
                    idle[idleCount] = null;
                    return connection;
                }
                if (openCount < idle.length) {
                    openCount++;
                    return null;
                }
                long left = deadline - System.nanoTime();
                if (left <= 0) {
                    throw new DeadlineException("all " + idle.length + " connections to " + address + " were busy");
                }
                returned.awaitNanos(left);
            }
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
            throw new SituException("interrupted while waiting for a connection to " + address, interrupted);
        } finally {
            lock.unlock();
        }
    }

    private Connection connectCounted(long deadline) {
        Connection connection = null;
        try {
            connection = connect(deadline);
            connection.server = this;
            return connection;
        } finally {
            if (connection == null) {
                forget();
            }
        }
    }

    /** Opens a connection, unless the server is out of service. */
    Connection connect(long deadline) {
        if (!isUsable()) {
            throw new UnavailableException(address + " is out of service; the last attempt to connect failed", null);
        }
        long now = System.nanoTime();
        long connectDeadline = now + Math.min(options.connectTimeoutNs(), deadline - now);
        if (failures > 0) {
            // Other calls need not wait for the same failure.
            retryAt = connectDeadline;
        }
        try {
            Connection connection = Connection.connect(address, options, connectDeadline);
            transport = connection.transport.kind();
            version = connection.version;
            failures = 0;
            timeouts = 0;
            return connection;
        } catch (IOException failed) {
            if (System.nanoTime() - deadline >= 0) {
                // The call had less time than a connection may take.
                timedOut();
                throw new DeadlineException("the deadline passed while connecting to " + address);
            }
            takeOutOfService();
            throw new UnavailableException("cannot connect to " + address + ": " + message(failed), failed);
        }
    }

    private static String message(IOException failed) {
        return failed.getMessage() == null ? failed.getClass().getSimpleName() : failed.getMessage();
    }

    private void takeOutOfService() {
        int count = Math.min(failures, 20);
        long backOff = Math.min(BACK_OFF_MIN_NS << count, BACK_OFF_MAX_NS);
        // Up to a quarter less, so that clients do not return together.
        retryAt = System.nanoTime() + backOff - ThreadLocalRandom.current().nextLong(backOff / 4);
        failures = count + 1;
    }

    void giveBack(Connection connection) {
        connection.exchange.release();
        connection.idleSince = System.nanoTime();
        if (timeouts != 0) {
            timeouts = 0;
        }
        lock.lock();
        try {
            if (!closed) {
                idle[idleCount++] = connection;
                returned.signal();
                return;
            }
        } finally {
            lock.unlock();
        }
        discard(connection);
    }

    /** Closes a borrowed connection. */
    void discard(Connection connection) {
        connection.close();
        forget();
    }

    private void forget() {
        lock.lock();
        try {
            openCount--;
            returned.signal();
        } finally {
            lock.unlock();
        }
    }

    /** Notes that a call failed on a connection, and returns the exception for the caller. */
    SituException failure(IOException failed) {
        if (failed instanceof SocketTimeoutException) {
            timedOut();
            return new DeadlineException(address + " did not answer in time");
        }
        if (failed instanceof ProtocolException) {
            return new SituException(address + ": " + failed.getMessage(), failed);
        }
        closeIdle();
        return new UnavailableException("the connection to " + address + " failed: " + message(failed), failed);
    }

    void timedOut() {
        timeouts++;
        if (timeouts >= TIMEOUTS_MAX && failures == 0) {
            timeouts = 0;
            takeOutOfService();
            closeIdle();
        }
    }

    /** Closes idle connections: when one connection fails, the others have usually failed as well. */
    private void closeIdle() {
        lock.lock();
        try {
            while (idleCount > 0) {
                idle[--idleCount].close();
                idle[idleCount] = null;
                openCount--;
            }
            returned.signalAll();
        } finally {
            lock.unlock();
        }
    }

    void close() {
        lock.lock();
        try {
            closed = true;
        } finally {
            lock.unlock();
        }
        closeIdle();
        pipeline.close();
    }
}
