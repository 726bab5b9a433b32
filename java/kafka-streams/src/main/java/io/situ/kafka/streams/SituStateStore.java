package io.situ.kafka.streams;

import java.util.Map;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.StateStoreContext;
import org.apache.kafka.streams.query.Position;
import org.apache.kafka.streams.query.PositionBound;
import org.apache.kafka.streams.query.Query;
import org.apache.kafka.streams.query.QueryConfig;
import org.apache.kafka.streams.query.QueryResult;
import org.apache.kafka.streams.state.internals.StoreQueryUtils;

/** The common part of all kinds of stores. */
abstract class SituStateStore implements StateStore {
    final PartitionState state;
    private final String name;
    private StateMetrics metrics;

    SituStateStore(String name) {
        this.name = name;
        state = new PartitionState(name);
    }

    @Override
    public String name() {
        return name;
    }

    @Override
    public void init(StateStoreContext context, StateStore root) {
        try {
            open(context, root);
            metrics = new StateMetrics(name, context, state);
        } catch (RuntimeException failure) {
            // Kafka Streams closes only stores that are registered.
            close();
            throw failure;
        }
    }

    /** Opens the state, and registers the way to restore it. */
    abstract void open(StateStoreContext context, StateStore root);

    @Override
    public void commit(Map<TopicPartition, Long> changelogOffsets) {
        state.commit(changelogOffsets);
    }

    @Override
    public Long committedOffset(TopicPartition partition) {
        return state.committedOffset(partition);
    }

    @Override
    @Deprecated
    public boolean managesOffsets() {
        return true;
    }

    @Override
    @Deprecated
    public void flush() {
        state.flush();
    }

    @Override
    public void close() {
        if (metrics != null) {
            metrics.remove();
            metrics = null;
        }
        state.close();
    }

    @Override
    public boolean persistent() {
        return true;
    }

    @Override
    public boolean isOpen() {
        return state.isOpen();
    }

    @Override
    public Position getPosition() {
        return state.position();
    }

    @Override
    public <R> QueryResult<R> query(Query<R> query, PositionBound bound, QueryConfig config) {
        return StoreQueryUtils.handleBasicQueries(query, bound, config, this, state.position(), state.context());
    }
}
