package io.situ.kafka.streams;

import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.StateStoreContext;
import org.apache.kafka.streams.state.internals.CacheFlushListener;
import org.apache.kafka.streams.state.internals.CachedStateStore;

/**
 * Hears of the commits of a running task under exactly-once.
 *
 * <p>Kafka Streams commits a store when its task is restored, suspended or closed. While a task runs under exactly-once,
 * it commits its transactions and tells the stores nothing. A store that waits for the end of the task would lose all
 * that in a crash. But before each transaction ends, Kafka Streams empties the caches of the task, also of stores that it
 * finds among those that are registered. So this is a store with nothing but a cache, behind the true one. After it was
 * emptied, no record is processed before the transaction has been committed. A task whose commit fails is closed.
 */
final class Commits implements StateStore, CachedStateStore<Object, Object> {
    private final String name;
    private final Runnable transactionEnds;
    private boolean open = true;

    Commits(String store, Runnable transactionEnds) {
        name = store + "-situ-commits";
        this.transactionEnds = transactionEnds;
    }

    @Override
    public void flushCache() {
        transactionEnds.run();
    }

    @Override
    public void clearCache() {}

    @Override
    public boolean setFlushListener(CacheFlushListener<Object, Object> listener, boolean sendOldValues) {
        return false;
    }

    @Override
    public String name() {
        return name;
    }

    @Override
    public void init(StateStoreContext context, StateStore root) {}

    @Override
    public void close() {
        open = false;
    }

    @Override
    public boolean persistent() {
        return false;
    }

    @Override
    public boolean isOpen() {
        return open;
    }
}
