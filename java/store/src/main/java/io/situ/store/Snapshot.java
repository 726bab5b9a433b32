package io.situ.store;

/**
 * The state of a store at one moment, for {@link ReadOptions#at}. Threads share it. Deleted and overwritten data stays
 * on disk as long as a snapshot sees it, so close it soon.
 */
public final class Snapshot extends Shared {
    private final long sequence;

    Snapshot(long address) {
        super("snapshot", address, handle -> Native.run(Native.SNAPSHOT_FREE, handle));
        sequence = Native.number(Native.SNAPSHOT_SEQUENCE, address);
    }

    /** Returns the sequence number of the last write that the snapshot sees. */
    public long sequence() {
        return sequence;
    }

    @Override
    public String toString() {
        return "the snapshot " + sequence;
    }
}
