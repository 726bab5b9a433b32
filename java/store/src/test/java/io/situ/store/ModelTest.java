package io.situ.store;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.NavigableMap;
import java.util.Random;
import java.util.TreeMap;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Random calls on a store and on maps of Java, which have to agree. */
class ModelTest extends StoreTest {
    private static final String[] NAMES = {"one", "two", "three"};
    private static final int STEPS = 1000;

    private final Map<String, Keyspace> keyspaces = new HashMap<>();
    private final Map<String, TreeMap<byte[], byte[]>> maps = new HashMap<>();
    private Store store;
    private Random random;

    /** A snapshot and the maps of its moment. */
    private record Moment(Snapshot snapshot, Map<String, TreeMap<byte[], byte[]>> maps) {}

    private Moment moment;

    @ParameterizedTest
    @ValueSource(longs = {1, 2, 3})
    void aStoreIsAMap(long seed) {
        random = new Random(seed);
        for (String name : NAMES) {
            maps.put(name, new TreeMap<>(Arrays::compareUnsigned));
        }
        openAll();
        try {
            for (int step = 0; step < STEPS; step++) {
                step();
            }
            for (String name : NAMES) {
                compareWalk(keyspaces.get(name).iterator(), maps.get(name));
            }
        } finally {
            closeAll();
        }
    }

    private void openAll() {
        store = Store.open(directory.resolve("store"), new Options().set("memtable_bytes", 64 << 10));
        for (String name : NAMES) {
            keyspaces.put(name, store.keyspace(name));
        }
    }

    private void closeAll() {
        leaveMoment();
        keyspaces.values().forEach(Keyspace::close);
        store.close();
    }

    private void leaveMoment() {
        if (moment != null) {
            moment.snapshot.close();
            moment = null;
        }
    }

    private byte[] key() {
        byte[] key = new byte[1 + random.nextInt(3)];
        for (int i = 0; i < key.length; i++) {
            key[i] = (byte) (random.nextInt(8) * 36);
        }
        return key;
    }

    private byte[] value() {
        byte[] value = new byte[random.nextInt(20) == 0 ? 6000 : random.nextInt(40)];
        random.nextBytes(value);
        return value;
    }

    private void step() {
        String name = NAMES[random.nextInt(NAMES.length)];
        Keyspace keyspace = keyspaces.get(name);
        TreeMap<byte[], byte[]> map = maps.get(name);
        byte[] key = key();
        byte[] other = key();
        switch (random.nextInt(100)) {
            case 0 -> keyspace.flush();
            case 1 -> keyspace.compact();
            case 2 -> {
                closeAll();
                openAll();
            }
            case 3 -> {
                keyspace.close();
                store.dropKeyspace(name);
                keyspaces.put(name, store.keyspace(name));
                map.clear();
                leaveMoment();
            }
            case 4, 5 -> {
                boolean isRange = Arrays.compareUnsigned(key, other) < 0;
                keyspace.deleteRange(isRange ? key : other, isRange ? other : key);
                map.subMap(isRange ? key : other, isRange ? other : key).clear();
            }
            case 6, 7, 8 -> {
                leaveMoment();
                Map<String, TreeMap<byte[], byte[]>> copies = new HashMap<>();
                maps.forEach((each, entries) -> copies.put(each, new TreeMap<>(entries)));
                moment = new Moment(store.snapshot(), copies);
            }
            case 9, 10, 11, 12 -> writeBatch();
            case 13, 14 -> comparePop(keyspace.popFirst(), map.pollFirstEntry());
            case 15, 16 -> comparePop(keyspace.popLast(), map.pollLastEntry());
            case 17, 18, 19, 20 -> writeTransaction();
            default -> {
                if (random.nextInt(3) == 0) {
                    keyspace.delete(key);
                    map.remove(key);
                } else {
                    byte[] value = value();
                    keyspace.put(key, value);
                    map.put(key, value);
                }
            }
        }
        boolean isThen = moment != null && random.nextBoolean();
        compareReads(keyspaces.get(name), (isThen ? moment.maps : maps).get(name),
                isThen ? ReadOptions.DEFAULT.at(moment.snapshot) : ReadOptions.DEFAULT);
    }

    private void writeBatch() {
        try (Batch batch = new Batch()) {
            for (int i = random.nextInt(30); i > 0; i--) {
                String name = NAMES[random.nextInt(NAMES.length)];
                byte[] key = key();
                if (random.nextInt(4) == 0) {
                    batch.delete(keyspaces.get(name), key);
                    maps.get(name).remove(key);
                } else {
                    byte[] value = value();
                    batch.put(keyspaces.get(name), key, value);
                    maps.get(name).put(key, value);
                }
            }
            store.write(batch);
        }
    }

    private void writeTransaction() {
        boolean commits = random.nextBoolean();
        TransactionOptions options = TransactionOptions.DEFAULT;
        Map<String, TreeMap<byte[], byte[]>> own = new HashMap<>();
        maps.forEach((name, map) -> own.put(name, new TreeMap<>(map)));
        try (Transaction transaction = store.begin(random.nextBoolean() ? options : options.optimistic())) {
            for (int i = random.nextInt(10); i > 0; i--) {
                String name = NAMES[random.nextInt(NAMES.length)];
                byte[] key = key();
                assertArrayEquals(own.get(name).get(key), transaction.get(keyspaces.get(name), key));
                if (random.nextInt(4) == 0) {
                    transaction.delete(keyspaces.get(name), key);
                    own.get(name).remove(key);
                } else {
                    byte[] value = value();
                    transaction.put(keyspaces.get(name), key, value);
                    own.get(name).put(key, value);
                }
                compareWalk(transaction.iterator(keyspaces.get(name), ReadOptions.DEFAULT.reverse()),
                        own.get(name).descendingMap());
            }
            if (commits) {
                transaction.commit();
                maps.putAll(own);
            }
        }
    }

    private static void comparePop(Entry entry, Map.Entry<byte[], byte[]> expected) {
        if (expected == null) {
            assertNull(entry);
        } else {
            assertEquals(new Entry(expected.getKey(), expected.getValue()), entry);
        }
    }

    private void compareReads(Keyspace keyspace, TreeMap<byte[], byte[]> map, ReadOptions options) {
        List<byte[]> keys = new ArrayList<>();
        for (int i = 0; i < 5; i++) {
            byte[] key = key();
            keys.add(key);
            assertArrayEquals(map.get(key), keyspace.get(key, options));
            assertEquals(map.containsKey(key), keyspace.contains(key, options));
        }
        List<byte[]> values = keyspace.getMany(keys, options);
        for (int i = 0; i < keys.size(); i++) {
            assertArrayEquals(map.get(keys.get(i)), values.get(i));
        }
        byte[] low = key();
        byte[] high = key();
        if (Arrays.compareUnsigned(low, high) < 0) {
            compareBothWays(keyspace, options.range(low, high), map.subMap(low, true, high, false));
        }
        compareBothWays(keyspace, options.lower(low), map.tailMap(low, true));
        compareBothWays(keyspace, options.upper(high), map.headMap(high, false));
        byte[] prefix = {low[0]};
        byte[] behind = {(byte) (low[0] + 1)};
        compareBothWays(keyspace, options.prefix(prefix), map.subMap(prefix, true, behind, false));
        compareCursor(keyspace, options, map);
    }

    private static void compareBothWays(Keyspace keyspace, ReadOptions options, NavigableMap<byte[], byte[]> expected) {
        compareWalk(keyspace.iterator(options), expected);
        compareWalk(keyspace.iterator(options.reverse()), expected.descendingMap());
    }

    private static void compareWalk(EntryIterator entries, NavigableMap<byte[], byte[]> expected) {
        try (entries) {
            Iterator<Map.Entry<byte[], byte[]>> others = expected.entrySet().iterator();
            while (others.hasNext()) {
                Map.Entry<byte[], byte[]> other = others.next();
                assertArrayEquals(other.getKey(), entries.peekKey());
                assertEquals(new Entry(other.getKey(), other.getValue()), entries.next());
            }
            assertNull(entries.peekKey());
        }
    }

    /** Moves a cursor about, and compares where it stands. */
    private void compareCursor(Keyspace keyspace, ReadOptions options, TreeMap<byte[], byte[]> map) {
        try (Cursor cursor = keyspace.cursor(options)) {
            byte[] target = key();
            Map.Entry<byte[], byte[]> expected;
            if (random.nextBoolean()) {
                cursor.seek(target);
                expected = map.ceilingEntry(target);
            } else {
                cursor.seekForPrev(target);
                expected = map.floorEntry(target);
            }
            for (int i = 0; i < 4; i++) {
                if (expected == null) {
                    assertNull(cursor.key());
                    return;
                }
                assertArrayEquals(expected.getKey(), cursor.key());
                assertArrayEquals(expected.getValue(), cursor.value());
                boolean isUp = random.nextBoolean();
                expected = isUp ? map.higherEntry(expected.getKey()) : map.lowerEntry(expected.getKey());
                assertEquals(expected != null, isUp ? cursor.next() : cursor.prev());
            }
        }
    }
}
