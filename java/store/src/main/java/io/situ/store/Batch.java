package io.situ.store;

import java.lang.foreign.MemorySegment;

/**
 * Writes that take effect together, in any keyspaces of one store. One thread at a time uses a batch. A batch takes at
 * most 1 GiB. {@link Store#write(Batch)} leaves it empty, so it can be filled again.
 */
public final class Batch extends Owned {
    /** Makes an empty batch. */
    public Batch() {
        super("batch", Native.number(Native.BATCH_NEW), handle -> Native.run(Native.BATCH_FREE, handle));
    }

    /** Adds a put. The batch copies key and value. */
    public Batch put(Keyspace keyspace, byte[] key, byte[] value) {
        long batch = enter();
        try {
            Scratch scratch = Scratch.borrow();
            long map = keyspace.enter(scratch);
            try {
                long at = scratch.reserve((long) key.length + value.length);
                scratch.copyIn(key, 0);
                scratch.copyIn(value, key.length);
                scratch.check(Native.call(Native.BATCH_PUT, batch, map, at, key.length, at + key.length, value.length,
                        scratch.error));
            } finally {
                keyspace.exit(scratch);
                scratch.giveBack();
            }
        } finally {
            exit();
        }
        return this;
    }

    /** Adds a put. The batch copies key and value; those outside of the heap are copied once. */
    public Batch put(Keyspace keyspace, MemorySegment key, MemorySegment value) {
        long batch = enter();
        try {
            Scratch scratch = Scratch.borrow();
            long map = keyspace.enter(scratch);
            try {
                scratch.reserveForHeap(key, value);
                scratch.check(Native.batchPut(batch, map, scratch.outsideHeap(key, 0),
                        scratch.outsideHeap(value, Scratch.heapBytes(key)), scratch.error));
            } finally {
                keyspace.exit(scratch);
                scratch.giveBack();
            }
        } finally {
            exit();
        }
        return this;
    }

    /** Adds a deletion. */
    public Batch delete(Keyspace keyspace, byte[] key) {
        long batch = enter();
        try {
            Scratch scratch = Scratch.borrow();
            long map = keyspace.enter(scratch);
            try {
                long at = scratch.reserve(key.length);
                scratch.copyIn(key, 0);
                scratch.check(Native.call(Native.BATCH_DELETE, batch, map, at, key.length, scratch.error));
            } finally {
                keyspace.exit(scratch);
                scratch.giveBack();
            }
        } finally {
            exit();
        }
        return this;
    }

    /** Adds a deletion. A key outside of the heap is copied once. */
    public Batch delete(Keyspace keyspace, MemorySegment key) {
        long batch = enter();
        try {
            Scratch scratch = Scratch.borrow();
            long map = keyspace.enter(scratch);
            try {
                scratch.reserveForHeap(key, MemorySegment.NULL);
                scratch.check(Native.batchDelete(batch, map, scratch.outsideHeap(key, 0), scratch.error));
            } finally {
                keyspace.exit(scratch);
                scratch.giveBack();
            }
        } finally {
            exit();
        }
        return this;
    }

    /** Adds a deletion of all keys from {@code begin} on and before {@code end}. */
    public Batch deleteRange(Keyspace keyspace, byte[] begin, byte[] end) {
        long batch = enter();
        try {
            Scratch scratch = Scratch.borrow();
            long map = keyspace.enter(scratch);
            try {
                long at = scratch.reserve((long) begin.length + end.length);
                scratch.copyIn(begin, 0);
                scratch.copyIn(end, begin.length);
                scratch.check(Native.call(Native.BATCH_DELETE_RANGE, batch, map, at, begin.length, at + begin.length,
                        end.length, scratch.error));
            } finally {
                keyspace.exit(scratch);
                scratch.giveBack();
            }
        } finally {
            exit();
        }
        return this;
    }

    /** Returns the number of writes. */
    public int size() {
        long batch = enter();
        try {
            return (int) Native.number(Native.BATCH_LENGTH, batch);
        } finally {
            exit();
        }
    }

    /** Returns the memory that the writes take, in bytes. */
    public long bytes() {
        long batch = enter();
        try {
            return Native.number(Native.BATCH_BYTES, batch);
        } finally {
            exit();
        }
    }

    /** Removes all writes. */
    public void clear() {
        long batch = enter();
        try {
            Native.run(Native.BATCH_CLEAR, batch);
        } finally {
            exit();
        }
    }

    @Override
    public String toString() {
        return "the batch";
    }
}
