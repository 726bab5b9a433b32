package io.situ.kafka.streams;

import java.nio.ByteBuffer;
import java.util.Arrays;
import org.apache.kafka.common.utils.Bytes;
import org.slf4j.Logger;

/** Ranges of keys that have a suffix of times behind them. Null stands for no bound. */
final class Ranges {
    /** The warning of Kafka's own stores, by which users find the cause. */
    private static final String EMPTY = "Returning empty iterator for fetch with invalid key range: from > to."
            + " This may be due to range arguments set in the wrong order,"
            + " or serdes that don't preserve ordering when lexicographically comparing the serialized bytes."
            + " Note that the built-in numerical serdes do not follow this for negative numbers";

    private Ranges() {}

    /** Warns of a range whose end comes before its beginning. */
    static void warnIfEmpty(Logger log, Bytes from, Bytes to) {
        if (from != null && to != null && from.compareTo(to) > 0) {
            log.warn(EMPTY);
        }
    }

    /** Returns true if {@code key} lies between the bounds, which are included. */
    static boolean holds(Bytes from, Bytes to, Bytes key) {
        return (from == null || key.compareTo(from) >= 0) && (to == null || key.compareTo(to) <= 0);
    }

    /** Returns a bound below all keys from {@code from} on, with any suffix. */
    static byte[] begin(Bytes from) {
        return from == null ? null : from.get();
    }

    /**
     * Returns a bound above all keys up to {@code to} with a suffix of times of which the first is at most
     * {@code lastTime}. A key that is the beginning of {@code to} is less than it, and with its suffix it may be greater.
     */
    static byte[] end(Bytes to, long lastTime, int suffixBytes) {
        if (to == null) {
            return null;
        }
        byte[] suffix = new byte[suffixBytes];
        Arrays.fill(suffix, (byte) 0xff);
        ByteBuffer.wrap(suffix).putLong(lastTime);
        byte[] key = to.get();
        byte[] greatest = suffix;
        for (int length = 1; length <= key.length; length++) {
            byte[] bound = ByteBuffer.allocate(length + suffixBytes).put(key, 0, length).put(suffix).array();
            if (Arrays.compareUnsigned(bound, greatest) > 0) {
                greatest = bound;
            }
        }
        return greatest;
    }
}
