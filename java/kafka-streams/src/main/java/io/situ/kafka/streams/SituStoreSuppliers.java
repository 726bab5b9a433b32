package io.situ.kafka.streams;

import java.util.Arrays;
import org.apache.kafka.streams.state.DslKeyValueParams;
import org.apache.kafka.streams.state.DslSessionParams;
import org.apache.kafka.streams.state.DslStoreSuppliers;
import org.apache.kafka.streams.state.DslWindowParams;
import org.apache.kafka.streams.state.KeyValueBytesStoreSupplier;
import org.apache.kafka.streams.state.SessionBytesStoreSupplier;
import org.apache.kafka.streams.state.WindowBytesStoreSupplier;

/**
 * Stores in Situ for a whole topology:
 *
 * <pre>{@code
 * settings.put(StreamsConfig.DSL_STORE_SUPPLIERS_CLASS_CONFIG, SituStoreSuppliers.class);
 * settings.put(SituConfig.MEMORY_BYTES, 512L << 20);
 * }</pre>
 *
 * <p>Stores that the application names itself, by a supplier, stay what they are.
 */
public final class SituStoreSuppliers implements DslStoreSuppliers {
    /** Kafka before 4.3 knows no format with headers. */
    private static final boolean KAFKA_HAS_FORMATS =
            Arrays.stream(DslKeyValueParams.class.getMethods()).anyMatch(method -> method.getName().equals("dslStoreFormat"));

    /** Makes the suppliers; Kafka Streams does it by the class's name. */
    public SituStoreSuppliers() {}

    /** The format of values, by the names of Kafka's own. */
    private enum Format {
        PLAIN,
        TIMESTAMPED,
        HEADERS;

        static Format of(Object format) {
            return format == null ? TIMESTAMPED : valueOf(format.toString());
        }
    }

    @Override
    @SuppressWarnings("deprecation")
    public KeyValueBytesStoreSupplier keyValueStore(DslKeyValueParams params) {
        Format format = KAFKA_HAS_FORMATS
                ? Format.of(params.dslStoreFormat())
                : params.isTimestamped() ? Format.TIMESTAMPED : Format.PLAIN;
        return switch (format) {
            case PLAIN -> SituStores.keyValueStore(params.name());
            case TIMESTAMPED -> SituStores.timestampedKeyValueStore(params.name());
            case HEADERS -> SituStores.timestampedKeyValueStoreWithHeaders(params.name());
        };
    }

    @Override
    @SuppressWarnings("deprecation")
    public WindowBytesStoreSupplier windowStore(DslWindowParams params) {
        Format format = KAFKA_HAS_FORMATS
                ? Format.of(params.dslStoreFormat())
                : params.isTimestamped() ? Format.TIMESTAMPED : Format.PLAIN;
        return switch (format) {
            case PLAIN -> SituStores.windowStore(
                    params.name(), params.retentionPeriod(), params.windowSize(), params.retainDuplicates());
            case TIMESTAMPED -> SituStores.timestampedWindowStore(
                    params.name(), params.retentionPeriod(), params.windowSize(), params.retainDuplicates());
            case HEADERS -> SituStores.timestampedWindowStoreWithHeaders(
                    params.name(), params.retentionPeriod(), params.windowSize(), params.retainDuplicates());
        };
    }

    @Override
    public SessionBytesStoreSupplier sessionStore(DslSessionParams params) {
        boolean withHeaders = KAFKA_HAS_FORMATS && Format.of(params.storeFormat()) == Format.HEADERS;
        return withHeaders
                ? SituStores.sessionStoreWithHeaders(params.name(), params.retentionPeriod())
                : SituStores.sessionStore(params.name(), params.retentionPeriod());
    }
}
