package io.situ.store;

import java.lang.invoke.MethodHandle;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileSystems;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Function;

/**
 * An open store: ordered, durable maps in a directory. One process at a time has a store open for writing. Threads
 * share the store and its keyspaces.
 *
 * <p>{@link #close} closes the store for all threads: calls on what came from it then fail with
 * {@link SituException.Kind#CLOSED}. Only cursors and iterators that are open go on. Keyspaces, snapshots, cursors and
 * transactions are handles of their own, and have to be closed as well, in any order.
 */
public final class Store extends Shared {
    private static final int ATTEMPTS_MAX = 100;
    private static final long PAUSE_FIRST_NS = TimeUnit.MICROSECONDS.toNanos(50);
    private static final long PAUSE_MAX_NS = TimeUnit.MILLISECONDS.toNanos(20);

    private final Path directory;

    private Store(Path directory, long address) {
        super("store", address, handle -> Native.run(Native.STORE_FREE, handle));
        this.directory = directory;
    }

    /** Opens the store in a directory with the default options, which create a store that is missing. */
    public static Store open(Path directory) {
        return open(directory, null);
    }

    /** Opens the store in a directory; null stands for the default options. */
    public static Store open(Path directory, Options options) {
        return open(Native.STORE_OPEN, directory, options);
    }

    /** Opens the store in a directory for reading, as it is now. Another process may have it open for writing. */
    public static Store openReadOnly(Path directory) {
        return openReadOnly(directory, null);
    }

    /** Opens the store in a directory for reading, as it is now; null stands for the default options. */
    public static Store openReadOnly(Path directory, Options options) {
        return open(Native.STORE_OPEN_READ_ONLY, directory, options);
    }

    private static Store open(MethodHandle open, Path directory, Options options) {
        Scratch scratch = Scratch.borrow();
        try {
            return Options.with(scratch, options, handle -> {
                scratch.check(Native.call(
                        open, copyPath(scratch, directory), handle, scratch.at(Scratch.USED), scratch.error));
                return new Store(directory, scratch.number(Scratch.USED));
            });
        } finally {
            scratch.giveBack();
        }
    }

    /** Removes the store in a directory, and all it holds. No process may have it open. */
    public static void destroy(Path directory) {
        Scratch scratch = Scratch.borrow();
        try {
            scratch.check(Native.call(Native.DESTROY, copyPath(scratch, directory), scratch.error));
        } finally {
            scratch.giveBack();
        }
    }

    private static long copyPath(Scratch scratch, Path path) {
        if (path.getFileSystem() != FileSystems.getDefault()) {
            throw new IllegalArgumentException(path + " is in no file system of the operating system");
        }
        // The text of a path is another one where the locale lacks a character: only the URI has the bytes.
        String bytes = URLDecoder.decode(path.toUri().getRawPath().replace("+", "%2B"), StandardCharsets.ISO_8859_1);
        boolean hasSlash = bytes.length() > 1 && bytes.endsWith("/");
        String ended = (hasSlash ? bytes.substring(0, bytes.length() - 1) : bytes) + '\0';
        return scratch.copyAll(ended.getBytes(StandardCharsets.ISO_8859_1));
    }

    /** Returns the version of the native library. */
    public static String libraryVersion() {
        return Native.text(Native.number(Native.VERSION));
    }

    /** Returns the directory that the store was opened with. */
    public Path directory() {
        return directory;
    }

    /** Returns the keyspace of a name, {@code default} or another. The call creates it if it is missing. */
    public Keyspace keyspace(String name) {
        return keyspace(name, null);
    }

    /**
     * Returns the keyspace of a name. The options count for a keyspace that the call creates; null stands for the
     * options of the store.
     */
    public Keyspace keyspace(String name, Options options) {
        Scratch scratch = Scratch.borrow();
        long store = enter(scratch);
        try {
            return Options.with(scratch, options, handle -> {
                scratch.check(Native.call(Native.STORE_KEYSPACE, store, scratch.copyText(name), handle,
                        scratch.at(Scratch.USED), scratch.error));
                return new Keyspace(name, scratch.number(Scratch.USED));
            });
        } finally {
            exit(scratch);
            scratch.giveBack();
        }
    }

    /**
     * Returns the keyspace of a name, which exists.
     *
     * @throws SituException of kind {@code NO_SUCH_KEYSPACE} if it does not
     */
    public Keyspace existingKeyspace(String name) {
        Scratch scratch = Scratch.borrow();
        long store = enter(scratch);
        try {
            scratch.check(Native.call(Native.STORE_EXISTING_KEYSPACE, store, scratch.copyText(name),
                    scratch.at(Scratch.USED), scratch.error));
            return new Keyspace(name, scratch.number(Scratch.USED));
        } finally {
            exit(scratch);
            scratch.giveBack();
        }
    }

    /** Drops a keyspace with all it holds, durably. Its space comes back soon. */
    public void dropKeyspace(String name) {
        Scratch scratch = Scratch.borrow();
        long store = enter(scratch);
        try {
            scratch.check(Native.call(Native.STORE_DROP_KEYSPACE, store, scratch.copyText(name), scratch.error));
        } finally {
            exit(scratch);
            scratch.giveBack();
        }
    }

    /** Returns the names of all keyspaces. */
    public List<String> keyspaceNames() {
        Scratch scratch = Scratch.borrow();
        long store = enter(scratch);
        try {
            scratch.check(Native.call(
                    Native.STORE_KEYSPACE_NAMES, store, scratch.at(Scratch.VALUE), scratch.error));
            String names = new String(scratch.takeValue(Scratch.VALUE), StandardCharsets.UTF_8);
            return List.of(names.split("\0"));
        } finally {
            exit(scratch);
            scratch.giveBack();
        }
    }

    /** Writes a batch, all of it or nothing. The batch is empty afterwards, after an error, too. */
    public void write(Batch batch) {
        write(batch, Durability.AS_STORE);
    }

    /** Writes a batch, all of it or nothing. The batch is empty afterwards, after an error, too. */
    public void write(Batch batch, Durability durability) {
        long writes = batch.enter();
        try {
            Scratch scratch = Scratch.borrow();
            long store = enter(scratch);
            try {
                scratch.check(Native.call(Native.STORE_WRITE, store, writes, durability.ordinal(), scratch.error));
            } finally {
                exit(scratch);
                scratch.giveBack();
            }
        } finally {
            batch.exit();
        }
    }

    /**
     * Writes a batch without waiting for the disk. The batch is empty when the call returns. The future is completed as
     * {@link Keyspace#putAsync(byte[], byte[])} says.
     */
    public CompletableFuture<Void> writeAsync(Batch batch) {
        return writeAsync(batch, Durability.AS_STORE);
    }

    /** Writes a batch as {@link #writeAsync(Batch)} does. */
    public CompletableFuture<Void> writeAsync(Batch batch, Durability durability) {
        long writes = batch.enter();
        try {
            Scratch scratch = Scratch.borrow();
            long store = enter(scratch);
            try {
                return Completion.ofWrite((done, context) -> Native.run(
                        Native.STORE_WRITE_ASYNC, store, writes, durability.ordinal(), done, context));
            } finally {
                exit(scratch);
                scratch.giveBack();
            }
        } finally {
            batch.exit();
        }
    }

    /** Returns a snapshot: what the store holds now, whatever is written later. The caller closes it. */
    public Snapshot snapshot() {
        Scratch scratch = Scratch.borrow();
        long store = enter(scratch);
        try {
            scratch.check(Native.call(Native.STORE_SNAPSHOT, store, scratch.at(Scratch.USED), scratch.error));
            return new Snapshot(scratch.number(Scratch.USED));
        } finally {
            exit(scratch);
            scratch.giveBack();
        }
    }

    /** Begins a transaction with the default options. The caller closes it. */
    public Transaction begin() {
        return begin(TransactionOptions.DEFAULT);
    }

    /** Begins a transaction. The caller closes it. */
    public Transaction begin(TransactionOptions options) {
        Scratch scratch = Scratch.borrow();
        long store = enter(scratch);
        try {
            scratch.check(Native.call(
                    Native.STORE_BEGIN, store, options.write(scratch), scratch.at(Scratch.USED), scratch.error));
            return new Transaction(scratch.number(Scratch.USED));
        } finally {
            exit(scratch);
            scratch.giveBack();
        }
    }

    /** Works like {@link #transact(TransactionOptions, Function)}, with the default options. */
    public <T> T transact(Function<Transaction, T> body) {
        return transact(TransactionOptions.DEFAULT, body);
    }

    /**
     * Runs a function in a transaction, commits, and returns the result of the function. If another writer was in the
     * way of an operation or of the commit, the transaction is rolled back and run again from its beginning, at most
     * {@value #ATTEMPTS_MAX} times in all. So the function must do nothing outside of the transaction that must not
     * happen twice. Any other exception of the function rolls back and is thrown.
     *
     * <p>After such a failure of an operation, the function runs again whatever exception it throws, also one of its
     * own. {@link Transaction#rollbackToSavepoint} forgets failures since the savepoint.
     */
    public <T> T transact(TransactionOptions options, Function<Transaction, T> body) {
        for (int attempt = 1;; attempt++) {
            boolean isOver = attempt == ATTEMPTS_MAX;
            try (Transaction transaction = begin(options)) {
                try {
                    T result = body.apply(transaction);
                    transaction.commit();
                    return result;
                } catch (RuntimeException failed) {
                    if (isOver || !transaction.isInTheWay()) {
                        throw failed;
                    }
                }
            }
            // The locks are given back. Transactions that meet again and again would otherwise keep their step.
            long longest = Math.min(PAUSE_FIRST_NS << Math.min(attempt - 1, 16), PAUSE_MAX_NS);
            LockSupport.parkNanos(ThreadLocalRandom.current().nextLong(longest) + 1);
        }
    }

    /** Returns when all writes that were acknowledged before the call survive power failure. */
    public void sync() {
        onItself(Native.STORE_SYNC);
    }

    /** Writes the memtables of all keyspaces to tables, and waits for that. */
    public void flush() {
        onItself(Native.STORE_FLUSH);
    }

    /** Waits until no flush and no compaction is due. */
    public void waitIdle() {
        onItself(Native.STORE_WAIT_IDLE);
    }

    /** Makes a copy of the store in a new directory while it is in use. Tables are hard links where possible. */
    public void checkpoint(Path copy) {
        Scratch scratch = Scratch.borrow();
        long store = enter(scratch);
        try {
            scratch.check(Native.call(Native.STORE_CHECKPOINT, store, copyPath(scratch, copy), scratch.error));
        } finally {
            exit(scratch);
            scratch.giveBack();
        }
    }

    /**
     * Returns a figure of the store by its name: cache_bytes, cache_bytes_max, cache_hits, cache_misses,
     * cache_pinned_bytes, keyspaces, last_sequence, locks, log_bytes, log_syncs, memtable_bytes, memtable_bytes_max,
     * requests_outstanding, snapshots, table_bytes, tables_open, transactions; and the counters of the Rust type
     * Statistics. Sizes are in bytes, and counts begin when the store is opened.
     */
    public long property(String property) {
        Scratch scratch = Scratch.borrow();
        long store = enter(scratch);
        try {
            scratch.check(Native.call(Native.STORE_PROPERTY, store, scratch.copyText(property),
                    scratch.at(Scratch.USED), scratch.error));
            return scratch.number(Scratch.USED);
        } finally {
            exit(scratch);
            scratch.giveBack();
        }
    }

    private void onItself(MethodHandle function) {
        Scratch scratch = Scratch.borrow();
        long store = enter(scratch);
        try {
            scratch.check(Native.call(function, store, scratch.error));
        } finally {
            exit(scratch);
            scratch.giveBack();
        }
    }

    @Override
    void beforeClose(long store) {
        Scratch scratch = Scratch.borrow();
        try {
            scratch.check(Native.call(Native.STORE_CLOSE, store, scratch.error));
        } finally {
            scratch.giveBack();
        }
    }

    /**
     * Closes the store, and throws an error of its last writes to the disk. Calls of other threads fail; the call waits
     * for them. A second call does nothing.
     */
    @Override
    public void close() {
        super.close();
    }

    @Override
    public String toString() {
        return "the store in " + directory;
    }
}
