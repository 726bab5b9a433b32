package io.situ.store;

import java.time.Duration;
import java.util.concurrent.TimeUnit;

/**
 * Options of a transaction. Options do not change: each method returns others.
 *
 * @param kind the way in which the transaction meets other writers
 * @param isolation the moment that its reads see
 * @param lockTimeout the longest wait for a lock
 * @param bytesMax the maximum memory of its writes, in bytes
 * @param durability the durability of its commit
 */
public record TransactionOptions(
        TransactionKind kind, Isolation isolation, Duration lockTimeout, long bytesMax, Durability durability) {
    /** A pessimistic transaction that reads one moment, waits a second for a lock, and takes up to 64 MiB. */
    public static final TransactionOptions DEFAULT = new TransactionOptions(
            TransactionKind.PESSIMISTIC, Isolation.SNAPSHOT, Duration.ofSeconds(1), 64 << 20, Durability.AS_STORE);

    /** Checks the options. */
    public TransactionOptions {
        if (lockTimeout.isNegative()) {
            throw new IllegalArgumentException("the wait for a lock is negative: " + lockTimeout);
        }
        if (bytesMax <= 0) {
            throw new IllegalArgumentException("the memory of a transaction has at least one byte, not " + bytesMax);
        }
    }

    /** Returns options for a transaction that takes no locks. */
    public TransactionOptions optimistic() {
        return new TransactionOptions(TransactionKind.OPTIMISTIC, isolation, lockTimeout, bytesMax, durability);
    }

    /** Returns options for a transaction whose reads see what is committed when they begin. */
    public TransactionOptions readCommitted() {
        return new TransactionOptions(kind, Isolation.READ_COMMITTED, lockTimeout, bytesMax, durability);
    }

    /** Returns options with the longest wait for a lock; zero stands for no wait. */
    public TransactionOptions lockTimeout(Duration wait) {
        return new TransactionOptions(kind, isolation, wait, bytesMax, durability);
    }

    /** Returns options with the maximum memory of the writes. */
    public TransactionOptions bytesMax(long bytes) {
        return new TransactionOptions(kind, isolation, lockTimeout, bytes, durability);
    }

    /** Returns options with the durability of the commit. */
    public TransactionOptions durability(Durability commit) {
        return new TransactionOptions(kind, isolation, lockTimeout, bytesMax, commit);
    }

    /** Fills the struct of these options and returns its address. In C, 0 is the default and -1 no wait. */
    long write(Scratch scratch) {
        long wait = lockTimeout.isZero() ? -1 : Math.max(1, TimeUnit.MILLISECONDS.convert(lockTimeout));
        return scratch.transaction(kind.ordinal(), isolation.ordinal(), wait, bytesMax, durability.ordinal());
    }
}
