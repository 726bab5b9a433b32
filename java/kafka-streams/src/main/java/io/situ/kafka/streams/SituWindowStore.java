package io.situ.kafka.streams;

import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.function.LongFunction;
import java.util.function.Predicate;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.internals.TimeWindow;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.StateStoreContext;
import org.apache.kafka.streams.state.HeadersBytesStore;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.TimestampedBytesStore;
import org.apache.kafka.streams.state.WindowStore;
import org.apache.kafka.streams.state.WindowStoreIterator;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * A window store. The changelog has the layout of a key: the key, the start of its window (8 bytes), and a number that
 * tells duplicates apart (4 bytes).
 */
class SituWindowStore extends SituStateStore implements WindowStore<Bytes, byte[]> {
    private static final Logger LOG = LoggerFactory.getLogger(SituWindowStore.class);
    private static final int SUFFIX_BYTES = Long.BYTES + Integer.BYTES;

    private final long windowSize;
    private final boolean retainDuplicates;
    private final Segments segments;
    private int duplicate;

    SituWindowStore(String name, long retention, long interval, long windowSize, boolean retainDuplicates) {
        super(name);
        this.windowSize = windowSize;
        this.retainDuplicates = retainDuplicates;
        segments = new Segments(state, retention, interval, SituWindowStore::startOf);
    }

    /** A window store whose values begin with a timestamp. */
    static final class Timestamped extends SituWindowStore implements TimestampedBytesStore {
        Timestamped(String name, long retention, long interval, long windowSize, boolean retainDuplicates) {
            super(name, retention, interval, windowSize, retainDuplicates);
        }
    }

    /** A window store whose values begin with headers and a timestamp. */
    static final class WithHeaders extends SituWindowStore implements TimestampedBytesStore, HeadersBytesStore {
        WithHeaders(String name, long retention, long interval, long windowSize, boolean retainDuplicates) {
            super(name, retention, interval, windowSize, retainDuplicates);
        }
    }

    @Override
    void open(StateStoreContext context, StateStore root) {
        segments.open(context, root);
    }

    @Override
    public void put(Bytes key, byte[] value, long windowStart) {
        byte[] bytes = PartitionState.bytesOf(key, "key");
        if (retainDuplicates) {
            if (value == null) {
                // With duplicates, nothing says which one to delete.
                return;
            }
            duplicate = (duplicate + 1) & Integer.MAX_VALUE;
        }
        segments.put(keyOf(bytes, windowStart, duplicate), value);
    }

    @Override
    public byte[] fetch(Bytes key, long time) {
        return segments.get(keyOf(PartitionState.bytesOf(key, "key"), time, duplicate));
    }

    @Override
    public WindowStoreIterator<byte[]> fetch(Bytes key, long from, long to) {
        return fetch(key, from, to, true);
    }

    @Override
    public WindowStoreIterator<byte[]> backwardFetch(Bytes key, long from, long to) {
        return fetch(key, from, to, false);
    }

    private WindowStoreIterator<byte[]> fetch(Bytes key, long from, long to, boolean forward) {
        byte[] bytes = PartitionState.bytesOf(key, "key");
        long first = Math.max(Math.max(from, segments.firstLive()), 0);
        byte[] begin = keyOf(bytes, first, 0);
        byte[] end = keyOf(bytes, Math.max(to, 0), Integer.MAX_VALUE);
        // A longer key may lie between two windows of this one.
        Predicate<byte[]> wanted = stored -> stored.length == begin.length && isWithin(stored, first, to);
        return new TimeIterator(segments.range(begin, last -> end, first, to, forward, wanted));
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> fetch(Bytes keyFrom, Bytes keyTo, long from, long to) {
        return fetch(keyFrom, keyTo, from, to, true);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> backwardFetch(Bytes keyFrom, Bytes keyTo, long from, long to) {
        return fetch(keyFrom, keyTo, from, to, false);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> all() {
        return fetch(null, null, 0, Long.MAX_VALUE, true);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> backwardAll() {
        return fetch(null, null, 0, Long.MAX_VALUE, false);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> fetchAll(long from, long to) {
        return fetch(null, null, from, to, true);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> backwardFetchAll(long from, long to) {
        return fetch(null, null, from, to, false);
    }

    private KeyValueIterator<Windowed<Bytes>, byte[]> fetch(Bytes keyFrom, Bytes keyTo, long from, long to, boolean forward) {
        Ranges.warnIfEmpty(LOG, keyFrom, keyTo);
        long first = Math.max(Math.max(from, segments.firstLive()), 0);
        Predicate<byte[]> wanted = stored -> isWithin(stored, first, to) && Ranges.holds(keyFrom, keyTo, bareKey(stored));
        LongFunction<byte[]> end = last -> Ranges.end(keyTo, last, SUFFIX_BYTES);
        var entries = segments.range(Ranges.begin(keyFrom), end, first, to, forward, wanted);
        return new WindowIterator<>(entries, stored -> windowed(stored, windowSize));
    }

    private static boolean isWithin(byte[] stored, long from, long to) {
        long start = startOf(stored);
        return start >= from && start <= to;
    }

    private static byte[] keyOf(byte[] key, long start, int duplicate) {
        return ByteBuffer.allocate(key.length + SUFFIX_BYTES).put(key).putLong(start).putInt(duplicate).array();
    }

    private static long startOf(byte[] stored) {
        return ByteBuffer.wrap(stored).getLong(stored.length - SUFFIX_BYTES);
    }

    private static Bytes bareKey(byte[] stored) {
        return Bytes.wrap(Arrays.copyOf(stored, stored.length - SUFFIX_BYTES));
    }

    private static Windowed<Bytes> windowed(byte[] stored, long windowSize) {
        long start = startOf(stored);
        long end = start + windowSize;
        return new Windowed<>(bareKey(stored), new TimeWindow(start, end < 0 ? Long.MAX_VALUE : end));
    }

    /** The windows of one key, by their starts. */
    private static final class TimeIterator implements WindowStoreIterator<byte[]> {
        private final KeyValueIterator<Bytes, byte[]> entries;

        TimeIterator(KeyValueIterator<Bytes, byte[]> entries) {
            this.entries = entries;
        }

        @Override
        public Long peekNextKey() {
            return startOf(entries.peekNextKey().get());
        }

        @Override
        public boolean hasNext() {
            return entries.hasNext();
        }

        @Override
        public KeyValue<Long, byte[]> next() {
            KeyValue<Bytes, byte[]> entry = entries.next();
            return KeyValue.pair(startOf(entry.key.get()), entry.value);
        }

        @Override
        public void close() {
            entries.close();
        }
    }
}
