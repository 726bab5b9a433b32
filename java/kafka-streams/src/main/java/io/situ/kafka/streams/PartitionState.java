package io.situ.kafka.streams;

import io.situ.store.Batch;
import io.situ.store.Keyspace;
import io.situ.store.ReadOptions;
import io.situ.store.SituException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentNavigableMap;
import java.util.concurrent.ConcurrentSkipListMap;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.InvalidStateStoreException;
import org.apache.kafka.streams.errors.ProcessorStateException;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.StateStoreContext;
import org.apache.kafka.streams.processor.internals.ChangelogRecordDeserializationHelper;
import org.apache.kafka.streams.processor.internals.InternalProcessorContext;
import org.apache.kafka.streams.processor.internals.RecordBatchingStateRestoreCallback;
import org.apache.kafka.streams.processor.internals.RecordCollector;
import org.apache.kafka.streams.query.Position;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.internals.StoreQueryUtils;

/**
 * The state of one store and partition: an ordered map of bytes with the offset that it corresponds to. Every kind of
 * store is a layout over it.
 *
 * <p><b>Commits.</b> Writes lie in the heap, in order of keys, until a commit. A commit writes them with the offsets, the
 * position and the deleted ranges in one batch. Without exactly-once, writes may go to the store at any time: the
 * changelog is read again from an older offset, which gives the same state.
 *
 * <p><b>Threads.</b> The thread of the task writes and commits. Queries read on other threads. A commit replaces the map
 * of uncommitted writes after its batch is written, so a read finds each write in one place at least.
 */
final class PartitionState {
    /** Kafka before 4.3 has no commit of a store: it flushes. */
    private static final boolean KAFKA_COMMITS =
            Arrays.stream(StateStore.class.getMethods()).anyMatch(method -> method.getName().equals("commit"));
    /** The heap that a write takes besides its key and value. */
    private static final long ENTRY_BYTES = 120;
    /** The size of a batch of restored records. */
    private static final long RESTORED_BYTES = 4L << 20;
    /** Without exactly-once, writes wait in the heap only to save calls. */
    private static final long WAITING_BYTES_MAX = 256L << 10;

    private final String name;
    private final Set<RangeIterator> iterators = ConcurrentHashMap.newKeySet();
    private final List<byte[][]> deletedRanges = new ArrayList<>();

    private StateStoreContext context;
    private SharedStore.Place place;
    private StateRecord record;
    private boolean exactlyOnce;
    private boolean consistent;
    private volatile long uncommittedBytes;
    private volatile ConcurrentNavigableMap<byte[], Held> uncommitted = empty();
    /** The number of keys that were ever put into the heap. */
    private volatile long keysHeld;
    /** The commits of the task, or null if Kafka Streams tells the store of them. */
    private Commits commits;
    private volatile boolean open;

    /** A change of a restored record before it is written; null if it is not to be written. */
    interface Restored {
        byte[] key(ConsumerRecord<byte[], byte[]> record);
    }

    /**
     * An uncommitted write; its value is null if it deletes its key. {@code since} numbers the first write of the key:
     * an iterator that is older does not return a key that came later.
     */
    record Held(byte[] value, long since) {
        int bytes() {
            return value == null ? 0 : value.length;
        }
    }

    PartitionState(String name) {
        this.name = name;
    }

    private static ConcurrentNavigableMap<byte[], Held> empty() {
        return new ConcurrentSkipListMap<>(Arrays::compareUnsigned);
    }

    /** Opens the state without registering a way to restore it. */
    void open(StateStoreContext context) {
        this.context = context;
        Map<String, Object> configs = context.appConfigs();
        // No transaction covers a global store: it only reads.
        exactlyOnce = context instanceof RecordCollector.Supplier
                && StreamsConfig.EXACTLY_ONCE_V2.equals(
                        String.valueOf(configs.get(StreamsConfig.PROCESSING_GUARANTEE_CONFIG)));
        consistent = StreamsConfig.InternalConfig.getBoolean(
                configs, StreamsConfig.InternalConfig.IQ_CONSISTENCY_OFFSET_VECTOR_ENABLED, false);
        String changelog = context instanceof InternalProcessorContext<?, ?> task ? task.changelogFor(name) : null;
        boolean isInTopology = context.taskId().topologyName() != null;
        place = SharedStore.open(context.stateDir().toPath(), isInTopology, name, changelog, configs);
        open = true;
        uncommitted = empty();
        commits = null;
        record = StateRecord.decode(place.record());
    }

    /** Opens the state. The changelog restores the keys that {@code restored} returns. */
    void open(StateStoreContext context, StateStore root, Restored restored) {
        open(context);
        register(root, records -> restore(records, restored));
    }

    void register(StateStore root, RecordBatchingStateRestoreCallback restore) {
        context.register(root, restore, () -> {});
        if (exactlyOnce && KAFKA_COMMITS) {
            commits = new Commits(name, (InternalProcessorContext<?, ?>) context, this::transactionEnded);
            context.register(commits, (key, value) -> {}, () -> {});
        }
    }

    /** Commits the writes until now. They are one state with the offset that the changelog has reached. */
    private void transactionEnded() {
        if (!open || uncommitted.isEmpty() && deletedRanges.isEmpty() && !record.ahead) {
            return;
        }
        InternalProcessorContext<?, ?> task = (InternalProcessorContext<?, ?>) context;
        String topic = task.changelogFor(name);
        if (topic != null) {
            TopicPartition changelog = new TopicPartition(topic, context.taskId().partition());
            Long written = ((RecordCollector.Supplier) task).recordCollector().offsets().get(changelog);
            // The changelog of a table may be its input. The task writes nothing there, but has read that far.
            Long read = record.position.getPartitionPositions(topic).get(changelog.partition());
            if (written != null) {
                record.offsets.put(changelog, written);
            } else if (read != null) {
                record.offsets.merge(changelog, read, Math::max);
            }
        }
        record.ahead = false;
        write(true);
    }

    StateStoreContext context() {
        return context;
    }

    /** Returns a value, or null. */
    byte[] get(byte[] key) {
        checkOpen();
        Held held = uncommitted.get(key);
        if (held != null) {
            return held.value;
        }
        return guarded(() -> place.keyspace().get(key));
    }

    /** Sets the value of a key, or deletes it if the value is null, as an effect of the record that is processed. */
    void put(byte[] key, byte[] value) {
        checkOpen();
        synchronized (record.position) {
            StoreQueryUtils.updatePosition(record.position, context);
            hold(key, value);
        }
        UncommittedHeap heap = heap();
        if (!exactlyOnce) {
            if (uncommittedBytes > Math.min(WAITING_BYTES_MAX, heap.share())) {
                write(false);
            }
        } else if (heap.isFull() && uncommittedBytes > heap.share()) {
            record.ahead = true;
            write(true);
        } else if (heap.wantsCommit() && commits != null) {
            commits.request();
        }
    }

    /** Sets the value of a key, or deletes it, as an effect of a restored record: it is committed. */
    void putRestored(byte[] key, byte[] value) {
        hold(key, value);
        if (uncommittedBytes > Math.min(RESTORED_BYTES, heap().share())) {
            write(false);
        }
    }

    private void hold(byte[] key, byte[] value) {
        Held before = uncommitted.get(key);
        long more;
        if (before == null) {
            keysHeld++;
            more = key.length + ENTRY_BYTES;
        } else {
            more = -before.bytes();
        }
        Held now = new Held(value, before == null ? keysHeld : before.since);
        uncommitted.put(key, now);
        addUncommitted(more + now.bytes());
    }

    private void addUncommitted(long bytes) {
        uncommittedBytes += bytes;
        heap().add(bytes);
    }

    /** Deletes the keys from {@code begin} on and before {@code end}, which are not read any more, with the next commit. */
    void forget(byte[] begin, byte[] end) {
        checkOpen();
        ConcurrentNavigableMap<byte[], Held> gone = uncommitted.subMap(begin, true, end, false);
        long bytes = 0;
        for (Map.Entry<byte[], Held> entry : gone.entrySet()) {
            bytes += entry.getKey().length + entry.getValue().bytes() + ENTRY_BYTES;
        }
        gone.clear();
        addUncommitted(-bytes);
        deletedRanges.add(new byte[][] {begin, end});
    }

    /** Returns the entries from {@code begin} on and before {@code end}. Null stands for no bound. */
    KeyValueIterator<Bytes, byte[]> range(byte[] begin, byte[] end, boolean forward) {
        checkOpen();
        // The map comes first: what a commit takes out of it is in the store by then.
        long keys = keysHeld;
        ConcurrentNavigableMap<byte[], Held> held = uncommitted;
        if (begin != null && end != null) {
            held = Arrays.compareUnsigned(begin, end) < 0 ? held.subMap(begin, true, end, false) : empty();
        } else if (begin != null) {
            held = held.tailMap(begin, true);
        } else if (end != null) {
            held = held.headMap(end, false);
        }
        ReadOptions options = ReadOptions.DEFAULT.range(begin, end);
        ReadOptions directed = forward ? options : options.reverse();
        RangeIterator iterator = guarded(() -> new RangeIterator(place.keyspace().iterator(directed), forward));
        iterator.start(forward ? held : held.descendingMap(), keys);
        iterators.add(iterator);
        iterator.onClose(() -> iterators.remove(iterator));
        if (!open) {
            // The store was closed meanwhile, and may have missed this iterator.
            iterator.close();
            checkOpen();
        }
        return iterator;
    }

    UncommittedHeap heap() {
        return place.shared().heap();
    }

    long uncommittedBytes() {
        return uncommittedBytes;
    }

    long property(String property) {
        checkOpen();
        return guarded(() -> place.keyspace().property(property));
    }

    long sharedProperty(String property) {
        checkOpen();
        return guarded(() -> place.shared().store().property(property));
    }

    long approximateEntries() {
        checkOpen();
        return property("approximate_keys") + uncommitted.size();
    }

    /** Writes restored records at once: they are committed. */
    private void restore(Collection<ConsumerRecord<byte[], byte[]>> records, Restored restored) {
        try (Batch batch = new Batch()) {
            long bytes = 0;
            for (ConsumerRecord<byte[], byte[]> restoredRecord : records) {
                byte[] key = restored.key(restoredRecord);
                if (key == null) {
                    continue;
                }
                restored(restoredRecord);
                byte[] value = restoredRecord.value();
                add(batch, key, value);
                bytes += key.length + (value == null ? 0 : value.length);
                if (bytes > RESTORED_BYTES) {
                    write(batch);
                    bytes = 0;
                }
            }
            write(batch);
        }
    }

    /** Takes over what a restored record says of the position. */
    void restored(ConsumerRecord<byte[], byte[]> restoredRecord) {
        synchronized (record.position) {
            ChangelogRecordDeserializationHelper.applyChecksAndUpdatePosition(restoredRecord, consistent, record.position);
        }
    }

    /** Writes restored entries that went the way of puts. They are committed. */
    void writeRestored() {
        write(false);
    }

    private void add(Batch batch, byte[] key, byte[] value) {
        if (value == null) {
            batch.delete(place.keyspace(), key);
        } else {
            batch.put(place.keyspace(), key, value);
        }
    }

    /** Commits: the writes until now are one state with these offsets. */
    void commit(Map<TopicPartition, Long> offsets) {
        if (!open) {
            return;
        }
        if (commits != null) {
            commits.reset();
        }
        Map<TopicPartition, Long> before = new HashMap<>(record.offsets);
        if (offsets.isEmpty()) {
            record.offsets.clear();
        }
        offsets.forEach((partition, offset) -> {
            if (offset == null) {
                record.offsets.remove(partition);
            } else {
                record.offsets.put(partition, offset);
            }
        });
        if (uncommitted.isEmpty() && deletedRanges.isEmpty() && !record.ahead && before.equals(record.offsets)) {
            return;
        }
        record.ahead = false;
        write(true);
    }

    /** Writes what lies in the heap, for Kafka before 4.3. */
    void flush() {
        if (open && !KAFKA_COMMITS) {
            write(true);
        }
    }

    Long committedOffset(TopicPartition partition) {
        checkOpen();
        return record.ahead ? null : record.offsets.get(partition);
    }

    /** Moves the uncommitted writes to the store, in one batch; with the record if {@code withRecord}. */
    private void write(boolean withRecord) {
        try (Batch batch = new Batch()) {
            for (byte[][] range : deletedRanges) {
                batch.deleteRange(place.keyspace(), range[0], range[1]);
            }
            uncommitted.forEach((key, held) -> add(batch, key, held.value));
            if (withRecord) {
                synchronized (record.position) {
                    batch.put(place.shared().records(), StateRecord.key(place.name()), record.encode());
                }
            }
            write(batch);
        }
        clearUncommitted();
    }

    private void clearUncommitted() {
        deletedRanges.clear();
        addUncommitted(-uncommittedBytes);
        uncommitted = empty();
    }

    private void write(Batch batch) {
        guarded(() -> {
            place.shared().store().write(batch);
            return null;
        });
    }

    Position position() {
        return record == null ? Position.emptyPosition() : record.position;
    }

    boolean isOpen() {
        return open;
    }

    /** Closes the state as of the last commit. */
    void close() {
        if (!open) {
            return;
        }
        open = false;
        try {
            iterators.forEach(RangeIterator::close);
        } finally {
            clearUncommitted();
            place.shared().close(place);
        }
    }

    void checkOpen() {
        if (!open) {
            throw new InvalidStateStoreException("Store " + name + " is currently closed");
        }
    }

    private interface Call<T> {
        T run();
    }

    /** Runs a call of the store, and turns its errors into those of Kafka Streams. */
    private <T> T guarded(Call<T> call) {
        try {
            return call.run();
        } catch (IllegalStateException closed) {
            checkOpen();
            throw closed;
        } catch (SituException failure) {
            checkOpen();
            throw new ProcessorStateException("Error in the store " + name, failure);
        }
    }

    /** Returns the first key behind {@code key}. */
    static byte[] behind(byte[] key) {
        return Arrays.copyOf(key, key.length + 1);
    }

    static byte[] bytesOf(Bytes key, String what) {
        return Objects.requireNonNull(key, what + " cannot be null").get();
    }
}
