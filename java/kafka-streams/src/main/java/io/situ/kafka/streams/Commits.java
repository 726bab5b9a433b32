package io.situ.kafka.streams;

import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.StateStoreContext;
import org.apache.kafka.streams.processor.internals.InternalProcessorContext;
import org.apache.kafka.streams.processor.internals.ProcessorMetadata;
import org.apache.kafka.streams.state.internals.CacheFlushListener;
import org.apache.kafka.streams.state.internals.CachedStateStore;

/**
 * Hears of the commits of a running task under exactly-once.
 *
 * <p>Kafka Streams commits a store when its task is restored, suspended or closed. While a task runs under
 * exactly-once, it commits its transactions and tells the stores nothing. A store that waits for the end of the task
 * would lose all that in a crash. So this class listens at both ends of a commit:
 *
 * <ol>
 *   <li>Before a transaction ends, Kafka Streams empties the caches of the task, also of stores that it finds among
 *       those that are registered. This is such a store, with nothing but a cache, behind the true one.
 *   <li>After the transaction has been committed, Kafka Streams resets a flag in the metadata of the task. The first
 *       step replaces the metadata by one that counts this.
 * </ol>
 *
 * <p>Between the two, other caches are emptied. Their records may reach a processor that changes the true store again,
 * and the transaction may yet fail. Then Kafka Streams closes the task, which empties the caches again, and resets the
 * flag as well. So a commit that begins before the last one has ended says that the last one has failed.
 */
final class Commits implements StateStore, CachedStateStore<Object, Object> {
    private final String name;
    private final InternalProcessorContext<?, ?> task;
    /** The metadata in which the commit that has begun ends, or null. */
    private Metadata begun;
    private long endedBefore;
    private boolean hasFailed;
    private boolean open = true;

    /** The metadata of a task that counts its commits. */
    private static final class Metadata extends ProcessorMetadata {
        private long ended;

        static Metadata of(InternalProcessorContext<?, ?> task) {
            ProcessorMetadata present = task.processorMetadata();
            if (present instanceof Metadata ours) {
                return ours;
            }
            Metadata ours = new Metadata();
            ours.update(present);
            ours.setNeedsCommit(present.needsCommit());
            task.setProcessorMetadata(ours);
            return ours;
        }

        @Override
        public void setNeedsCommit(boolean needsCommit) {
            super.setNeedsCommit(needsCommit);
            ended += needsCommit ? 0 : 1;
        }
    }

    Commits(String store, InternalProcessorContext<?, ?> task) {
        name = store + "-situ-commits";
        this.task = task;
    }

    /** Returns true if a commit has ended since its beginning, once for each. */
    boolean takeEnd() {
        if (begun == null || begun.ended == endedBefore) {
            return false;
        }
        begun = null;
        return true;
    }

    /** Forgets what has begun: the state is committed. */
    void reset() {
        begun = null;
        hasFailed = false;
    }

    @Override
    public void flushCache() {
        hasFailed |= begun != null && begun.ended == endedBefore;
        if (hasFailed) {
            begun = null;
            return;
        }
        begun = Metadata.of(task);
        endedBefore = begun.ended;
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
