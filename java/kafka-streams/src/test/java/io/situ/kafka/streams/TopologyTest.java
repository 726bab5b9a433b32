package io.situ.kafka.streams;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.Random;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.utils.AppInfoParser;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.TestInputTopic;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.SlidingWindows;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.state.BuiltInDslStoreSuppliers;
import org.apache.kafka.streams.state.DslStoreSuppliers;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Whole topologies: they emit the same with our stores as with RocksDB's. Maven runs this with two releases of Kafka. */
class TopologyTest {
    private static final int RECORDS = Integer.getInteger("topology.records", 2_000);
    /** Fewer records lie further apart, so that windows still close. */
    private static final int STEP_MS_MAX = RECORDS < 1_000 ? 400 : 200;

    @TempDir
    Path directory;

    private static Topology topology() {
        StreamsBuilder builder = new StreamsBuilder();
        var strings = Consumed.with(Serdes.String(), Serdes.String());
        KStream<String, String> left = builder.stream("left", strings);
        KStream<String, String> right = builder.stream("right", strings);
        var grouped = left.groupByKey(Grouped.with(Serdes.String(), Serdes.String()));
        grouped.count(Materialized.as("counts")).toStream().mapValues(String::valueOf).to("count");
        var tumbling = TimeWindows.ofSizeAndGrace(Duration.ofSeconds(10), Duration.ofSeconds(5));
        emit(grouped.windowedBy(tumbling).count().toStream(), "windows");
        emit(grouped.windowedBy(tumbling).emitStrategy(EmitStrategy.onWindowClose()).count().toStream(), "final-windows");
        emit(grouped.windowedBy(SlidingWindows.ofTimeDifferenceAndGrace(Duration.ofSeconds(7), Duration.ofSeconds(5)))
                .count().toStream(), "sliding");
        var sessions = SessionWindows.ofInactivityGapAndGrace(Duration.ofSeconds(3), Duration.ofSeconds(5));
        emit(grouped.windowedBy(sessions).count().toStream(), "sessions");
        emit(grouped.windowedBy(sessions).emitStrategy(EmitStrategy.onWindowClose()).count().toStream(), "final-sessions");
        left.leftJoin(right, (one, other) -> one + "+" + other,
                        JoinWindows.ofTimeDifferenceAndGrace(Duration.ofSeconds(4), Duration.ofSeconds(2)),
                        StreamJoined.with(Serdes.String(), Serdes.String(), Serdes.String()))
                .to("joined");
        KTable<String, String> table = left.toTable();
        KTable<String, String> other = right.toTable();
        table.outerJoin(other, (one, two) -> one + "|" + two).toStream().to("tables");
        table.join(other, (String value) -> "k" + value.length(), (one, two) -> one + "&" + two).toStream().to("foreign");
        return builder.build();
    }

    private static void emit(KStream<Windowed<String>, Long> windows, String topic) {
        windows.map((key, count) -> new org.apache.kafka.streams.KeyValue<>(
                        key.key() + "@" + key.window().start() + "-" + key.window().end(), String.valueOf(count)))
                .to(topic, Produced.with(Serdes.String(), Serdes.String()));
    }

    private List<String> run(Class<? extends DslStoreSuppliers> suppliers, String guarantee, String format) {
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, "application");
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "nowhere:9092");
        settings.put(StreamsConfig.STATE_DIR_CONFIG, directory.resolve(suppliers.getSimpleName()).toString());
        settings.put(StreamsConfig.DSL_STORE_SUPPLIERS_CLASS_CONFIG, suppliers);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, guarantee);
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        settings.put("dsl.store.format", format);
        settings.put(SituConfig.MEMORY_BYTES, "8388608");
        settings.put(SituConfig.UNCOMMITTED_BYTES, "20000");
        List<String> emitted = new ArrayList<>();
        Random random = new Random(35);
        try (TopologyTestDriver driver = new TopologyTestDriver(topology(), settings, Instant.EPOCH)) {
            List<TestInputTopic<String, String>> inputs = new ArrayList<>();
            for (String topic : List.of("left", "right")) {
                inputs.add(driver.createInputTopic(topic, new StringSerializer(), new StringSerializer()));
            }
            long now = 1_000_000;
            for (int record = 0; record < RECORDS; record++) {
                now += random.nextInt(STEP_MS_MAX);
                long late = random.nextInt(10) == 0 ? random.nextInt(20_000) : 0;
                String value = random.nextInt(20) == 0 ? null : "x".repeat(random.nextInt(12));
                inputs.get(random.nextInt(2)).pipeInput("k" + random.nextInt(15), value, Instant.ofEpochMilli(now - late));
            }
            for (String topic : List.of(
                    "count", "windows", "final-windows", "sliding", "sessions", "final-sessions", "joined", "tables", "foreign")) {
                var output = driver.createOutputTopic(topic, new StringDeserializer(), new StringDeserializer());
                output.readRecordsToList().forEach(record -> emitted.add(topic + " " + record));
            }
            var counts = driver.getTimestampedKeyValueStore("counts");
            assertNotNull(counts);
            try (var all = counts.all()) {
                all.forEachRemaining(entry -> emitted.add(entry.key + " " + entry.value));
            }
        }
        return emitted;
    }

    @ParameterizedTest
    @CsvSource({"at_least_once,DEFAULT", "exactly_once_v2,DEFAULT", "exactly_once_v2,HEADERS"})
    void aTopologyEmitsWhatItDoesWithRocksDb(String guarantee, String format) {
        assertEquals(System.getProperty("kafka.version"), AppInfoParser.getVersion());
        // Kafka has stores with headers from 4.3 on, and ignores the setting before.
        assumeTrue(format.equals("DEFAULT") || !AppInfoParser.getVersion().startsWith("4.0."));
        List<String> expected = run(BuiltInDslStoreSuppliers.RocksDBDslStoreSuppliers.class, guarantee, format);
        List<String> emitted = run(SituStoreSuppliers.class, guarantee, format);
        assertFalse(expected.isEmpty());
        for (int at = 0; at < Math.min(expected.size(), emitted.size()); at++) {
            assertEquals(expected.get(at), emitted.get(at), "record " + at);
        }
        assertEquals(expected.size(), emitted.size());
    }
}
