package io.situ.kafka.streams;

import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import org.apache.kafka.common.serialization.Serializer;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.StateStoreContext;
import org.apache.kafka.streams.state.HeadersBytesStore;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.TimestampedBytesStore;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** A key-value store. Its keys are those of the keyspace. */
class SituKeyValueStore extends SituStateStore implements KeyValueStore<Bytes, byte[]> {
    private static final Logger LOG = LoggerFactory.getLogger(SituKeyValueStore.class);

    SituKeyValueStore(String name) {
        super(name);
    }

    /** A key-value store whose values begin with a timestamp. */
    static final class Timestamped extends SituKeyValueStore implements TimestampedBytesStore {
        Timestamped(String name) {
            super(name);
        }
    }

    /** A key-value store whose values begin with headers and a timestamp. */
    static final class WithHeaders extends SituKeyValueStore implements HeadersBytesStore {
        WithHeaders(String name) {
            super(name);
        }
    }

    @Override
    void open(StateStoreContext context, StateStore root) {
        state.open(context, root, record -> record.key());
    }

    @Override
    public byte[] get(Bytes key) {
        return state.get(PartitionState.bytesOf(key, "key"));
    }

    @Override
    public void put(Bytes key, byte[] value) {
        state.put(PartitionState.bytesOf(key, "key"), value);
    }

    @Override
    public byte[] putIfAbsent(Bytes key, byte[] value) {
        byte[] present = get(key);
        if (present == null) {
            put(key, value);
        }
        return present;
    }

    @Override
    public void putAll(List<KeyValue<Bytes, byte[]>> entries) {
        entries.forEach(entry -> put(entry.key, entry.value));
    }

    @Override
    public byte[] delete(Bytes key) {
        byte[] present = get(key);
        put(key, null);
        return present;
    }

    @Override
    public KeyValueIterator<Bytes, byte[]> range(Bytes from, Bytes to) {
        return range(from, to, true);
    }

    @Override
    public KeyValueIterator<Bytes, byte[]> reverseRange(Bytes from, Bytes to) {
        return range(from, to, false);
    }

    private KeyValueIterator<Bytes, byte[]> range(Bytes from, Bytes to, boolean forward) {
        Ranges.warnIfEmpty(LOG, from, to);
        return state.range(from == null ? null : from.get(), to == null ? null : PartitionState.behind(to.get()), forward);
    }

    @Override
    public KeyValueIterator<Bytes, byte[]> all() {
        return range(null, null, true);
    }

    @Override
    public KeyValueIterator<Bytes, byte[]> reverseAll() {
        return range(null, null, false);
    }

    @Override
    public <S extends Serializer<P>, P> KeyValueIterator<Bytes, byte[]> prefixScan(P prefix, S serializer) {
        Objects.requireNonNull(prefix, "prefix cannot be null");
        Objects.requireNonNull(serializer, "prefixKeySerializer cannot be null");
        byte[] begin = serializer.serialize(null, prefix);
        return state.range(begin, behindPrefix(begin), true);
    }

    /** Returns the first key behind all that begin with {@code prefix}; null if there is none. */
    private static byte[] behindPrefix(byte[] prefix) {
        int last = prefix.length - 1;
        while (last >= 0 && prefix[last] == (byte) 0xff) {
            last--;
        }
        if (last < 0) {
            return null;
        }
        byte[] end = Arrays.copyOf(prefix, last + 1);
        end[last]++;
        return end;
    }

    @Override
    public long approximateNumEntries() {
        return state.approximateEntries();
    }

}
