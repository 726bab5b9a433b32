package io.situ.kafka.streams;

import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;

/**
 * The heap that the uncommitted writes of all stores of an application take on this machine. It has one bound, whatever
 * the number of stores and partitions:
 *
 * <ol>
 *   <li>From a quarter of it on, a store that is changed asks its task for a commit. Kafka Streams commits after the
 *       records that the thread has at hand, which frees the heap.
 *   <li>From a half of it on, a store that has more than its share writes to the disk before the commit. The shares of
 *       all stores are the other half. So the bound holds but for one write of each store.
 * </ol>
 *
 * <p>The second step costs a whole restore after a crash. A store with less than its share does not get there: it would
 * write few entries each time, while the heap stays as full as it is.
 */
final class UncommittedHeap {
    private final long bytesMax;
    private final AtomicLong bytes = new AtomicLong();
    private final AtomicInteger states = new AtomicInteger();

    UncommittedHeap(long bytesMax) {
        this.bytesMax = bytesMax;
    }

    void add(long more) {
        bytes.addAndGet(more);
    }

    long bytes() {
        return bytes.get();
    }

    void opened() {
        states.incrementAndGet();
    }

    void closed() {
        states.decrementAndGet();
    }

    /** Returns true if a commit is due. */
    boolean wantsCommit() {
        return bytes.get() > bytesMax / 4;
    }

    /** Returns true if stores that have more than their share have to write it. */
    boolean isFull() {
        return bytes.get() > bytesMax / 2;
    }

    /** Returns the bytes that each store may have in any case. */
    long share() {
        return bytesMax / 2 / Math.max(1, states.get());
    }
}
