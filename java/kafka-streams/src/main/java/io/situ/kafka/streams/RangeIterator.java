package io.situ.kafka.streams;

import io.situ.kafka.streams.PartitionState.Held;
import io.situ.store.EntryIterator;
import java.util.Arrays;
import java.util.Iterator;
import java.util.Map;
import java.util.NoSuchElementException;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.errors.InvalidStateStoreException;
import org.apache.kafka.streams.state.KeyValueIterator;

/**
 * The entries of a range: those of the store, and uncommitted writes before them. A key that is put while the iterator
 * is open is not among them. Of a value that changes meanwhile, the iterator returns the old one or the new one.
 *
 * <p><b>Threads.</b> One thread uses an iterator. The thread of the task closes it, with the store, and waits for a
 * step that has begun.
 */
final class RangeIterator implements KeyValueIterator<Bytes, byte[]> {
    private final EntryIterator stored;
    private final boolean forward;
    private Iterator<Map.Entry<byte[], Held>> held;
    private Map.Entry<byte[], Held> heldNext;
    private long keysHeld;
    private KeyValue<Bytes, byte[]> next;
    private Runnable onClose = () -> {};
    private boolean closed;

    RangeIterator(EntryIterator stored, boolean forward) {
        this.stored = stored;
        this.forward = forward;
    }

    /** Gives the uncommitted writes of the range, in the order of the iterator. Later keys have greater numbers. */
    void start(Map<byte[], Held> uncommitted, long keysHeld) {
        held = uncommitted.entrySet().iterator();
        this.keysHeld = keysHeld;
        advance();
    }

    private void advance() {
        do {
            heldNext = held.hasNext() ? held.next() : null;
        } while (heldNext != null && heldNext.getValue().since() > keysHeld);
    }

    void onClose(Runnable action) {
        onClose = action;
    }

    @Override
    public synchronized boolean hasNext() {
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
        Map.Entry<byte[], Held> entry = heldNext;
        advance();
        byte[] value = entry.getValue().value();
        return value == null ? null : KeyValue.pair(Bytes.wrap(entry.getKey()), value);
    }

    @Override
    public synchronized Bytes peekNextKey() {
        if (!hasNext()) {
            throw new NoSuchElementException();
        }
        return next.key;
    }

    @Override
    public synchronized KeyValue<Bytes, byte[]> next() {
        if (!hasNext()) {
            throw new NoSuchElementException();
        }
        KeyValue<Bytes, byte[]> given = next;
        next = null;
        return given;
    }

    @Override
    public synchronized void close() {
        if (!closed) {
            closed = true;
            stored.close();
            onClose.run();
        }
    }
}
