package io.situ.client;

import static java.nio.charset.StandardCharsets.US_ASCII;
import static java.nio.charset.StandardCharsets.UTF_8;

import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.HexFormat;
import java.util.concurrent.TimeUnit;

/**
 * A group of keys that can be cleared as a whole. Each key contains the group's generation, a number that the servers
 * keep. Clearing changes the number, so that the items of the former generation are found no more; they expire, or are
 * evicted.
 *
 * <p>A namespace asks for the generation once a second. So a clear by another process takes effect within a second.
 * Keys may be any text: long ones, and those with spaces, are replaced by their SHA-256.
 */
public final class Namespace {
    private static final String RECORD_PREFIX = "situ-generation:";
    private static final int NAME_BYTES_MAX = 100;
    private static final long REFRESH_NS = TimeUnit.SECONDS.toNanos(1);

    private final SituClient client;
    private final String name;
    private final String record;
    private volatile Generation generation;

    private record Generation(String prefix, long number, long readAt) {}

    /**
     * Makes a namespace.
     *
     * @throws IllegalArgumentException if the name is empty, has spaces or control characters, or is longer than 100
     *     bytes
     */
    public Namespace(SituClient client, String name) {
        if (name.getBytes(UTF_8).length > NAME_BYTES_MAX) {
            throw new IllegalArgumentException("the name of a namespace has at most 100 bytes: " + name);
        }
        this.client = client;
        this.name = name;
        record = RECORD_PREFIX + name;
        Keys.of(name);
    }

    /** Returns the key that the client takes for a key of this namespace. */
    public String key(String key) {
        String whole = generation().prefix + key;
        boolean plain = !key.isEmpty() && key.charAt(0) != '#' && whole.length() <= Keys.KEY_BYTES_MAX
                && key.chars().allMatch(c -> c > ' ' && c < 0x7f);
        return plain ? whole : generation().prefix + "#" + digest(key);
    }

    private static String digest(String key) {
        try {
            byte[] hash = MessageDigest.getInstance("SHA-256").digest(key.getBytes(UTF_8));
            return HexFormat.of().formatHex(hash);
        } catch (NoSuchAlgorithmException impossible) {
            throw new AssertionError("every Java platform has SHA-256", impossible);
        }
    }

    /** Makes all items of the namespace unreachable. */
    public void clear() {
        long next = Math.max(now(), readNumber() + 1);
        client.set(record, Long.toString(next).getBytes(US_ASCII), Expiry.NEVER);
        remember(next);
    }

    private Generation generation() {
        Generation known = generation;
        if (known != null && System.nanoTime() - known.readAt < REFRESH_NS) {
            return known;
        }
        return remember(readNumber());
    }

    private Generation remember(long number) {
        Generation read = new Generation(name + ":" + number + ":", number, System.nanoTime());
        generation = read;
        return read;
    }

    /** Reads the number. A server that has lost it gets a new one that is greater than all earlier ones. */
    private long readNumber() {
        while (true) {
            byte[] text = client.get(record);
            if (text != null) {
                try {
                    return Long.parseLong(new String(text, US_ASCII));
                } catch (NumberFormatException notANumber) {
                    throw new SituException("the item " + record + " is not a generation", notANumber);
                }
            }
            long number = now();
            if (client.add(record, Long.toString(number).getBytes(US_ASCII), Expiry.NEVER, 0)) {
                return number;
            }
        }
    }

    private static long now() {
        return ChronoUnit.MICROS.between(Instant.EPOCH, Instant.now());
    }
}
