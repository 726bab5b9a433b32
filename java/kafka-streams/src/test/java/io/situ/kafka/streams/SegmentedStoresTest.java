package io.situ.kafka.streams;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.function.Function;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.internals.SessionWindow;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.WindowStore;
import org.apache.kafka.test.InternalMockProcessorContext;
import org.apache.kafka.test.StreamsTestUtils;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Window and session stores answer as those in RocksDB do: the same entries, in the same order. */
class SegmentedStoresTest {
    private static final Duration RETENTION = Duration.ofMinutes(4);
    /** Keys that are the beginning of others, also of others with the times behind them. */
    private static final List<String> KEYS = List.of(
            "", "a", "aa", "ab", "b", "\u00ff", "\u00ff\u00ff",
            "a\0", "a\0\0\0\0\0\0\0\0", "a\0\0\0\0\0\0\0\0\0\0\0\0");
    /** The keys at which ranges end. With a later one as the end, RocksDB's stores miss some of "a". */
    private static final int ENDS = 7;

    @TempDir
    Path directory;

    private <S extends StateStore> S open(S store, String place) {
        File task = directory.resolve(place).toFile();
        task.mkdirs();
        var context = new InternalMockProcessorContext<>(
                task,
                Serdes.ByteArray(),
                Serdes.ByteArray(),
                new StreamsConfig(StreamsTestUtils.getStreamsConfig()));
        context.setTime(1);
        store.init(context, store);
        return store;
    }

    private static Bytes key(Random random, int keys) {
        return Bytes.wrap(KEYS.get(random.nextInt(keys)).getBytes(StandardCharsets.ISO_8859_1));
    }

    private static <K> List<String> entries(KeyValueIterator<K, byte[]> iterator) {
        List<String> entries = new ArrayList<>();
        try (iterator) {
            while (iterator.hasNext()) {
                K peeked = iterator.peekNextKey();
                KeyValue<K, byte[]> entry = iterator.next();
                assertEquals(peeked, entry.key);
                entries.add(entry.key + "=" + new String(entry.value, StandardCharsets.UTF_8));
            }
        }
        return entries;
    }

    /** Returns a time near {@code now}, at the edge of a segment or of the retention, or far away. */
    private static long time(Random random, long now) {
        long retention = RETENTION.toMillis();
        return switch (random.nextInt(12)) {
            case 0 -> now - retention + random.nextInt(3) - 1;
            case 1 -> now / (retention / 2) * (retention / 2) + random.nextInt(3) - 1;
            case 2 -> (now - retention) / (retention / 2) * (retention / 2) + random.nextInt(3) - 1;
            case 3 -> now - random.nextInt((int) (2 * retention));
            default -> now - random.nextInt(20_000);
        };
    }

    private static long bound(Random random, long now) {
        return switch (random.nextInt(10)) {
            case 0 -> 0;
            case 1 -> Long.MAX_VALUE;
            case 2 -> -1 - random.nextInt(100_000);
            default -> time(random, now);
        };
    }

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void windowStoresAnswerAsThoseOfRocksDb(boolean retainDuplicates) {
        Duration size = Duration.ofSeconds(10);
        Random random = new Random(35);
        WindowStore<Bytes, byte[]> expected = null;
        WindowStore<Bytes, byte[]> store = null;
        long now = 1_000_000;
        int found = 0;
        for (int step = 0; step < 10_000; step++) {
            if (step % 2_000 == 0) {
                if (store != null) {
                    expected.commit(Map.of());
                    store.commit(Map.of());
                    expected.close();
                    store.close();
                }
                expected = open(
                        Stores.persistentWindowStore("windows", RETENTION, size, retainDuplicates).get(), "rocksdb");
                store = open(SituStores.windowStore("windows", RETENTION, size, retainDuplicates).get(), "situ");
            }
            now += random.nextInt(100);
            Bytes key = key(random, KEYS.size());
            Bytes other = random.nextInt(8) == 0 ? null : key(random, ENDS);
            Bytes first = random.nextInt(8) == 0 ? null : key;
            long from = bound(random, now);
            long to = bound(random, now);
            long time = time(random, now);
            String what = "step " + step + ": " + key + " to " + other + " at " + time + ", " + from + " to " + to;
            Function<WindowStore<Bytes, byte[]>, List<String>> query = switch (random.nextInt(24)) {
                case 0 -> all -> entries(all.fetch(key, from, to));
                case 1 -> all -> entries(all.backwardFetch(key, from, to));
                case 2 -> all -> entries(all.fetch(first, other, from, to));
                case 3 -> all -> entries(all.backwardFetch(first, other, from, to));
                case 4 -> all -> entries(all.fetchAll(from, to));
                case 5 -> all -> entries(all.backwardFetchAll(from, to));
                case 6 -> all -> entries(all.all());
                case 7 -> all -> entries(all.backwardAll());
                default -> null;
            };
            if (query != null) {
                List<String> answer = query.apply(expected);
                assertEquals(answer, query.apply(store), what);
                found += answer.size();
            } else if (random.nextInt(3) == 0) {
                assertArrayEquals(expected.fetch(key, time), store.fetch(key, time), what);
            } else {
                byte[] value = random.nextInt(8) == 0 ? null : ("v" + step).getBytes(StandardCharsets.UTF_8);
                expected.put(key, value, time);
                store.put(key, value, time);
            }
        }
        assertTrue(found > 5_000, "found " + found);
        expected.close();
        store.close();
    }

    @Test
    void sessionStoresAnswerAsThoseOfRocksDb() {
        Random random = new Random(35);
        SessionStore<Bytes, byte[]> expected = null;
        SessionStore<Bytes, byte[]> store = null;
        long now = 1_000_000;
        int found = 0;
        for (int step = 0; step < 10_000; step++) {
            if (step % 2_000 == 0) {
                if (store != null) {
                    expected.commit(Map.of());
                    store.commit(Map.of());
                    expected.close();
                    store.close();
                }
                expected = open(Stores.persistentSessionStore("sessions", RETENTION).get(), "rocksdb");
                store = open(SituStores.sessionStore("sessions", RETENTION).get(), "situ");
            }
            now += random.nextInt(100);
            Bytes key = key(random, KEYS.size());
            Bytes other = random.nextInt(8) == 0 ? null : key(random, ENDS);
            Bytes first = random.nextInt(8) == 0 ? null : key;
            long from = bound(random, now);
            // RocksDB's stores refuse a latest start before 0.
            long to = Math.max(bound(random, now), 0);
            long end = time(random, now);
            long start = end - random.nextInt(4) * 5_000;
            Windowed<Bytes> session = new Windowed<>(key, new SessionWindow(start, end));
            String what = "step " + step + ": " + session + " to " + other + ", " + from + " to " + to;
            Function<SessionStore<Bytes, byte[]>, List<String>> query = switch (random.nextInt(24)) {
                case 0 -> all -> entries(all.findSessions(key, from, to));
                case 1 -> all -> entries(all.backwardFindSessions(key, from, to));
                case 2 -> all -> entries(all.findSessions(first, other, from, to));
                case 3 -> all -> entries(all.backwardFindSessions(first, other, from, to));
                case 4 -> all -> entries(all.fetch(key));
                case 5 -> all -> entries(all.backwardFetch(key));
                case 6 -> all -> entries(all.fetch(first, other));
                case 7 -> all -> entries(all.backwardFetch(first, other));
                default -> null;
            };
            if (query != null) {
                List<String> answer = query.apply(expected);
                assertEquals(answer, query.apply(store), what);
                found += answer.size();
            } else if (random.nextInt(3) == 0) {
                assertArrayEquals(expected.fetchSession(key, start, end), store.fetchSession(key, start, end), what);
            } else if (random.nextInt(8) == 0) {
                expected.remove(session);
                store.remove(session);
            } else {
                byte[] value = ("v" + step).getBytes(StandardCharsets.UTF_8);
                expected.put(session, value);
                store.put(session, value);
            }
        }
        assertTrue(found > 5_000, "found " + found);
        expected.close();
        store.close();
    }
}
