package io.situ.client;

import java.time.Duration;
import java.time.Instant;

/**
 * Expiry times as memcached has them: 0 is never, a negative number is at once, up to 30 days are seconds from now, and
 * more is Unix time in seconds.
 */
public final class Expiry {
    /** The item does not expire. */
    public static final int NEVER = 0;
    /** The longest time in seconds that counts from now. */
    static final int RELATIVE_SECONDS_MAX = 60 * 60 * 24 * 30;

    private Expiry() {}

    /** Returns the expiry time for an item that lives this long. Parts of a second are rounded up. */
    public static int after(Duration time) {
        if (time.isZero() || time.isNegative()) {
            return -1;
        }
        long seconds = time.getSeconds() + (time.getNano() > 0 ? 1 : 0);
        if (seconds <= RELATIVE_SECONDS_MAX) {
            return (int) seconds;
        }
        long now = Instant.now().getEpochSecond();
        // A time beyond what the protocol can say does not end within the life of a server.
        return seconds > Integer.MAX_VALUE - now ? NEVER : (int) (now + seconds);
    }

    /** Returns the expiry time for an item that lives until this instant. */
    public static int at(Instant end) {
        return after(Duration.between(Instant.now(), end));
    }
}
