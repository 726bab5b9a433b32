package io.situ.kafka.streams;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Optional;
import java.util.Random;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.processor.CommitCallback;
import org.apache.kafka.streams.processor.StateRestoreCallback;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.internals.RecordBatchingStateRestoreCallback;
import org.apache.kafka.streams.query.MultiVersionedKeyQuery;
import org.apache.kafka.streams.query.PositionBound;
import org.apache.kafka.streams.query.QueryConfig;
import org.apache.kafka.streams.query.VersionedKeyQuery;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.VersionedBytesStoreSupplier;
import org.apache.kafka.streams.state.VersionedKeyValueStore;
import org.apache.kafka.test.InternalMockProcessorContext;
import org.apache.kafka.test.StreamsTestUtils;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Versioned stores answer as those in RocksDB do, whatever the order of times. */
class VersionedStoreTest {
    private static final Duration HISTORY = Duration.ofSeconds(60);

    @TempDir
    Path directory;

    private final List<RecordBatchingStateRestoreCallback> restores = new ArrayList<>();

    private VersionedKeyValueStore<String, String> open(VersionedBytesStoreSupplier supplier, String place) {
        var context = new InternalMockProcessorContext<>(
                directory.resolve(place).toFile(),
                Serdes.String(),
                Serdes.String(),
                new StreamsConfig(StreamsTestUtils.getStreamsConfig())) {
            @Override
            public void register(StateStore store, StateRestoreCallback callback, CommitCallback commit) {
                restores.add((RecordBatchingStateRestoreCallback) callback);
                super.register(store, callback, commit);
            }
        };
        context.setTime(1);
        var store = Stores.versionedKeyValueStoreBuilder(supplier, Serdes.String(), Serdes.String())
                .withLoggingDisabled()
                .build();
        store.init(context, store);
        return store;
    }

    /** Returns what a store answers to a query for the versions of a key between two times, in one of the orders. */
    private static List<String> versions(
            VersionedKeyValueStore<String, String> store, String key, long from, long to, int order) {
        var query = MultiVersionedKeyQuery.<String, String>withKey(key)
                .fromTime(Instant.ofEpochMilli(from))
                .toTime(Instant.ofEpochMilli(to));
        query = switch (order % 3) {
            case 0 -> query.withAscendingTimestamps();
            case 1 -> query.withDescendingTimestamps();
            default -> query;
        };
        var result = store.query(query, PositionBound.unbounded(), new QueryConfig(false));
        assertTrue(result.isSuccess(), () -> result.getFailureMessage());
        List<String> found = new ArrayList<>();
        try (var records = result.getResult()) {
            records.forEachRemaining(record -> found.add(record.toString()));
        }
        List<String> inOrder = new ArrayList<>(found);
        Comparator<String> times = Comparator.comparing(version -> Long.parseLong(version.split(",")[1]));
        inOrder.sort(order % 3 == 0 ? times : times.reversed());
        assertEquals(inOrder, found);
        return found;
    }

    /** Returns the value of a version and the time from which on it was valid, as text. */
    private static String begin(String version) {
        return version.substring(0, version.lastIndexOf(','));
    }

    @Test
    void answersAreThoseOfRocksDb() {
        var expected = open(Stores.persistentVersionedKeyValueStore("versions", HISTORY), "rocksdb");
        var store = open(SituStores.versionedKeyValueStore("versions", HISTORY), "situ");
        Random random = new Random(35);
        long now = 1_000_000;
        int found = 0;
        int versionsFound = 0;
        for (int step = 0; step < 20_000; step++) {
            now += random.nextInt(40);
            String key = "k".repeat(1 + random.nextInt(3)) + random.nextInt(4);
            long time = now - (random.nextInt(3) == 0 ? random.nextInt(90_000) : 0);
            String what = "step " + step + ": " + key + " at " + time;
            switch (random.nextInt(4)) {
                case 0 -> {
                    String value = random.nextInt(5) == 0 ? null : "v" + step;
                    assertEquals(expected.put(key, value, time), store.put(key, value, time), what);
                }
                case 1 -> {
                    if (random.nextInt(4) == 0) {
                        assertEquals(expected.delete(key, time), store.delete(key, time), what);
                    }
                }
                case 2 -> {
                    assertEquals(expected.get(key), store.get(key), what);
                    // RocksDB's store misses versions that end in a later segment, so reads of single times add to it.
                    long from = now - random.nextInt(60_000);
                    long to = from + random.nextInt(90_000);
                    List<String> wanted = versions(expected, key, from, to, step);
                    List<String> returned = versions(store, key, from, to, step);
                    String which = what + ", from " + from + " to " + to;
                    assertTrue(returned.containsAll(wanted), () -> which + ": " + returned + " is less than " + wanted);
                    assertEquals(Set.copyOf(returned).size(), returned.size(), which);
                    // A read of a single time does not say until when its version was valid.
                    List<String> begins = returned.stream().map(VersionedStoreTest::begin).toList();
                    for (long at = from; at <= Math.min(to, now); at += 1 + random.nextInt(5_000)) {
                        var record = expected.get(key, at);
                        assertTrue(record == null || begins.contains(begin(record.toString())), which + ": " + record);
                    }
                    for (String begin : begins) {
                        long validFrom = Long.parseLong(begin.split(",")[1]);
                        assertEquals(begin, begin(expected.get(key, Math.max(from, validFrom)).toString()), which);
                    }
                    versionsFound += wanted.size();
                }
                default -> {
                    var record = expected.get(key, time);
                    assertEquals(record, store.get(key, time), what);
                    found += record == null ? 0 : 1;
                }
            }
        }
        assertTrue(found > 1000, "found " + found);
        assertTrue(versionsFound > 10_000, "found " + versionsFound);
        var query = VersionedKeyQuery.<String, String>withKey("kk1");
        var answer = store.query(query, PositionBound.unbounded(), new QueryConfig(false));
        assertEquals(expected.get("kk1"), answer.getResult());
        expected.close();
        store.close();
    }

    @Test
    void aRestoredStoreAnswersAsThatOfRocksDb() {
        var expected = open(Stores.persistentVersionedKeyValueStore("versions", HISTORY), "rocksdb");
        var store = open(SituStores.versionedKeyValueStore("versions", HISTORY), "situ");
        Random random = new Random(36);
        long now = 1_000_000;
        int found = 0;
        for (int batch = 0; batch < 200; batch++) {
            List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
            for (int number = random.nextInt(40); number >= 0; number--) {
                now += random.nextInt(200);
                long time = now - (random.nextInt(3) == 0 ? random.nextInt(90_000) : 0);
                String key = "k" + random.nextInt(8);
                String text = "v" + batch + "-" + number;
                byte[] value = random.nextInt(5) == 0 ? null : text.getBytes(StandardCharsets.UTF_8);
                records.add(new ConsumerRecord<>(
                        "changelog", 0, batch, time, TimestampType.CREATE_TIME, 0, 0,
                        key.getBytes(StandardCharsets.UTF_8), value, new RecordHeaders(), Optional.empty()));
            }
            restores.forEach(restore -> restore.restoreBatch(records));
            for (int read = 0; read < 20; read++) {
                String key = "k" + random.nextInt(8);
                long time = now - random.nextInt(80_000);
                String what = "batch " + batch + ": " + key + " at " + time;
                assertEquals(expected.get(key), store.get(key), what);
                var record = expected.get(key, time);
                assertEquals(record, store.get(key, time), what);
                found += record == null ? 0 : 1;
            }
        }
        assertTrue(found > 1000, "found " + found);
        expected.close();
        store.close();
    }
}
