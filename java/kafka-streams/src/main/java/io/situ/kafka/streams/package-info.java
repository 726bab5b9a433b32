/**
 * State stores of Kafka Streams in Situ.
 *
 * <p>An application moves by one setting, {@code dsl.store.suppliers.class} =
 * {@link io.situ.kafka.streams.SituStoreSuppliers}. Stores that it names itself come from
 * {@link io.situ.kafka.streams.SituStores}.
 *
 * <p>All stores of an application on one machine share one store of Situ, in {@code <state.dir>/<application.id>/situ}.
 * Each store and partition is a keyspace of it. So one budget of memory holds, whatever the number of partitions
 * ({@link io.situ.kafka.streams.SituConfig#MEMORY_BYTES}).
 *
 * <p><b>Exactly once.</b> The writes since the last commit lie in the heap. A commit writes them, the offset of the
 * changelog and the position in one atomic batch. So after a crash, a store holds what its offset says, and is neither
 * wiped nor restored from the beginning.
 */
package io.situ.kafka.streams;
