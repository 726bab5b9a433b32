// Runs the list of operations with libmemcached, and prints a line for each: its name, a tab, and its result.
//
//     drive libmemcached|libmemcached-binary HOST PORT       (cc drive.c -o drive -lmemcached -lmemcachedutil -lpthread)
//
// `scripts/clients/run.py` has the list and the form of the lines. If the first operation fails, the rest is not run.

#include <libmemcached/memcached.h>
#include <libmemcachedutil-1.0/pool.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static memcached_st *client;
static char why[256];

// An operation returns false at the first check that fails, with the reason in `why`.
#define CHECK(condition)                                                                      \
  do {                                                                                        \
    if (!(condition)) {                                                                       \
      snprintf(why, sizeof why, "not %s: %s", #condition, memcached_last_error_message(client)); \
      return false;                                                                           \
    }                                                                                         \
  } while (0)

typedef memcached_return_t (*store_function)(memcached_st *, const char *, size_t, const char *, size_t, time_t, uint32_t);

static memcached_return_t store(store_function function, const char *key, const char *value, time_t expire) {
  return function(client, key, strlen(key), value, strlen(value), expire, 0);
}

static bool set(const char *key, const char *value) { return store(memcached_set, key, value, 0) == MEMCACHED_SUCCESS; }

static bool has(const char *key, const char *value, size_t length) {
  size_t found_length;
  uint32_t flags;
  memcached_return_t result;
  char *found = memcached_get(client, key, strlen(key), &found_length, &flags, &result);
  bool equal = result == MEMCACHED_SUCCESS && found_length == length && memcmp(found, value, length) == 0;
  free(found);
  return equal;
}

static bool is(const char *key, const char *value) { return has(key, value, strlen(value)); }

static bool missing(const char *key) {
  size_t length;
  uint32_t flags;
  memcached_return_t result;
  free(memcached_get(client, key, strlen(key), &length, &flags, &result));
  return result == MEMCACHED_NOTFOUND;
}

static uint64_t cas_of(const char *key) {
  const char *keys[] = {key};
  size_t lengths[] = {strlen(key)};
  uint64_t cas = 0;
  if (memcached_mget(client, keys, lengths, 1) != MEMCACHED_SUCCESS) return 0;
  memcached_return_t result;
  memcached_result_st *found;
  while ((found = memcached_fetch_result(client, NULL, &result)) != NULL) {
    cas = memcached_result_cas(found);
    memcached_result_free(found);
  }
  return cas;
}

static bool op_set(void) { CHECK(set("key", "value")); return true; }
static bool op_get(void) { CHECK(is("key", "value")); return true; }
static bool op_get_missing(void) { CHECK(missing("missing")); return true; }

// A value of libmemcached is bytes, with flags that are the program's.
static bool op_types(void) {
  CHECK(memcached_set(client, "typed", 5, "a\r\n\0b", 5, 0, 0xfedcba98) == MEMCACHED_SUCCESS);
  size_t length;
  uint32_t flags;
  memcached_return_t result;
  char *found = memcached_get(client, "typed", 5, &length, &flags, &result);
  CHECK(result == MEMCACHED_SUCCESS && flags == 0xfedcba98);
  CHECK(length == 5 && memcmp(found, "a\r\n\0b", 5) == 0);
  free(found);
  return true;
}

static bool op_add(void) {
  CHECK(store(memcached_add, "added", "one", 0) == MEMCACHED_SUCCESS);
  CHECK(is("added", "one"));
  return true;
}

static bool op_add_existing(void) {
  memcached_return_t result = store(memcached_add, "added", "two", 0);
  CHECK(result == MEMCACHED_NOTSTORED || result == MEMCACHED_DATA_EXISTS);
  CHECK(is("added", "one"));
  return true;
}

static bool op_replace(void) {
  CHECK(store(memcached_replace, "added", "three", 0) == MEMCACHED_SUCCESS);
  CHECK(is("added", "three"));
  memcached_return_t result = store(memcached_replace, "missing", "three", 0);
  CHECK(result == MEMCACHED_NOTSTORED || result == MEMCACHED_NOTFOUND);
  CHECK(missing("missing"));
  return true;
}

static bool op_append(void) {
  CHECK(set("joined", "b"));
  CHECK(store(memcached_append, "joined", "c", 0) == MEMCACHED_SUCCESS);
  CHECK(is("joined", "bc"));
  return true;
}

static bool op_prepend(void) {
  CHECK(store(memcached_prepend, "joined", "a", 0) == MEMCACHED_SUCCESS);
  CHECK(is("joined", "abc"));
  return true;
}

static bool op_cas(void) {
  CHECK(set("swapped", "one"));
  uint64_t cas = cas_of("swapped");
  CHECK(cas != 0);
  CHECK(memcached_cas(client, "swapped", 7, "two", 3, 0, 0, cas) == MEMCACHED_SUCCESS);
  CHECK(is("swapped", "two"));
  return true;
}

static bool op_cas_conflict(void) {
  uint64_t cas = cas_of("swapped");
  CHECK(cas != 0);
  CHECK(set("swapped", "three"));
  CHECK(memcached_cas(client, "swapped", 7, "four", 4, 0, 0, cas) == MEMCACHED_DATA_EXISTS);
  CHECK(is("swapped", "three"));
  return true;
}

static bool op_incr(void) {
  uint64_t count = 0;
  CHECK(set("count", "10"));
  CHECK(memcached_increment(client, "count", 5, 5, &count) == MEMCACHED_SUCCESS && count == 15);
  return true;
}

static bool op_decr(void) {
  uint64_t count = 0;
  CHECK(memcached_decrement(client, "count", 5, 6, &count) == MEMCACHED_SUCCESS && count == 9);
  // memcached keeps the length of the number, with a space in the place of a digit.
  CHECK(is("count", "9") || is("count", "9 "));
  return true;
}

static bool op_delete(void) {
  CHECK(memcached_delete(client, "key", 3, 0) == MEMCACHED_SUCCESS);
  CHECK(missing("key"));
  return true;
}

static bool op_delete_missing(void) {
  CHECK(memcached_delete(client, "key", 3, 0) == MEMCACHED_NOTFOUND);
  return true;
}

// Each value is its key.
static bool op_many(void) {
  enum { COUNT = 101 };
  static char names[COUNT][16];
  const char *keys[COUNT];
  size_t lengths[COUNT];
  for (int i = 0; i < COUNT; i++) {
    lengths[i] = snprintf(names[i], sizeof names[i], i == COUNT - 1 ? "missing" : "many%d", i);
    keys[i] = names[i];
    if (i < COUNT - 1) CHECK(set(names[i], names[i]));
  }
  CHECK(memcached_mget(client, keys, lengths, COUNT) == MEMCACHED_SUCCESS);
  int found = 0;
  memcached_return_t result;
  memcached_result_st *item;
  while ((item = memcached_fetch_result(client, NULL, &result)) != NULL) {
    size_t length = memcached_result_length(item);
    CHECK(length == memcached_result_key_length(item));
    CHECK(memcmp(memcached_result_value(item), memcached_result_key_value(item), length) == 0);
    memcached_result_free(item);
    found++;
  }
  CHECK(found == COUNT - 1);
  return true;
}

static bool op_touch(void) {
  CHECK(store(memcached_set, "touched", "value", 100) == MEMCACHED_SUCCESS);
  CHECK(memcached_touch(client, "touched", 7, 1) == MEMCACHED_SUCCESS);
  CHECK(is("touched", "value"));
  usleep(2500000);
  CHECK(missing("touched"));
  CHECK(memcached_touch(client, "touched", 7, 1) == MEMCACHED_NOTFOUND);
  return true;
}

static bool op_expiry(void) {
  CHECK(store(memcached_set, "short", "value", 1) == MEMCACHED_SUCCESS);
  CHECK(store(memcached_set, "long", "value", 100) == MEMCACHED_SUCCESS);
  usleep(2500000);
  CHECK(missing("short"));
  CHECK(is("long", "value"));
  return true;
}

static char *noise(size_t length) {
  char *value = malloc(length);
  for (size_t i = 0; i < length; i++) value[i] = rand();
  return value;
}

static bool op_900_kb(void) {
  char *value = noise(900000);
  CHECK(memcached_set(client, "large", 5, value, 900000, 0, 0) == MEMCACHED_SUCCESS);
  CHECK(has("large", value, 900000));
  free(value);
  return true;
}

static bool op_over_1_mb(void) {
  char *value = noise(2000000);
  CHECK(memcached_set(client, "over", 4, value, 2000000, 0, 0) == MEMCACHED_E2BIG);
  free(value);
  return true;
}

static bool op_after(void) {
  CHECK(set("after", "value"));
  CHECK(is("after", "value"));
  CHECK(missing("over"));
  return true;
}

static bool op_long_key(void) {
  char key[251];
  memset(key, 'k', 250);
  key[250] = 0;
  CHECK(set(key, "value"));
  CHECK(is(key, "value"));
  return true;
}

static bool op_stats(void) {
  memcached_return_t result;
  memcached_stat_st *stats = memcached_stat(client, NULL, &result);
  CHECK(result == MEMCACHED_SUCCESS);
  char *items = memcached_stat_get_value(client, stats, "curr_items", &result);
  CHECK(items != NULL && atol(items) >= 1);
  free(items);
  memcached_stat_free(client, stats);
  return true;
}

static bool op_version(void) {
  CHECK(memcached_version(client) == MEMCACHED_SUCCESS);
  CHECK(memcached_server_major_version(memcached_server_instance_by_position(client, 0)) == 1);
  return true;
}

static bool op_row(void) {
  for (int i = 0; i < 1000; i++) {
    char key[16], value[16];
    snprintf(key, sizeof key, "row%d", i);
    snprintf(value, sizeof value, "value%d", i);
    CHECK(set(key, value));
    CHECK(is(key, value));
  }
  return true;
}

// Two threads share a pool: a `memcached_st` belongs to one.
static memcached_pool_st *pool;

static void *work(void *name) {
  for (int i = 0; i < 200; i++) {
    char key[32];
    size_t key_length = snprintf(key, sizeof key, "%s-%d", (char *)name, i), length = 0;
    uint32_t flags;
    memcached_return_t result;
    memcached_st *own = memcached_pool_fetch(pool, NULL, &result);
    if (own == NULL) return "the pool has no client";
    if (memcached_set(own, key, key_length, key, key_length, 0, 0) != MEMCACHED_SUCCESS) return "set";
    char *found = memcached_get(own, key, key_length, &length, &flags, &result);
    if (result != MEMCACHED_SUCCESS || length != key_length || memcmp(found, key, length) != 0) return "get";
    free(found);
    memcached_pool_release(pool, own);
  }
  return NULL;
}

static bool op_two(void) {
  pthread_t threads[2];
  void *ends[2];
  pool = memcached_pool_create(memcached_clone(NULL, client), 2, 2);
  for (int i = 0; i < 2; i++) CHECK(pthread_create(&threads[i], NULL, work, i ? "second" : "first") == 0);
  for (int i = 0; i < 2; i++) pthread_join(threads[i], &ends[i]);
  CHECK(ends[0] == NULL && ends[1] == NULL);
  memcached_free(memcached_pool_destroy(pool));
  return true;
}

static bool op_flush_all(void) {
  CHECK(set("flushed", "value"));
  CHECK(memcached_flush(client, 0) == MEMCACHED_SUCCESS);
  CHECK(missing("flushed"));
  CHECK(set("flushed", "again"));
  CHECK(is("flushed", "again"));
  return true;
}

static const struct {
  const char *name;
  bool (*run)(void);
} OPERATIONS[] = {
    {"set", op_set},
    {"get", op_get},
    {"get missing", op_get_missing},
    {"types", op_types},
    {"add", op_add},
    {"add existing", op_add_existing},
    {"replace", op_replace},
    {"append", op_append},
    {"prepend", op_prepend},
    {"cas", op_cas},
    {"cas conflict", op_cas_conflict},
    {"incr", op_incr},
    {"decr", op_decr},
    {"delete", op_delete},
    {"delete missing", op_delete_missing},
    {"many keys", op_many},
    {"touch", op_touch},
    {"gat", NULL},
    {"expiry", op_expiry},
    {"900 KB", op_900_kb},
    {"over 1 MB", op_over_1_mb},
    {"after over 1 MB", op_after},
    {"key of 250 bytes", op_long_key},
    {"stats", op_stats},
    {"version", op_version},
    {"1000 in a row", op_row},
    {"two at once", op_two},
    {"flush_all", op_flush_all},
};

int main(int count, char **arguments) {
  if (count != 4) return 2;
  bool binary = strcmp(arguments[1], "libmemcached-binary") == 0;
  client = memcached_create(NULL);
  memcached_behavior_set(client, MEMCACHED_BEHAVIOR_BINARY_PROTOCOL, binary);
  memcached_behavior_set(client, MEMCACHED_BEHAVIOR_SUPPORT_CAS, true);
  memcached_behavior_set(client, MEMCACHED_BEHAVIOR_TCP_NODELAY, true);
  memcached_behavior_set(client, MEMCACHED_BEHAVIOR_POLL_TIMEOUT, 20000);
  memcached_server_add(client, arguments[2], atoi(arguments[3]));
  printf("client\t%s\t%s\n", memcached_lib_version(), binary ? "binary" : "text");
  for (size_t i = 0; i < sizeof OPERATIONS / sizeof *OPERATIONS; i++) {
    bool offered = OPERATIONS[i].run != NULL, good = offered && OPERATIONS[i].run();
    if (!offered) printf("%s\tnot offered\n", OPERATIONS[i].name);
    else if (good) printf("%s\tok\n", OPERATIONS[i].name);
    else printf("%s\tfailed: %s\n", OPERATIONS[i].name, why);
    fflush(stdout);
    if (i == 0 && !good) break;
  }
  memcached_free(client);
  return 0;
}
