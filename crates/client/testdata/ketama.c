/* Prints the servers that libmemcached chooses for keys: the lines of ketama.txt.
 *
 *     cc -o /tmp/ketama ketama.c -lmemcached && /tmp/ketama > ketama.txt
 *
 * A line `servers ...` begins a set of servers. Each following line is the index of the server and the key. */
#include <libmemcached/memcached.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void set(int count, const char **hosts, const int *ports, int keys) {
    memcached_st *client = memcached_create(NULL);
    memcached_behavior_set(client, MEMCACHED_BEHAVIOR_KETAMA_WEIGHTED, 1);
    printf("servers");
    for (int i = 0; i < count; i++) {
        if (hosts[i][0] == '/') {
            memcached_server_add_unix_socket(client, hosts[i]);
            printf(" %s", hosts[i]);
        } else {
            memcached_server_add(client, hosts[i], ports[i]);
            printf(" %s:%d", hosts[i], ports[i]);
        }
    }
    printf("\n");
    for (int i = 0; i < keys; i++) {
        char key[64];
        int length = snprintf(key, sizeof key, "%s%d", i % 2 ? "user:" : "a-longer-key/", i * 7919);
        printf("%u %s\n", memcached_generate_hash(client, key, (size_t)length), key);
    }
    memcached_free(client);
}

int main(void) {
    const char *names[] = {"10.0.1.1", "10.0.1.2", "10.0.1.3", "10.0.1.4", "10.0.1.5", "10.0.1.6", "10.0.1.7", "10.0.1.8"};
    int ports[] = {11211, 11211, 11211, 11211, 11211, 11211, 11211, 11211};
    set(1, names, ports, 4);
    set(2, names, ports, 100);
    set(3, names, ports, 100);
    set(8, names, ports, 200);
    const char *mixed[] = {"cache-a.example", "cache-b.example", "127.0.0.1", "127.0.0.1", "localhost"};
    int mixed_ports[] = {11211, 11212, 11211, 22122, 1};
    set(5, mixed, mixed_ports, 200);
    const char *sockets[] = {"/run/a.sock", "/run/b.sock", "10.0.1.1"};
    int socket_ports[] = {0, 0, 11211};
    set(3, sockets, socket_ports, 100);
    /* Share and number of points are rounded as float: these counts have fewer points than 160 a server, if any has. */
    for (int count = 9; count <= 100; count += 1) {
        const char *hosts[100];
        char text[100][16];
        int many_ports[100];
        for (int i = 0; i < count; i++) {
            snprintf(text[i], sizeof text[i], "10.1.0.%d", i + 1);
            hosts[i] = text[i];
            many_ports[i] = 11300;
        }
        if (count % 13 == 0 || count == 41 || count == 47 || count == 55 || count == 61 || count == 82 || count == 83 || count == 97) set(count, hosts, many_ports, 100);
    }
    return 0;
}
