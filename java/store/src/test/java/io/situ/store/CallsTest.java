package io.situ.store;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.ByteBuffer;
import java.nio.ReadOnlyBufferException;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.NoSuchElementException;
import java.util.Random;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;

/** Every call, once. */
class CallsTest extends StoreTest {
    @Test
    void putsGetsAndDeletes() {
        try (Store store = open(); Keyspace map = store.keyspace("map")) {
            map.put(bytes("ada"), bytes("1815"));
            map.put(bytes("grace"), bytes("1906"), Durability.SYNCED);
            map.put(bytes("empty"), bytes(""), Durability.BUFFERED);
            assertEquals("1815", text(map.get(bytes("ada"))));
            assertEquals("", text(map.get(bytes("empty"))));
            assertKind(SituException.Kind.INVALID, () -> map.put(bytes(""), bytes("a key has a byte at least")));
            assertNull(map.get(bytes("none")));
            assertTrue(map.contains(bytes("empty")));
            assertFalse(map.contains(bytes("none")));
            map.delete(bytes("ada"));
            map.delete(bytes("ada"), Durability.SYNCED);
            assertNull(map.get(bytes("ada")));
            map.deleteRange(bytes("a"), bytes("g"));
            assertEquals("grace=1906", texts(map.iterator()));
            map.deleteRange(bytes(""), bytes("z"), Durability.SYNCED);
            assertEquals("", texts(map.iterator()));
        }
    }

    @Test
    void valuesOfAllLengths() {
        Random random = new Random(7);
        try (Store store = open(); Keyspace map = store.keyspace("map")) {
            for (int length : new int[] {0, 1, 1000, 4000, 4090, 4096, 5000, 65535, 65536, 131072, 131073, 3 << 20}) {
                byte[] value = new byte[length];
                random.nextBytes(value);
                byte[] key = bytes("key " + length);
                map.put(key, value);
                // Twice: the first read may have widened the room for the second.
                assertArrayEquals(value, map.get(key));
                assertArrayEquals(value, map.get(key));
                ByteBuffer heap = ByteBuffer.allocate(length + 10).position(3);
                assertEquals(length, map.get(key, heap));
                assertEquals(length + 3, heap.position());
                assertArrayEquals(value, Arrays.copyOfRange(heap.array(), 3, length + 3));
                ByteBuffer direct = ByteBuffer.allocateDirect(length + 10).position(3);
                assertEquals(length, map.get(key, direct));
                MemorySegment copied = MemorySegment.ofBuffer(direct.flip().position(3));
                assertEquals(-1, MemorySegment.ofArray(value).mismatch(copied));
                try (EntryIterator one = map.iterator(ReadOptions.DEFAULT.prefix(key))) {
                    assertEquals(new Entry(key, value), one.next());
                }
            }
            byte[] key = new byte[65536];
            map.put(key, key);
            assertArrayEquals(key, map.get(key));
            assertKind(SituException.Kind.INVALID, () -> map.put(new byte[65537], key));
        }
    }

    @Test
    void aBufferThatIsTooShortIsFilled() {
        try (Store store = open(); Keyspace map = store.keyspace("map")) {
            map.put(bytes("grace"), bytes("1906"));
            for (ByteBuffer buffer : List.of(ByteBuffer.allocate(3), ByteBuffer.allocateDirect(3))) {
                assertEquals(4, map.get(bytes("grace"), buffer));
                assertEquals(0, buffer.remaining());
                buffer.flip();
                assertEquals("190", "" + (char) buffer.get() + (char) buffer.get() + (char) buffer.get());
                assertEquals(4, map.get(bytes("grace"), buffer));
                assertEquals(-1, map.get(bytes("none"), buffer));
            }
            ByteBuffer readOnly = ByteBuffer.allocate(3).asReadOnlyBuffer();
            assertThrows(ReadOnlyBufferException.class, () -> map.get(bytes("grace"), readOnly));
        }
    }

    @Test
    void segmentsAndBuffers() {
        try (Store store = open(); Keyspace map = store.keyspace("map"); Arena arena = Arena.ofConfined();
                Batch batch = new Batch()) {
            MemorySegment key = arena.allocateFrom(ValueLayout.JAVA_BYTE, bytes("key"));
            MemorySegment value = arena.allocateFrom(ValueLayout.JAVA_BYTE, bytes("value"));
            MemorySegment onHeap = MemorySegment.ofArray(bytes("heap"));
            map.put(key, value);
            map.put(onHeap, value, Durability.SYNCED);
            map.put(key.asSlice(0, 1), onHeap);
            map.put(MemorySegment.ofArray(bytes("h")), onHeap);
            assertEquals("h=heap heap=value k=heap key=value", texts(map.iterator()));
            batch.put(map, key, onHeap).put(map, onHeap, key).put(map, MemorySegment.ofArray(bytes("b")), onHeap)
                    .delete(map, key.asSlice(0, 1)).delete(map, MemorySegment.ofArray(bytes("h")));
            store.write(batch);
            assertEquals("b=heap heap=key key=heap", texts(map.iterator()));

            ByteBuffer whole = ByteBuffer.wrap(bytes("a key and a value"));
            map.put(whole.slice(2, 3), ByteBuffer.allocateDirect(2).put(bytes("vv")).flip());
            map.put(key.asByteBuffer().asReadOnlyBuffer().limit(2), whole.slice(12, 5).asReadOnlyBuffer(),
                    Durability.BUFFERED);
            assertEquals("b=heap heap=key ke=value key=vv", texts(map.iterator()));

            try (Value found = map.getValue(key); Value same = map.getValue(bytes("ke"), ReadOptions.DEFAULT)) {
                assertEquals("vv", text(found.segment()));
                assertTrue(found.segment().isReadOnly());
                assertEquals(ByteBuffer.wrap(bytes("value")), same.buffer());
                assertTrue(same.buffer().isReadOnly());
            }
            assertNull(map.getValue(bytes("none")));
            assertNull(map.getValue(onHeap.asSlice(0, 1), ReadOptions.DEFAULT));
        }
    }

    @Test
    void aValueOutlivesItsStore() {
        Store store = open();
        Keyspace map = store.keyspace("map");
        map.put(bytes("key"), bytes("value"));
        Value value = map.getValue(bytes("key"));
        map.close();
        store.close();
        assertEquals("value", text(value.segment()));
        MemorySegment segment = value.segment();
        value.close();
        value.close();
        assertThrows(IllegalStateException.class, () -> segment.get(ValueLayout.JAVA_BYTE, 0));
    }

    @Test
    void manyKeysWithOneCall() {
        try (Store store = open(); Keyspace map = store.keyspace("map")) {
            fill(map, "a", "b", "d");
            try (Snapshot before = store.snapshot()) {
                map.delete(bytes("b"));
                List<byte[]> keys = List.of(bytes("b"), bytes("d"), bytes("c"), bytes("a"), bytes("a"));
                assertEquals("[null, d, null, a, a]", map.getMany(keys).stream()
                        .map(StoreTest::text).toList().toString());
                assertEquals("[b, d, null, a, a]", map.getMany(keys, ReadOptions.DEFAULT.at(before)).stream()
                        .map(StoreTest::text).toList().toString());
            }
            assertEquals(List.of(), map.getMany(List.of()));
            List<byte[]> thousands = Stream.iterate(0, i -> i + 1).limit(5000).map(i -> bytes("a")).toList();
            assertEquals(5000, map.getMany(thousands).stream().filter(value -> text(value).equals("a")).count());
        }
    }

    @Test
    void iteratorsAndStreams() {
        try (Store store = open(); Keyspace map = store.keyspace("map")) {
            fill(map, "a", "b", "ba", "bb", "c", "d");
            ReadOptions all = ReadOptions.DEFAULT;
            assertEquals("a=a b=b ba=ba bb=bb c=c d=d", texts(map.iterator()));
            assertEquals("d=d c=c bb=bb ba=ba b=b a=a", texts(map.iterator(all.reverse())));
            assertEquals("b=b ba=ba bb=bb", texts(map.iterator(all.prefix(bytes("b")))));
            assertEquals("bb=bb ba=ba b=b", texts(map.iterator(all.prefix(bytes("b")).reverse().bypassCache())));
            assertEquals("ba=ba bb=bb", texts(map.iterator(all.range(bytes("ba"), bytes("c")))));
            assertEquals("c=c d=d", texts(map.iterator(all.lower(bytes("bc")))));
            assertEquals("b=b a=a", texts(map.iterator(all.upper(bytes("ba")).reverse())));
            assertEquals("a=a b=b", texts(map.iterator(all.range(bytes("x"), bytes("ba")).lower(null))));
            assertEquals("", texts(map.iterator(all.lower(bytes("e")))));
            assertEquals("", texts(map.iterator(all.upper(bytes("")))));
            assertKind(SituException.Kind.INVALID, () -> map.iterator(all.lower(bytes("a")).prefix(bytes("b"))));
            try (Stream<Entry> stream = map.stream(all.prefix(bytes("b")))) {
                assertEquals("b,ba,bb", stream.map(entry -> text(entry.value())).collect(Collectors.joining(",")));
            }
            try (Stream<Entry> stream = map.stream(all)) {
                assertEquals("a", stream.map(entry -> text(entry.key())).findFirst().orElseThrow());
            }
            EntryIterator none = map.iterator(all.lower(bytes("e")));
            assertThrows(NoSuchElementException.class, none::next);
        }
    }

    @Test
    void aLongWalkIsReadInChunks() {
        Random random = new Random(5);
        try (Store store = open(); Keyspace map = store.keyspace("map"); Batch batch = new Batch()) {
            for (int i = 0; i < 20_000; i++) {
                byte[] value = new byte[i % 1000 == 999 ? 100_000 : random.nextInt(30)];
                Arrays.fill(value, (byte) i);
                batch.put(map, bytes(String.format("%05d", i)), value);
            }
            store.write(batch);
            assertEquals(0, batch.size());
            for (boolean isReverse : new boolean[] {false, true}) {
                int seen = 0;
                ReadOptions all = ReadOptions.DEFAULT;
                try (EntryIterator entries = map.iterator(isReverse ? all.reverse() : all)) {
                    while (entries.hasNext()) {
                        int expected = isReverse ? 19_999 - seen : seen;
                        Entry entry = entries.next();
                        assertEquals(expected, Integer.parseInt(text(entry.key())));
                        for (byte one : entry.value()) {
                            assertEquals((byte) expected, one);
                        }
                        seen++;
                    }
                }
                assertEquals(20_000, seen);
            }
        }
    }

    @Test
    void cursorsGoBothWays() {
        try (Store store = open(); Keyspace map = store.keyspace("map"); Cursor nothing = map.cursor()) {
            assertFalse(nothing.seekToFirst());
            fill(map, "a", "b", "c", "d");
            try (Cursor cursor = map.cursor(ReadOptions.DEFAULT.range(bytes("b"), bytes("d")))) {
                assertNull(cursor.key());
                assertNull(cursor.value());
                assertNull(cursor.keySegment());
                assertTrue(cursor.seekToFirst());
                assertEquals("b", text(cursor.key()));
                assertEquals("b", text(cursor.value()));
                assertTrue(cursor.next());
                assertEquals("c", text(cursor.valueSegment()));
                assertFalse(cursor.next());
                assertNull(cursor.key());
                assertTrue(cursor.seekToLast());
                MemorySegment key = cursor.keySegment();
                assertEquals("c", text(key));
                assertTrue(key.isReadOnly());
                assertTrue(cursor.prev());
                assertThrows(IllegalStateException.class, () -> key.get(ValueLayout.JAVA_BYTE, 0));
                assertEquals("b", text(cursor.keySegment()));
                assertFalse(cursor.prev());
                assertTrue(cursor.seek(bytes("bb")));
                assertEquals("c", text(cursor.key()));
                assertTrue(cursor.seekForPrev(bytes("bb")));
                assertEquals("b", text(cursor.key()));
                assertFalse(cursor.seek(bytes("d")));
            }
            assertFalse(nothing.seekToLast());
        }
    }

    @Test
    void popsTakeEntriesFromBothEnds() {
        try (Store store = open(); Keyspace map = store.keyspace("map")) {
            fill(map, "a", "b", "c", "d", "e");
            assertEquals(new Entry(bytes("a"), bytes("a")), map.popFirst());
            assertEquals(new Entry(bytes("e"), bytes("e")), map.popLast());
            ReadOptions middle = ReadOptions.DEFAULT.range(bytes("c"), bytes("d"));
            assertEquals(new Entry(bytes("c"), bytes("c")), map.popLast(middle, Durability.SYNCED));
            assertNull(map.popFirst(middle, Durability.BUFFERED));
            assertEquals("b=b d=d", texts(map.iterator()));
        }
    }

    @Test
    void batchesSpanKeyspaces() {
        try (Store store = open(); Keyspace one = store.keyspace("one"); Keyspace two = store.keyspace("two");
                Batch batch = new Batch()) {
            fill(one, "a", "b", "c", "d");
            batch.put(one, bytes("e"), bytes("e")).delete(one, bytes("a")).deleteRange(one, bytes("b"), bytes("d"))
                    .put(two, bytes("x"), bytes("y"));
            assertEquals(4, batch.size());
            assertTrue(batch.bytes() > 10);
            store.write(batch, Durability.SYNCED);
            assertEquals(0, batch.size());
            assertEquals("d=d e=e", texts(one.iterator()));
            assertEquals("x=y", texts(two.iterator()));
            batch.put(one, bytes("z"), bytes("z")).clear();
            store.write(batch);
            assertNull(one.get(bytes("z")));
        }
    }

    @Test
    void snapshotsSeeOneMoment() {
        try (Store store = open(); Keyspace map = store.keyspace("map")) {
            fill(map, "a", "b");
            try (Snapshot before = store.snapshot()) {
                ReadOptions then = ReadOptions.DEFAULT.at(before);
                map.put(bytes("a"), bytes("later"));
                map.delete(bytes("b"));
                assertTrue(before.sequence() > 0);
                assertTrue(before.sequence() < store.property("last_sequence"));
                assertEquals(1, store.property("snapshots"));
                assertEquals("a", text(map.get(bytes("a"), then)));
                assertEquals("later", text(map.get(bytes("a"), then.at(null))));
                assertTrue(map.contains(bytes("b"), then));
                assertFalse(map.contains(bytes("b")));
                assertEquals("a=a b=b", texts(map.iterator(then)));
                assertEquals("b=b", texts(map.iterator(then.prefix(bytes("b")))));
                try (Cursor cursor = map.cursor(then); Value value = map.getValue(bytes("b"), then)) {
                    assertTrue(cursor.seekToLast());
                    assertEquals("b", text(cursor.key()));
                    assertEquals("b", text(value.segment()));
                }
            }
            assertEquals(0, store.property("snapshots"));
        }
    }

    @Test
    void keyspacesAreMadeListedAndDropped() {
        try (Store store = open()) {
            Options options = new Options().set("compression", "zstd level 5").set("memtable_bytes", 1 << 20);
            try (Keyspace made = store.keyspace("made", options); Keyspace same = store.existingKeyspace("made")) {
                assertEquals("made", made.name());
                made.put(bytes("a"), bytes("b"));
                assertEquals("b", text(same.get(bytes("a"))));
                assertEquals(List.of("default", "made"), store.keyspaceNames().stream().sorted().toList());
                store.dropKeyspace("made");
                assertKind(SituException.Kind.KEYSPACE_DROPPED, () -> made.put(bytes("a"), bytes("b")));
            }
            assertKind(SituException.Kind.NO_SUCH_KEYSPACE, () -> store.existingKeyspace("made"));
            assertKind(SituException.Kind.NO_SUCH_KEYSPACE, () -> store.dropKeyspace("made"));
            assertEquals(List.of("default"), store.keyspaceNames());
        }
    }

    @Test
    void maintenanceAndFigures() {
        try (Store store = Store.open(directory.resolve("store"), new Options().set("cache_bytes", 8L << 20));
                Keyspace map = store.keyspace("map")) {
            fill(map, "a", "b", "c");
            store.sync();
            map.flush();
            assertEquals(1, map.property("tables"));
            fill(map, "d");
            store.flush();
            map.compact(bytes("a"), null);
            map.compact(null, bytes("z"));
            map.compact();
            store.waitIdle();
            assertEquals(1, map.property("tables"));
            assertEquals(0, map.property("memtable_entries"));
            assertTrue(map.approximateBytes(bytes(""), bytes("z")) > 0);
            assertEquals(8 << 20, store.property("cache_bytes_max"));
            assertTrue(store.property("flushes") > 0);
            assertEquals("a", text(map.get(bytes("a"), ReadOptions.DEFAULT.bypassCache())));
            assertEquals("a", text(map.get(bytes("a"))));
            assertEquals("a", text(map.get(bytes("a"), ReadOptions.DEFAULT.memoryOnly())));
            assertKind(SituException.Kind.INVALID, () -> store.property("flashes"));
            assertKind(SituException.Kind.INVALID, () -> map.property("flashes"));
            assertTrue(Store.libraryVersion().matches("\\d+\\.\\d+\\.\\d+.*"));
            assertEquals(directory.resolve("store"), store.directory());
        }
    }

    @Test
    void checkpointsOpenReadOnly() {
        Path copy = directory.resolve("copy");
        try (Store store = open(); Keyspace map = store.keyspace("map")) {
            fill(map, "a");
            store.checkpoint(copy);
            fill(map, "b");
        }
        try (Store store = Store.openReadOnly(copy); Keyspace map = store.keyspace("map")) {
            assertEquals("a=a", texts(map.iterator()));
            assertKind(SituException.Kind.READ_ONLY, () -> map.put(bytes("b"), bytes("b")));
        }
        try (Store store = Store.openReadOnly(copy, new Options().set("cache_bytes", 1 << 20))) {
            assertEquals(1 << 20, store.property("cache_bytes_max"));
        }
        Store.destroy(copy);
        assertKind(SituException.Kind.IO, () -> Store.openReadOnly(copy));
    }

    @Test
    void aStoreIsThereAfterwards() {
        try (Store store = open(); Keyspace map = store.keyspace("map")) {
            fill(map, "a", "b");
        }
        try (Store store = open(); Keyspace map = store.existingKeyspace("map")) {
            assertEquals("a=a b=b", texts(map.iterator()));
            // One process has it open at a time.
            assertKind(SituException.Kind.IO, this::open);
        }
        assertKind(SituException.Kind.EXISTENCE,
                () -> Store.open(directory.resolve("store"), new Options().set("error_if_exists", true)));
        assertKind(SituException.Kind.EXISTENCE,
                () -> Store.open(directory, new Options().set("create_if_missing", false)));
    }

    @Test
    void optionsAreCheckedWhenTheyAreSet() {
        Options options = new Options();
        assertKind(SituException.Kind.INVALID, () -> options.set("cash_bytes", 1));
        assertKind(SituException.Kind.INVALID, () -> options.set("cache_bytes", "much"));
        assertThrows(IllegalArgumentException.class, () -> options.set("cache_bytes", 1.5));
        assertThrows(IllegalArgumentException.class, () -> options.set("cache\0bytes", 1));
        assertThrows(NullPointerException.class, () -> options.set("cache_bytes", null));
        options.set("cache_bytes", 1 << 20).set("durability", "synced").set("slow_operation", "none");
        assertEquals("{cache_bytes=1048576, durability=synced, slow_operation=none}", options.toString());
        try (Store store = Store.open(directory.resolve("store"), options)) {
            assertEquals(1 << 20, store.property("cache_bytes_max"));
        }
    }

    @Test
    void entriesCompareByTheirBytes() {
        Entry entry = new Entry(bytes("key"), new byte[] {0, -1});
        assertEquals(entry, new Entry(bytes("key"), new byte[] {0, -1}));
        assertEquals(entry.hashCode(), new Entry(bytes("key"), new byte[] {0, -1}).hashCode());
        assertFalse(entry.equals(new Entry(bytes("key"), bytes("x"))));
        assertFalse(entry.equals(new Entry(bytes("kex"), new byte[] {0, -1})));
        assertEquals("key=00ff", entry.toString());
        assertEquals("k=" + "v".repeat(64) + "...", new Entry(bytes("k"), bytes("v".repeat(100))).toString());
    }
}
