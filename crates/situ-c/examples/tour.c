/* A tour of the C library: what the guide shows, and every function once.
 *
 *     cc -o tour tour.c $(pkg-config --cflags --libs situ) && ./tour <empty directory>
 */
#include <situ.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A text as an argument: its address and its length. */
#define TEXT(text) (text), (sizeof(text) - 1)

/* Ends the program unless a call returns what is expected. */
#define EXPECT(call, expected)                                                                                         \
    do {                                                                                                               \
        long long returned = (long long)(call);                                                                        \
        if (returned != (long long)(expected)) {                                                                       \
            fprintf(stderr, "line %d: %s returned %lld: %s\n", __LINE__, #call, returned, situ_error_text(error));     \
            exit(1);                                                                                                   \
        }                                                                                                              \
        situ_error_free(error);                                                                                        \
        error = NULL;                                                                                                  \
    } while (0)

static situ_error *error;

/* Prints a value and frees it. */
static void show(const char *what, situ_value *value) {
    printf("%s: %.*s\n", what, (int)value->bytes, value->data ? (const char *)value->data : "");
    situ_value_free(value);
    situ_value_free(value);
}

/* Puts, gets, ranges. */
static void first_steps(situ_store *store) {
    situ_keyspace *born;
    EXPECT(situ_store_keyspace(store, "born", NULL, &born, &error), SITU_OK);
    EXPECT(situ_keyspace_put(born, TEXT("ada"), TEXT("1815"), SITU_AS_STORE, &error), SITU_OK);
    EXPECT(situ_keyspace_put(born, TEXT("alan"), TEXT("1912"), SITU_BUFFERED, &error), SITU_OK);
    EXPECT(situ_keyspace_put(born, TEXT("grace"), TEXT("1906"), SITU_SYNCED, &error), SITU_OK);
    EXPECT(situ_keyspace_put(born, TEXT("nobody"), NULL, 0, SITU_AS_STORE, &error), SITU_OK);

    situ_value value;
    EXPECT(situ_keyspace_get(born, TEXT("ada"), NULL, &value, &error), SITU_OK);
    show("ada", &value);
    EXPECT(situ_keyspace_get(born, TEXT("nobody"), NULL, &value, &error), SITU_OK);
    EXPECT(value.bytes, 0);
    show("nobody", &value);
    EXPECT(situ_keyspace_get(born, TEXT("somebody"), NULL, &value, &error), SITU_MISS);
    situ_value_free(&value);

    /* Into a buffer of one's own; the length is that of the whole value. */
    char buffer[3];
    size_t bytes;
    EXPECT(situ_keyspace_get_into(born, TEXT("grace"), NULL, buffer, sizeof buffer, &bytes, &error), SITU_OK);
    EXPECT(bytes, 4);
    EXPECT(memcmp(buffer, "190", 3), 0);
    EXPECT(situ_keyspace_get_into(born, TEXT("x"), NULL, buffer, sizeof buffer, &bytes, &error), SITU_MISS);

    situ_key keys[] = {{TEXT("grace")}, {TEXT("x")}, {TEXT("alan")}};
    situ_value values[3];
    EXPECT(situ_keyspace_get_many(born, keys, 3, NULL, values, &error), SITU_OK);
    EXPECT(values[1].data == NULL, 1);
    show("grace", &values[0]);
    show("alan", &values[2]);

    /* A walk over a range, and back. */
    situ_cursor *cursor;
    situ_read range = {.lower = "alan", .lower_bytes = 4, .upper = "h", .upper_bytes = 1};
    EXPECT(situ_keyspace_cursor(born, &range, &cursor, &error), SITU_OK);
    situ_status status = situ_cursor_seek_to_first(cursor, &error);
    for (; status == SITU_OK; status = situ_cursor_next(cursor, &error)) {
        const void *key;
        size_t key_bytes;
        EXPECT(situ_cursor_entry(cursor, &key, &key_bytes, NULL, NULL, &error), SITU_OK);
        printf("in the range: %.*s\n", (int)key_bytes, (const char *)key);
    }
    EXPECT(status, SITU_MISS);
    EXPECT(situ_cursor_entry(cursor, NULL, NULL, NULL, NULL, &error), SITU_MISS);
    EXPECT(situ_cursor_seek_to_last(cursor, &error), SITU_OK);
    EXPECT(situ_cursor_prev(cursor, &error), SITU_OK);
    EXPECT(situ_cursor_prev(cursor, &error), SITU_MISS);
    EXPECT(situ_cursor_seek(cursor, TEXT("b"), &error), SITU_OK);
    EXPECT(situ_cursor_seek_for_prev(cursor, TEXT("b"), &error), SITU_OK);
    situ_cursor_free(cursor);

    /* Several entries with one call, backwards. */
    char page[64];
    size_t used, entries;
    situ_read prefix = {.prefix = "a", .prefix_bytes = 1, .bypass_cache = 1};
    EXPECT(situ_keyspace_cursor(born, &prefix, &cursor, &error), SITU_OK);
    EXPECT(situ_cursor_seek_to_last(cursor, &error), SITU_OK);
    EXPECT(situ_cursor_read(cursor, 1, page, 5, &used, &entries, &error), SITU_OK);
    EXPECT(used, 16);
    EXPECT(entries, 0);
    EXPECT(situ_cursor_read(cursor, 1, page, sizeof page, &used, &entries, &error), SITU_OK);
    EXPECT(used, 16 + 15);
    EXPECT(entries, 2);
    EXPECT(memcmp(page + 8, "alan1912", 8), 0);
    EXPECT(memcmp(page + 24, "ada1815", 7), 0);
    EXPECT(situ_cursor_read(cursor, 1, page, sizeof page, &used, &entries, &error), SITU_MISS);
    situ_cursor_free(cursor);

    situ_value key;
    EXPECT(situ_keyspace_pop_first(born, NULL, SITU_AS_STORE, &key, &value, &error), SITU_OK);
    show("popped", &key);
    show("popped", &value);
    EXPECT(situ_keyspace_pop_last(born, &prefix, SITU_BUFFERED, &key, &value, &error), SITU_OK);
    show("popped", &key);
    situ_value_free(&value);
    EXPECT(situ_keyspace_pop_last(born, &prefix, SITU_BUFFERED, &key, &value, &error), SITU_MISS);

    EXPECT(situ_keyspace_delete(born, TEXT("nobody"), SITU_AS_STORE, &error), SITU_OK);
    EXPECT(situ_keyspace_delete_range(born, TEXT("a"), TEXT("z"), SITU_AS_STORE, &error), SITU_OK);
    EXPECT(situ_keyspace_get(born, TEXT("grace"), NULL, &value, &error), SITU_MISS);
    situ_keyspace_free(born);
    EXPECT(situ_store_drop_keyspace(store, "born", &error), SITU_OK);
    EXPECT(situ_store_existing_keyspace(store, "born", &born, &error), SITU_ERROR_NO_SUCH_KEYSPACE);
}

/* Batches, snapshots, transactions. */
static void together(situ_store *store) {
    situ_options *options = situ_options_new();
    EXPECT(situ_options_set(options, "compression", "zstd level 5", &error), SITU_OK);
    situ_keyspace *money, *log;
    EXPECT(situ_store_keyspace(store, "default", NULL, &money, &error), SITU_OK);
    EXPECT(situ_store_keyspace(store, "log", options, &log, &error), SITU_OK);
    situ_options_free(options);

    situ_batch *batch = situ_batch_new();
    EXPECT(situ_batch_put(batch, money, TEXT("ann"), TEXT("5"), &error), SITU_OK);
    EXPECT(situ_batch_put(batch, money, TEXT("bob"), TEXT("5"), &error), SITU_OK);
    EXPECT(situ_batch_delete(batch, money, TEXT("carl"), &error), SITU_OK);
    EXPECT(situ_batch_delete_range(batch, log, TEXT("0"), TEXT("9"), &error), SITU_OK);
    EXPECT(situ_batch_length(batch), 4);
    EXPECT(situ_batch_bytes(batch) > 10, 1);
    EXPECT(situ_store_write(store, batch, SITU_AS_STORE, &error), SITU_OK);
    EXPECT(situ_batch_length(batch), 0);
    EXPECT(situ_batch_put(batch, log, TEXT("0"), TEXT("not written"), &error), SITU_OK);
    situ_batch_clear(batch);
    EXPECT(situ_store_write(store, batch, SITU_SYNCED, &error), SITU_OK);
    situ_batch_free(batch);

    situ_snapshot *before;
    EXPECT(situ_store_snapshot(store, &before, &error), SITU_OK);
    EXPECT(situ_snapshot_sequence(before) > 0, 1);

    /* Ann gives Bob 2. */
    situ_transaction *transaction;
    situ_transaction_options wait = {.lock_timeout_ms = 100, .durability = SITU_SYNCED};
    EXPECT(situ_store_begin(store, &wait, &transaction, &error), SITU_OK);
    situ_value value;
    EXPECT(situ_transaction_get_for_update(transaction, money, TEXT("ann"), SITU_EXCLUSIVE, &value, &error), SITU_OK);
    show("ann has", &value);
    EXPECT(situ_transaction_lock(transaction, money, TEXT("bob"), SITU_EXCLUSIVE, &error), SITU_OK);
    EXPECT(situ_transaction_put(transaction, money, TEXT("ann"), TEXT("3"), &error), SITU_OK);
    EXPECT(situ_transaction_put(transaction, money, TEXT("bob"), TEXT("7"), &error), SITU_OK);
    EXPECT(situ_transaction_set_savepoint(transaction, &error), SITU_OK);
    EXPECT(situ_transaction_delete(transaction, money, TEXT("ann"), &error), SITU_OK);
    EXPECT(situ_transaction_get(transaction, money, TEXT("ann"), &value, &error), SITU_MISS);
    EXPECT(situ_transaction_rollback_to_savepoint(transaction, &error), SITU_OK);
    EXPECT(situ_transaction_pop_savepoint(transaction, &error), SITU_ERROR_INVALID);
    EXPECT(situ_transaction_get(transaction, money, TEXT("ann"), &value, &error), SITU_OK);
    show("ann has", &value);

    /* Another transaction is in the way, and one that takes no locks finds out at its end. */
    situ_transaction *other;
    situ_transaction_options at_once = {.lock_timeout_ms = -1};
    EXPECT(situ_store_begin(store, &at_once, &other, &error), SITU_OK);
    situ_status status = situ_transaction_put(other, money, TEXT("ann"), TEXT("0"), &error);
    EXPECT(situ_is_retryable(status), 1);
    EXPECT(status, SITU_ERROR_LOCK_TIMEOUT);
    situ_transaction_free(other);
    situ_transaction_options optimistic = {.kind = SITU_OPTIMISTIC};
    EXPECT(situ_store_begin(store, &optimistic, &other, &error), SITU_OK);
    EXPECT(situ_transaction_put(other, money, TEXT("ann"), TEXT("0"), &error), SITU_OK);

    situ_cursor *cursor;
    EXPECT(situ_transaction_cursor(transaction, money, NULL, &cursor, &error), SITU_OK);
    EXPECT(situ_cursor_seek_to_last(cursor, &error), SITU_OK);
    situ_cursor_free(cursor);
    uint64_t sequence;
    EXPECT(situ_transaction_commit(transaction, &sequence, &error), SITU_OK);
    EXPECT(sequence > situ_snapshot_sequence(before), 1);
    EXPECT(situ_transaction_commit(transaction, NULL, &error), SITU_ERROR_INVALID);
    situ_value none = {.data = "never set", .bytes = 9, .owner = NULL};
    EXPECT(situ_transaction_get(transaction, money, TEXT("bob"), &none, &error), SITU_ERROR_INVALID);
    EXPECT(none.data == NULL, 1);
    situ_transaction_free(transaction);
    EXPECT(situ_transaction_commit(other, NULL, &error), SITU_ERROR_CONFLICT);
    situ_transaction_free(other);

    situ_read then = {.snapshot = before};
    EXPECT(situ_keyspace_get(money, TEXT("bob"), &then, &value, &error), SITU_OK);
    show("bob had", &value);
    EXPECT(situ_keyspace_get(money, TEXT("bob"), NULL, &value, &error), SITU_OK);
    show("bob has", &value);
    situ_snapshot_free(before);
    situ_keyspace_free(money);
    situ_keyspace_free(log);
}

/* Calls that do not wait. The function runs on this thread or on one of the library. */
struct outcome {
    _Atomic int status;
    situ_value value;
};

static void done(void *context, situ_status status, situ_value *value, situ_error *failure) {
    struct outcome *outcome = context;
    if (value != NULL) {
        outcome->value = *value;
    }
    situ_error_free(failure);
    outcome->status = status;
}

static situ_status wait_for(struct outcome *outcome) {
    while (outcome->status == INT32_MAX) {
    }
    situ_status status = outcome->status;
    outcome->status = INT32_MAX;
    return status;
}

static void without_waiting(situ_store *store) {
    situ_keyspace *keyspace;
    EXPECT(situ_store_keyspace(store, "default", NULL, &keyspace, &error), SITU_OK);
    struct outcome outcome = {.status = INT32_MAX};
    situ_keyspace_put_async(keyspace, TEXT("key"), TEXT("value"), SITU_SYNCED, done, &outcome);
    EXPECT(wait_for(&outcome), SITU_OK);
    situ_keyspace_get_async(keyspace, TEXT("key"), NULL, done, &outcome);
    EXPECT(wait_for(&outcome), SITU_OK);
    show("key", &outcome.value);
    situ_keyspace_delete_async(keyspace, TEXT("key"), SITU_AS_STORE, done, &outcome);
    EXPECT(wait_for(&outcome), SITU_OK);
    situ_keyspace_get_async(keyspace, TEXT("key"), NULL, done, &outcome);
    EXPECT(wait_for(&outcome), SITU_MISS);
    situ_batch *batch = situ_batch_new();
    EXPECT(situ_batch_put(batch, keyspace, TEXT("a"), TEXT("b"), &error), SITU_OK);
    situ_store_write_async(store, batch, SITU_AS_STORE, done, &outcome);
    situ_batch_free(batch);
    EXPECT(wait_for(&outcome), SITU_OK);
    situ_transaction *transaction;
    EXPECT(situ_store_begin(store, NULL, &transaction, &error), SITU_OK);
    EXPECT(situ_transaction_put(transaction, keyspace, TEXT("a"), TEXT("c"), &error), SITU_OK);
    situ_transaction_commit_async(transaction, done, &outcome);
    situ_transaction_free(transaction);
    EXPECT(wait_for(&outcome), SITU_OK);
    situ_keyspace_get_async(NULL, TEXT("key"), NULL, done, &outcome);
    EXPECT(wait_for(&outcome), SITU_ERROR_INVALID);
    situ_keyspace_free(keyspace);
}

int main(int count, char **arguments) {
    if (count != 2) {
        fprintf(stderr, "usage: tour <empty directory>\n");
        return 2;
    }
    printf("situ %s\n", situ_version());
    situ_options *options = situ_options_new();
    EXPECT(situ_options_set(options, "cache_bytes", "8388608", &error), SITU_OK);
    EXPECT(situ_options_set(options, "cash_bytes", "8388608", &error), SITU_ERROR_INVALID);
    situ_store *store;
    char place[4096];
    snprintf(place, sizeof place, "%s/store", arguments[1]);
    EXPECT(situ_store_open_read_only(place, options, &store, &error), SITU_ERROR_IO);
    EXPECT(situ_store_open(place, options, &store, &error), SITU_OK);
    situ_options_free(options);

    first_steps(store);
    together(store);
    without_waiting(store);

    situ_keyspace *keyspace;
    EXPECT(situ_store_existing_keyspace(store, "default", &keyspace, &error), SITU_OK);
    EXPECT(situ_store_sync(store, &error), SITU_OK);
    EXPECT(situ_keyspace_flush(keyspace, &error), SITU_OK);
    EXPECT(situ_store_flush(store, &error), SITU_OK);
    EXPECT(situ_keyspace_compact(keyspace, NULL, 0, NULL, 0, &error), SITU_OK);
    EXPECT(situ_store_wait_idle(store, &error), SITU_OK);
    uint64_t figure;
    EXPECT(situ_keyspace_approximate_bytes(keyspace, TEXT(""), TEXT("z"), &figure, &error), SITU_OK);
    EXPECT(figure > 0, 1);
    EXPECT(situ_keyspace_property(keyspace, "tables", &figure, &error), SITU_OK);
    EXPECT(figure, 1);
    EXPECT(situ_store_property(store, "cache_bytes_max", &figure, &error), SITU_OK);
    EXPECT(figure, 8388608);
    EXPECT(situ_store_property(store, "flushes", &figure, &error), SITU_OK);
    EXPECT(figure > 0, 1);
    EXPECT(situ_store_property(store, "flashes", &figure, &error), SITU_ERROR_INVALID);
    situ_value names;
    EXPECT(situ_store_keyspace_names(store, &names, &error), SITU_OK);
    for (size_t at = 0; at < names.bytes; at += strlen((const char *)names.data + at) + 1) {
        printf("keyspace: %s\n", (const char *)names.data + at);
    }
    situ_value_free(&names);

    /* A value and a cursor outlive the store's handle. */
    char copy[4096];
    snprintf(copy, sizeof copy, "%s/copy", arguments[1]);
    EXPECT(situ_store_checkpoint(store, copy, &error), SITU_OK);
    situ_value value;
    EXPECT(situ_keyspace_get(keyspace, TEXT("a"), NULL, &value, &error), SITU_OK);
    EXPECT(situ_store_close(store, &error), SITU_OK);
    EXPECT(situ_keyspace_put(keyspace, TEXT("a"), TEXT("b"), SITU_AS_STORE, &error), SITU_ERROR_CLOSED);
    situ_store_free(store);
    situ_store_free(NULL);
    situ_keyspace_free(keyspace);
    show("a", &value);

    EXPECT(situ_store_open_read_only(copy, NULL, &store, &error), SITU_OK);
    EXPECT(situ_store_keyspace(store, "default", NULL, &keyspace, &error), SITU_OK);
    EXPECT(situ_keyspace_put(keyspace, TEXT("a"), TEXT("b"), SITU_AS_STORE, &error), SITU_ERROR_READ_ONLY);
    situ_keyspace_free(keyspace);
    situ_store_free(store);
    EXPECT(situ_destroy(copy, &error), SITU_OK);

    /* Bad arguments are errors. */
    EXPECT(situ_store_open(NULL, NULL, &store, &error), SITU_ERROR_INVALID);
    EXPECT(situ_store_open(place, NULL, NULL, NULL), SITU_ERROR_INVALID);
    EXPECT(situ_store_sync(NULL, &error), SITU_ERROR_INVALID);
    EXPECT(situ_store_keyspace(NULL, "a", NULL, &keyspace, &error), SITU_ERROR_INVALID);
    EXPECT(keyspace == NULL, 1);
    EXPECT(situ_keyspace_put(NULL, TEXT("a"), TEXT("b"), 9, &error), SITU_ERROR_INVALID);
    printf("done\n");
    return 0;
}
