package org.apache.kafka.streams.state.internals;

import io.situ.kafka.streams.SituStores;
import java.time.Duration;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.WindowStore;

/** Kafka's own tests of window stores. They are not public, so this class lies in their package. */
class SituWindowStoreTest extends AbstractWindowBytesStoreTest {
    private int stores;

    @Override
    <K, V> WindowStore<K, V> buildWindowStore(
            long retention, long windowSize, boolean retainDuplicates, Serde<K> keySerde, Serde<V> valueSerde) {
        return Stores.windowStoreBuilder(
                        SituStores.windowStore(
                                "window-store-" + stores++, Duration.ofMillis(retention), Duration.ofMillis(windowSize), retainDuplicates),
                        keySerde,
                        valueSerde)
                .build();
    }
}
