package org.apache.kafka.streams.state.internals;

import io.situ.kafka.streams.SituStores;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.streams.processor.StateStoreContext;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/** Kafka's own tests of key-value stores. They are not public, so this class lies in their package. */
class SituKeyValueStoreTest extends AbstractKeyValueStoreTest {
    @Override
    @SuppressWarnings("unchecked")
    protected <K, V> KeyValueStore<K, V> createKeyValueStore(StateStoreContext context) {
        KeyValueStore<K, V> store = Stores.keyValueStoreBuilder(
                        SituStores.keyValueStore("my-store"), (Serde<K>) context.keySerde(), (Serde<V>) context.valueSerde())
                .build();
        store.init(context, store);
        return store;
    }
}
