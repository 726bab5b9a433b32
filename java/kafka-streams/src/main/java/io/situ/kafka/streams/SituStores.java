package io.situ.kafka.streams;

import java.time.Duration;
import java.util.function.Supplier;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.state.HeadersBytesStoreSupplier;
import org.apache.kafka.streams.state.KeyValueBytesStoreSupplier;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionBytesStoreSupplier;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.VersionedBytesStoreSupplier;
import org.apache.kafka.streams.state.WindowBytesStoreSupplier;
import org.apache.kafka.streams.state.WindowStore;
import org.apache.kafka.streams.state.internals.VersionedKeyValueToBytesStoreAdapter;

/**
 * Suppliers of stores, as those of {@link org.apache.kafka.streams.state.Stores}, for
 * {@code Materialized.as(SituStores.keyValueStore("counts"))} and for builders of stores.
 */
public final class SituStores {
    private static final String SCOPE = "situ";
    /** A segment of time is half of the retention, and a minute at least. */
    private static final long SEGMENT_MS_MIN = 60_000;

    private SituStores() {}

    /** Returns a supplier of a key-value store without timestamps. */
    public static KeyValueBytesStoreSupplier keyValueStore(String name) {
        return new KeyValueSupplier(name, () -> new SituKeyValueStore(name));
    }

    /** Returns a supplier of a key-value store with timestamps, which is what the DSL makes. */
    public static KeyValueBytesStoreSupplier timestampedKeyValueStore(String name) {
        return new KeyValueSupplier(name, () -> new SituKeyValueStore.Timestamped(name));
    }

    /** Returns a supplier of a key-value store with timestamps and headers. It takes Kafka 4.3 or later. */
    public static KeyValueBytesStoreSupplier timestampedKeyValueStoreWithHeaders(String name) {
        return new WithHeaders.KeyValue(name, () -> new SituKeyValueStore.WithHeaders(name));
    }

    /** Returns a supplier of a window store without timestamps. */
    public static WindowBytesStoreSupplier windowStore(
            String name, Duration retention, Duration windowSize, boolean retainDuplicates) {
        var shape = new Windows(name, retention, windowSize, retainDuplicates);
        return new WindowSupplier(shape, () -> new SituWindowStore(
                name, shape.retentionMs, shape.segmentMs, shape.sizeMs, retainDuplicates));
    }

    /** Returns a supplier of a window store with timestamps, which is what the DSL makes. */
    public static WindowBytesStoreSupplier timestampedWindowStore(
            String name, Duration retention, Duration windowSize, boolean retainDuplicates) {
        var shape = new Windows(name, retention, windowSize, retainDuplicates);
        return new WindowSupplier(shape, () -> new SituWindowStore.Timestamped(
                name, shape.retentionMs, shape.segmentMs, shape.sizeMs, retainDuplicates));
    }

    /** Returns a supplier of a window store with timestamps and headers. It takes Kafka 4.3 or later. */
    public static WindowBytesStoreSupplier timestampedWindowStoreWithHeaders(
            String name, Duration retention, Duration windowSize, boolean retainDuplicates) {
        var shape = new Windows(name, retention, windowSize, retainDuplicates);
        return new WithHeaders.Window(shape, () -> new SituWindowStore.WithHeaders(
                name, shape.retentionMs, shape.segmentMs, shape.sizeMs, retainDuplicates));
    }

    /** Returns a supplier of a session store. */
    public static SessionBytesStoreSupplier sessionStore(String name, Duration retention) {
        long retentionMs = milliseconds(retention, "retentionPeriod");
        return new SessionSupplier(name, retentionMs, () -> new SituSessionStore(name, retentionMs, segmentMs(retentionMs)));
    }

    /** Returns a supplier of a session store with headers. It takes Kafka 4.3 or later. */
    public static SessionBytesStoreSupplier sessionStoreWithHeaders(String name, Duration retention) {
        long retentionMs = milliseconds(retention, "retentionPeriod");
        return new WithHeaders.Session(
                name, retentionMs, () -> new SituSessionStore.WithHeaders(name, retentionMs, segmentMs(retentionMs)));
    }

    /** Returns a supplier of a versioned key-value store. */
    public static VersionedBytesStoreSupplier versionedKeyValueStore(String name, Duration historyRetention) {
        long retentionMs = milliseconds(historyRetention, "historyRetention");
        return new VersionedSupplier(name, retentionMs);
    }

    private static long milliseconds(Duration duration, String what) {
        long milliseconds = duration.toMillis();
        if (milliseconds < 0) {
            throw new IllegalArgumentException(what + " cannot be negative");
        }
        return milliseconds;
    }

    private static long segmentMs(long retentionMs) {
        return Math.max(retentionMs / 2, SEGMENT_MS_MIN);
    }

    /** The shape of a window store. */
    private static final class Windows {
        final String name;
        final long retentionMs;
        final long segmentMs;
        final long sizeMs;
        final boolean retainDuplicates;

        Windows(String name, Duration retention, Duration windowSize, boolean retainDuplicates) {
            this.name = java.util.Objects.requireNonNull(name, "name cannot be null");
            retentionMs = milliseconds(retention, "retentionPeriod");
            sizeMs = milliseconds(windowSize, "windowSize");
            segmentMs = SituStores.segmentMs(retentionMs);
            this.retainDuplicates = retainDuplicates;
            if (sizeMs > retentionMs) {
                throw new IllegalArgumentException("The retention period of the window store " + name
                        + " must be no smaller than its window size. Got size=[" + sizeMs + "], retention=[" + retentionMs + "]");
            }
        }
    }

    private static class KeyValueSupplier implements KeyValueBytesStoreSupplier {
        private final String name;
        private final Supplier<KeyValueStore<Bytes, byte[]>> make;

        KeyValueSupplier(String name, Supplier<KeyValueStore<Bytes, byte[]>> make) {
            this.name = java.util.Objects.requireNonNull(name, "name cannot be null");
            this.make = make;
        }

        @Override
        public String name() {
            return name;
        }

        @Override
        public KeyValueStore<Bytes, byte[]> get() {
            return make.get();
        }

        @Override
        public String metricsScope() {
            return SCOPE;
        }
    }

    private static final class VersionedSupplier extends KeyValueSupplier implements VersionedBytesStoreSupplier {
        private final long retentionMs;

        VersionedSupplier(String name, long retentionMs) {
            super(name, () -> new VersionedKeyValueToBytesStoreAdapter(new SituVersionedStore(name, retentionMs)));
            this.retentionMs = retentionMs;
        }

        @Override
        public long historyRetentionMs() {
            return retentionMs;
        }
    }

    private static class WindowSupplier implements WindowBytesStoreSupplier {
        private final Windows shape;
        private final Supplier<WindowStore<Bytes, byte[]>> make;

        WindowSupplier(Windows shape, Supplier<WindowStore<Bytes, byte[]>> make) {
            this.shape = shape;
            this.make = make;
        }

        @Override
        public String name() {
            return shape.name;
        }

        @Override
        public WindowStore<Bytes, byte[]> get() {
            return make.get();
        }

        @Override
        public String metricsScope() {
            return SCOPE + "-window";
        }

        @Override
        public long segmentIntervalMs() {
            return shape.segmentMs;
        }

        @Override
        public long windowSize() {
            return shape.sizeMs;
        }

        @Override
        public boolean retainDuplicates() {
            return shape.retainDuplicates;
        }

        @Override
        public long retentionPeriod() {
            return shape.retentionMs;
        }
    }

    private static class SessionSupplier implements SessionBytesStoreSupplier {
        private final String name;
        private final long retentionMs;
        private final Supplier<SessionStore<Bytes, byte[]>> make;

        SessionSupplier(String name, long retentionMs, Supplier<SessionStore<Bytes, byte[]>> make) {
            this.name = java.util.Objects.requireNonNull(name, "name cannot be null");
            this.retentionMs = retentionMs;
            this.make = make;
        }

        @Override
        public String name() {
            return name;
        }

        @Override
        public SessionStore<Bytes, byte[]> get() {
            return make.get();
        }

        @Override
        public String metricsScope() {
            return SCOPE + "-session";
        }

        @Override
        public long segmentIntervalMs() {
            return segmentMs(retentionMs);
        }

        @Override
        public long retentionPeriod() {
            return retentionMs;
        }
    }

    /** Suppliers of stores with headers, whose types Kafka before 4.3 does not have. */
    private static final class WithHeaders {
        private static final class KeyValue extends KeyValueSupplier implements HeadersBytesStoreSupplier {
            KeyValue(String name, Supplier<KeyValueStore<Bytes, byte[]>> make) {
                super(name, make);
            }
        }

        private static final class Window extends WindowSupplier implements HeadersBytesStoreSupplier {
            Window(Windows shape, Supplier<WindowStore<Bytes, byte[]>> make) {
                super(shape, make);
            }
        }

        private static final class Session extends SessionSupplier implements HeadersBytesStoreSupplier {
            Session(String name, long retentionMs, Supplier<SessionStore<Bytes, byte[]>> make) {
                super(name, retentionMs, make);
            }
        }
    }
}
