package io.situ.store;

import java.lang.invoke.MethodHandle;
import java.util.concurrent.CompletableFuture;

/**
 * Reads and writes that take effect together, or not at all. One thread at a time uses a transaction.
 *
 * <p>Closing a transaction rolls it back if it was not committed: none of its writes takes effect, and its locks are
 * free. {@link Store#transact} runs a transaction again when another writer was in the way.
 */
public final class Transaction extends Owned {
    private static final int NEVER = Integer.MAX_VALUE;

    private int savepoints;
    /** The number of savepoints that were set when another writer was first in the way. */
    private int inTheWayAt = NEVER;

    Transaction(long address) {
        super("transaction", address, handle -> Native.run(Native.TRANSACTION_FREE, handle));
    }

    /** Returns true if an operation failed because of another writer, and no savepoint took it back. */
    boolean isInTheWay() {
        return inTheWayAt != NEVER;
    }

    private int check(Scratch scratch, int status) {
        try {
            return scratch.check(status);
        } catch (SituException failed) {
            if (failed.isRetryable()) {
                inTheWayAt = Math.min(inTheWayAt, savepoints);
            }
            throw failed;
        }
    }

    /** Returns the value of a key as the transaction sees it, its own writes included; null if there is none. */
    public byte[] get(Keyspace keyspace, byte[] key) {
        return onKey(keyspace, key, (scratch, transaction, map, at) -> found(scratch, Native.call(
                Native.TRANSACTION_GET, transaction, map, at, key.length, scratch.at(Scratch.VALUE), scratch.error)));
    }

    /** Returns the value of a key as {@link #getForUpdate(Keyspace, byte[], LockMode)} does, with an exclusive lock. */
    public byte[] getForUpdate(Keyspace keyspace, byte[] key) {
        return getForUpdate(keyspace, key, LockMode.EXCLUSIVE);
    }

    /**
     * Returns the value of a key, or null, and makes sure that no other writer changes the key before the commit. A
     * pessimistic transaction locks the key.
     */
    public byte[] getForUpdate(Keyspace keyspace, byte[] key, LockMode mode) {
        return onKey(keyspace, key, (scratch, transaction, map, at) -> found(scratch, Native.call(
                Native.TRANSACTION_GET_FOR_UPDATE, transaction, map, at, key.length, mode.ordinal(),
                scratch.at(Scratch.VALUE), scratch.error)));
    }

    /** Locks a key as {@link #lock(Keyspace, byte[], LockMode)} does, exclusively. */
    public void lock(Keyspace keyspace, byte[] key) {
        lock(keyspace, key, LockMode.EXCLUSIVE);
    }

    /** Does what {@link #getForUpdate(Keyspace, byte[], LockMode)} does, and reads no value. */
    public void lock(Keyspace keyspace, byte[] key, LockMode mode) {
        onKey(keyspace, key, (scratch, transaction, map, at) -> check(scratch, Native.call(
                Native.TRANSACTION_LOCK, transaction, map, at, key.length, mode.ordinal(), scratch.error)));
    }

    /** Sets the value of a key when the transaction commits. */
    public void put(Keyspace keyspace, byte[] key, byte[] value) {
        long transaction = enter();
        try {
            Scratch scratch = Scratch.borrow();
            long map = keyspace.enter(scratch);
            try {
                long at = scratch.reserve((long) key.length + value.length);
                scratch.copyIn(key, 0);
                scratch.copyIn(value, key.length);
                check(scratch, Native.call(Native.TRANSACTION_PUT, transaction, map, at, key.length, at + key.length,
                        value.length, scratch.error));
            } finally {
                keyspace.exit(scratch);
                scratch.giveBack();
            }
        } finally {
            exit();
        }
    }

    /** Deletes a key when the transaction commits. */
    public void delete(Keyspace keyspace, byte[] key) {
        onKey(keyspace, key, (scratch, transaction, map, at) -> check(scratch, Native.call(
                Native.TRANSACTION_DELETE, transaction, map, at, key.length, scratch.error)));
    }

    /** A call with a key, which lies in the data of the scratch. */
    private interface OnKey<T> {
        T call(Scratch scratch, long transaction, long keyspace, long keyAt);
    }

    private <T> T onKey(Keyspace keyspace, byte[] key, OnKey<T> call) {
        long transaction = enter();
        try {
            Scratch scratch = Scratch.borrow();
            long map = keyspace.enter(scratch);
            try {
                long at = scratch.reserve(key.length);
                scratch.copyIn(key, 0);
                return call.call(scratch, transaction, map, at);
            } finally {
                keyspace.exit(scratch);
                scratch.giveBack();
            }
        } finally {
            exit();
        }
    }

    private byte[] found(Scratch scratch, int status) {
        return check(scratch, status) == Native.MISS ? null : scratch.takeValue(Scratch.VALUE);
    }

    /** Opens a cursor as {@link #cursor(Keyspace, ReadOptions)} does, over all keys. */
    public Cursor cursor(Keyspace keyspace) {
        return cursor(keyspace, ReadOptions.DEFAULT);
    }

    /**
     * Opens a cursor that sees what the transaction sees, with its writes until now. Of the options, the bounds and
     * {@code bypassCache} count.
     */
    public Cursor cursor(Keyspace keyspace, ReadOptions options) {
        long transaction = enter();
        try {
            Scratch scratch = Scratch.borrow();
            long map = keyspace.enter(scratch);
            try {
                long read = options.enterWithBounds(scratch);
                try {
                    check(scratch, Native.call(Native.TRANSACTION_CURSOR, transaction, map, read,
                            scratch.at(Scratch.USED), scratch.error));
                } finally {
                    options.exit(scratch);
                }
                return new Cursor(scratch.number(Scratch.USED));
            } finally {
                keyspace.exit(scratch);
                scratch.giveBack();
            }
        } finally {
            exit();
        }
    }

    /** Opens an iterator over what the transaction sees, with its writes until now. */
    public EntryIterator iterator(Keyspace keyspace, ReadOptions options) {
        return new EntryIterator(cursor(keyspace, options), options.isReverse());
    }

    /** Sets a savepoint. Savepoints lie in each other. */
    public void setSavepoint() {
        onItself(Native.TRANSACTION_SET_SAVEPOINT, () -> savepoints++);
    }

    /** Takes back all writes since the last savepoint, and removes the savepoint. Locks stay. */
    public void rollbackToSavepoint() {
        onItself(Native.TRANSACTION_ROLLBACK_TO_SAVEPOINT, () -> {
            if (inTheWayAt >= savepoints) {
                inTheWayAt = NEVER;
            }
            savepoints--;
        });
    }

    /** Removes the last savepoint, and keeps the writes. */
    public void popSavepoint() {
        onItself(Native.TRANSACTION_POP_SAVEPOINT, () -> {
            savepoints--;
            if (isInTheWay()) {
                inTheWayAt = Math.min(inTheWayAt, savepoints);
            }
        });
    }

    private void onItself(MethodHandle function, Runnable afterwards) {
        long transaction = enter();
        try {
            Scratch scratch = Scratch.borrow();
            try {
                check(scratch, Native.call(function, transaction, scratch.error));
                afterwards.run();
            } finally {
                scratch.giveBack();
            }
        } finally {
            exit();
        }
    }

    /**
     * Commits, and returns the sequence number of the last write. The transaction has then ended, after an error, too.
     *
     * @throws SituException with a kind that is retryable, if another writer was in the way
     */
    public long commit() {
        long transaction = enter();
        try {
            Scratch scratch = Scratch.borrow();
            try {
                check(scratch, Native.call(
                        Native.TRANSACTION_COMMIT, transaction, scratch.at(Scratch.USED), scratch.error));
                return scratch.number(Scratch.USED);
            } finally {
                scratch.giveBack();
            }
        } finally {
            end();
        }
    }

    /**
     * Commits without waiting for the disk. The transaction has ended when the call returns. The future is completed as
     * {@link Keyspace#putAsync(byte[], byte[])} says.
     */
    public CompletableFuture<Void> commitAsync() {
        long transaction = enter();
        try {
            return Completion.ofWrite((done, context) -> Native.run(
                    Native.TRANSACTION_COMMIT_ASYNC, transaction, done, context));
        } finally {
            end();
        }
    }

    /** Rolls back. The transaction has then ended. */
    public void rollback() {
        enter();
        end();
    }

    @Override
    public String toString() {
        return "the transaction";
    }
}
