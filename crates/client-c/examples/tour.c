/* A tour of the library: every function, against the servers of the first argument. A second one chooses the transport:
 * "socket" or "shared-memory".
 *
 *     cc -o tour tour.c $(pkg-config --cflags --libs situ_client) && ./tour 127.0.0.1:11211
 */
#include <situ_client.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ends the program unless a call has the expected result. */
static void expect(int line, int result, int expected) {
    if (result != expected) {
        fprintf(stderr, "line %d: %d instead of %d: %s\n", line, result, expected, situ_client_error());
        exit(1);
    }
}
#define EXPECT(call, expected) expect(__LINE__, (call), (expected))
#define TEXT(text) (text), strlen(text)

/* Adds up the lengths of the values that situ_client_get_many finds. */
static void found(void *context, size_t index, const void *data, size_t bytes, uint32_t flags) {
    size_t *total = context;
    *total += bytes;
    printf("key %zu has %.*s, flags %u\n", index, (int)bytes, (const char *)data, (unsigned)flags);
}

static void statistic(void *context, const char *server, const char *name, const char *value) {
    int *count = context;
    ++*count;
    if (strcmp(name, "version") == 0 && *count == 1)
        printf("%s has version %s\n", server, value);
    if (strcmp(name, "transport") == 0)
        printf("%s is reached over %s\n", server, value);
}

int main(int argc, char **argv) {
    if (argc < 2 || argc > 3) {
        fprintf(stderr, "usage: tour SERVERS [TRANSPORT]\n");
        return 2;
    }
    situ_client_options options = {.servers = argv[1], .timeout_ms = 20000};
    if (argc == 3 && strcmp(argv[2], "socket") == 0)
        options.transport = SITU_CLIENT_TRANSPORT_SOCKET;
    if (argc == 3 && strcmp(argv[2], "shared-memory") == 0)
        options.transport = SITU_CLIENT_TRANSPORT_SHARED_MEMORY;
    situ_client *client = situ_client_open(&options);
    if (client == NULL) {
        fprintf(stderr, "%s\n", situ_client_error());
        return 1;
    }
    EXPECT(situ_client_flush_all(client, 0), SITU_CLIENT_OK);

    /* Values. */
    situ_client_value value;
    EXPECT(situ_client_get(client, TEXT("greeting"), &value), SITU_CLIENT_MISS);
    situ_client_value_free(&value);
    EXPECT(situ_client_set(client, TEXT("greeting"), TEXT("hello"), 7, 60), SITU_CLIENT_OK);
    EXPECT(situ_client_append(client, TEXT("greeting"), TEXT(", world")), SITU_CLIENT_OK);
    EXPECT(situ_client_prepend(client, TEXT("greeting"), TEXT("> ")), SITU_CLIENT_OK);
    EXPECT(situ_client_get(client, TEXT("greeting"), &value), SITU_CLIENT_OK);
    printf("%.*s\n", (int)value.bytes, (const char *)value.data);
    EXPECT(value.bytes == 14 && memcmp(value.data, "> hello, world", 14) == 0 && value.flags == 7, 1);
    situ_client_value_free(&value);
    EXPECT(value.data == NULL, 1);
    EXPECT(situ_client_set(client, TEXT("empty"), NULL, 0, 0, 0), SITU_CLIENT_OK);
    EXPECT(situ_client_get(client, TEXT("empty"), &value), SITU_CLIENT_OK);
    EXPECT(value.bytes == 0, 1);
    situ_client_value_free(&value);

    /* Conditions. */
    EXPECT(situ_client_add(client, TEXT("greeting"), TEXT("no"), 0, 0), SITU_CLIENT_NOT_STORED);
    EXPECT(situ_client_add(client, TEXT("other"), TEXT("yes"), 1, 0), SITU_CLIENT_OK);
    EXPECT(situ_client_replace(client, TEXT("nothing"), TEXT("no"), 0, 0), SITU_CLIENT_NOT_STORED);
    EXPECT(situ_client_replace(client, TEXT("other"), TEXT("again"), 1, 0), SITU_CLIENT_OK);
    EXPECT(situ_client_gets(client, TEXT("other"), &value), SITU_CLIENT_OK);
    EXPECT(situ_client_cas(client, TEXT("other"), TEXT("new"), 1, 0, value.cas), SITU_CLIENT_OK);
    EXPECT(situ_client_cas(client, TEXT("other"), TEXT("newer"), 1, 0, value.cas), SITU_CLIENT_CHANGED);
    EXPECT(situ_client_cas(client, TEXT("nothing"), TEXT("new"), 1, 0, value.cas), SITU_CLIENT_MISS);
    situ_client_value_free(&value);

    /* Numbers. */
    uint64_t number = 0;
    EXPECT(situ_client_increment(client, TEXT("visits"), 1, &number), SITU_CLIENT_MISS);
    EXPECT(situ_client_set(client, TEXT("visits"), TEXT("41"), 0, 0), SITU_CLIENT_OK);
    EXPECT(situ_client_increment(client, TEXT("visits"), 1, &number), SITU_CLIENT_OK);
    EXPECT((int)number, 42);
    EXPECT(situ_client_decrement(client, TEXT("visits"), 2, NULL), SITU_CLIENT_OK);

    /* Many keys. */
    situ_client_key keys[] = {{TEXT("greeting")}, {TEXT("nothing")}, {TEXT("other")}, {TEXT("visits")}};
    size_t total = 0;
    EXPECT(situ_client_get_many(client, keys, 4, found, &total), SITU_CLIENT_OK);
    EXPECT((int)total, 14 + 3 + 2);

    /* Time. */
    EXPECT(situ_client_touch(client, TEXT("nothing"), 60), SITU_CLIENT_MISS);
    EXPECT(situ_client_get_and_touch(client, TEXT("other"), 60, &value), SITU_CLIENT_OK);
    situ_client_value_free(&value);
    EXPECT(situ_client_touch(client, TEXT("other"), -1), SITU_CLIENT_OK);
    EXPECT(situ_client_get(client, TEXT("other"), &value), SITU_CLIENT_MISS);
    EXPECT(situ_client_delete(client, TEXT("greeting")), SITU_CLIENT_OK);
    EXPECT(situ_client_delete(client, TEXT("greeting")), SITU_CLIENT_MISS);

    /* Servers. */
    int count = 0;
    EXPECT(situ_client_version(client, statistic, &count), SITU_CLIENT_OK);
    EXPECT(count >= 1, 1);
    count = 0;
    EXPECT(situ_client_stats(client, NULL, statistic, &count), SITU_CLIENT_OK);
    EXPECT(count > 20, 1);

    count = 0;
    EXPECT(situ_client_transports(client, statistic, &count), SITU_CLIENT_OK);
    EXPECT(count >= 1, 1);

    /* Errors have a text, and wrong arguments are errors. */
    EXPECT(situ_client_set(client, TEXT("two words"), TEXT("no"), 0, 0), SITU_CLIENT_ERROR_ARGUMENT);
    printf("an error: %s\n", situ_client_error());
    EXPECT(strstr(situ_client_error(), "space") != NULL, 1);
    EXPECT(situ_client_is_outcome_unknown(), 0);
    EXPECT(situ_client_get(NULL, TEXT("key"), &value), SITU_CLIENT_ERROR_ARGUMENT);
    EXPECT(situ_client_get(client, NULL, 3, &value), SITU_CLIENT_ERROR_ARGUMENT);
    EXPECT(situ_client_get(client, TEXT("key"), NULL), SITU_CLIENT_ERROR_ARGUMENT);
    EXPECT(situ_client_get_many(client, NULL, 3, found, &total), SITU_CLIENT_ERROR_ARGUMENT);
    EXPECT(situ_client_get_many(client, keys, 4, NULL, NULL), SITU_CLIENT_ERROR_ARGUMENT);
    EXPECT(situ_client_set(client, TEXT("word"), TEXT("one"), 0, 0), SITU_CLIENT_OK);
    EXPECT(situ_client_increment(client, TEXT("word"), 1, NULL), SITU_CLIENT_ERROR_REFUSED);
    EXPECT(situ_client_open(NULL) == NULL, 1);
    EXPECT(situ_client_open(&(situ_client_options){.servers = "host:port"}) == NULL, 1);
    EXPECT(situ_client_open(&(situ_client_options){.servers = ""}) == NULL, 1);
    EXPECT(situ_client_open(&(situ_client_options){.servers = "/socket", .transport = 3}) == NULL, 1);
    situ_client_options shared = {.servers = "host", .transport = SITU_CLIENT_TRANSPORT_SHARED_MEMORY};
    EXPECT(situ_client_open(&shared) == NULL, 1);
    EXPECT(strstr(situ_client_error(), "Unix socket") != NULL, 1);
    situ_client_close(client);
    situ_client_close(NULL);

    /* Port 1 has no server. */
    client = situ_client_open(&(situ_client_options){.servers = "127.0.0.1:1"});
    EXPECT(situ_client_get(client, TEXT("key"), &value), SITU_CLIENT_ERROR_BROKEN);
    EXPECT(situ_client_get(client, TEXT("key"), &value), SITU_CLIENT_ERROR_DOWN);
    situ_client_close(client);
    puts("done");
    return 0;
}
