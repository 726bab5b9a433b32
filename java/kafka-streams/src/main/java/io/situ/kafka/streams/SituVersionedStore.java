package io.situ.kafka.streams;

import java.nio.ByteBuffer;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Iterator;
import java.util.List;
import java.util.function.BiConsumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.metrics.Sensor;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.StateStoreContext;
import org.apache.kafka.streams.processor.internals.metrics.StreamsMetricsImpl;
import org.apache.kafka.streams.processor.internals.metrics.TaskMetrics;
import org.apache.kafka.streams.query.MultiVersionedKeyQuery;
import org.apache.kafka.streams.query.Position;
import org.apache.kafka.streams.query.PositionBound;
import org.apache.kafka.streams.query.Query;
import org.apache.kafka.streams.query.QueryConfig;
import org.apache.kafka.streams.query.QueryResult;
import org.apache.kafka.streams.query.ResultOrder;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.VersionedKeyValueStore;
import org.apache.kafka.streams.state.VersionedRecord;
import org.apache.kafka.streams.state.VersionedRecordIterator;
import org.apache.kafka.streams.state.internals.StoreQueryUtils;

/**
 * A versioned key-value store. A version is an entry: the length of the key (4 bytes), the key, and the time from which
 * on the version is valid (8 bytes, in their order). Its value has a byte before it: 1, or 0 and nothing for a deletion.
 *
 * <p>A version is valid until the next one of its key. Versions that no read may ask for any more are deleted when their
 * key gets another one. A key that is not written again keeps them.
 */
final class SituVersionedStore extends SituStateStore implements VersionedKeyValueStore<Bytes, byte[]> {
    private final long historyRetention;
    private Sensor dropped;
    private volatile long streamTime = ConsumerRecord.NO_TIMESTAMP;

    SituVersionedStore(String name, long historyRetention) {
        super(name);
        this.historyRetention = historyRetention;
    }

    @Override
    void open(StateStoreContext context, StateStore root) {
        dropped = context.metrics() instanceof StreamsMetricsImpl metrics
                ? TaskMetrics.droppedRecordsSensor(Thread.currentThread().getName(), context.taskId().toString(), metrics)
                : null;
        state.open(context);
        state.register(root, this::restore);
    }

    /** A restored version is one more put: which versions have expired depends on those before. */
    private void restore(Collection<ConsumerRecord<byte[], byte[]>> records) {
        for (ConsumerRecord<byte[], byte[]> record : records) {
            if (record.timestamp() >= streamTime - historyRetention) {
                streamTime = Math.max(streamTime, record.timestamp());
                store(record.key(), record.value(), record.timestamp(), state::putRestored);
            }
            state.restored(record);
        }
        state.writeRestored();
    }

    @Override
    public long put(Bytes key, byte[] value, long timestamp) {
        byte[] bytes = PartitionState.bytesOf(key, "key");
        state.checkOpen();
        if (timestamp < streamTime - historyRetention) {
            drop();
            return PUT_RETURN_CODE_NOT_PUT;
        }
        streamTime = Math.max(streamTime, timestamp);
        return store(bytes, value, timestamp, state::put);
    }

    @Override
    public VersionedRecord<byte[]> delete(Bytes key, long timestamp) {
        byte[] bytes = PartitionState.bytesOf(key, "key");
        state.checkOpen();
        if (timestamp < streamTime - historyRetention) {
            drop();
            return null;
        }
        VersionedRecord<byte[]> present = get(key, timestamp);
        streamTime = Math.max(streamTime, timestamp);
        store(bytes, null, timestamp, state::put);
        return present;
    }

    private void drop() {
        if (dropped != null) {
            dropped.record();
        }
    }

    /** Adds a version, removes those that have expired, and returns the time until which it is valid. */
    private long store(byte[] key, byte[] value, long timestamp, BiConsumer<byte[], byte[]> write) {
        long validTo = PUT_RETURN_CODE_VALID_TO_UNDEFINED;
        try (KeyValueIterator<Bytes, byte[]> later = versions(key, timestamp, Long.MAX_VALUE, true)) {
            while (later.hasNext() && validTo == PUT_RETURN_CODE_VALID_TO_UNDEFINED) {
                long time = timeOf(later.next().key.get());
                validTo = time == timestamp ? validTo : time;
            }
        }
        boolean expired = validTo != PUT_RETURN_CODE_VALID_TO_UNDEFINED && validTo <= streamTime - historyRetention;
        if (!expired) {
            byte[] stored = new byte[1];
            if (value != null) {
                stored = ByteBuffer.allocate(1 + value.length).put((byte) 1).put(value).array();
            }
            write.accept(keyOf(key, timestamp), stored);
        }
        removeExpired(key, write);
        return validTo;
    }

    /** Removes the versions before the one that was valid at the beginning of the history. */
    private void removeExpired(byte[] key, BiConsumer<byte[], byte[]> write) {
        List<byte[]> expired = new ArrayList<>();
        try (KeyValueIterator<Bytes, byte[]> older = versions(key, Long.MIN_VALUE, streamTime - historyRetention, false)) {
            boolean isFirst = true;
            while (older.hasNext()) {
                KeyValue<Bytes, byte[]> version = older.next();
                // A deletion at the beginning says as much as no version.
                if (!isFirst || version.value.length == 1 && version.value[0] == 0) {
                    expired.add(version.key.get());
                }
                isFirst = false;
            }
        }
        expired.forEach(version -> write.accept(version, null));
    }

    @Override
    public VersionedRecord<byte[]> get(Bytes key) {
        byte[] bytes = PartitionState.bytesOf(key, "key");
        try (KeyValueIterator<Bytes, byte[]> latest = versions(bytes, Long.MIN_VALUE, Long.MAX_VALUE, false)) {
            return latest.hasNext() ? record(latest.next(), null) : null;
        }
    }

    @Override
    public VersionedRecord<byte[]> get(Bytes key, long asOf) {
        byte[] bytes = PartitionState.bytesOf(key, "key");
        Long validTo = null;
        try (KeyValueIterator<Bytes, byte[]> later = versions(bytes, asOf == Long.MAX_VALUE ? asOf : asOf + 1, Long.MAX_VALUE, true)) {
            if (asOf != Long.MAX_VALUE && later.hasNext()) {
                validTo = timeOf(later.next().key.get());
            }
        }
        if (validTo != null && asOf < streamTime - historyRetention) {
            // Only the latest version never expires.
            return null;
        }
        try (KeyValueIterator<Bytes, byte[]> earlier = versions(bytes, Long.MIN_VALUE, asOf, false)) {
            return earlier.hasNext() ? record(earlier.next(), validTo) : null;
        }
    }

    @Override
    @SuppressWarnings("unchecked")
    public <R> QueryResult<R> query(Query<R> query, PositionBound bound, QueryConfig config) {
        // Kafka's own handler of this query takes no store but its own.
        if (!(query instanceof MultiVersionedKeyQuery<?, ?> versions)) {
            return super.query(query, bound, config);
        }
        Position position = state.position();
        synchronized (position) {
            int partition = state.context().taskId().partition();
            QueryResult<R> result = StoreQueryUtils.isPermitted(position, bound, partition)
                    ? (QueryResult<R>) QueryResult.forResult(versions((MultiVersionedKeyQuery<Bytes, byte[]>) versions))
                    : QueryResult.notUpToBound(position, bound, partition);
            result.setPosition(position.copy());
            return result;
        }
    }

    /** Returns the versions that were valid at some time of a query, but for those that the history has lost. */
    private VersionedRecordIterator<byte[]> versions(MultiVersionedKeyQuery<Bytes, byte[]> query) {
        byte[] key = PartitionState.bytesOf(query.key(), "key");
        long from = query.fromTime().map(Instant::toEpochMilli).orElse(Long.MIN_VALUE);
        long to = query.toTime().map(Instant::toEpochMilli).orElse(Long.MAX_VALUE);
        long known = Math.max(from, streamTime - historyRetention);
        List<VersionedRecord<byte[]>> found = new ArrayList<>();
        try (KeyValueIterator<Bytes, byte[]> all = versions(key, Long.MIN_VALUE, Long.MAX_VALUE, true)) {
            while (all.hasNext()) {
                KeyValue<Bytes, byte[]> version = all.next();
                Long validTo = all.hasNext() ? timeOf(all.peekNextKey().get()) : null;
                VersionedRecord<byte[]> record = record(version, validTo);
                if (record != null && record.timestamp() <= to && (validTo == null || validTo > known)) {
                    found.add(record);
                }
            }
        }
        boolean isAscending = query.resultOrder() == ResultOrder.ASCENDING;
        Iterator<VersionedRecord<byte[]>> order = (isAscending ? found : found.reversed()).iterator();
        return new VersionedRecordIterator<>() {
            @Override
            public boolean hasNext() {
                return order.hasNext();
            }

            @Override
            public VersionedRecord<byte[]> next() {
                return order.next();
            }

            @Override
            public void close() {}
        };
    }

    private static VersionedRecord<byte[]> record(KeyValue<Bytes, byte[]> version, Long validTo) {
        if (version.value[0] == 0) {
            return null;
        }
        byte[] value = Arrays.copyOfRange(version.value, 1, version.value.length);
        long validFrom = timeOf(version.key.get());
        return validTo == null ? new VersionedRecord<>(value, validFrom) : new VersionedRecord<>(value, validFrom, validTo);
    }

    /** Returns the versions of a key from the times {@code from} to {@code to}, both included. */
    private KeyValueIterator<Bytes, byte[]> versions(byte[] key, long from, long to, boolean forward) {
        return state.range(keyOf(key, from), PartitionState.behind(keyOf(key, to)), forward);
    }

    private static byte[] keyOf(byte[] key, long time) {
        // With the sign turned round, the order of bytes is that of times.
        return ByteBuffer.allocate(Integer.BYTES + key.length + Long.BYTES)
                .putInt(key.length)
                .put(key)
                .putLong(time ^ Long.MIN_VALUE)
                .array();
    }

    private static long timeOf(byte[] stored) {
        return ByteBuffer.wrap(stored).getLong(stored.length - Long.BYTES) ^ Long.MIN_VALUE;
    }
}
