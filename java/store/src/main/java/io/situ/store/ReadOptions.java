package io.situ.store;

/**
 * Options of a read. Options do not change: each method returns others.
 *
 * <p>Bounds count for iterators, streams, cursors and pops, and {@link #reverse} for iterators and streams. Every read
 * takes {@link #at}, {@link #bypassCache} and {@link #memoryOnly}.
 */
public final class ReadOptions {
    /** Reads of all keys as they are now. */
    public static final ReadOptions DEFAULT = new ReadOptions(null, null, null, null, false, false, false);

    private final Snapshot snapshot;
    private final byte[] lower;
    private final byte[] upper;
    private final byte[] prefix;
    private final boolean isReverse;
    private final boolean bypassesCache;
    private final boolean isMemoryOnly;

    private ReadOptions(Snapshot snapshot, byte[] lower, byte[] upper, byte[] prefix, boolean isReverse,
            boolean bypassesCache, boolean isMemoryOnly) {
        this.snapshot = snapshot;
        this.lower = lower;
        this.upper = upper;
        this.prefix = prefix;
        this.isReverse = isReverse;
        this.bypassesCache = bypassesCache;
        this.isMemoryOnly = isMemoryOnly;
    }

    /** Returns options for reads of a snapshot; null stands for the present. */
    public ReadOptions at(Snapshot snapshot) {
        return new ReadOptions(snapshot, lower, upper, prefix, isReverse, bypassesCache, isMemoryOnly);
    }

    /** Returns options with the first key that a walk may return; null stands for no such bound. */
    public ReadOptions lower(byte[] lower) {
        return range(lower, upper);
    }

    /** Returns options with the first key behind those that a walk may return; null stands for no such bound. */
    public ReadOptions upper(byte[] upper) {
        return range(lower, upper);
    }

    /** Returns options for walks over the keys from {@code lower} on and before {@code upper}; null is no bound. */
    public ReadOptions range(byte[] lower, byte[] upper) {
        return new ReadOptions(
                snapshot, copy(lower), copy(upper), prefix, isReverse, bypassesCache, isMemoryOnly);
    }

    /**
     * Returns options for walks over the keys that begin with a prefix; null stands for no such bound. A prefix stands
     * alone: the library refuses it together with a lower or an upper bound.
     */
    public ReadOptions prefix(byte[] prefix) {
        return new ReadOptions(snapshot, lower, upper, copy(prefix), isReverse, bypassesCache, isMemoryOnly);
    }

    /** Returns options for iterators and streams that begin at the greatest key. */
    public ReadOptions reverse() {
        return new ReadOptions(snapshot, lower, upper, prefix, true, bypassesCache, isMemoryOnly);
    }

    /** Returns options for reads that keep no blocks in the cache: for a walk over much data. */
    public ReadOptions bypassCache() {
        return new ReadOptions(snapshot, lower, upper, prefix, isReverse, true, isMemoryOnly);
    }

    /** Returns options for reads that fail with {@code NOT_IN_MEMORY} where they need a disk. */
    public ReadOptions memoryOnly() {
        return new ReadOptions(snapshot, lower, upper, prefix, isReverse, bypassesCache, true);
    }

    private static byte[] copy(byte[] bound) {
        return bound == null ? null : bound.clone();
    }

    boolean isReverse() {
        return isReverse;
    }

    /** Returns the address of these options for a read of keys, 0 for defaults. {@link #exit} ends the use. */
    long enter(Scratch scratch) {
        if (this == DEFAULT) {
            return 0;
        }
        long at = snapshot == null ? 0 : snapshot.enter(scratch);
        return scratch.read(at, 0, 0, 0, 0, 0, 0, bypassesCache, isMemoryOnly);
    }

    /** Returns the address of these options with bounds, which take the data. {@link #exit} ends the use. */
    long enterWithBounds(Scratch scratch) {
        if (this == DEFAULT) {
            return 0;
        }
        long lowerBytes = bytes(lower);
        long upperBytes = bytes(upper);
        long prefixBytes = bytes(prefix);
        long place = scratch.reserve(lowerBytes + upperBytes + prefixBytes);
        long lowerAt = copyIn(scratch, lower, place, 0);
        long upperAt = copyIn(scratch, upper, place, lowerBytes);
        long prefixAt = copyIn(scratch, prefix, place, lowerBytes + upperBytes);
        long at = snapshot == null ? 0 : snapshot.enter(scratch);
        return scratch.read(at, lowerAt, lowerBytes, upperAt, upperBytes, prefixAt, prefixBytes, bypassesCache,
                isMemoryOnly);
    }

    private static long bytes(byte[] bound) {
        return bound == null ? 0 : bound.length;
    }

    private static long copyIn(Scratch scratch, byte[] bound, long address, long place) {
        if (bound == null) {
            return 0;
        }
        scratch.copyIn(bound, place);
        return address + place;
    }

    void exit(Scratch scratch) {
        if (snapshot != null) {
            snapshot.exit(scratch);
        }
    }
}
