package io.situ.client;

/** A way to spread keys over servers. Both ways match libmemcached: the same key goes to the same server. */
public enum Hashing {
    /**
     * MD5 and 160 points for each server, with the name {@code host:port-index}. libmemcached calls it
     * {@code MEMCACHED_BEHAVIOR_KETAMA_WEIGHTED}. All servers have the same weight.
     */
    KETAMA,
    /** MD5 and 100 points for each server. libmemcached calls it {@code MEMCACHED_BEHAVIOR_KETAMA}. */
    KETAMA_100
}
