package io.situ.kafka.streams;

import java.util.ArrayList;
import java.util.List;
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
 *       step replaces the metadata by one that passes this on.
 * </ol>
 *
 * <p>Between the two, other caches are emptied. Their records may reach a processor that changes the true store again.
 * They belong to the same transaction, which may yet fail. Then Kafka Streams closes the task, which empties the caches
 * again, and resets the flag as well. So a commit that begins before the last one has ended says that the last one has
 * failed.
 */
final class Commits implements StateStore, CachedStateStore<Object, Object> {
    private final String name;
    private final InternalProcessorContext<?, ?> task;
    private final Runnable ended;
    private boolean hasBegun;
    private boolean hasFailed;
    private boolean open = true;

    /** The metadata of a task that passes on the end of its commits. */
    private static final class Metadata extends ProcessorMetadata {
        private List<Commits> begun = new ArrayList<>();

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
            if (!needsCommit) {
                List<Commits> ended = begun;
                begun = new ArrayList<>();
                ended.forEach(Commits::end);
            }
        }
    }

    /** {@code ended} runs when a transaction of the task has been committed. */
    Commits(String store, InternalProcessorContext<?, ?> task, Runnable ended) {
        name = store + "-situ-commits";
        this.task = task;
        this.ended = ended;
    }

    /** Asks the task for a commit soon. */
    void request() {
        task.commit();
    }

    /** Forgets what has begun: the state is committed. */
    void reset() {
        hasBegun = false;
        hasFailed = false;
    }

    private void end() {
        if (hasBegun) {
            hasBegun = false;
            ended.run();
        }
    }

    @Override
    public void flushCache() {
        hasFailed |= hasBegun;
        hasBegun = !hasFailed;
        if (hasBegun) {
            Metadata.of(task).begun.add(this);
        }
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
