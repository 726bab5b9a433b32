package io.situ.store;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;
import java.util.Arrays;
import java.util.Iterator;
import java.util.NoSuchElementException;

/**
 * An iterator over entries, in the order of their keys. One thread at a time uses it: two at a time may get wrong
 * entries. It sees one moment, so writes do not disturb it. It keeps deleted and overwritten data on disk until it is
 * closed, or has returned its last entry.
 *
 * <p>One call of the library copies many entries, at first few and then more: short walks stay cheap, long ones become
 * so. They come into an array on the heap, by way of the memory of the thread, so an iterator has no native buffer.
 */
public final class EntryIterator implements Iterator<Entry>, AutoCloseable {
    private static final int CHUNK_BYTES_MIN = 1 << 10;
    private static final int CHUNK_BYTES_MAX = 64 << 10;
    private static final int LENGTHS_BYTES = 8;
    private static final VarHandle INT = MethodHandles.byteArrayViewVarHandle(int[].class, ByteOrder.nativeOrder());

    private final Cursor cursor;
    private final boolean isReverse;
    private byte[] chunk = {};
    private int place;
    private int end;
    private int chunkBytes = CHUNK_BYTES_MIN;
    private boolean isAtEnd;

    /** Takes a cursor, and moves it to the first entry. */
    EntryIterator(Cursor cursor, boolean isReverse) {
        this.cursor = cursor;
        this.isReverse = isReverse;
        try {
            isAtEnd = !(isReverse ? cursor.seekToLast() : cursor.seekToFirst());
        } catch (RuntimeException failed) {
            cursor.close();
            throw failed;
        }
        if (isAtEnd) {
            cursor.close();
        }
    }

    @Override
    public boolean hasNext() {
        return place < end || !isAtEnd && fill();
    }

    @Override
    public Entry next() {
        if (!hasNext()) {
            throw new NoSuchElementException("the iterator has returned its last entry");
        }
        int keyAt = place + LENGTHS_BYTES;
        int valueAt = keyAt + (int) INT.get(chunk, place);
        int next = valueAt + (int) INT.get(chunk, place + 4);
        Entry entry = new Entry(Arrays.copyOfRange(chunk, keyAt, valueAt), Arrays.copyOfRange(chunk, valueAt, next));
        place = next;
        return entry;
    }

    /** Returns the key of the entry that {@link #next} returns; null at the end. */
    public byte[] peekKey() {
        if (!hasNext()) {
            return null;
        }
        int keyAt = place + LENGTHS_BYTES;
        return Arrays.copyOfRange(chunk, keyAt, keyAt + (int) INT.get(chunk, place));
    }

    /** Reads the next entries. Returns false at the end. */
    private boolean fill() {
        long handle = cursor.enter();
        try {
            Scratch scratch = Scratch.borrow();
            try {
                isAtEnd = !read(handle, scratch, chunkBytes);
            } finally {
                scratch.giveBack();
            }
        } finally {
            cursor.exit();
        }
        if (isAtEnd) {
            cursor.close();
        }
        return !isAtEnd;
    }

    private boolean read(long handle, Scratch scratch, long capacity) {
        long at = scratch.reserve(capacity);
        int status = scratch.check(Native.call(Native.CURSOR_READ, handle, isReverse ? 1 : 0, at, capacity,
                scratch.at(Scratch.USED), scratch.at(Scratch.ENTRIES), scratch.error));
        if (status == Native.MISS) {
            return false;
        }
        int used = Math.toIntExact(scratch.number(Scratch.USED));
        if (scratch.number(Scratch.ENTRIES) == 0) {
            // The first entry takes that much.
            return read(handle, scratch, used);
        }
        if (chunk.length < used) {
            // The first array is as long as need be, for short walks; later ones are filled again.
            chunk = new byte[chunkBytes == CHUNK_BYTES_MIN ? used : Math.max(used, chunkBytes)];
        }
        scratch.copyOut(0, chunk, 0, used);
        place = 0;
        end = used;
        chunkBytes = Math.min(2 * chunkBytes, CHUNK_BYTES_MAX);
        return true;
    }

    /** Closes the iterator. A second call does nothing, and so does one at the end. */
    @Override
    public void close() {
        cursor.close();
        end = place;
    }
}
