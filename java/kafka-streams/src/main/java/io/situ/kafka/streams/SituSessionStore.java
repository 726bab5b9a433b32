package io.situ.kafka.streams;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.NoSuchElementException;
import java.util.function.LongFunction;
import java.util.function.Predicate;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.internals.SessionWindow;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.StateStoreContext;
import org.apache.kafka.streams.state.HeadersBytesStore;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.SessionStore;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** A session store. The changelog has the layout of a key: the key, the end of the session and its start, 8 bytes each. */
class SituSessionStore extends SituStateStore implements SessionStore<Bytes, byte[]> {
    private static final Logger LOG = LoggerFactory.getLogger(SituSessionStore.class);
    private static final int SUFFIX_BYTES = 2 * Long.BYTES;

    private final Segments segments;

    SituSessionStore(String name, long retention, long interval) {
        super(name);
        segments = new Segments(state, retention, interval, SituSessionStore::endOf);
    }

    /** A session store whose values begin with headers. */
    static final class WithHeaders extends SituSessionStore implements HeadersBytesStore {
        WithHeaders(String name, long retention, long interval) {
            super(name, retention, interval);
        }
    }

    @Override
    void open(StateStoreContext context, StateStore root) {
        segments.open(context, root);
    }

    @Override
    public void put(Windowed<Bytes> session, byte[] aggregate) {
        segments.put(keyOf(session), aggregate);
    }

    @Override
    public void remove(Windowed<Bytes> session) {
        segments.remove(keyOf(session));
    }

    @Override
    public byte[] fetchSession(Bytes key, long start, long end) {
        return segments.get(keyOf(PartitionState.bytesOf(key, "key"), start, end));
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> findSessions(Bytes key, long earliestEnd, long latestStart) {
        return find(key, earliestEnd, latestStart, true);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> backwardFindSessions(Bytes key, long earliestEnd, long latestStart) {
        return find(key, earliestEnd, latestStart, false);
    }

    private KeyValueIterator<Windowed<Bytes>, byte[]> find(Bytes key, long earliestEnd, long latestStart, boolean forward) {
        byte[] bytes = PartitionState.bytesOf(key, "key");
        long first = firstOf(earliestEnd);
        byte[] begin = keyOf(bytes, 0, first);
        byte[] end = keyOf(bytes, Long.MAX_VALUE, Long.MAX_VALUE);
        // A longer key may lie between two sessions of this one.
        Predicate<byte[]> wanted = stored -> stored.length == begin.length && isWithin(stored, first, latestStart);
        return sessions(segments.range(begin, last -> end, first, Long.MAX_VALUE, forward, wanted));
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> findSessions(
            Bytes keyFrom, Bytes keyTo, long earliestEnd, long latestStart) {
        return find(keyFrom, keyTo, earliestEnd, latestStart, true);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> backwardFindSessions(
            Bytes keyFrom, Bytes keyTo, long earliestEnd, long latestStart) {
        return find(keyFrom, keyTo, earliestEnd, latestStart, false);
    }

    /** Returns the sessions that end from one time to another, by their ends: they have expired, and are emitted. */
    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> findSessions(long earliestEnd, long latestEnd) {
        long first = Math.max(earliestEnd, 0);
        Predicate<byte[]> wanted = stored -> endOf(stored) >= first && endOf(stored) <= latestEnd;
        List<KeyValue<Bytes, byte[]>> found = new ArrayList<>();
        try (KeyValueIterator<Bytes, byte[]> entries = segments.range(null, last -> null, first, latestEnd, true, wanted)) {
            entries.forEachRemaining(found::add);
        }
        found.sort(Comparator.comparing((KeyValue<Bytes, byte[]> entry) -> endOf(entry.key.get()))
                .thenComparing(entry -> startOf(entry.key.get()))
                .thenComparing(entry -> bareKey(entry.key.get())));
        return sessions(new ListIterator(found));
    }

    private KeyValueIterator<Windowed<Bytes>, byte[]> find(
            Bytes keyFrom, Bytes keyTo, long earliestEnd, long latestStart, boolean forward) {
        Ranges.warnIfEmpty(LOG, keyFrom, keyTo);
        long first = firstOf(earliestEnd);
        Predicate<byte[]> wanted =
                stored -> isWithin(stored, first, latestStart) && Ranges.holds(keyFrom, keyTo, bareKey(stored));
        LongFunction<byte[]> end = last -> Ranges.end(keyTo, last, SUFFIX_BYTES);
        return sessions(segments.range(Ranges.begin(keyFrom), end, first, Long.MAX_VALUE, forward, wanted));
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> fetch(Bytes key) {
        return findSessions(key, 0, Long.MAX_VALUE);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> backwardFetch(Bytes key) {
        return backwardFindSessions(key, 0, Long.MAX_VALUE);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> fetch(Bytes keyFrom, Bytes keyTo) {
        return findSessions(keyFrom, keyTo, 0, Long.MAX_VALUE);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> backwardFetch(Bytes keyFrom, Bytes keyTo) {
        return backwardFindSessions(keyFrom, keyTo, 0, Long.MAX_VALUE);
    }

    private long firstOf(long earliestEnd) {
        return Math.max(Math.max(earliestEnd, segments.firstLive()), 0);
    }

    private static KeyValueIterator<Windowed<Bytes>, byte[]> sessions(KeyValueIterator<Bytes, byte[]> entries) {
        return new WindowIterator<>(
                entries, stored -> new Windowed<>(bareKey(stored), new SessionWindow(startOf(stored), endOf(stored))));
    }

    private static boolean isWithin(byte[] stored, long earliestEnd, long latestStart) {
        return endOf(stored) >= earliestEnd && startOf(stored) <= latestStart;
    }

    private static byte[] keyOf(Windowed<Bytes> session) {
        return keyOf(PartitionState.bytesOf(session.key(), "key"), session.window().start(), session.window().end());
    }

    private static byte[] keyOf(byte[] key, long start, long end) {
        return ByteBuffer.allocate(key.length + SUFFIX_BYTES).put(key).putLong(end).putLong(start).array();
    }

    private static long endOf(byte[] stored) {
        return ByteBuffer.wrap(stored).getLong(stored.length - SUFFIX_BYTES);
    }

    private static long startOf(byte[] stored) {
        return ByteBuffer.wrap(stored).getLong(stored.length - Long.BYTES);
    }

    private static Bytes bareKey(byte[] stored) {
        return Bytes.wrap(Arrays.copyOf(stored, stored.length - SUFFIX_BYTES));
    }

    /** Entries that were collected. */
    private static final class ListIterator implements KeyValueIterator<Bytes, byte[]> {
        private final List<KeyValue<Bytes, byte[]>> entries;
        private int place;

        ListIterator(List<KeyValue<Bytes, byte[]>> entries) {
            this.entries = entries;
        }

        @Override
        public boolean hasNext() {
            return place < entries.size();
        }

        @Override
        public Bytes peekNextKey() {
            if (!hasNext()) {
                throw new NoSuchElementException();
            }
            return entries.get(place).key;
        }

        @Override
        public KeyValue<Bytes, byte[]> next() {
            if (!hasNext()) {
                throw new NoSuchElementException();
            }
            return entries.get(place++);
        }

        @Override
        public void close() {
            place = entries.size();
        }
    }
}
