package io.situ.kafka.trial;

import io.situ.kafka.streams.SituConfig;
import io.situ.kafka.streams.SituStoreSuppliers;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.processor.StandbyUpdateListener;
import org.apache.kafka.streams.processor.StateRestoreListener;
import org.apache.kafka.streams.processor.TaskId;
import org.apache.kafka.streams.state.BuiltInDslStoreSuppliers;
import org.apache.kafka.streams.state.QueryableStoreTypes;

/**
 * An application: {@code Application <broker> <topology> <situ|rocksdb> <state directory> <guarantee> <standbys> <memory>}.
 * It prints what happens to it, and answers commands on its standard input: {@code dump} prints the store, the end of
 * the input closes it.
 */
final class Application {
    private Application() {}

    static Topology topology(String name) {
        StreamsBuilder builder = new StreamsBuilder();
        if (name.equals("latest")) {
            builder.stream("in", Consumed.with(Serdes.String(), Serdes.ByteArray()))
                    .groupByKey(Grouped.with(Serdes.String(), Serdes.ByteArray()))
                    .reduce((before, now) -> now, Materialized.as("latest"))
                    .toStream()
                    .to("out", Produced.with(Serdes.String(), Serdes.ByteArray()));
            return builder.build();
        }
        KStream<String, Long> in = builder.stream("in", Consumed.with(Serdes.String(), Serdes.Long()));
        var grouped = in.groupByKey(Grouped.with(Serdes.String(), Serdes.Long()));
        var out = Produced.with(Serdes.String(), Serdes.Long());
        switch (name) {
            case "sum" -> grouped.reduce(Long::sum, Materialized.as("sums")).toStream().to("out", out);
            case "count" -> grouped.count(Materialized.as("counts")).toStream().to("out", out);
            case "windows" -> grouped.windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofSeconds(10), Duration.ofSeconds(50)))
                    .count(Materialized.as("windows"))
                    .toStream((key, count) -> key.key())
                    .to("out", out);
            case "sessions" -> grouped.windowedBy(
                            SessionWindows.ofInactivityGapAndGrace(Duration.ofSeconds(1), Duration.ofSeconds(30)))
                    .count(Materialized.as("sessions"))
                    .toStream((key, count) -> key.key())
                    .to("out", out);
            case "join" -> {
                KTable<String, Long> left = in.toTable(Materialized.as("left"));
                KTable<String, Long> right =
                        builder.table("other", Consumed.with(Serdes.String(), Serdes.Long()), Materialized.as("right"));
                left.join(right, Long::sum).toStream().to("out", out);
            }
            default -> throw new IllegalArgumentException(name);
        }
        return builder.build();
    }

    static Properties settings(String broker, String store, String directory, String guarantee, String standbys, String memory) {
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, "trial");
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, broker);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, directory);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, guarantee);
        settings.put(StreamsConfig.NUM_STANDBY_REPLICAS_CONFIG, standbys);
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, "0");
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.LongSerde.class);
        settings.put(StreamsConfig.consumerPrefix("session.timeout.ms"), "3000");
        settings.put(StreamsConfig.consumerPrefix("heartbeat.interval.ms"), "500");
        settings.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
        settings.put(StreamsConfig.producerPrefix("transaction.timeout.ms"), "10000");
        settings.put(SituConfig.MEMORY_BYTES, memory);
        settings.put(
                StreamsConfig.DSL_STORE_SUPPLIERS_CLASS_CONFIG,
                store.equals("situ") ? SituStoreSuppliers.class : BuiltInDslStoreSuppliers.RocksDBDslStoreSuppliers.class);
        return settings;
    }

    /** Prints what is restored, and from where. */
    private static final class Restores implements StateRestoreListener, StandbyUpdateListener {
        @Override
        public void onRestoreStart(TopicPartition partition, String store, long from, long to) {
            say("restore " + partition + " from " + from + " to " + to);
        }

        @Override
        public void onBatchRestored(TopicPartition partition, String store, long end, long restored) {}

        @Override
        public void onRestoreEnd(TopicPartition partition, String store, long restored) {
            say("restored " + partition + " records " + restored);
        }

        @Override
        public void onRestoreSuspended(TopicPartition partition, String store, long restored) {
            say("suspended " + partition + " records " + restored);
        }

        @Override
        public void onUpdateStart(TopicPartition partition, String store, long from) {
            say("standby " + partition + " from " + from);
        }

        @Override
        public void onBatchLoaded(TopicPartition partition, String store, TaskId task, long end, long size, long currentEnd) {}

        @Override
        public void onUpdateSuspended(
                TopicPartition partition, String store, long offset, long currentEnd, SuspendReason reason) {}
    }

    private static final long BEGUN = System.nanoTime();

    private static synchronized void say(String what) {
        System.out.println((System.nanoTime() - BEGUN) / 1_000_000 + " " + what);
        System.out.flush();
    }

    /** Runs the application until its input ends. */
    public static void main(String[] arguments) throws Exception {
        Topology topology = topology(arguments[1]);
        Properties settings =
                settings(arguments[0], arguments[2], arguments[3], arguments[4], arguments[5], arguments[6]);
        KafkaStreams streams = new KafkaStreams(topology, settings);
        Restores restores = new Restores();
        AtomicLong failures = new AtomicLong();
        streams.setGlobalStateRestoreListener(restores);
        streams.setStandbyUpdateListener(restores);
        streams.setStateListener((now, before) -> say("state " + now));
        streams.setUncaughtExceptionHandler(failure -> {
            say("failure " + failures.incrementAndGet() + " " + failure + " " + failure.getCause());
            failure.printStackTrace();
            return StreamThreadExceptionResponse.REPLACE_THREAD;
        });
        streams.start();
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        for (String command = commands.readLine(); command != null; command = commands.readLine()) {
            if (command.startsWith("dump ")) {
                dump(streams, command.substring(5));
            }
        }
        streams.close(Duration.ofSeconds(20));
        say("closed");
    }

    private static void dump(KafkaStreams streams, String store) {
        try {
            var type = QueryableStoreTypes.<String, Long>keyValueStore();
            var view = streams.store(StoreQueryParameters.fromNameAndType(store, type));
            try (var all = view.all()) {
                while (all.hasNext()) {
                    var entry = all.next();
                    System.out.println("entry " + entry.key + " " + entry.value);
                }
            }
            say("dumped");
        } catch (RuntimeException notYet) {
            say("undumped " + notYet);
        }
    }
}
