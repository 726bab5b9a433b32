#include <situ.h>
#include <stdio.h>
#include <stdlib.h>

static void check(situ_status status, situ_error *error) {
    if (status < 0) {
        fprintf(stderr, "%s\n", situ_error_text(error));
        exit(1);
    }
}

int main(int count, char **arguments) {
    situ_error *error;
    situ_store *store;
    situ_keyspace *born;
    check(situ_store_open(count > 1 ? arguments[1] : "situ-data", NULL, &store, &error), error);
    check(situ_store_keyspace(store, "born", NULL, &born, &error), error);

    /* All of it or nothing; it survives power failure. */
    situ_batch *batch = situ_batch_new();
    check(situ_batch_put(batch, born, "ada", 3, "1815", 4, &error), error);
    check(situ_batch_put(batch, born, "grace", 5, "1906", 4, &error), error);
    check(situ_store_write(store, batch, SITU_SYNCED, &error), error);
    situ_batch_free(batch);

    /* Keys are in order. */
    situ_cursor *cursor;
    situ_read range = {.lower = "a", .lower_bytes = 1, .upper = "h", .upper_bytes = 1};
    check(situ_keyspace_cursor(born, &range, &cursor, &error), error);
    situ_status status = situ_cursor_seek_to_first(cursor, &error);
    while (status == SITU_OK) {
        const void *key, *value;
        size_t key_bytes, value_bytes;
        check(situ_cursor_entry(cursor, &key, &key_bytes, &value, &value_bytes, &error), error);
        printf("%.*s was born in %.*s\n", (int)key_bytes, (const char *)key, (int)value_bytes, (const char *)value);
        status = situ_cursor_next(cursor, &error);
    }
    check(status, error);
    situ_cursor_free(cursor);

    situ_keyspace_free(born);
    check(situ_store_close(store, &error), error);
    situ_store_free(store);
    return 0;
}
