package io.situ.kafka.streams;

import io.situ.store.Keyspace;
import io.situ.store.Store;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.streams.errors.ProcessorStateException;
import org.apache.kafka.streams.state.internals.OffsetCheckpoint;

/**
 * The store of Situ that all stores of an application share. It is open as long as one of them is.
 *
 * <p>Kafka Streams removes the state of a task by deleting the task's directory: when the task has moved away, when the
 * state is damaged, when a user cleans up. The keyspaces do not lie there, so each store has a small file there that
 * stands for its keyspace: its marker. A keyspace without a marker is dropped.
 */
final class SharedStore {
    private static final Pattern TASK = Pattern.compile("\\d+_\\d+|global");
    private static final String DIRECTORY = "situ";
    private static final String MARKER = ".situ";
    private static final String CHECKPOINT = ".checkpoint";
    /** The keyspace of the records that describe the others. */
    private static final String RECORDS = "kafka-streams";

    /** A rebalance opens many stores at once. It need not look for tasks that have gone at each of them. */
    private static final long PAUSE_NS = TimeUnit.SECONDS.toNanos(1);

    private static final Map<Path, SharedStore> OPEN = new HashMap<>();

    private final Path application;
    private final Store store;
    private final Keyspace records;
    private final UncommittedHeap heap;
    private final Set<String> used = new HashSet<>();
    private int users;
    private long lookedAtNs = System.nanoTime() - PAUSE_NS;

    private SharedStore(Path application, Map<String, ?> configs) throws IOException {
        this.application = application;
        heap = new UncommittedHeap(SituConfig.uncommittedBytes(configs));
        Path directory = Files.createDirectories(application.resolve(DIRECTORY));
        store = Store.open(directory, SituConfig.options(configs));
        try {
            records = store.keyspace(RECORDS);
        } catch (RuntimeException failure) {
            store.close();
            throw failure;
        }
    }

    /** The keyspace of one store and partition, and what it takes to describe it. */
    record Place(SharedStore shared, String name, Keyspace keyspace, byte[] record) {}

    /**
     * Returns the place of the store {@code name} of the task whose directory is {@code task}: as it was left, or empty
     * if its marker is gone. {@code isInTopology} says that the directory lies in that of a named topology, and
     * {@code changelog} is the topic of the store's changelog, or null.
     */
    static Place open(Path task, boolean isInTopology, String name, String changelog, Map<String, ?> configs) {
        synchronized (OPEN) {
            Path application = applicationOf(task, isInTopology);
            try {
                SharedStore shared = OPEN.get(application);
                if (shared == null) {
                    shared = new SharedStore(application, configs);
                    OPEN.put(application, shared);
                }
                shared.users++;
                try {
                    return shared.place(task, name, changelog);
                } catch (IOException | RuntimeException failure) {
                    shared.leave();
                    throw failure;
                }
            } catch (IOException | RuntimeException failure) {
                throw new ProcessorStateException("Error opening the store " + name + " in " + application, failure);
            }
        }
    }

    /** Returns the directory of the application to which a task's directory belongs. */
    private static Path applicationOf(Path task, boolean isInTopology) {
        Path absolute = task.toAbsolutePath().normalize();
        if (!TASK.matcher(absolute.getFileName().toString()).matches()) {
            return absolute;
        }
        return isInTopology ? absolute.getParent().getParent() : absolute.getParent();
    }

    private Place place(Path task, String name, String changelog) throws IOException {
        String keyspace = application.relativize(task.toAbsolutePath().normalize()) + "/" + name;
        dropUnmarked(keyspace);
        if (!used.add(keyspace)) {
            throw new IllegalStateException("the store " + name + " of " + task + " is open already");
        }
        try {
            byte[] record = recordOf(keyspace, task, changelog);
            Place place = new Place(this, keyspace, store.keyspace(keyspace), record);
            heap.opened();
            return place;
        } catch (IOException | RuntimeException failure) {
            used.remove(keyspace);
            throw failure;
        }
    }

    /** Returns the record of a keyspace. If the marker is gone, the keyspace is dropped, and begins again. */
    private byte[] recordOf(String keyspace, Path task, String changelog) throws IOException {
        Path marker = markerOf(keyspace);
        byte[] record = records.get(StateRecord.key(keyspace));
        boolean marked = isMarked(keyspace);
        if (!marked && record != null) {
            drop(keyspace);
            record = null;
        }
        if (record == null) {
            forgetOffset(task, changelog);
            // First the record, then the marker: a marker without a record stands for nothing.
            record = new StateRecord().encode();
            records.put(StateRecord.key(keyspace), record);
        }
        if (!marked) {
            Files.createDirectories(marker.getParent());
            Files.write(marker, new byte[0]);
        }
        touch(keyspace);
        return record;
    }

    /**
     * Removes the offset of a changelog from the file in which Kafka Streams before 4.3 keeps those of a task. It is
     * that of a store of another kind, which was there before. Kafka Streams would give it to the empty keyspace.
     */
    private static void forgetOffset(Path task, String changelog) throws IOException {
        OffsetCheckpoint file = new OffsetCheckpoint(task.resolve(CHECKPOINT).toFile());
        Map<TopicPartition, Long> offsets = new HashMap<>(file.read());
        if (offsets.keySet().removeIf(partition -> partition.topic().equals(changelog))) {
            file.write(offsets);
        }
    }

    /** Returns true also if the marker cannot be looked for: nothing is dropped for an error of a disk. */
    private boolean isMarked(String keyspace) {
        return !Files.notExists(markerOf(keyspace));
    }

    /** Renews the time of a task's directory, by which Kafka Streams removes it when the task has moved away. */
    private void touch(String keyspace) {
        markerOf(keyspace).getParent().toFile().setLastModified(System.currentTimeMillis());
    }

    private Path markerOf(String keyspace) {
        return application.resolve(keyspace + MARKER);
    }

    /** Drops keyspaces whose tasks have gone, but for {@code kept}. */
    private void dropUnmarked(String kept) {
        long now = System.nanoTime();
        if (now - lookedAtNs < PAUSE_NS) {
            return;
        }
        lookedAtNs = now;
        for (String name : store.keyspaceNames()) {
            boolean ours = name.indexOf('/') >= 0;
            if (ours && !name.equals(kept) && !used.contains(name) && !isMarked(name)) {
                drop(name);
            }
        }
    }

    private void drop(String keyspace) {
        // The record goes last: a keyspace that a crash leaves behind is found again.
        if (store.keyspaceNames().contains(keyspace)) {
            store.dropKeyspace(keyspace);
        }
        records.delete(StateRecord.key(keyspace));
    }

    Store store() {
        return store;
    }

    Keyspace records() {
        return records;
    }

    UncommittedHeap heap() {
        return heap;
    }

    /** Gives a place back. */
    void close(Place place) {
        synchronized (OPEN) {
            try {
                place.keyspace().close();
            } finally {
                used.remove(place.name());
                heap.closed();
                touch(place.name());
                leave();
            }
        }
    }

    private void leave() {
        users--;
        if (users == 0) {
            OPEN.remove(application);
            records.close();
            store.close();
        }
    }
}
