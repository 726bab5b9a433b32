package io.situ.kafka.streams;

import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.Iterator;
import java.util.NoSuchElementException;
import java.util.NavigableSet;
import java.util.concurrent.ConcurrentSkipListSet;
import java.util.function.LongFunction;
import java.util.function.Predicate;
import java.util.function.ToLongFunction;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.metrics.Sensor;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.StateStoreContext;
import org.apache.kafka.streams.processor.internals.metrics.StreamsMetricsImpl;
import org.apache.kafka.streams.processor.internals.metrics.TaskMetrics;
import org.apache.kafka.streams.state.KeyValueIterator;

/**
 * Entries with times, in segments of time. A key of the keyspace is the number of its segment, 8 bytes, and then the key
 * that the changelog has. So a segment that has expired is one range: one write deletes it, and its tables go at once.
 *
 * <p>A reader of one key looks into each segment of its times, in their order. Times before the retention are not read,
 * whether their segment is there or not.
 */
final class Segments {
    private static final int NUMBER_BYTES = Long.BYTES;

    private final PartitionState state;
    private final long retention;
    private final long interval;
    private final ToLongFunction<byte[]> timeOf;
    private final NavigableSet<Long> present = new ConcurrentSkipListSet<>();
    private Sensor dropped;
    private volatile long streamTime = ConsumerRecord.NO_TIMESTAMP;

    /**
     * @param retention the time that entries stay, in milliseconds
     * @param interval the time of a segment, in milliseconds
     * @param timeOf the time of a key
     */
    Segments(PartitionState state, long retention, long interval, ToLongFunction<byte[]> timeOf) {
        this.state = state;
        this.retention = retention;
        this.interval = interval;
        this.timeOf = timeOf;
    }

    void open(StateStoreContext context, StateStore root) {
        dropped = context.metrics() instanceof StreamsMetricsImpl metrics
                ? TaskMetrics.droppedRecordsSensor(Thread.currentThread().getName(), context.taskId().toString(), metrics)
                : null;
        state.open(context, root, this::restored);
        present.clear();
        for (byte[] at = new byte[0]; at != null; ) {
            try (KeyValueIterator<Bytes, byte[]> next = state.range(at, null, true)) {
                at = null;
                if (next.hasNext()) {
                    long number = numberOf(next.peekNextKey().get());
                    present.add(number);
                    at = bytesOf(number + 1);
                }
            }
        }
    }

    private byte[] restored(ConsumerRecord<byte[], byte[]> record) {
        return admitted(record.key());
    }

    /** Returns the key of the keyspace, or null if its time has expired. Time goes on by it. */
    private byte[] admitted(byte[] key) {
        long time = timeOf.applyAsLong(key);
        streamTime = Math.max(streamTime, time);
        long number = segmentOf(time);
        long oldest = segmentOf(streamTime - retention);
        if (number < oldest) {
            return null;
        }
        present.add(number);
        NavigableSet<Long> expired = present.headSet(oldest, false);
        if (!expired.isEmpty()) {
            state.forget(bytesOf(0), bytesOf(oldest));
            expired.clear();
        }
        return stored(number, key);
    }

    void put(byte[] key, byte[] value) {
        state.checkOpen();
        byte[] stored = admitted(key);
        if (stored != null) {
            state.put(stored, value);
        } else if (dropped != null) {
            dropped.record();
        }
    }

    void remove(byte[] key) {
        state.checkOpen();
        long time = timeOf.applyAsLong(key);
        streamTime = Math.max(streamTime, time);
        if (present.contains(segmentOf(time))) {
            state.put(stored(segmentOf(time), key), null);
        }
    }

    byte[] get(byte[] key) {
        long time = timeOf.applyAsLong(key);
        state.checkOpen();
        return time < firstLive() || !present.contains(segmentOf(time)) ? null : state.get(stored(segmentOf(time), key));
    }

    /** Returns the first time that has not expired. */
    long firstLive() {
        return streamTime - retention + 1;
    }

    /**
     * Returns entries of the segments of times {@code from} to {@code to}: those between {@code begin} and {@code end},
     * both included, that {@code wanted} takes. The end depends on the last time of a segment. Null stands for no bound.
     */
    KeyValueIterator<Bytes, byte[]> range(
            byte[] begin, LongFunction<byte[]> end, long from, long to, boolean forward, Predicate<byte[]> wanted) {
        state.checkOpen();
        long first = segmentOf(from);
        long last = segmentOf(to);
        NavigableSet<Long> numbers =
                first > last ? new ConcurrentSkipListSet<>() : present.subSet(first, true, last, true);
        Iterator<Long> order = forward ? numbers.iterator() : numbers.descendingIterator();
        return new SegmentIterator(order, begin, end, forward, wanted);
    }

    private long segmentOf(long time) {
        return time / interval;
    }

    private static byte[] bytesOf(long number) {
        return ByteBuffer.allocate(NUMBER_BYTES).putLong(number).array();
    }

    private static long numberOf(byte[] stored) {
        return ByteBuffer.wrap(stored).getLong();
    }

    private static byte[] stored(long number, byte[] key) {
        return ByteBuffer.allocate(NUMBER_BYTES + key.length).putLong(number).put(key).array();
    }

    /** Walks the segments one after the other. */
    private final class SegmentIterator implements KeyValueIterator<Bytes, byte[]> {
        private final Iterator<Long> numbers;
        private final byte[] begin;
        private final LongFunction<byte[]> end;
        private final boolean forward;
        private final Predicate<byte[]> wanted;
        private KeyValueIterator<Bytes, byte[]> current;
        private Bytes nextKey;

        SegmentIterator(
                Iterator<Long> numbers,
                byte[] begin,
                LongFunction<byte[]> end,
                boolean forward,
                Predicate<byte[]> wanted) {
            this.numbers = numbers;
            this.begin = begin;
            this.end = end;
            this.forward = forward;
            this.wanted = wanted;
        }

        @Override
        public boolean hasNext() {
            if (!state.isOpen()) {
                return false;
            }
            while (nextKey == null) {
                if (current != null && current.hasNext()) {
                    byte[] stored = current.peekNextKey().get();
                    byte[] key = Arrays.copyOfRange(stored, NUMBER_BYTES, stored.length);
                    if (wanted.test(key)) {
                        nextKey = Bytes.wrap(key);
                    } else {
                        current.next();
                    }
                } else if (numbers.hasNext()) {
                    close();
                    long number = numbers.next();
                    byte[] first = begin == null ? bytesOf(number) : stored(number, begin);
                    byte[] last = end.apply((number + 1) * interval - 1);
                    byte[] behind = last == null ? bytesOf(number + 1) : PartitionState.behind(stored(number, last));
                    current = state.range(first, behind, forward);
                } else {
                    return false;
                }
            }
            return true;
        }

        @Override
        public Bytes peekNextKey() {
            if (!hasNext()) {
                throw new NoSuchElementException();
            }
            return nextKey;
        }

        @Override
        public KeyValue<Bytes, byte[]> next() {
            Bytes key = peekNextKey();
            nextKey = null;
            return KeyValue.pair(key, current.next().value);
        }

        @Override
        public void close() {
            if (current != null) {
                current.close();
                current = null;
            }
        }
    }
}
