/* Situ: an ordered, durable key-value store.
 *
 *     situ_store *store;
 *     situ_keyspace *keyspace;
 *     situ_error *error;
 *     if (situ_store_open("data", NULL, &store, &error) != SITU_OK) {
 *         fprintf(stderr, "%s\n", situ_error_text(error));
 *         return 1;
 *     }
 *     situ_store_keyspace(store, "default", NULL, &keyspace, NULL);
 *     situ_keyspace_put(keyspace, "ada", 3, "1815", 4, SITU_SYNCED, NULL);
 *
 * Link with -lsitu, or ask pkg-config for situ. examples/tour.c calls every function.
 *
 * **Handles.** A call that returns a handle, a value or an error gives it to the caller, who frees it with the function
 * of that type. Handles do not depend on each other: they may be freed in any order. After a call that fails, a place
 * for a handle holds NULL, and a place for a value holds none.
 *
 * **Threads.** Threads share a store, its keyspaces, its snapshots, and values. A batch, a cursor, a transaction and
 * options belong to one thread at a time. A handle is freed by one thread, when no other uses it.
 *
 * **Errors.** A call returns a status, which is negative after an error. If the place for an error is not NULL, it
 * becomes the error, or NULL. No error is lost without it: the status has its kind.
 *
 * **Arguments.** Keys and values are bytes with a length. A pointer to 0 bytes may be NULL. Names and paths are texts
 * in UTF-8 with a zero at the end. The library copies what it keeps.
 *
 * **Processes.** The library has threads. A child of fork() must not use handles of its parent.
 *
 * This file is made of the library's source: SITU_BLESS=1 cargo test -p situ-c.
 */

#ifndef SITU_H
#define SITU_H

#include <stddef.h>
#include <stdint.h>

// The durability of a write: that of the option `durability`.
#define SITU_AS_STORE 0

// The durability of a write: it survives the process. Power failure may take the latest writes.
#define SITU_BUFFERED 1

// The durability of a write: it survives power failure.
#define SITU_SYNCED 2

// The kind of a transaction: it locks the keys that it writes or reads for update.
#define SITU_PESSIMISTIC 0

// The kind of a transaction: it takes no locks, and its commit returns SITU_ERROR_CONFLICT if another writer was
// there.
#define SITU_OPTIMISTIC 1

// All reads of the transaction see one moment.
#define SITU_ISOLATION_SNAPSHOT 0

// Each read of the transaction sees what is committed when it begins.
#define SITU_ISOLATION_READ_COMMITTED 1

// The mode of a lock: no other transaction may lock the key.
#define SITU_EXCLUSIVE 0

// The mode of a lock: others may lock the key shared, too. No transaction may write it.
#define SITU_SHARED 1

// Writes that take effect together, in any keyspaces of one store. One thread at a time uses a batch.
typedef struct situ_batch situ_batch;

// A place among the keys of a keyspace. One thread at a time uses a cursor. It sees one moment, so writes do not
// disturb it. It keeps deleted and overwritten data on disk until it is freed.
typedef struct situ_cursor situ_cursor;

// An error with its text. The caller frees it.
typedef struct situ_error situ_error;

// An ordered map of a store. Threads share it.
typedef struct situ_keyspace situ_keyspace;

// The options of a store, or of a keyspace.
typedef struct situ_options situ_options;

// The memory behind a value.
typedef struct situ_owner situ_owner;

// The state of a store at one moment. Threads share it.
typedef struct situ_snapshot situ_snapshot;

// An open store. Threads share it.
typedef struct situ_store situ_store;

// Reads and writes that take effect together, or not at all. One thread at a time uses a transaction.
typedef struct situ_transaction situ_transaction;

// Options of a read. Set what you need and leave the rest 0. NULL stands for options that are all 0.
typedef struct situ_read {
    // The moment that the read sees; NULL for now. A cursor sees one moment in any case.
    const struct situ_snapshot *snapshot;
    // The first key that a cursor may give; NULL for no such bound.
    const void *lower;
    size_t lower_bytes;
    // The first key behind those that a cursor may give; NULL for no such bound.
    const void *upper;
    size_t upper_bytes;
    // The beginning of all keys that a cursor may give; NULL for no such bound. It stands alone, without the two
    // above.
    const void *prefix;
    size_t prefix_bytes;
    // 1 if the read keeps no blocks in the cache: for a walk over much data.
    int bypass_cache;
    // 1 if the read answers from memory only, and returns SITU_ERROR_NOT_IN_MEMORY where it needs a disk.
    int memory_only;
} situ_read;

// The result of a call: SITU_OK, another answer (positive), or the kind of an error (negative).
typedef int32_t situ_status;

// Bytes that a call returned. The caller frees them with situ_value_free. They may share the store's cache, so nothing
// was copied: free them soon. They outlive the store.
typedef struct situ_value {
    // The first byte; NULL if there is no value.
    const void *data;
    // The number of bytes.
    size_t bytes;
    // The memory that the bytes lie in.
    struct situ_owner *owner;
} situ_value;

// The function that an asynchronous call calls when it is done: exactly once, before the call returns on its thread,
// or later on a thread of the library.
//
// The function owns value and error, and frees both. They are NULL if there is none; value belongs to reads only, and
// lies in memory that lives as long as the function runs: copy the struct to keep it. Later completions wait while
// the function runs, so it must neither take long nor wait for another asynchronous call.
typedef void (*situ_done)(void *context, situ_status status, struct situ_value *value, struct situ_error *error);

// A key of situ_keyspace_get_many.
typedef struct situ_key {
    const void *data;
    size_t bytes;
} situ_key;

// Options of a transaction. Set what you need and leave the rest 0. NULL stands for options that are all 0.
typedef struct situ_transaction_options {
    // SITU_PESSIMISTIC or SITU_OPTIMISTIC.
    int kind;
    // SITU_ISOLATION_SNAPSHOT or SITU_ISOLATION_READ_COMMITTED.
    int isolation;
    // The longest wait for a lock, in milliseconds; 0 for 1,000, and a negative number for no wait.
    int64_t lock_timeout_ms;
    // The maximum memory of the transaction, in bytes; 0 for 64 MiB.
    uint64_t bytes_max;
    // The durability of the commit: SITU_AS_STORE, SITU_BUFFERED or SITU_SYNCED.
    int durability;
} situ_transaction_options;

// Done.
#define SITU_OK 0

// There is no such key, or no further entry.
#define SITU_MISS 1

// An argument, an option or the order of calls is wrong.
#define SITU_ERROR_INVALID -1

// The store is closed.
#define SITU_ERROR_CLOSED -2

// The store is open read-only.
#define SITU_ERROR_READ_ONLY -3

// The store has no keyspace of this name.
#define SITU_ERROR_NO_SUCH_KEYSPACE -4

// The keyspace was dropped.
#define SITU_ERROR_KEYSPACE_DROPPED -5

// Another writer changed a key of the transaction. Run the transaction again.
#define SITU_ERROR_CONFLICT -6

// Another transaction kept a key locked for too long.
#define SITU_ERROR_LOCK_TIMEOUT -7

// Transactions wait for each other. Roll this one back, and run it again.
#define SITU_ERROR_DEADLOCK -8

// The transaction takes more memory than its options allow.
#define SITU_ERROR_TRANSACTION_TOO_LARGE -9

// All transactions together hold as many locks as they may.
#define SITU_ERROR_TOO_MANY_LOCKS -10

// Too many bytes wait in asynchronous writes.
#define SITU_ERROR_TOO_MANY_WAITING -11

// A disk is full. Writes succeed again when there is room.
#define SITU_ERROR_NO_SPACE -12

// Bytes on a disk are damaged.
#define SITU_ERROR_CORRUPTION -13

// The process lacks a right to a file or a device.
#define SITU_ERROR_PERMISSION -14

// A read that was limited to memory needs a disk.
#define SITU_ERROR_NOT_IN_MEMORY -15

// A disk has failed, or another process has the store open.
#define SITU_ERROR_IO -16

// The store takes no writes after an earlier failure. Close it, remove the cause, and open it again.
#define SITU_ERROR_FAILED -17

// Compactions fail, and level 0 is full.
#define SITU_ERROR_LEVEL0_FULL -18

// The store is missing and may not be created, or exists and must not.
#define SITU_ERROR_EXISTENCE -19

// A disk of the store is missing or another one's.
#define SITU_ERROR_DISKS -20

// A reader lost the race against the process that writes. Try again.
#define SITU_ERROR_CHANGED -21

// The library has a fault. Its message is on standard error.
#define SITU_ERROR_INTERNAL -22

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Reads the value of a key as situ_keyspace_get does, without waiting for a disk.
void situ_keyspace_get_async(const struct situ_keyspace *keyspace,
                             const void *key,
                             size_t key_bytes,
                             const struct situ_read *read,
                             situ_done done,
                             void *context);

// Sets the value of a key as situ_keyspace_put does, without waiting for the disk. The call copies key and value.
void situ_keyspace_put_async(const struct situ_keyspace *keyspace,
                             const void *key,
                             size_t key_bytes,
                             const void *value,
                             size_t value_bytes,
                             int durable,
                             situ_done done,
                             void *context);

// Deletes a key as situ_keyspace_delete does, without waiting for the disk.
void situ_keyspace_delete_async(const struct situ_keyspace *keyspace,
                                const void *key,
                                size_t key_bytes,
                                int durable,
                                situ_done done,
                                void *context);

// Writes a batch as situ_store_write does, without waiting for the disk. The batch is empty when the call returns.
void situ_store_write_async(const struct situ_store *store,
                            struct situ_batch *batch,
                            int durable,
                            situ_done done,
                            void *context);

// Commits a transaction as situ_transaction_commit does, without waiting for the disk. The transaction has ended when
// the call returns, and may be freed.
void situ_transaction_commit_async(struct situ_transaction *transaction, situ_done done, void *context);

// Returns an empty batch. The caller frees it.
struct situ_batch *situ_batch_new(void);

// Frees a batch, or does nothing for NULL.
void situ_batch_free(struct situ_batch *batch);

// Adds a put. The batch copies key and value.
situ_status situ_batch_put(struct situ_batch *batch,
                           const struct situ_keyspace *keyspace,
                           const void *key,
                           size_t key_bytes,
                           const void *value,
                           size_t value_bytes,
                           struct situ_error **error);

// Adds a deletion.
situ_status situ_batch_delete(struct situ_batch *batch,
                              const struct situ_keyspace *keyspace,
                              const void *key,
                              size_t key_bytes,
                              struct situ_error **error);

// Adds a deletion of all keys from begin on and before end.
situ_status situ_batch_delete_range(struct situ_batch *batch,
                                    const struct situ_keyspace *keyspace,
                                    const void *begin,
                                    size_t begin_bytes,
                                    const void *end,
                                    size_t end_bytes,
                                    struct situ_error **error);

// Returns the number of writes in a batch.
size_t situ_batch_length(const struct situ_batch *batch);

// Returns the memory that the writes of a batch take. A batch has at most 1 GiB.
size_t situ_batch_bytes(const struct situ_batch *batch);

// Removes all writes from a batch, or does nothing for NULL.
void situ_batch_clear(struct situ_batch *batch);

// Frees a cursor, or does nothing for NULL.
void situ_cursor_free(struct situ_cursor *cursor);

// Moves to the first entry; SITU_MISS if there is none.
situ_status situ_cursor_seek_to_first(struct situ_cursor *cursor, struct situ_error **error);

// Moves to the last entry; SITU_MISS if there is none.
situ_status situ_cursor_seek_to_last(struct situ_cursor *cursor, struct situ_error **error);

// Moves to the first entry from a key on; SITU_MISS if there is none.
situ_status situ_cursor_seek(struct situ_cursor *cursor, const void *key, size_t key_bytes, struct situ_error **error);

// Moves to the last entry up to a key, the key included; SITU_MISS if there is none.
situ_status situ_cursor_seek_for_prev(struct situ_cursor *cursor,
                                      const void *key,
                                      size_t key_bytes,
                                      struct situ_error **error);

// Moves to the next entry; SITU_MISS if there is none.
situ_status situ_cursor_next(struct situ_cursor *cursor, struct situ_error **error);

// Moves to the entry before; SITU_MISS if there is none.
situ_status situ_cursor_prev(struct situ_cursor *cursor, struct situ_error **error);

// Returns key and value of the entry that the cursor stands on, or SITU_MISS. The bytes belong to the cursor, and live
// until it is moved or freed. NULL stands for a result that is not wanted.
situ_status situ_cursor_entry(const struct situ_cursor *cursor,
                              const void **key,
                              size_t *key_bytes,
                              const void **value,
                              size_t *value_bytes,
                              struct situ_error **error);

// Copies entries into a buffer, from the one that the cursor stands on onwards: to greater keys, or to smaller ones if
// is_backward is 1. The cursor then stands on the first entry that was not copied. The call saves a caller for whom
// calls are expensive two of them for each entry.
//
// In the buffer, an entry is the length of its key and that of its value, as uint32_t of the machine, then key and
// value. No bytes lie between two entries. used becomes the number of bytes, entries that of entries. If the first
// entry does not fit, entries is 0, and used is the capacity that it takes. SITU_MISS says that the cursor stands on
// no entry.
situ_status situ_cursor_read(struct situ_cursor *cursor,
                             int is_backward,
                             void *buffer,
                             size_t capacity,
                             size_t *used,
                             size_t *entries,
                             struct situ_error **error);

// Returns the text of an error, in English. It names the cause and the cure, and lives as long as the error.
const char *situ_error_text(const struct situ_error *error);

// Frees an error, or does nothing for NULL.
void situ_error_free(struct situ_error *error);

// Returns 1 if a transaction that ended with this status may succeed when it runs again from its beginning.
int situ_is_retryable(situ_status status);

// Frees the handle of a keyspace, or does nothing for NULL.
void situ_keyspace_free(struct situ_keyspace *keyspace);

// Sets the value of a key. A key has at most 64 KiB, a value at most 1 GiB less 65 KiB.
situ_status situ_keyspace_put(const struct situ_keyspace *keyspace,
                              const void *key,
                              size_t key_bytes,
                              const void *value,
                              size_t value_bytes,
                              int durable,
                              struct situ_error **error);

// Deletes a key, which need not exist.
situ_status situ_keyspace_delete(const struct situ_keyspace *keyspace,
                                 const void *key,
                                 size_t key_bytes,
                                 int durable,
                                 struct situ_error **error);

// Deletes all keys from begin on and before end, at the cost of one write.
situ_status situ_keyspace_delete_range(const struct situ_keyspace *keyspace,
                                       const void *begin,
                                       size_t begin_bytes,
                                       const void *end,
                                       size_t end_bytes,
                                       int durable,
                                       struct situ_error **error);

// Returns the value of a key without copying it, or SITU_MISS. The caller frees the value.
situ_status situ_keyspace_get(const struct situ_keyspace *keyspace,
                              const void *key,
                              size_t key_bytes,
                              const struct situ_read *read,
                              struct situ_value *value,
                              struct situ_error **error);

// Copies the value of a key into a buffer, or returns SITU_MISS. value_bytes becomes the length of the value. If that
// is more than the buffer holds, the buffer has the first bytes of the value.
situ_status situ_keyspace_get_into(const struct situ_keyspace *keyspace,
                                   const void *key,
                                   size_t key_bytes,
                                   const struct situ_read *read,
                                   void *buffer,
                                   size_t capacity,
                                   size_t *value_bytes,
                                   struct situ_error **error);

// Returns the values of several keys, as of one moment. values has room for count values; the data of a key that has
// none is NULL. The caller frees each value. After an error, there is none.
situ_status situ_keyspace_get_many(const struct situ_keyspace *keyspace,
                                   const struct situ_key *keys,
                                   size_t count,
                                   const struct situ_read *read,
                                   struct situ_value *values,
                                   struct situ_error **error);

// Removes the first entry and returns it, or SITU_MISS if there is none. No other caller gets the same entry. Of the
// options of reads, the bounds count: a prefix, lower and upper. The caller frees key and value.
situ_status situ_keyspace_pop_first(const struct situ_keyspace *keyspace,
                                    const struct situ_read *bounds,
                                    int durable,
                                    struct situ_value *key,
                                    struct situ_value *value,
                                    struct situ_error **error);

// Removes the last entry and returns it, as situ_keyspace_pop_first does with the first.
situ_status situ_keyspace_pop_last(const struct situ_keyspace *keyspace,
                                   const struct situ_read *bounds,
                                   int durable,
                                   struct situ_value *key,
                                   struct situ_value *value,
                                   struct situ_error **error);

// Opens a cursor. It sees the keyspace as it is now, or as of the snapshot of the options. The caller frees it. A
// cursor stands on no entry until it is moved.
situ_status situ_keyspace_cursor(const struct situ_keyspace *keyspace,
                                 const struct situ_read *read,
                                 struct situ_cursor **cursor,
                                 struct situ_error **error);

// Writes the memtables of a keyspace to tables, and waits for that.
situ_status situ_keyspace_flush(const struct situ_keyspace *keyspace, struct situ_error **error);

// Compacts the keys from begin on and before end, and waits for that. NULL stands for no bound.
situ_status situ_keyspace_compact(const struct situ_keyspace *keyspace,
                                  const void *begin,
                                  size_t begin_bytes,
                                  const void *end,
                                  size_t end_bytes,
                                  struct situ_error **error);

// Returns about how many bytes of tables the keys from begin on and before end take.
situ_status situ_keyspace_approximate_bytes(const struct situ_keyspace *keyspace,
                                            const void *begin,
                                            size_t begin_bytes,
                                            const void *end,
                                            size_t end_bytes,
                                            uint64_t *size,
                                            struct situ_error **error);

// Returns a figure of a keyspace by its name: approximate_keys, compactions_running, dead_steps, memtable_bytes,
// memtable_entries, memtables, table_bytes, tables, value_bytes, value_dead_bytes, writers_stopped.
situ_status situ_keyspace_property(const struct situ_keyspace *keyspace,
                                   const char *name,
                                   uint64_t *value,
                                   struct situ_error **error);

// Returns the default options. The caller frees them.
struct situ_options *situ_options_new(void);

// Sets an option: situ_options_set(options, "cache_bytes", "1073741824", &error).
//
// Names are those of the fields of the Rust types Options and KeyspaceOptions, which document them
// (https://docs.rs/situ). Of a store: create_if_missing, error_if_exists, durability (buffered, synced), cache_bytes,
// open_tables_max, log_bytes_max, changes_kept_bytes, memtables_bytes_max, compaction_threads,
// compaction_bytes_per_s_max, requests_outstanding_max, transaction_locks_max, value_segment_bytes, value_trim,
// value_victims, value_inflation_percent_max, slow_operation (milliseconds, or none). Of keyspaces: memtable_bytes,
// memtables_max, compression (none, lz4, zstd, "zstd level 5"; one for each level, separated by commas), block_bytes,
// filter_bits_per_key, level0_tables, level0_tables_max, level_base_bytes, level_multiplier, table_bytes,
// value_log_min_bytes (or none), uses_reserve (true, false).
//
// In the options of a store, those of keyspaces count for the keyspace "default", and for each that exists when the
// store is opened.
situ_status situ_options_set(struct situ_options *options,
                             const char *name,
                             const char *value,
                             struct situ_error **error);

// Frees options, or does nothing for NULL. A store keeps its own copy.
void situ_options_free(struct situ_options *options);

// Returns the sequence number of the last write that a snapshot sees; 0 for NULL.
uint64_t situ_snapshot_sequence(const struct situ_snapshot *snapshot);

// Frees a snapshot, or does nothing for NULL. Cursors that were opened on it go on.
void situ_snapshot_free(struct situ_snapshot *snapshot);

// Opens the store in a directory. NULL stands for the default options, which create a store that is missing. One
// process at a time has a store open for writing.
situ_status situ_store_open(const char *directory,
                            const struct situ_options *options,
                            struct situ_store **opened,
                            struct situ_error **error);

// Opens the store in a directory for reading, as it is now. Another process may have it open for writing.
situ_status situ_store_open_read_only(const char *directory,
                                      const struct situ_options *options,
                                      struct situ_store **opened,
                                      struct situ_error **error);

// Closes a store, and tells of an error of its last writes to the disk. Calls of other threads, and later calls on the
// store and on what came from it, return SITU_ERROR_CLOSED. Only cursors that are open go on. The handle has to be
// freed as well.
situ_status situ_store_close(const struct situ_store *store, struct situ_error **error);

// Frees the handle of a store, or does nothing for NULL. Keyspaces, snapshots, cursors and transactions are handles of
// their own: the store stays open until the last is freed, unless it was closed.
void situ_store_free(struct situ_store *store);

// Removes the store in a directory, and all it holds. No process may have it open.
situ_status situ_destroy(const char *directory, struct situ_error **error);

// Returns the keyspace of a name, "default" or another. The call creates it if it is missing. NULL stands for the
// options of the store; other options count for a keyspace that the call creates.
situ_status situ_store_keyspace(const struct situ_store *store,
                                const char *name,
                                const struct situ_options *options,
                                struct situ_keyspace **keyspace,
                                struct situ_error **error);

// Returns the keyspace of a name, or SITU_ERROR_NO_SUCH_KEYSPACE.
situ_status situ_store_existing_keyspace(const struct situ_store *store,
                                         const char *name,
                                         struct situ_keyspace **keyspace,
                                         struct situ_error **error);

// Drops a keyspace with all it holds, durably. Its space comes back soon.
situ_status situ_store_drop_keyspace(const struct situ_store *store, const char *name, struct situ_error **error);

// Returns the names of all keyspaces, each with a zero behind it.
situ_status situ_store_keyspace_names(const struct situ_store *store,
                                      struct situ_value *names,
                                      struct situ_error **error);

// Writes a batch, all of it or nothing. The batch is empty afterwards, after an error, too.
situ_status situ_store_write(const struct situ_store *store,
                             struct situ_batch *batch,
                             int durable,
                             struct situ_error **error);

// Returns when all writes that were acknowledged before the call survive power failure.
situ_status situ_store_sync(const struct situ_store *store, struct situ_error **error);

// Writes the memtables of all keyspaces to tables, and waits for that.
situ_status situ_store_flush(const struct situ_store *store, struct situ_error **error);

// Waits until no flush and no compaction is due.
situ_status situ_store_wait_idle(const struct situ_store *store, struct situ_error **error);

// Makes a copy of the store in a new directory while it is in use. Tables are hard links where that is possible.
situ_status situ_store_checkpoint(const struct situ_store *store, const char *directory, struct situ_error **error);

// Returns a snapshot: what the store holds now, whatever is written later. The caller frees it. Deleted and
// overwritten data stays on disk as long as a snapshot sees it.
situ_status situ_store_snapshot(const struct situ_store *store,
                                struct situ_snapshot **snapshot,
                                struct situ_error **error);

// Returns a figure of a store by its name. Sizes are in bytes, and counts begin when the store is opened.
//
// Names: cache_bytes, cache_bytes_max, cache_hits, cache_misses, cache_pinned_bytes, keyspaces, last_sequence, locks,
// log_bytes, log_syncs, memtable_bytes, memtable_bytes_max, requests_outstanding, snapshots, table_bytes, tables_open,
// transactions; and the counters of the Rust type Statistics.
situ_status situ_store_property(const struct situ_store *store,
                                const char *name,
                                uint64_t *value,
                                struct situ_error **error);

// Returns the text of the library's version.
const char *situ_version(void);

// Begins a transaction. The caller frees it.
situ_status situ_store_begin(const struct situ_store *store,
                             const struct situ_transaction_options *options,
                             struct situ_transaction **transaction,
                             struct situ_error **error);

// Commits a transaction. sequence becomes the sequence number of its last write, or may be NULL. The transaction has
// then ended, after an error, too.
situ_status situ_transaction_commit(struct situ_transaction *transaction,
                                    uint64_t *sequence,
                                    struct situ_error **error);

// Frees a transaction, or does nothing for NULL. One that was not committed is rolled back: none of its writes takes
// effect, and its locks are free.
void situ_transaction_free(struct situ_transaction *transaction);

// Returns the value of a key as the transaction sees it, its own writes included, or SITU_MISS. The caller frees it.
situ_status situ_transaction_get(struct situ_transaction *transaction,
                                 const struct situ_keyspace *keyspace,
                                 const void *key,
                                 size_t key_bytes,
                                 struct situ_value *value,
                                 struct situ_error **error);

// Returns the value of a key, or SITU_MISS, and makes sure that no other writer changes the key before the commit. A
// pessimistic transaction locks the key, in the mode SITU_EXCLUSIVE or SITU_SHARED. The caller frees the value.
situ_status situ_transaction_get_for_update(struct situ_transaction *transaction,
                                            const struct situ_keyspace *keyspace,
                                            const void *key,
                                            size_t key_bytes,
                                            int mode,
                                            struct situ_value *value,
                                            struct situ_error **error);

// Does what situ_transaction_get_for_update does, and reads no value.
situ_status situ_transaction_lock(struct situ_transaction *transaction,
                                  const struct situ_keyspace *keyspace,
                                  const void *key,
                                  size_t key_bytes,
                                  int mode,
                                  struct situ_error **error);

// Sets the value of a key when the transaction commits.
situ_status situ_transaction_put(struct situ_transaction *transaction,
                                 const struct situ_keyspace *keyspace,
                                 const void *key,
                                 size_t key_bytes,
                                 const void *value,
                                 size_t value_bytes,
                                 struct situ_error **error);

// Deletes a key when the transaction commits.
situ_status situ_transaction_delete(struct situ_transaction *transaction,
                                    const struct situ_keyspace *keyspace,
                                    const void *key,
                                    size_t key_bytes,
                                    struct situ_error **error);

// Opens a cursor that sees what the transaction sees, with its writes until now. The caller frees it. Of the options,
// the bounds and bypass_cache count.
situ_status situ_transaction_cursor(struct situ_transaction *transaction,
                                    const struct situ_keyspace *keyspace,
                                    const struct situ_read *read,
                                    struct situ_cursor **cursor,
                                    struct situ_error **error);

// Sets a savepoint. Savepoints lie in each other.
situ_status situ_transaction_set_savepoint(struct situ_transaction *transaction, struct situ_error **error);

// Takes back all writes since the last savepoint, and removes the savepoint. Locks stay.
situ_status situ_transaction_rollback_to_savepoint(struct situ_transaction *transaction, struct situ_error **error);

// Removes the last savepoint, and keeps the writes.
situ_status situ_transaction_pop_savepoint(struct situ_transaction *transaction, struct situ_error **error);

// Frees the bytes of a value. Does nothing for NULL, and for a value that was freed or never given.
void situ_value_free(struct situ_value *value);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* SITU_H */
