/* Situ: a client for Situ's server and for memcached.
 *
 *     situ_client *client = situ_client_open(&(situ_client_options){.servers = "127.0.0.1:11211"});
 *     situ_client_set(client, "greeting", 8, "hello", 5, 0, 60);
 *     situ_client_value value;
 *     if (situ_client_get(client, "greeting", 8, &value) == SITU_CLIENT_OK) {
 *         printf("%.*s\n", (int)value.bytes, (const char *)value.data);
 *         situ_client_value_free(&value);
 *     }
 *     situ_client_close(client);
 *
 * Link with -lsitu_client, or ask pkg-config for situ_client.
 *
 * Threads share a client. Each call blocks until its answer is there, and no longer than the timeout.
 *
 * Keys and values are bytes with a length. A key has 1 to 250 bytes, without spaces and control characters. A pointer
 * to 0 bytes may be NULL.
 *
 * An expiry is a number of seconds from now. 0 is never. A negative one expires the item at once.
 *
 * A call returns SITU_CLIENT_OK, another answer of the server, or an error. Answers are positive, errors negative.
 * After an error, situ_client_error says what has happened, and situ_client_is_outcome_unknown whether the server
 * may have run the command.
 */
#ifndef SITU_CLIENT_H
#define SITU_CLIENT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A client. */
typedef struct situ_client situ_client;

/* The results of calls. */
enum {
    /* Done. */
    SITU_CLIENT_OK = 0,
    /* There is no such item. */
    SITU_CLIENT_MISS = 1,
    /* situ_client_add: the key has an item. situ_client_replace, situ_client_append, situ_client_prepend: it has
     * none. */
    SITU_CLIENT_NOT_STORED = 2,
    /* situ_client_cas: another client has changed the item meanwhile. */
    SITU_CLIENT_CHANGED = 3,

    /* A key, an option or an argument is wrong. Nothing was sent. */
    SITU_CLIENT_ERROR_ARGUMENT = -1,
    /* The server has refused the command. */
    SITU_CLIENT_ERROR_REFUSED = -2,
    /* The connection could not be made, or broke. */
    SITU_CLIENT_ERROR_BROKEN = -3,
    /* The timeout has passed. */
    SITU_CLIENT_ERROR_LATE = -4,
    /* The server's answer is no answer to the command. */
    SITU_CLIENT_ERROR_GARBLED = -5,
    /* The server could not be reached lately. The client tries again after a while. */
    SITU_CLIENT_ERROR_DOWN = -6,
    /* The library has a fault, or the system has no memory or threads. */
    SITU_CLIENT_ERROR_INTERNAL = -7
};

/* The rules by which a client chooses the transport of a connection. */
enum {
    /* Shared memory for a Unix socket and RDMA for TCP, if both sides have it, and the socket otherwise. */
    SITU_CLIENT_TRANSPORT_AUTO = 0,
    /* The socket. */
    SITU_CLIENT_TRANSPORT_SOCKET = 1,
    /* Shared memory. Connections fail if the server does not offer it. All servers are paths of Unix sockets. */
    SITU_CLIENT_TRANSPORT_SHARED_MEMORY = 2,
    /* RDMA. Connections fail if one side has none. All servers are hosts and ports. */
    SITU_CLIENT_TRANSPORT_RDMA = 3
};

/* The options of a client. Set what you need and leave the rest 0. */
typedef struct situ_client_options {
    /* The servers, separated by commas: host, host:port, [IPv6]:port, or the path of a Unix socket as /path or
     * unix:/path. The port is 11211 if it is left out. Keys are spread over the servers as libmemcached does it
     * (MEMCACHED_BEHAVIOR_KETAMA_WEIGHTED). */
    const char *servers;
    /* The time that a call has, in milliseconds. 0 is one second. */
    uint32_t timeout_ms;
    /* The maximum number of connections to each server. 0 is 16. */
    uint32_t connections_max;
    /* Not 0: the keys of a server that is down go to the next one. Only for caches: after its return, the server may
     * have values that were replaced meanwhile. */
    int failover;
    /* The user and the password for servers that have users, or NULL. They travel unencrypted. */
    const char *user;
    const char *password;
    /* SITU_CLIENT_TRANSPORT_AUTO, or another rule. */
    int transport;
} situ_client_options;

/* A value. */
typedef struct situ_client_value {
    /* The bytes, which belong to the caller until situ_client_value_free. */
    void *data;
    size_t bytes;
    /* The flags that were stored with the value. */
    uint32_t flags;
    /* The version of the item, if situ_client_gets has returned it. Otherwise 0. */
    uint64_t cas;
} situ_client_value;

/* A key of situ_client_get_many. */
typedef struct situ_client_key {
    const void *data;
    size_t bytes;
} situ_client_key;

/* Returns a client, or NULL after an error. It connects to servers when they are needed. */
situ_client *situ_client_open(const situ_client_options *options);

/* Closes a client and its connections. No other call may use it. NULL is ignored. */
void situ_client_close(situ_client *client);

/* Returns the text of the last error of a call in this thread, or "". The text is there until the next call. */
const char *situ_client_error(void);

/* Returns 1 if the server may have run the command of the last call in this thread that had an error. Returns 0 if the
 * call has changed nothing. */
int situ_client_is_outcome_unknown(void);

/* Finds the value of a key. The caller frees it with situ_client_value_free.
 * Returns SITU_CLIENT_OK or SITU_CLIENT_MISS. After anything but SITU_CLIENT_OK, the value is empty and need not
 * be freed. */
int situ_client_get(situ_client *client, const void *key, size_t key_bytes, situ_client_value *value);

/* As situ_client_get, with the version of the item for situ_client_cas. */
int situ_client_gets(situ_client *client, const void *key, size_t key_bytes, situ_client_value *value);

/* As situ_client_get, and gives the item a new expiry. */
int situ_client_get_and_touch(situ_client *client, const void *key, size_t key_bytes, int64_t expiry,
                              situ_client_value *value);

/* Frees a value and makes it empty. An empty one may be freed, too. */
void situ_client_value_free(situ_client_value *value);

/* Called for each key that has an item: with the caller's context, the index of the key, and the value, which is there
 * until the function returns. It must not throw, and must not leave by longjmp. */
typedef void situ_client_found(void *context, size_t index, const void *data, size_t bytes, uint32_t flags);

/* Finds the values of many keys, in the order of the keys. All servers are asked at the same time.
 * Returns SITU_CLIENT_OK. After an error, `found` was not called. */
int situ_client_get_many(situ_client *client, const situ_client_key *keys, size_t count,
                         situ_client_found *found, void *context);

/* Stores a value. Returns SITU_CLIENT_OK. */
int situ_client_set(situ_client *client, const void *key, size_t key_bytes, const void *value, size_t value_bytes,
             uint32_t flags, int64_t expiry);

/* Stores a value if the key has none. Returns SITU_CLIENT_OK or SITU_CLIENT_NOT_STORED. */
int situ_client_add(situ_client *client, const void *key, size_t key_bytes, const void *value, size_t value_bytes,
             uint32_t flags, int64_t expiry);

/* Stores a value if the key has one already. Returns SITU_CLIENT_OK or SITU_CLIENT_NOT_STORED. */
int situ_client_replace(situ_client *client, const void *key, size_t key_bytes, const void *value, size_t value_bytes,
                 uint32_t flags, int64_t expiry);

/* Puts bytes behind the value of a key. Returns SITU_CLIENT_OK or SITU_CLIENT_NOT_STORED. */
int situ_client_append(situ_client *client, const void *key, size_t key_bytes, const void *value, size_t value_bytes);

/* Puts bytes before the value of a key. Returns SITU_CLIENT_OK or SITU_CLIENT_NOT_STORED. */
int situ_client_prepend(situ_client *client, const void *key, size_t key_bytes, const void *value, size_t value_bytes);

/* Stores a value if the item still has the version `cas` of situ_client_gets. Returns SITU_CLIENT_OK,
 * SITU_CLIENT_CHANGED or SITU_CLIENT_MISS. */
int situ_client_cas(situ_client *client, const void *key, size_t key_bytes, const void *value, size_t value_bytes,
             uint32_t flags, int64_t expiry, uint64_t cas);

/* Deletes an item. Returns SITU_CLIENT_OK or SITU_CLIENT_MISS. */
int situ_client_delete(situ_client *client, const void *key, size_t key_bytes);

/* Gives an item a new expiry. Returns SITU_CLIENT_OK or SITU_CLIENT_MISS. */
int situ_client_touch(situ_client *client, const void *key, size_t key_bytes, int64_t expiry);

/* Adds to a number in decimal digits, modulo 2^64. The sum is in `*number`, unless that is NULL.
 * Returns SITU_CLIENT_OK or SITU_CLIENT_MISS. */
int situ_client_increment(situ_client *client, const void *key, size_t key_bytes, uint64_t delta, uint64_t *number);

/* Subtracts from a number as situ_client_increment adds, but not below 0. */
int situ_client_decrement(situ_client *client, const void *key, size_t key_bytes, uint64_t delta, uint64_t *number);

/* Removes all items of all servers, now or after a number of seconds. Returns SITU_CLIENT_OK, or the first error;
 * all other servers are flushed all the same. */
int situ_client_flush_all(situ_client *client, uint32_t delay_seconds);

/* Called for each statistic of each server, with texts that are there until the function returns. It must not throw,
 * and must not leave by longjmp. */
typedef void situ_client_statistic(void *context, const char *server, const char *name, const char *value);

/* Asks all servers for their statistics. The topic may be NULL or "". Returns SITU_CLIENT_OK, or the first error;
 * the function has had the statistics of all other servers. */
int situ_client_stats(situ_client *client, const char *topic, situ_client_statistic *statistic, void *context);

/* Asks all servers for their versions. Each is a statistic with the name "version". As situ_client_stats otherwise. */
int situ_client_version(situ_client *client, situ_client_statistic *statistic, void *context);

/* Reports the transport of the latest connection to each server: "TCP", "Unix socket" or "shared memory". Each is a
 * statistic with the name "transport". A server that has had no connection is left out. Returns SITU_CLIENT_OK. */
int situ_client_transports(situ_client *client, situ_client_statistic *statistic, void *context);

#ifdef __cplusplus
}
#endif

#endif
