package io.situ.store;

/** An error of the store. Its message names the cause and the cure. */
public class SituException extends RuntimeException {
    private final Kind kind;

    /** The kind of an error. */
    public enum Kind {
        /** An argument, an option or the order of calls is wrong. */
        INVALID,
        /** The store is closed. */
        CLOSED,
        /** The store is open read-only. */
        READ_ONLY,
        /** The store has no keyspace of this name. */
        NO_SUCH_KEYSPACE,
        /** The keyspace was dropped. */
        KEYSPACE_DROPPED,
        /** Another writer changed a key of the transaction. Run the transaction again. */
        CONFLICT,
        /** Another transaction kept a key locked for too long. */
        LOCK_TIMEOUT,
        /** Transactions wait for each other. Roll this one back, and run it again. */
        DEADLOCK,
        /** The transaction takes more memory than its options allow. */
        TRANSACTION_TOO_LARGE,
        /** All transactions together hold the maximum number of locks. */
        TOO_MANY_LOCKS,
        /** Too many bytes wait in asynchronous writes. */
        TOO_MANY_WAITING,
        /** A disk is full. Writes succeed again when there is room. */
        NO_SPACE,
        /** Bytes on a disk are damaged. */
        CORRUPTION,
        /** The process lacks a right to a file or a device. */
        PERMISSION,
        /** A read that was limited to memory needs a disk. */
        NOT_IN_MEMORY,
        /** A disk has failed, or another process has the store open. */
        IO,
        /** The store takes no writes after an earlier failure. Close it, remove the cause, and open it again. */
        FAILED,
        /** Compactions fail, and level 0 is full. */
        LEVEL0_FULL,
        /** The store is missing and may not be created, or it exists and must not. */
        EXISTENCE,
        /** A disk of the store is missing, or belongs to another store. */
        DISKS,
        /** A reader lost the race against the process that writes. Try again. */
        CHANGED,
        /** The library has a fault. Its message is on standard error. */
        INTERNAL;

        private static final Kind[] ALL = values();

        /** Returns the kind of a status, which is negative. A status of a later library counts as a fault. */
        static Kind of(int status) {
            int place = -1 - status;
            return place < ALL.length ? ALL[place] : INTERNAL;
        }
    }

    /** Makes an error. */
    public SituException(Kind kind, String message) {
        super(message);
        this.kind = kind;
    }

    /** Returns the kind of the error. */
    public Kind kind() {
        return kind;
    }

    /** Returns true if a transaction that ended with this error may succeed when it runs again from its beginning. */
    public boolean isRetryable() {
        return kind == Kind.CONFLICT || kind == Kind.LOCK_TIMEOUT || kind == Kind.DEADLOCK;
    }
}
