package io.situ.kafka.streams;

import java.util.function.Function;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.state.KeyValueIterator;

/** Entries whose keys are read as {@code K}. */
final class WindowIterator<K> implements KeyValueIterator<K, byte[]> {
    private final KeyValueIterator<Bytes, byte[]> entries;
    private final Function<byte[], K> key;

    WindowIterator(KeyValueIterator<Bytes, byte[]> entries, Function<byte[], K> key) {
        this.entries = entries;
        this.key = key;
    }

    @Override
    public K peekNextKey() {
        return key.apply(entries.peekNextKey().get());
    }

    @Override
    public boolean hasNext() {
        return entries.hasNext();
    }

    @Override
    public KeyValue<K, byte[]> next() {
        KeyValue<Bytes, byte[]> entry = entries.next();
        return KeyValue.pair(key.apply(entry.key.get()), entry.value);
    }

    @Override
    public void close() {
        entries.close();
    }
}
