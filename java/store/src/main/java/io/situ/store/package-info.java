/**
 * An ordered, durable key-value store in the process.
 *
 * <pre>{@code
 * try (Store store = Store.open(Path.of("data")); Keyspace born = store.keyspace("born")) {
 *     born.put("ada".getBytes(UTF_8), "1815".getBytes(UTF_8), Durability.SYNCED);
 *     try (EntryIterator entries = born.iterator()) {
 *         entries.forEachRemaining(System.out::println);
 *     }
 * }
 * }</pre>
 *
 * <p>{@link io.situ.store.Store} opens a store, {@link io.situ.store.Keyspace} is one of its maps,
 * {@link io.situ.store.Batch} and {@link io.situ.store.Transaction} are writes that take effect together, and
 * {@link io.situ.store.Snapshot} is the store at one moment. {@link io.situ.store.EntryIterator} walks over entries;
 * {@link io.situ.store.Cursor} goes both ways.
 *
 * <p><b>Handles.</b> What has a method {@code close} holds memory of the native library, and has to be closed, in any
 * order. A call on a handle that is closed throws {@link java.lang.IllegalStateException}. A handle that was not closed
 * is freed when the garbage collector finds it. A warning is logged then; the system property {@code situ.leaks=true}
 * adds the place where the handle was made.
 *
 * <p><b>Threads.</b> Threads share a store, its keyspaces and its snapshots. One thread at a time uses a batch, a
 * cursor, an iterator or a transaction. If two do, one of them gets an {@link java.lang.IllegalStateException}; an
 * iterator may also return wrong entries. A call that waits in the library keeps a virtual thread on its carrier.
 *
 * <p><b>Errors.</b> An error of the store is a {@link io.situ.store.SituException}, with a kind.
 *
 * <p>How the parts work together:
 * <ol>
 * <li>{@code Native} links the functions of {@code situ.h}, from the file that {@code LibraryFile} finds.
 * <li>{@code Shared} and {@code Owned} guard a handle: no call begins after closing. While another thread is in a call,
 *     the handle stays until the call ends, or closing is refused. {@code Leaks} frees what was not closed.
 * <li>{@code Scratch} has the arguments and results of a call outside of the heap, without an allocation for each call.
 * <li>{@code Completion} is the function that the library calls at the end of an asynchronous call.
 * </ol>
 */
package io.situ.store;
