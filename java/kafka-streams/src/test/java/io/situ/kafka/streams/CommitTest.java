package io.situ.kafka.streams;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Random;
import java.util.TreeMap;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.InvalidStateStoreException;
import org.apache.kafka.streams.errors.ProcessorStateException;
import org.apache.kafka.streams.processor.CommitCallback;
import org.apache.kafka.streams.processor.StateRestoreCallback;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.internals.ProcessorRecordContext;
import org.apache.kafka.streams.processor.internals.RecordBatchingStateRestoreCallback;
import org.apache.kafka.streams.processor.internals.RecordCollector;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.WindowStore;
import org.apache.kafka.streams.state.internals.CachedStateStore;
import org.apache.kafka.streams.state.internals.OffsetCheckpoint;
import org.apache.kafka.test.InternalMockProcessorContext;
import org.apache.kafka.test.MockRecordCollector;
import org.apache.kafka.test.StreamsTestUtils;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** The contents of a store after a commit, after a crash, and after its task's directory was removed. */
class CommitTest {
    private static final TopicPartition CHANGELOG = new TopicPartition("changelog", 0);

    @TempDir
    Path application;

    private InternalMockProcessorContext<?, ?> context(int partition, String guarantee, Map<String, String> more) {
        Properties settings = StreamsTestUtils.getStreamsConfig("application", "nowhere:9092", new Properties());
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, guarantee);
        settings.put(SituConfig.MEMORY_BYTES, "8388608");
        settings.putAll(more);
        File task = application.resolve("0_" + partition).toFile();
        task.mkdirs();
        var context = new InternalMockProcessorContext<>(
                task, Serdes.ByteArray(), Serdes.ByteArray(), new StreamsConfig(settings));
        context.setTime(1);
        return context;
    }

    private KeyValueStore<Bytes, byte[]> open(int partition, String guarantee, Map<String, String> more) {
        KeyValueStore<Bytes, byte[]> store = SituStores.keyValueStore("store").get();
        store.init(context(partition, guarantee, more), store);
        return store;
    }

    private KeyValueStore<Bytes, byte[]> open(String guarantee) {
        return open(0, guarantee, Map.of());
    }

    private static Bytes key(String text) {
        return Bytes.wrap(bytes(text));
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static List<String> entries(KeyValueIterator<Bytes, byte[]> iterator) {
        List<String> entries = new ArrayList<>();
        try (iterator) {
            while (iterator.hasNext()) {
                KeyValue<Bytes, byte[]> entry = iterator.next();
                entries.add(new String(entry.key.get(), StandardCharsets.UTF_8) + "="
                        + new String(entry.value, StandardCharsets.UTF_8));
            }
        }
        return entries;
    }

    /** Under exactly-once, a close without a commit is a crash: Kafka Streams commits before it closes. */
    @Test
    void aCrashLeavesTheStateOfTheLastCommit() {
        KeyValueStore<Bytes, byte[]> store = open(StreamsConfig.EXACTLY_ONCE_V2);
        assertNull(store.committedOffset(CHANGELOG));
        store.put(key("a"), bytes("1"));
        store.put(key("b"), bytes("1"));
        store.commit(Map.of(CHANGELOG, 2L));
        store.put(key("a"), bytes("2"));
        store.delete(key("b"));
        store.put(key("c"), bytes("2"));
        assertEquals(List.of("a=2", "c=2"), entries(store.all()));
        assertEquals(List.of("c=2", "a=2"), entries(store.reverseAll()));
        store.close();
        assertThrows(InvalidStateStoreException.class, () -> store.get(key("a")));

        KeyValueStore<Bytes, byte[]> again = open(StreamsConfig.EXACTLY_ONCE_V2);
        assertEquals(2L, again.committedOffset(CHANGELOG));
        assertEquals(List.of("a=1", "b=1"), entries(again.all()));
        // A commit without offsets removes them: the state is about to be restored from the beginning.
        again.commit(Map.of());
        assertNull(again.committedOffset(CHANGELOG));
        Map<TopicPartition, Long> unknown = new HashMap<>();
        again.commit(Map.of(CHANGELOG, 7L));
        unknown.put(CHANGELOG, null);
        again.commit(unknown);
        again.close();
        KeyValueStore<Bytes, byte[]> last = open(StreamsConfig.EXACTLY_ONCE_V2);
        assertNull(last.committedOffset(CHANGELOG));
        last.close();
    }

    /** A running task under exactly-once. Tests play the part of Kafka Streams. */
    private final class Task {
        final Map<TopicPartition, Long> acknowledged = new HashMap<>();
        final List<StateStore> registered = new ArrayList<>();
        final InternalMockProcessorContext<?, ?> context;
        RecordBatchingStateRestoreCallback restore;
        boolean isStandby;
        int commitsRequested;

        Task(String changelogTopic, Map<String, String> more) {
            Properties settings = StreamsTestUtils.getStreamsConfig("application", "nowhere:9092", new Properties());
            settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
            settings.putAll(more);
            File task = application.resolve("0_0").toFile();
            task.mkdirs();
            var collector = new MockRecordCollector() {
                @Override
                public Map<TopicPartition, Long> offsets() {
                    return acknowledged;
                }
            };
            context = new InternalMockProcessorContext<>(
                    task, Serdes.ByteArray(), Serdes.ByteArray(), collector, null, new StreamsConfig(settings)) {
                @Override
                public void register(StateStore store, StateRestoreCallback callback, CommitCallback commit) {
                    registered.add(store);
                    restore = restore == null ? (RecordBatchingStateRestoreCallback) callback : restore;
                    super.register(store, callback, commit);
                }

                @Override
                public void commit() {
                    commitsRequested++;
                }

                @Override
                public RecordCollector recordCollector() {
                    return isStandby ? null : super.recordCollector();
                }
            };
            context.addChangelogForStore("store", changelogTopic);
        }

        <S extends StateStore> S open(S store) {
            store.init(context, store);
            return store;
        }

        void emptyCaches() {
            ((CachedStateStore<?, ?>) registered.get(1)).flushCache();
        }

        void endCommit() {
            context.processorMetadata().setNeedsCommit(false);
        }
    }

    /** The last transaction of a task reached the disk with the next change, and was restored where none came. */
    @Test
    void aTransactionIsWrittenWhenItEnds() {
        Task task = new Task(CHANGELOG.topic(), Map.of());
        KeyValueStore<Bytes, byte[]> store = task.open(SituStores.keyValueStore("store").get());
        store.put(key("a"), bytes("1"));
        task.acknowledged.put(CHANGELOG, 5L);
        task.emptyCaches();
        task.endCommit();
        store.close();
        KeyValueStore<Bytes, byte[]> again = open(StreamsConfig.EXACTLY_ONCE_V2);
        assertEquals(5L, again.committedOffset(CHANGELOG));
        assertEquals(List.of("a=1"), entries(again.all()));
        again.close();
    }

    /** While a task runs, the disk has what its last transaction has committed, and nothing of the next one. */
    @Test
    void aRunningTaskCommitsItsState() {
        Task task = new Task(CHANGELOG.topic(), Map.of());
        KeyValueStore<Bytes, byte[]> store = task.open(SituStores.keyValueStore("store").get());
        assertEquals(List.of("store", "store-situ-commits"), task.registered.stream().map(StateStore::name).toList());
        task.context.addProcessorMetadataKeyValue("windows", 7);
        store.put(key("a"), bytes("1"));
        store.put(key("b"), bytes("1"));
        task.acknowledged.put(CHANGELOG, 1L);
        task.emptyCaches();
        assertEquals(7, task.context.processorMetadataForKey("windows"));
        assertTrue(task.context.processorMetadata().needsCommit());
        task.endCommit();
        // The next transaction begins.
        task.context.addProcessorMetadataKeyValue("windows", 8);
        store.put(key("b"), bytes("2"));
        store.put(key("c"), bytes("2"));
        task.acknowledged.put(CHANGELOG, 3L);
        // This one has not ended for certain when the process dies.
        task.emptyCaches();
        store.close();
        KeyValueStore<Bytes, byte[]> again = open(StreamsConfig.EXACTLY_ONCE_V2);
        assertEquals(1L, again.committedOffset(CHANGELOG));
        assertEquals(List.of("a=1", "b=1"), entries(again.all()));
        again.close();
    }

    /**
     * The cache of a later store may have been emptied into a processor that changes this one, after Kafka Streams had
     * come by here, and before the transaction was committed. That change wrote the uncommitted state with its offset.
     */
    @Test
    void aChangeBeforeTheCommitHasEndedCommitsNothing() {
        Task task = new Task(CHANGELOG.topic(), Map.of());
        KeyValueStore<Bytes, byte[]> store = task.open(SituStores.keyValueStore("store").get());
        store.put(key("a"), bytes("1"));
        task.acknowledged.put(CHANGELOG, 0L);
        task.emptyCaches();
        store.put(key("b"), bytes("1"));
        store.close();
        KeyValueStore<Bytes, byte[]> again = open(StreamsConfig.EXACTLY_ONCE_V2);
        assertNull(again.committedOffset(CHANGELOG));
        assertEquals(List.of(), entries(again.all()));
        again.close();

        task = new Task(CHANGELOG.topic(), Map.of());
        store = task.open(SituStores.keyValueStore("store").get());
        store.put(key("a"), bytes("1"));
        task.emptyCaches();
        store.put(key("b"), bytes("1"));
        task.acknowledged.put(CHANGELOG, 1L);
        task.endCommit();
        // Another cache is emptied first in the next commit, and the change comes from there.
        task.context.addProcessorMetadataKeyValue("windows", 8);
        store.put(key("c"), bytes("2"));
        store.close();
        again = open(StreamsConfig.EXACTLY_ONCE_V2);
        assertEquals(1L, again.committedOffset(CHANGELOG));
        assertEquals(List.of("a=1", "b=1"), entries(again.all()));
        again.close();
    }

    /** Kafka Streams closes a task whose commit has failed, and goes through the steps of a commit for that. */
    @Test
    void aCommitThatFailsCommitsNothing() {
        Task task = new Task(CHANGELOG.topic(), Map.of());
        KeyValueStore<Bytes, byte[]> store = task.open(SituStores.keyValueStore("store").get());
        store.put(key("a"), bytes("1"));
        task.acknowledged.put(CHANGELOG, 0L);
        task.emptyCaches();
        task.emptyCaches();
        task.endCommit();
        // The closing cache of the store writes what a processor has left in it.
        store.put(key("b"), bytes("1"));
        store.close();
        KeyValueStore<Bytes, byte[]> again = open(StreamsConfig.EXACTLY_ONCE_V2);
        assertNull(again.committedOffset(CHANGELOG));
        assertEquals(List.of(), entries(again.all()));
        again.close();
    }

    /** The task of a table whose changelog is its input writes no changelog. The state had no offset after a crash. */
    @Test
    void aTableThatIsRestoredFromItsInputHasAnOffset() {
        Task task = new Task("input", Map.of());
        KeyValueStore<Bytes, byte[]> store = task.open(SituStores.keyValueStore("store").get());
        for (long offset = 0; offset < 3; offset++) {
            task.context.setRecordContext(new ProcessorRecordContext(1, offset, 0, "input", new RecordHeaders()));
            store.put(key("a" + offset), bytes("1"));
            task.emptyCaches();
            task.endCommit();
        }
        store.close();
        KeyValueStore<Bytes, byte[]> again = open(StreamsConfig.EXACTLY_ONCE_V2);
        assertEquals(2L, again.committedOffset(new TopicPartition("input", 0)));
        assertEquals(List.of("a0=1", "a1=1", "a2=1"), entries(again.all()));
        again.close();
    }

    /** A commit without a change left the end of its transaction to the standby, which has no collector of records. */
    @Test
    void anActiveTaskBecomesAStandby() {
        Task task = new Task(CHANGELOG.topic(), Map.of());
        var windows = task.open(
                SituStores.windowStore("store", Duration.ofMinutes(2), Duration.ofMinutes(1), false).get());
        windows.put(key("a"), bytes("1"), 0);
        windows.commit(Map.of(CHANGELOG, 1L));
        task.emptyCaches();
        windows.commit(Map.of(CHANGELOG, 1L));
        task.endCommit();
        task.isStandby = true;
        byte[] later = ByteBuffer.allocate(13).put((byte) 'a').putLong(3_600_000).putInt(0).array();
        task.restore.restoreBatch(List.of(new ConsumerRecord<>(CHANGELOG.topic(), 0, 2, later, bytes("2"))));
        windows.commit(Map.of(CHANGELOG, 2L));
        try (var all = windows.all()) {
            assertEquals(3_600_000, all.next().key.window().start());
            assertFalse(all.hasNext());
        }
        windows.close();
    }

    /** Restored versions were taken for uncommitted writes, and the state had no offset after a crash. */
    @Test
    void restoredVersionsAreCommitted() {
        Map<String, String> none = Map.of(SituConfig.UNCOMMITTED_BYTES, "0");
        Task task = new Task(CHANGELOG.topic(), none);
        var versions = new SituVersionedStore("store", 60_000);
        task.open(versions);
        versions.commit(Map.of(CHANGELOG, 1L));
        task.restore.restoreBatch(List.of(new ConsumerRecord<>(
                CHANGELOG.topic(), 0, 2, 5, TimestampType.CREATE_TIME, 1, 1, bytes("a"), bytes("2"),
                new RecordHeaders(), Optional.empty())));
        versions.close();
        versions = new SituVersionedStore("store", 60_000);
        new Task(CHANGELOG.topic(), none).open(versions);
        assertEquals(1L, versions.committedOffset(CHANGELOG));
        assertArrayEquals(bytes("2"), versions.get(key("a")).value());
        versions.close();
    }

    /** An iterator returned keys that were put behind its place, so a loop that puts such keys went on and on. */
    @Test
    void anIteratorDoesNotReturnKeysThatCameLater() {
        KeyValueStore<Bytes, byte[]> store = open(StreamsConfig.EXACTLY_ONCE_V2);
        store.put(key("a"), bytes("1"));
        store.commit(Map.of(CHANGELOG, 1L));
        for (String name : List.of("b", "c", "d")) {
            store.put(key(name), bytes("1"));
        }
        List<String> found = new ArrayList<>();
        try (var all = store.all()) {
            while (all.hasNext() && found.size() < 100) {
                Bytes name = all.next().key;
                found.add(new String(name.get(), StandardCharsets.UTF_8));
                store.put(key("z" + found.size()), bytes("2"));
                store.delete(name);
            }
        }
        assertEquals(List.of("a", "b", "c", "d"), found);
        assertEquals(List.of("z1=2", "z2=2", "z3=2", "z4=2"), entries(store.all()));
        store.close();
    }

    /** A query that was in a step of an iterator made the close fail. The store could not be opened again. */
    @Test
    void aStoreIsClosedUnderQueries() throws Exception {
        for (int turn = 0; turn < 20; turn++) {
            KeyValueStore<Bytes, byte[]> store = open(StreamsConfig.AT_LEAST_ONCE);
            for (int number = 0; number < 2_000; number++) {
                store.put(key("a" + number), new byte[100]);
            }
            store.commit(Map.of(CHANGELOG, 1L));
            CountDownLatch running = new CountDownLatch(2);
            List<Throwable> errors = Collections.synchronizedList(new ArrayList<>());
            List<Thread> queries = new ArrayList<>();
            for (int number = 0; number < 2; number++) {
                Thread query = new Thread(() -> {
                    try {
                        while (true) {
                            entries(store.all());
                            running.countDown();
                        }
                    } catch (InvalidStateStoreException closed) {
                        // The store is closed, which is what the query waits for.
                    } catch (Throwable error) {
                        errors.add(error);
                    }
                });
                query.start();
                queries.add(query);
            }
            running.await();
            store.close();
            for (Thread query : queries) {
                query.join();
            }
            assertEquals(List.of(), errors);
        }
        open(StreamsConfig.AT_LEAST_ONCE).close();
    }

    /** An error while a store was opened left its place taken: the next attempt said that it was open already. */
    @Test
    void aStoreThatFailsToOpenLeavesNothingOpen() {
        open(StreamsConfig.AT_LEAST_ONCE).close();
        KeyValueStore<Bytes, byte[]> other = open(1, StreamsConfig.AT_LEAST_ONCE, Map.of());
        other.close();
        byte[] name = bytes("0_0/store");
        try (var shared = io.situ.store.Store.open(application.resolve("situ"));
                var records = shared.keyspace("kafka-streams")) {
            records.put(name, new byte[] {99});
        }
        other = open(1, StreamsConfig.AT_LEAST_ONCE, Map.of());
        for (int attempt = 0; attempt < 2; attempt++) {
            Exception error = assertThrows(ProcessorStateException.class, () -> open(StreamsConfig.AT_LEAST_ONCE));
            assertTrue(error.toString().contains("format 99"), error.toString());
        }
        other.close();
        io.situ.store.Store.destroy(application.resolve("situ"));
    }

    /**
     * A store in RocksDB was there before, and Kafka Streams before 4.3 has left its offset in a file. Kafka Streams gave
     * the offset to the new store, which was empty: the state was lost.
     */
    @Test
    void theOffsetOfAnotherStoreIsNotTakenOver() throws IOException {
        Task task = new Task(CHANGELOG.topic(), Map.of());
        var file = new OffsetCheckpoint(application.resolve("0_0/.checkpoint").toFile());
        TopicPartition other = new TopicPartition("other", 0);
        file.write(Map.of(CHANGELOG, 7L, other, 8L));
        KeyValueStore<Bytes, byte[]> store = task.open(SituStores.keyValueStore("store").get());
        assertEquals(Map.of(other, 8L), file.read());
        store.close();
        // Later, the file has the offset of this store.
        file.write(Map.of(CHANGELOG, 9L));
        store = new Task(CHANGELOG.topic(), Map.of()).open(SituStores.keyValueStore("store").get());
        assertEquals(Map.of(CHANGELOG, 9L), file.read());
        store.close();
    }

    /** The directory of an application may have a name like that of a named topology. The store lay outside of it. */
    @Test
    void anApplicationHasAnyName() {
        Path all = application;
        application = all.resolve("__one__");
        open(StreamsConfig.AT_LEAST_ONCE).close();
        assertTrue(Files.isDirectory(application.resolve("situ")));
        assertFalse(Files.exists(all.resolve("situ")));
    }

    /** Kafka Streams removes the directory of a closed task by its time, which nothing renewed. */
    @Test
    void theDirectoryOfATaskHasTheTimeOfItsClose() {
        KeyValueStore<Bytes, byte[]> store = open(StreamsConfig.AT_LEAST_ONCE);
        File task = application.resolve("0_0").toFile();
        assertTrue(task.setLastModified(1_000_000));
        store.close();
        assertTrue(task.lastModified() > 1_000_000_000);
        assertTrue(task.setLastModified(1_000_000));
        store = open(StreamsConfig.AT_LEAST_ONCE);
        assertTrue(task.lastModified() > 1_000_000_000);
        store.close();
    }

    /** Writes beyond the limit go to the disk. A crash then leaves a state of which nothing is known. */
    @Test
    void aStateThatIsAheadHasNoOffset() {
        Map<String, String> small = Map.of(SituConfig.UNCOMMITTED_BYTES, "1000");
        KeyValueStore<Bytes, byte[]> store = open(0, StreamsConfig.EXACTLY_ONCE_V2, small);
        store.put(key("a"), bytes("1"));
        store.commit(Map.of(CHANGELOG, 1L));
        for (int number = 0; number < 20; number++) {
            store.put(key("a" + number), new byte[100]);
        }
        assertEquals(21, entries(store.all()).size());
        store.close();
        KeyValueStore<Bytes, byte[]> again = open(0, StreamsConfig.EXACTLY_ONCE_V2, small);
        assertNull(again.committedOffset(CHANGELOG), "Kafka Streams restores the state from the beginning");
        again.commit(Map.of(CHANGELOG, 30L));
        again.close();
        KeyValueStore<Bytes, byte[]> last = open(0, StreamsConfig.EXACTLY_ONCE_V2, small);
        assertEquals(30L, last.committedOffset(CHANGELOG));
        last.close();
    }

    /** Each store and partition had a bound of its own, so many of them took many times as much. */
    @Test
    void theStoresOfAnApplicationHaveOneBound() {
        long max = 400_000;
        Map<String, String> bound = Map.of(SituConfig.UNCOMMITTED_BYTES, String.valueOf(max));
        Task task = new Task(CHANGELOG.topic(), bound);
        List<KeyValueStore<Bytes, byte[]>> stores = new ArrayList<>();
        stores.add(task.open(SituStores.keyValueStore("store").get()));
        for (int partition = 1; partition < 20; partition++) {
            stores.add(open(partition, StreamsConfig.EXACTLY_ONCE_V2, bound));
        }
        stores.forEach(store -> store.commit(Map.of(CHANGELOG, 1L)));
        UncommittedHeap heap = ((SituKeyValueStore) stores.getFirst()).state.heap();
        stores.get(1).put(key("first"), new byte[70_000]);
        stores.getFirst().put(key("a"), new byte[10]);
        assertEquals(0, task.commitsRequested, "less than a quarter");
        stores.get(1).put(key("second"), new byte[40_000]);
        stores.getFirst().put(key("b"), new byte[10]);
        assertEquals(1, task.commitsRequested);
        for (int number = 0; number < 100; number++) {
            for (int partition = 1; partition < 20; partition++) {
                stores.get(partition).put(key("k" + number), new byte[1_000]);
                assertTrue(heap.bytes() <= max, heap.bytes() + " bytes");
            }
        }
        assertTrue(heap.bytes() > max / 4, heap.bytes() + " bytes");
        assertEquals(1L, stores.getFirst().committedOffset(CHANGELOG), "a store below its share waits for the commit");
        assertNull(stores.get(1).committedOffset(CHANGELOG));
        for (var store : stores) {
            store.commit(Map.of(CHANGELOG, 2L));
            assertEquals(2L, store.committedOffset(CHANGELOG));
        }
        assertEquals(0, heap.bytes());
        stores.get(2).put(key("last"), new byte[1_000]);
        stores.forEach(StateStore::close);
        assertEquals(0, heap.bytes());
    }

    @Test
    void aStateIsEmptyWhenTheDirectoryOfItsTaskWasRemoved() throws IOException {
        KeyValueStore<Bytes, byte[]> first = open(0, StreamsConfig.AT_LEAST_ONCE, Map.of());
        KeyValueStore<Bytes, byte[]> second = open(1, StreamsConfig.AT_LEAST_ONCE, Map.of());
        first.put(key("a"), bytes("1"));
        first.commit(Map.of(CHANGELOG, 1L));
        second.put(key("a"), bytes("2"));
        second.commit(Map.of(CHANGELOG, 2L));
        first.close();
        Utils.delete(application.resolve("0_0").toFile());
        KeyValueStore<Bytes, byte[]> again = open(0, StreamsConfig.AT_LEAST_ONCE, Map.of());
        assertNull(again.committedOffset(CHANGELOG));
        assertEquals(List.of(), entries(again.all()));
        assertEquals(List.of("a=2"), entries(second.all()));
        again.close();
        second.close();

        // A task that has gone for good: its keyspace goes when another store is opened.
        Utils.delete(application.resolve("0_1").toFile());
        open(StreamsConfig.AT_LEAST_ONCE).close();
        try (var store = io.situ.store.Store.openReadOnly(application.resolve("situ"), new io.situ.store.Options())) {
            assertEquals(List.of("0_0/store", "default", "kafka-streams"), store.keyspaceNames().stream().sorted().toList());
        }
    }

    @Test
    void aStoreIsNotOpenTwice() {
        KeyValueStore<Bytes, byte[]> store = open(StreamsConfig.AT_LEAST_ONCE);
        assertThrows(ProcessorStateException.class, () -> open(StreamsConfig.AT_LEAST_ONCE));
        store.put(key("a"), bytes("1"));
        assertEquals(List.of("a=1"), entries(store.all()));
        store.close();
        assertFalse(store.isOpen());
        store.close();
    }

    @Test
    void settingsThatAreWrongAreErrors() {
        for (Map<String, String> wrong : List.of(
                Map.of(SituConfig.MEMORY_BYTES, "1"), Map.of(SituConfig.MEMORY_BYTES, "much"),
                Map.of(SituConfig.UNCOMMITTED_BYTES, "-1"))) {
            Exception error = assertThrows(Exception.class, () -> open(0, StreamsConfig.EXACTLY_ONCE_V2, wrong));
            assertTrue((error.getMessage() + error.getCause()).contains("situ."), error.toString());
        }
        open(StreamsConfig.AT_LEAST_ONCE).close();
    }

    /** Segments that have expired are deleted as ranges, and their space is free after the next flush. */
    @Test
    void windowsThatHaveExpiredGo() {
        WindowStore<Bytes, byte[]> windows =
                SituStores.windowStore("windows", Duration.ofMinutes(10), Duration.ofMinutes(1), false).get();
        windows.init(context(0, StreamsConfig.EXACTLY_ONCE_V2, Map.of()), windows);
        long minute = 60_000;
        for (long time = 0; time < 100 * minute; time += minute) {
            windows.put(key("k" + time % 7), bytes("v" + time), time);
            if (time % (5 * minute) == 0) {
                windows.commit(Map.of(CHANGELOG, time));
            }
        }
        windows.commit(Map.of(CHANGELOG, 1L));
        try (var all = windows.all()) {
            int count = 0;
            while (all.hasNext()) {
                assertTrue(all.next().key.window().start() >= 89 * minute);
                count++;
            }
            assertEquals(10, count);
        }
        windows.close();
        try (var store = io.situ.store.Store.openReadOnly(application.resolve("situ"), new io.situ.store.Options());
                var keyspace = store.existingKeyspace("0_0/windows");
                var entries = keyspace.iterator()) {
            int count = 0;
            for (; entries.hasNext(); entries.next()) {
                count++;
            }
            // The retention of ten minutes, and the rest of the oldest segment of five.
            assertTrue(count >= 10 && count <= 15, "stored: " + count);
        }
    }

    /** Random writes, commits and crashes: the state is a model's, and iterators see it both ways. */
    @ParameterizedTest
    @ValueSource(strings = {StreamsConfig.AT_LEAST_ONCE, StreamsConfig.EXACTLY_ONCE_V2})
    void theStateIsThatOfAModel(String guarantee) {
        Random random = new Random(35);
        TreeMap<String, String> committed = new TreeMap<>();
        for (int life = 0; life < 20; life++) {
            KeyValueStore<Bytes, byte[]> store = open(guarantee);
            TreeMap<String, String> model = new TreeMap<>(committed);
            for (int step = 0; step < 500; step++) {
                String key = "k" + random.nextInt(50);
                switch (random.nextInt(10)) {
                    case 0 -> {
                        store.delete(key(key));
                        model.remove(key);
                    }
                    case 1 -> {
                        store.commit(Map.of(CHANGELOG, (long) step));
                        committed = new TreeMap<>(model);
                    }
                    case 2 -> {
                        String other = "k" + random.nextInt(50);
                        String from = key.compareTo(other) < 0 ? key : other;
                        String to = from.equals(key) ? other : key;
                        List<String> expected = new ArrayList<>();
                        model.subMap(from, true, to, true).forEach((name, value) -> expected.add(name + "=" + value));
                        assertEquals(expected, entries(store.range(key(from), key(to))));
                        assertEquals(expected.reversed(), entries(store.reverseRange(key(from), key(to))));
                    }
                    case 3 -> assertArrayEquals(
                            model.get(key) == null ? null : bytes(model.get(key)), store.get(key(key)));
                    default -> {
                        store.put(key(key), bytes("v" + step));
                        model.put(key, "v" + step);
                    }
                }
            }
            if (guarantee.equals(StreamsConfig.AT_LEAST_ONCE)) {
                // Without exactly-once, the changelog is read again: the test has none, so it ends with a commit.
                store.commit(Map.of(CHANGELOG, 1L));
                committed = new TreeMap<>(model);
            }
            store.close();
        }
    }
}
