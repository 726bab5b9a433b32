package io.situ.store;

import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandle;
import java.nio.ByteBuffer;
import java.nio.ReadOnlyBufferException;
import java.util.ArrayList;
import java.util.List;
import java.util.Spliterator;
import java.util.Spliterators;
import java.util.concurrent.CompletableFuture;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;

/**
 * An ordered map of a store. Keys are in the order of their bytes, as unsigned numbers. A key has 1 byte to 64 KiB, a
 * value at most 1 GiB less 65 KiB. Threads share a keyspace.
 *
 * <p>Calls on a keyspace whose store is closed fail with {@link SituException.Kind#CLOSED}. The handle has to be closed
 * as well.
 */
public final class Keyspace extends Shared {
    private static final int KEY_STRUCT_BYTES = 16;

    private final String name;

    Keyspace(String name, long address) {
        super("keyspace", address, handle -> Native.run(Native.KEYSPACE_FREE, handle));
        this.name = name;
    }

    /** Returns the name of the keyspace. */
    public String name() {
        return name;
    }

    /** Returns the value of a key, or null if there is none. */
    public byte[] get(byte[] key) {
        return get(key, ReadOptions.DEFAULT);
    }

    /** Returns the value of a key, or null if there is none. */
    public byte[] get(byte[] key, ReadOptions options) {
        Scratch scratch = Scratch.borrow();
        long keyspace = enter(scratch);
        try {
            long read = options.enter(scratch);
            try {
                return get(scratch, keyspace, key, read);
            } finally {
                options.exit(scratch);
            }
        } finally {
            exit(scratch);
            scratch.giveBack();
        }
    }

    /** Copies the value into the data of the thread with one call, if there is room. A larger value takes a second. */
    private static byte[] get(Scratch scratch, long keyspace, byte[] key, long read) {
        long at = scratch.reserve((long) key.length + scratch.room());
        scratch.copyIn(key, 0);
        long room = scratch.behind(key.length);
        int status = scratch.check(Native.call(Native.KEYSPACE_GET_INTO, keyspace, at, key.length, read,
                at + key.length, room, scratch.at(Scratch.USED), scratch.error));
        if (status == Native.MISS) {
            return null;
        }
        long length = scratch.number(Scratch.USED);
        if (length <= room) {
            byte[] value = new byte[(int) length];
            scratch.copyOut(key.length, value, 0, value.length);
            return value;
        }
        scratch.widen(length);
        status = scratch.check(Native.call(Native.KEYSPACE_GET, keyspace, at, key.length, read,
                scratch.at(Scratch.VALUE), scratch.error));
        return status == Native.MISS ? null : scratch.takeValue(Scratch.VALUE);
    }

    /**
     * Copies the value of a key into a buffer, from its position on, and moves the position behind the bytes copied.
     * Returns the length of the value, or -1 if there is none. A value that is longer than the room in the buffer fills
     * the buffer.
     */
    public int get(byte[] key, ByteBuffer into) {
        if (into.isReadOnly()) {
            throw new ReadOnlyBufferException();
        }
        Scratch scratch = Scratch.borrow();
        long keyspace = enter(scratch);
        try {
            long at = scratch.reserve((long) key.length + scratch.room());
            scratch.copyIn(key, 0);
            int length = into.isDirect()
                    ? copyToDirect(scratch, keyspace, at, key.length, MemorySegment.ofBuffer(into))
                    : copyToHeap(scratch, keyspace, at, key.length, into);
            into.position(into.position() + Math.clamp(length, 0, into.remaining()));
            return length;
        } finally {
            exit(scratch);
            scratch.giveBack();
        }
    }

    private static int copyToDirect(Scratch scratch, long keyspace, long key, int keyBytes, MemorySegment into) {
        int status = scratch.check(Native.getInto(
                keyspace, key, keyBytes, 0, into, scratch.at(Scratch.USED), scratch.error));
        return status == Native.MISS ? -1 : (int) scratch.number(Scratch.USED);
    }

    private static int copyToHeap(Scratch scratch, long keyspace, long key, int keyBytes, ByteBuffer into) {
        int room = (int) Math.min(scratch.behind(keyBytes), into.remaining());
        int status = scratch.check(Native.call(Native.KEYSPACE_GET_INTO, keyspace, key, keyBytes, 0, key + keyBytes,
                room, scratch.at(Scratch.USED), scratch.error));
        if (status == Native.MISS) {
            return -1;
        }
        long length = scratch.number(Scratch.USED);
        if (length <= room || room == into.remaining()) {
            int copied = (int) Math.min(length, room);
            scratch.copyOut(keyBytes, into.array(), into.arrayOffset() + into.position(), copied);
            return (int) length;
        }
        scratch.widen(length);
        status = scratch.check(Native.call(Native.KEYSPACE_GET, keyspace, key, keyBytes, 0,
                scratch.at(Scratch.VALUE), scratch.error));
        return status == Native.MISS ? -1 : Native.takeValue(scratch.at(Scratch.VALUE), MemorySegment.ofBuffer(into));
    }

    /** Returns the value of a key where it lies, or null if there is none. The caller closes the value. */
    public Value getValue(byte[] key) {
        return getValue(key, ReadOptions.DEFAULT);
    }

    /** Returns the value of a key where it lies, or null if there is none. The caller closes the value. */
    public Value getValue(byte[] key, ReadOptions options) {
        return getValue(MemorySegment.ofArray(key), options);
    }

    /** Returns the value of a key where it lies, or null if there is none. The caller closes the value. */
    public Value getValue(MemorySegment key) {
        return getValue(key, ReadOptions.DEFAULT);
    }

    /** Returns the value of a key where it lies, or null if there is none. The caller closes the value. */
    public Value getValue(MemorySegment key, ReadOptions options) {
        Scratch scratch = Scratch.borrow();
        long keyspace = enter(scratch);
        try {
            scratch.reserveForHeap(key, MemorySegment.NULL);
            long read = options.enter(scratch);
            try {
                int status = scratch.check(Native.get(keyspace, scratch.outsideHeap(key, 0), read,
                        scratch.at(Scratch.VALUE), scratch.error));
                return status == Native.MISS ? null : new Value(scratch, Scratch.VALUE);
            } finally {
                options.exit(scratch);
            }
        } finally {
            exit(scratch);
            scratch.giveBack();
        }
    }

    /** Returns the values of several keys, as of one moment; null for each key that has none. */
    public List<byte[]> getMany(List<byte[]> keys) {
        return getMany(keys, ReadOptions.DEFAULT);
    }

    /** Returns the values of several keys, as of one moment; null for each key that has none. */
    public List<byte[]> getMany(List<byte[]> keys, ReadOptions options) {
        // A list may compute its elements by calls on this store, which would take the scratch.
        return getMany(keys.toArray(byte[][]::new), options);
    }

    private List<byte[]> getMany(byte[][] keys, ReadOptions options) {
        Scratch scratch = Scratch.borrow();
        long keyspace = enter(scratch);
        try {
            // The keys as structs, then the values as structs, then the bytes of the keys.
            int count = keys.length;
            long valuesAt = (long) count * KEY_STRUCT_BYTES;
            long place = valuesAt + (long) count * Scratch.VALUE_BYTES;
            long bytes = place;
            for (byte[] key : keys) {
                bytes += key.length;
            }
            long at = scratch.reserve(bytes);
            long struct = 0;
            for (byte[] key : keys) {
                scratch.setLong(struct, at + place);
                scratch.setLong(struct + 8, key.length);
                scratch.copyIn(key, place);
                struct += KEY_STRUCT_BYTES;
                place += key.length;
            }
            long read = options.enter(scratch);
            try {
                scratch.check(Native.call(
                        Native.KEYSPACE_GET_MANY, keyspace, at, count, read, at + valuesAt, scratch.error));
            } finally {
                options.exit(scratch);
            }
            return takeValues(scratch, at, valuesAt, count);
        } finally {
            exit(scratch);
            scratch.giveBack();
        }
    }

    /** Copies and frees the values, all of them also if there is no memory for a copy. */
    private static List<byte[]> takeValues(Scratch scratch, long at, long valuesAt, int count) {
        int taken = 0;
        try {
            List<byte[]> values = new ArrayList<>(count);
            while (taken < count) {
                long value = valuesAt + (long) taken++ * Scratch.VALUE_BYTES;
                values.add(scratch.getLong(value) == 0 ? null : Native.takeValue(at + value));
            }
            return values;
        } finally {
            for (; taken < count; taken++) {
                Native.run(Native.VALUE_FREE, at + valuesAt + (long) taken * Scratch.VALUE_BYTES);
            }
        }
    }

    /** Returns true if the key has a value. */
    public boolean contains(byte[] key) {
        return contains(key, ReadOptions.DEFAULT);
    }

    /** Returns true if the key has a value. */
    public boolean contains(byte[] key, ReadOptions options) {
        Scratch scratch = Scratch.borrow();
        long keyspace = enter(scratch);
        try {
            long at = scratch.reserve(key.length);
            scratch.copyIn(key, 0);
            long read = options.enter(scratch);
            try {
                return Native.OK == scratch.check(Native.call(Native.KEYSPACE_GET_INTO, keyspace, at, key.length, read,
                        0, 0, scratch.at(Scratch.USED), scratch.error));
            } finally {
                options.exit(scratch);
            }
        } finally {
            exit(scratch);
            scratch.giveBack();
        }
    }

    /** Sets the value of a key. */
    public void put(byte[] key, byte[] value) {
        put(key, value, Durability.AS_STORE);
    }

    /** Sets the value of a key. */
    public void put(byte[] key, byte[] value, Durability durability) {
        onTwo(Native.KEYSPACE_PUT, key, value, durability);
    }

    /** Sets the value of a key. Bytes outside of the heap are not copied by this class. */
    public void put(MemorySegment key, MemorySegment value) {
        put(key, value, Durability.AS_STORE);
    }

    /** Sets the value of a key. Bytes outside of the heap are not copied by this class. */
    public void put(MemorySegment key, MemorySegment value, Durability durability) {
        Scratch scratch = Scratch.borrow();
        long keyspace = enter(scratch);
        try {
            scratch.reserveForHeap(key, value);
            scratch.check(Native.put(keyspace, scratch.outsideHeap(key, 0),
                    scratch.outsideHeap(value, Scratch.heapBytes(key)), durability.ordinal(), scratch.error));
        } finally {
            exit(scratch);
            scratch.giveBack();
        }
    }

    /** Sets the value of a key. Both are the bytes between position and limit, which stay as they are. */
    public void put(ByteBuffer key, ByteBuffer value) {
        put(key, value, Durability.AS_STORE);
    }

    /** Sets the value of a key. Both are the bytes between position and limit, which stay as they are. */
    public void put(ByteBuffer key, ByteBuffer value, Durability durability) {
        put(MemorySegment.ofBuffer(key), MemorySegment.ofBuffer(value), durability);
    }

    /** Deletes a key, which need not exist. */
    public void delete(byte[] key) {
        delete(key, Durability.AS_STORE);
    }

    /** Deletes a key, which need not exist. */
    public void delete(byte[] key, Durability durability) {
        Scratch scratch = Scratch.borrow();
        long keyspace = enter(scratch);
        try {
            long at = scratch.reserve(key.length);
            scratch.copyIn(key, 0);
            scratch.check(Native.call(
                    Native.KEYSPACE_DELETE, keyspace, at, key.length, durability.ordinal(), scratch.error));
        } finally {
            exit(scratch);
            scratch.giveBack();
        }
    }

    /** Deletes all keys from {@code begin} on and before {@code end}, at the cost of one write. */
    public void deleteRange(byte[] begin, byte[] end) {
        deleteRange(begin, end, Durability.AS_STORE);
    }

    /** Deletes all keys from {@code begin} on and before {@code end}, at the cost of one write. */
    public void deleteRange(byte[] begin, byte[] end, Durability durability) {
        onTwo(Native.KEYSPACE_DELETE_RANGE, begin, end, durability);
    }

    private void onTwo(MethodHandle write, byte[] first, byte[] second, Durability durability) {
        Scratch scratch = Scratch.borrow();
        long keyspace = enter(scratch);
        try {
            long at = scratch.reserve((long) first.length + second.length);
            scratch.copyIn(first, 0);
            scratch.copyIn(second, first.length);
            scratch.check(Native.call(write, keyspace, at, first.length, at + first.length, second.length,
                    durability.ordinal(), scratch.error));
        } finally {
            exit(scratch);
            scratch.giveBack();
        }
    }

    /**
     * Reads the value of a key without waiting for a disk. The future's value is null if there is none. The future is
     * completed as {@link #putAsync(byte[], byte[])} says.
     */
    public CompletableFuture<byte[]> getAsync(byte[] key) {
        return getAsync(key, ReadOptions.DEFAULT);
    }

    /** Reads the value of a key as {@link #getAsync(byte[])} does. */
    public CompletableFuture<byte[]> getAsync(byte[] key, ReadOptions options) {
        Scratch scratch = Scratch.borrow();
        long keyspace = enter(scratch);
        try {
            long at = scratch.reserve(key.length);
            scratch.copyIn(key, 0);
            long read = options.enter(scratch);
            try {
                return Completion.of((done, context) -> Native.run(
                        Native.KEYSPACE_GET_ASYNC, keyspace, at, key.length, read, done, context));
            } finally {
                options.exit(scratch);
            }
        } finally {
            exit(scratch);
            scratch.giveBack();
        }
    }

    /**
     * Sets the value of a key without waiting for the disk. The call copies key and value.
     *
     * <p>The future is complete when the call returns, or a virtual thread completes it later. So a dependent may
     * block, and may wait for other calls. An error of the store completes the future exceptionally; a handle that is
     * closed is refused at once.
     */
    public CompletableFuture<Void> putAsync(byte[] key, byte[] value) {
        return putAsync(key, value, Durability.AS_STORE);
    }

    /** Sets the value of a key as {@link #putAsync(byte[], byte[])} does. */
    public CompletableFuture<Void> putAsync(byte[] key, byte[] value, Durability durability) {
        Scratch scratch = Scratch.borrow();
        long keyspace = enter(scratch);
        try {
            long at = scratch.reserve((long) key.length + value.length);
            scratch.copyIn(key, 0);
            scratch.copyIn(value, key.length);
            return Completion.ofWrite((done, context) -> Native.run(Native.KEYSPACE_PUT_ASYNC, keyspace, at,
                    key.length, at + key.length, value.length, durability.ordinal(), done, context));
        } finally {
            exit(scratch);
            scratch.giveBack();
        }
    }

    /** Deletes a key without waiting for the disk, as {@link #putAsync(byte[], byte[])} sets one. */
    public CompletableFuture<Void> deleteAsync(byte[] key) {
        return deleteAsync(key, Durability.AS_STORE);
    }

    /** Deletes a key without waiting for the disk, as {@link #putAsync(byte[], byte[])} sets one. */
    public CompletableFuture<Void> deleteAsync(byte[] key, Durability durability) {
        Scratch scratch = Scratch.borrow();
        long keyspace = enter(scratch);
        try {
            long at = scratch.reserve(key.length);
            scratch.copyIn(key, 0);
            return Completion.ofWrite((done, context) -> Native.run(Native.KEYSPACE_DELETE_ASYNC, keyspace, at,
                    key.length, durability.ordinal(), done, context));
        } finally {
            exit(scratch);
            scratch.giveBack();
        }
    }

    /** Opens a cursor over the keyspace as it is now. The caller closes it. */
    public Cursor cursor() {
        return cursor(ReadOptions.DEFAULT);
    }

    /** Opens a cursor over the keyspace as it is now, or as of the snapshot of the options. The caller closes it. */
    public Cursor cursor(ReadOptions options) {
        Scratch scratch = Scratch.borrow();
        long keyspace = enter(scratch);
        try {
            long read = options.enterWithBounds(scratch);
            try {
                scratch.check(Native.call(
                        Native.KEYSPACE_CURSOR, keyspace, read, scratch.at(Scratch.USED), scratch.error));
            } finally {
                options.exit(scratch);
            }
            return new Cursor(scratch.number(Scratch.USED));
        } finally {
            exit(scratch);
            scratch.giveBack();
        }
    }

    /** Opens an iterator over all entries as they are now. */
    public EntryIterator iterator() {
        return iterator(ReadOptions.DEFAULT);
    }

    /** Opens an iterator over the entries that the options name. */
    public EntryIterator iterator(ReadOptions options) {
        return new EntryIterator(cursor(options), options.isReverse());
    }

    /** Opens a stream of the entries that the options name. Closing the stream closes its cursor. */
    public Stream<Entry> stream(ReadOptions options) {
        EntryIterator entries = iterator(options);
        int kind = Spliterator.ORDERED | Spliterator.DISTINCT | Spliterator.NONNULL | Spliterator.IMMUTABLE;
        return StreamSupport.stream(Spliterators.spliteratorUnknownSize(entries, kind), false).onClose(entries::close);
    }

    /** Removes the first entry and returns it, or null if there is none. No other caller gets the same entry. */
    public Entry popFirst() {
        return popFirst(ReadOptions.DEFAULT, Durability.AS_STORE);
    }

    /** Removes the first entry within the bounds of the options. Their other settings do not count. */
    public Entry popFirst(ReadOptions bounds, Durability durability) {
        return pop(Native.KEYSPACE_POP_FIRST, bounds, durability);
    }

    /** Removes the last entry and returns it, or null if there is none. No other caller gets the same entry. */
    public Entry popLast() {
        return popLast(ReadOptions.DEFAULT, Durability.AS_STORE);
    }

    /** Removes the last entry within the bounds of the options. Their other settings do not count. */
    public Entry popLast(ReadOptions bounds, Durability durability) {
        return pop(Native.KEYSPACE_POP_LAST, bounds, durability);
    }

    private Entry pop(MethodHandle pop, ReadOptions bounds, Durability durability) {
        Scratch scratch = Scratch.borrow();
        long keyspace = enter(scratch);
        try {
            long read = bounds.enterWithBounds(scratch);
            try {
                int status = scratch.check(Native.call(pop, keyspace, read, durability.ordinal(),
                        scratch.at(Scratch.VALUE), scratch.at(Scratch.SECOND_VALUE), scratch.error));
                if (status == Native.MISS) {
                    return null;
                }
            } finally {
                bounds.exit(scratch);
            }
            try {
                return new Entry(scratch.takeValue(Scratch.VALUE), scratch.takeValue(Scratch.SECOND_VALUE));
            } finally {
                Native.run(Native.VALUE_FREE, scratch.at(Scratch.SECOND_VALUE));
            }
        } finally {
            exit(scratch);
            scratch.giveBack();
        }
    }

    /** Writes the memtables of the keyspace to tables, and waits for that. */
    public void flush() {
        Scratch scratch = Scratch.borrow();
        long keyspace = enter(scratch);
        try {
            scratch.check(Native.call(Native.KEYSPACE_FLUSH, keyspace, scratch.error));
        } finally {
            exit(scratch);
            scratch.giveBack();
        }
    }

    /** Compacts all keys, and waits for that. */
    public void compact() {
        compact(null, null);
    }

    /** Compacts the keys from {@code begin} on and before {@code end}, and waits for that; null is no bound. */
    public void compact(byte[] begin, byte[] end) {
        Scratch scratch = Scratch.borrow();
        long keyspace = enter(scratch);
        try {
            int beginBytes = begin == null ? 0 : begin.length;
            int endBytes = end == null ? 0 : end.length;
            long at = scratch.reserve((long) beginBytes + endBytes);
            if (begin != null) {
                scratch.copyIn(begin, 0);
            }
            if (end != null) {
                scratch.copyIn(end, beginBytes);
            }
            scratch.check(Native.call(Native.KEYSPACE_COMPACT, keyspace, begin == null ? 0 : at, beginBytes,
                    end == null ? 0 : at + beginBytes, endBytes, scratch.error));
        } finally {
            exit(scratch);
            scratch.giveBack();
        }
    }

    /** Returns about how many bytes of tables the keys from {@code begin} on and before {@code end} take. */
    public long approximateBytes(byte[] begin, byte[] end) {
        Scratch scratch = Scratch.borrow();
        long keyspace = enter(scratch);
        try {
            long at = scratch.reserve((long) begin.length + end.length);
            scratch.copyIn(begin, 0);
            scratch.copyIn(end, begin.length);
            scratch.check(Native.call(Native.KEYSPACE_APPROXIMATE_BYTES, keyspace, at, begin.length, at + begin.length,
                    end.length, scratch.at(Scratch.USED), scratch.error));
            return scratch.number(Scratch.USED);
        } finally {
            exit(scratch);
            scratch.giveBack();
        }
    }

    /**
     * Returns a figure of the keyspace by its name: approximate_keys, compactions_running, dead_steps, memtable_bytes,
     * memtable_entries, memtables, table_bytes, tables, value_bytes, value_dead_bytes, writers_stopped.
     */
    public long property(String property) {
        Scratch scratch = Scratch.borrow();
        long keyspace = enter(scratch);
        try {
            scratch.check(Native.call(Native.KEYSPACE_PROPERTY, keyspace, scratch.copyText(property),
                    scratch.at(Scratch.USED), scratch.error));
            return scratch.number(Scratch.USED);
        } finally {
            exit(scratch);
            scratch.giveBack();
        }
    }

    @Override
    public String toString() {
        return "the keyspace " + name;
    }
}
