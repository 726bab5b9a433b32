package org.apache.kafka.streams.state.internals;

import io.situ.kafka.streams.SituStores;
import java.time.Duration;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.Stores;
import org.junit.jupiter.api.Disabled;

/** Kafka's own tests of session stores. They are not public, so this class lies in their package. */
class SituSessionStoreTest extends AbstractSessionBytesStoreTest {
    private int stores;

    @Override
    <K, V> SessionStore<K, V> buildSessionStore(long retention, Serde<K> keySerde, Serde<V> valueSerde) {
        return Stores.sessionStoreBuilder(
                        SituStores.sessionStore("session-store-" + stores++, Duration.ofMillis(retention)), keySerde, valueSerde)
                .build();
    }

    /** The first of Kafka's stores cannot find sessions by their ends, which ours can. */
    @Override
    StoreType storeType() {
        return StoreType.RocksDBTimeOrderedSessionStoreWithIndex;
    }

    @Override
    @Disabled("reads and restores a store that is closed")
    public void shouldRestore() {}
}
