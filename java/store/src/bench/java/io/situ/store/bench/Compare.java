package io.situ.store.bench;

import io.situ.store.Batch;
import io.situ.store.EntryIterator;
import io.situ.store.Keyspace;
import io.situ.store.Options;
import io.situ.store.ReadOptions;
import io.situ.store.Store;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Comparator;
import java.util.Random;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.BenchmarkMode;
import org.openjdk.jmh.annotations.Fork;
import org.openjdk.jmh.annotations.Measurement;
import org.openjdk.jmh.annotations.Mode;
import org.openjdk.jmh.annotations.OutputTimeUnit;
import org.openjdk.jmh.annotations.Param;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.State;
import org.openjdk.jmh.annotations.TearDown;
import org.openjdk.jmh.annotations.Warmup;
import org.openjdk.jmh.infra.Blackhole;
import org.rocksdb.BlockBasedTableConfig;
import org.rocksdb.BloomFilter;
import org.rocksdb.CompressionType;
import org.rocksdb.LRUCache;
import org.rocksdb.RocksDB;
import org.rocksdb.RocksDBException;
import org.rocksdb.RocksIterator;
import org.rocksdb.WriteBatch;
import org.rocksdb.WriteOptions;

/**
 * Puts, gets, walks and batches on Situ and on RocksDB by its own interface for Java. Both get the same keys and
 * values, the same cache, memtables, filters and compression, and write without waiting for the disk.
 *
 * <p>Keys have 16 bytes, and are read and written in random order. The store is loaded, flushed and compacted first.
 */
@State(Scope.Benchmark)
@BenchmarkMode(Mode.AverageTime)
@OutputTimeUnit(TimeUnit.MICROSECONDS)
@Warmup(iterations = 3, time = 3)
@Measurement(iterations = 5, time = 3)
@Fork(value = 1, jvmArgsAppend = "--enable-native-access=ALL-UNNAMED")
public class Compare {
    private static final int SCAN_ENTRIES = 100;
    private static final int BATCH_ENTRIES = 100;
    private static final long MEMTABLE_BYTES = 64L << 20;
    private static final int FILTER_BITS = 10;

    /** The store. */
    @Param({"situ", "rocksdb"})
    public String store;

    /** The number of keys. */
    @Param("1000000")
    public int keys;

    /** The length of a value. */
    @Param("100")
    public int valueBytes;

    /** The size of the cache of blocks. */
    @Param("268435456")
    public long cacheBytes;

    private Path directory;
    private Target target;
    private byte[][] values;

    /** The calls of a store that are measured. */
    private interface Target extends AutoCloseable {
        void put(byte[] key, byte[] value) throws RocksDBException;

        byte[] get(byte[] key) throws RocksDBException;

        /** Reads entries from a key on. */
        void scan(byte[] from, int entries, Blackhole sink);

        /** Writes a batch with values at keys. */
        void write(byte[][] keys, byte[] value) throws RocksDBException;

        /** Brings all data into tables at rest. */
        void settle() throws RocksDBException;

        @Override
        void close();
    }

    private static final class Situ implements Target {
        private final Store store;
        private final Keyspace map;

        Situ(Path directory, long cacheBytes) {
            store = Store.open(directory, new Options().set("cache_bytes", cacheBytes)
                    .set("memtable_bytes", MEMTABLE_BYTES).set("filter_bits_per_key", FILTER_BITS)
                    .set("compression", "lz4"));
            map = store.keyspace("default");
        }

        @Override
        public void put(byte[] key, byte[] value) {
            map.put(key, value);
        }

        @Override
        public byte[] get(byte[] key) {
            return map.get(key);
        }

        @Override
        public void scan(byte[] from, int entries, Blackhole sink) {
            try (EntryIterator walk = map.iterator(ReadOptions.DEFAULT.lower(from))) {
                for (int i = 0; i < entries && walk.hasNext(); i++) {
                    sink.consume(walk.next());
                }
            }
        }

        @Override
        public void write(byte[][] keys, byte[] value) {
            try (Batch batch = new Batch()) {
                for (byte[] key : keys) {
                    batch.put(map, key, value);
                }
                store.write(batch);
            }
        }

        @Override
        public void settle() {
            map.flush();
            map.compact();
            store.waitIdle();
        }

        @Override
        public void close() {
            map.close();
            store.close();
        }
    }

    private static final class Rocks implements Target {
        static {
            RocksDB.loadLibrary();
        }

        private final LRUCache cache;
        private final BloomFilter filter = new BloomFilter(FILTER_BITS);
        private final org.rocksdb.Options options;
        private final WriteOptions buffered = new WriteOptions();
        private final RocksDB store;

        Rocks(Path directory, long cacheBytes) throws RocksDBException {
            cache = new LRUCache(cacheBytes);
            options = new org.rocksdb.Options().setCreateIfMissing(true).setWriteBufferSize(MEMTABLE_BYTES)
                    .setCompressionType(CompressionType.LZ4_COMPRESSION)
                    .setTableFormatConfig(new BlockBasedTableConfig().setBlockCache(cache).setFilterPolicy(filter));
            store = RocksDB.open(options, directory.toString());
        }

        @Override
        public void put(byte[] key, byte[] value) throws RocksDBException {
            store.put(buffered, key, value);
        }

        @Override
        public byte[] get(byte[] key) throws RocksDBException {
            return store.get(key);
        }

        @Override
        public void scan(byte[] from, int entries, Blackhole sink) {
            try (RocksIterator walk = store.newIterator()) {
                walk.seek(from);
                for (int i = 0; i < entries && walk.isValid(); i++, walk.next()) {
                    sink.consume(walk.key());
                    sink.consume(walk.value());
                }
            }
        }

        @Override
        public void write(byte[][] keys, byte[] value) throws RocksDBException {
            try (WriteBatch batch = new WriteBatch()) {
                for (byte[] key : keys) {
                    batch.put(key, value);
                }
                store.write(buffered, batch);
            }
        }

        @Override
        public void settle() throws RocksDBException {
            store.compactRange();
        }

        @Override
        public void close() {
            store.close();
            options.close();
            buffered.close();
            filter.close();
            cache.close();
        }
    }

    /** Makes a store and loads it. */
    @Setup
    public void load() throws IOException, RocksDBException {
        directory = Files.createTempDirectory("situ-bench-");
        Path place = directory.resolve("store");
        target = store.equals("situ") ? new Situ(place, cacheBytes) : new Rocks(place, cacheBytes);
        // Half of each value is random, so that it can be compressed to about half of its length.
        Random random = new Random(1);
        values = new byte[64][valueBytes];
        for (byte[] value : values) {
            random.nextBytes(value);
            Arrays.fill(value, valueBytes / 2, valueBytes, (byte) 7);
        }
        for (int i = 0; i < keys; i++) {
            target.put(key(i), values[i % values.length]);
        }
        target.settle();
    }

    /** Removes the store. */
    @TearDown
    public void remove() throws IOException {
        target.close();
        try (Stream<Path> all = Files.walk(directory)) {
            for (Path path : all.sorted(Comparator.reverseOrder()).toList()) {
                Files.delete(path);
            }
        }
    }

    private byte[] key(int number) {
        return ByteBuffer.allocate(16).putLong(number).putLong(number * 0x9e3779b97f4a7c15L).array();
    }

    private byte[] anyKey() {
        return key(ThreadLocalRandom.current().nextInt(keys));
    }

    private byte[] anyValue() {
        return values[ThreadLocalRandom.current().nextInt(values.length)];
    }

    /** Sets the value of a key. */
    @Benchmark
    public void put() throws RocksDBException {
        target.put(anyKey(), anyValue());
    }

    /** Returns the value of a key. */
    @Benchmark
    public byte[] get() throws RocksDBException {
        return target.get(anyKey());
    }

    /** Reads entries from a key on. */
    @Benchmark
    public void scan(Blackhole sink) {
        target.scan(anyKey(), SCAN_ENTRIES, sink);
    }

    /** Writes a batch. */
    @Benchmark
    public void batch() throws RocksDBException {
        byte[][] some = new byte[BATCH_ENTRIES][];
        Arrays.setAll(some, i -> anyKey());
        target.write(some, anyValue());
    }
}
