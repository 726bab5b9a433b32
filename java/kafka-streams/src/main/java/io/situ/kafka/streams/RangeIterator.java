package io.situ.kafka.streams;

import io.situ.store.EntryIterator;
import java.util.Arrays;
import java.util.Iterator;
import java.util.Map;
import java.util.NoSuchElementException;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.errors.InvalidStateStoreException;
import org.apache.kafka.streams.state.KeyValueIterator;

/** The entries of a range: those of the store, and uncommitted writes before them. */
final class RangeIterator implements KeyValueIterator<Bytes, byte[]> {
    private final EntryIterator stored;
    private final boolean forward;
    private Iterator<Map.Entry<byte[], byte[]>> held;
    private Map.Entry<byte[], byte[]> heldNext;
    private KeyValue<Bytes, byte[]> next;
    private Runnable onClose = () -> {};
    private volatile boolean closed;

    RangeIterator(EntryIterator stored, boolean forward) {
        this.stored = stored;
        this.forward = forward;
    }

    /** Gives the uncommitted writes of the range, in the order of the iterator. */
    void start(Map<byte[], byte[]> uncommitted) {
        held = uncommitted.entrySet().iterator();
        heldNext = held.hasNext() ? held.next() : null;
    }

    void onClose(Runnable action) {
        onClose = action;
    }

    @Override
    public boolean hasNext() {
        if (closed) {
            throw new InvalidStateStoreException("the iterator is closed");
        }
        while (next == null && (heldNext != null || stored.hasNext())) {
            next = step();
        }
        return next != null;
    }

    /** Returns the next entry, or null if it is deleted. */
    private KeyValue<Bytes, byte[]> step() {
        byte[] storedKey = stored.peekKey();
        int order = heldNext == null ? 1 : -1;
        if (heldNext != null && storedKey != null) {
            order = Arrays.compareUnsigned(heldNext.getKey(), storedKey);
            order = forward ? order : -order;
        }
        if (order > 0) {
            var entry = stored.next();
            return KeyValue.pair(Bytes.wrap(entry.key()), entry.value());
        }
        if (order == 0) {
            stored.next();
        }
        Map.Entry<byte[], byte[]> entry = heldNext;
        heldNext = held.hasNext() ? held.next() : null;
        return PartitionState.isDeleted(entry.getValue())
                ? null
                : KeyValue.pair(Bytes.wrap(entry.getKey()), entry.getValue());
    }

    @Override
    public Bytes peekNextKey() {
        if (!hasNext()) {
            throw new NoSuchElementException();
        }
        return next.key;
    }

    @Override
    public KeyValue<Bytes, byte[]> next() {
        if (!hasNext()) {
            throw new NoSuchElementException();
        }
        KeyValue<Bytes, byte[]> given = next;
        next = null;
        return given;
    }

    @Override
    public void close() {
        if (!closed) {
            closed = true;
            stored.close();
            onClose.run();
        }
    }
}
