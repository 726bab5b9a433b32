package io.situ.store;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandle;
import java.lang.ref.Reference;

/**
 * A place among the keys of a keyspace, or between two of them. One thread at a time uses a cursor. It sees one moment,
 * so writes do not disturb it. It keeps deleted and overwritten data on disk until it is closed.
 *
 * <p>A new cursor stands on no entry until it is moved.
 */
public final class Cursor extends Owned {
    private boolean isRead;
    private boolean isOnEntry;
    private long key;
    private long keyBytes;
    private long value;
    private long valueBytes;
    /** The life of the segments of this entry, if the caller has asked for one. */
    private Arena segments;
    private MemorySegment keySegment;
    private MemorySegment valueSegment;

    Cursor(long address) {
        super("cursor", address, handle -> Native.run(Native.CURSOR_FREE, handle));
    }

    /** Moves to the first entry. Returns true if there is one. */
    public boolean seekToFirst() {
        return move(Native.CURSOR_SEEK_TO_FIRST);
    }

    /** Moves to the last entry. Returns true if there is one. */
    public boolean seekToLast() {
        return move(Native.CURSOR_SEEK_TO_LAST);
    }

    /** Moves to the first entry from a key on, the key included. Returns true if there is one. */
    public boolean seek(byte[] key) {
        return move(Native.CURSOR_SEEK, key);
    }

    /** Moves to the last entry up to a key, the key included. Returns true if there is one. */
    public boolean seekForPrev(byte[] key) {
        return move(Native.CURSOR_SEEK_FOR_PREV, key);
    }

    /** Moves to the next entry. Returns true if there is one. */
    public boolean next() {
        return move(Native.CURSOR_NEXT);
    }

    /** Moves to the entry before. Returns true if there is one. */
    public boolean prev() {
        return move(Native.CURSOR_PREV);
    }

    private boolean move(MethodHandle step) {
        long cursor = enter();
        try {
            leaveEntry();
            Scratch scratch = Scratch.borrow();
            try {
                return scratch.check(Native.call(step, cursor, scratch.error)) == Native.OK;
            } finally {
                scratch.giveBack();
            }
        } finally {
            exit();
        }
    }

    private boolean move(MethodHandle seek, byte[] target) {
        long cursor = enter();
        try {
            leaveEntry();
            Scratch scratch = Scratch.borrow();
            try {
                long at = scratch.reserve(target.length);
                scratch.copyIn(target, 0);
                return scratch.check(Native.call(seek, cursor, at, target.length, scratch.error)) == Native.OK;
            } finally {
                scratch.giveBack();
            }
        } finally {
            exit();
        }
    }

    /** Ends the life of the segments of this entry. */
    private void leaveEntry() {
        if (segments != null) {
            segments.close();
            segments = null;
            keySegment = null;
            valueSegment = null;
        }
        isRead = false;
    }

    @Override
    void beforeClose() {
        leaveEntry();
    }

    /** Finds out where the bytes of the entry lie. Returns false if the cursor stands on none. */
    private boolean readEntry(long cursor) {
        if (!isRead) {
            Scratch scratch = Scratch.borrow();
            try {
                long at = scratch.at(Scratch.ENTRY);
                int status = scratch.check(
                        Native.call(Native.CURSOR_ENTRY, cursor, at, at + 8, at + 16, at + 24, scratch.error));
                isOnEntry = status == Native.OK;
                if (isOnEntry) {
                    key = scratch.number(Scratch.ENTRY);
                    keyBytes = scratch.number(Scratch.ENTRY + 8);
                    value = scratch.number(Scratch.ENTRY + 16);
                    valueBytes = scratch.number(Scratch.ENTRY + 24);
                }
                isRead = true;
            } finally {
                scratch.giveBack();
            }
        }
        return isOnEntry;
    }

    /** Returns the key of the entry, or null if the cursor stands on none. */
    public byte[] key() {
        long cursor = enter();
        try {
            return readEntry(cursor) ? Native.copy(key, keyBytes) : null;
        } finally {
            exit();
        }
    }

    /** Returns the value of the entry, or null if the cursor stands on none. */
    public byte[] value() {
        long cursor = enter();
        try {
            return readEntry(cursor) ? Native.copy(value, valueBytes) : null;
        } finally {
            exit();
        }
    }

    /**
     * Returns the key of the entry where it lies, read-only, or null if the cursor stands on none. The segment lives
     * until the cursor is moved or closed. The thread that asked for it accesses it, and moves or closes the cursor
     * next: another thread gets a {@link WrongThreadException}.
     */
    public MemorySegment keySegment() {
        long cursor = enter();
        try {
            if (keySegment == null && readEntry(cursor)) {
                keySegment = segment(key, keyBytes);
            }
            return keySegment;
        } finally {
            exit();
        }
    }

    /** Returns the value of the entry as {@link #keySegment} returns the key. */
    public MemorySegment valueSegment() {
        long cursor = enter();
        try {
            if (valueSegment == null && readEntry(cursor)) {
                valueSegment = segment(value, valueBytes);
            }
            return valueSegment;
        } finally {
            exit();
        }
    }

    private MemorySegment segment(long address, long bytes) {
        if (segments == null) {
            // A shared arena would stop all threads for a moment whenever the cursor moves.
            segments = Arena.ofConfined();
        }
        // The segment refers to the cursor, so the garbage collector does not free it too early.
        return MemorySegment.ofAddress(address)
                .reinterpret(bytes, segments, ignored -> Reference.reachabilityFence(this)).asReadOnly();
    }

    @Override
    public String toString() {
        return "the cursor";
    }
}
