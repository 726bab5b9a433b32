package io.situ.client;

import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.Arrays;
import java.util.List;
import java.util.function.IntPredicate;

/**
 * The points of servers on the circle of 32-bit hashes, as libmemcached 1.1 places them with
 * {@code MEMCACHED_BEHAVIOR_KETAMA_WEIGHTED} and equal weights. A key belongs to the server of the first point at or
 * after the key's hash.
 *
 * <p>Each MD5 of {@code name-index} gives four points. libmemcached computes the number of hashes in single precision,
 * and so does this class: with some numbers of servers, each has 39 hashes instead of 40.
 */
final class Continuum {
    private static final int POINTS = 160;
    private static final int POINTS_PER_HASH = 4;

    /** Hashes in unsigned order, each as a non-negative number. */
    private final long[] hashes;
    private final int[] servers;

    Continuum(List<ServerAddress> addresses) {
        int serverCount = addresses.size();
        float share = 1.0f / (float) serverCount;
        float exact = share * POINTS / POINTS_PER_HASH * (float) serverCount + 0.0000000001f;
        int hashesPerServer = (int) Math.floor(exact);
        long[] points = new long[serverCount * hashesPerServer * POINTS_PER_HASH];
        MessageDigest md5 = md5();
        int count = 0;
        for (int server = 0; server < serverCount; server++) {
            String name = addresses.get(server).continuumName();
            for (int index = 0; index < hashesPerServer; index++) {
                byte[] digest = md5.digest((name + "-" + index).getBytes(StandardCharsets.UTF_8));
                for (int part = 0; part < POINTS_PER_HASH; part++) {
                    points[count++] = hash(digest, part) << 24 | server;
                }
            }
        }
        Arrays.sort(points);
        hashes = Arrays.stream(points).map(point -> point >> 24).toArray();
        servers = Arrays.stream(points).mapToInt(point -> (int) point & 0xff_ffff).toArray();
    }

    static MessageDigest md5() {
        try {
            return MessageDigest.getInstance("MD5");
        } catch (NoSuchAlgorithmException impossible) {
            throw new AssertionError("every Java platform has MD5", impossible);
        }
    }

    /** Returns a quarter of an MD5 as a little-endian number. */
    static long hash(byte[] digest, int part) {
        int at = part * 4;
        return (digest[at] & 0xffL) | (digest[at + 1] & 0xffL) << 8 | (digest[at + 2] & 0xffL) << 16
                | (digest[at + 3] & 0xffL) << 24;
    }

    /** Returns the server of a key's hash. */
    int server(long hash) {
        return servers[point(hash)];
    }

    /** Returns the first server from the key's hash onwards that is usable; the key's own server if none is. */
    int usableServer(long hash, IntPredicate usable) {
        int first = point(hash);
        for (int step = 0; step < servers.length; step++) {
            int server = servers[(first + step) % servers.length];
            if (usable.test(server)) {
                return server;
            }
        }
        return servers[first];
    }

    private int point(long hash) {
        int low = 0;
        int high = hashes.length;
        while (low < high) {
            int middle = (low + high) >>> 1;
            if (hashes[middle] < hash) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        return low == hashes.length ? 0 : low;
    }
}
