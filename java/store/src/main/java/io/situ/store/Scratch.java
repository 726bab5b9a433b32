package io.situ.store;

import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * Native memory for the arguments and results of one call at a time.
 *
 * <p>A thread of the platform keeps its own. Virtual threads borrow one from a pool: there may be millions of them, but
 * no more of them are in a call than there are threads that carry them. A call gives back with {@link #giveBack} what
 * it has borrowed; a call that fails earlier leaves it to the garbage collector.
 *
 * <p>The fixed part has places for results and structs. The data has keys and values. It grows to what calls need, up
 * to {@value #DATA_BYTES_MAX} bytes; a larger call gets memory for itself alone.
 */
final class Scratch {
    static final int ERROR = 0;
    static final int USED = 8;
    static final int ENTRIES = 16;
    /** Four words: address and length of the key, then those of the value. */
    static final int ENTRY = 24;
    static final int VALUE = 56;
    static final int SECOND_VALUE = 80;
    private static final int READ = 104;
    private static final int TRANSACTION = 168;
    private static final int FIXED_BYTES = 200;

    static final int VALUE_BYTES = 24;
    static final int DATA_BYTES_MAX = 128 << 10;
    private static final int DATA_BYTES_MIN = 4 << 10;
    private static final int ROOM_MIN = 1 << 10;
    private static final int ROOM_MAX = 64 << 10;

    private static final ThreadLocal<Scratch> LOCAL = ThreadLocal.withInitial(() -> new Scratch(false));
    private static final ConcurrentLinkedQueue<Scratch> POOL = new ConcurrentLinkedQueue<>();
    private static final AtomicInteger NUMBERS = new AtomicInteger();

    /** A number that few threads have. */
    final int number = NUMBERS.getAndIncrement();
    final long error;
    private final boolean isPooled;
    private final MemorySegment fixed;
    private MemorySegment data;
    private long dataBytes;
    private int room = ROOM_MIN;
    private Arena large;
    private MemorySegment kept;

    private Scratch(boolean isPooled) {
        this.isPooled = isPooled;
        // Memory of an automatic arena costs no check when it is accessed, and outlives the thread if it has to.
        fixed = Arena.ofAuto().allocate(FIXED_BYTES, 8);
        error = fixed.address() + ERROR;
        setData(Arena.ofAuto().allocate(DATA_BYTES_MIN, 8));
    }

    static Scratch borrow() {
        if (!Thread.currentThread().isVirtual()) {
            return LOCAL.get();
        }
        Scratch pooled = POOL.poll();
        return pooled != null ? pooled : new Scratch(true);
    }

    void giveBack() {
        if (large != null) {
            setData(kept);
            large.close();
            large = null;
        }
        if (isPooled) {
            POOL.add(this);
        }
    }

    private void setData(MemorySegment segment) {
        data = segment;
        dataBytes = segment.byteSize();
    }

    /** Returns the address of a place in the fixed part. */
    long at(int place) {
        return fixed.address() + place;
    }

    /** Returns the number at a place in the fixed part. */
    long number(int place) {
        return fixed.get(JAVA_LONG, place);
    }

    /** Returns the address of data with room for the bytes. What was there before is lost. */
    long reserve(long bytes) {
        if (bytes > dataBytes) {
            grow(bytes);
        }
        return data.address();
    }

    private void grow(long bytes) {
        if (bytes <= DATA_BYTES_MAX) {
            setData(Arena.ofAuto().allocate(Math.max(Long.highestOneBit(bytes - 1) << 1, 2 * dataBytes), 8));
            return;
        }
        if (large == null) {
            kept = data;
        } else {
            large.close();
        }
        large = Arena.ofConfined();
        setData(large.allocate(bytes, 8));
    }

    /** Returns the bytes of data behind a place. */
    long behind(long place) {
        return dataBytes - place;
    }

    /** Copies bytes into the data. */
    void copyIn(byte[] bytes, long place) {
        MemorySegment.copy(bytes, 0, data, JAVA_BYTE, place, bytes.length);
    }

    /** Returns the bytes of data that a segment takes in a call: none, if it lies outside of the heap. */
    static long heapBytes(MemorySegment bytes) {
        return bytes.isNative() ? 0 : bytes.byteSize();
    }

    /** Reserves data for those of two segments that lie on the heap. */
    void reserveForHeap(MemorySegment one, MemorySegment other) {
        reserve(heapBytes(one) + heapBytes(other));
    }

    /** Returns a segment, or its copy in the data if it lies on the heap. */
    MemorySegment outsideHeap(MemorySegment bytes, long place) {
        return bytes.isNative() ? bytes : data.asSlice(place, bytes.byteSize()).copyFrom(bytes);
    }

    /** Copies bytes out of the data to a place in an array. */
    void copyOut(long place, byte[] bytes, int at, int length) {
        MemorySegment.copy(data, JAVA_BYTE, place, bytes, at, length);
    }

    void setLong(long place, long value) {
        data.set(JAVA_LONG, place, value);
    }

    long getLong(long place) {
        return data.get(JAVA_LONG, place);
    }

    /** Returns the bytes to reserve for a value whose length is unknown. */
    int room() {
        return room;
    }

    /** Makes room for later values of such a length, unless it is too large to be copied twice. */
    void widen(long bytes) {
        room = (int) Math.min(Long.highestOneBit(Math.max(bytes, room) - 1) << 1, ROOM_MAX);
    }

    /** Returns a text as C has it. */
    static byte[] text(String text) {
        if (text.indexOf('\0') >= 0) {
            throw new IllegalArgumentException("a name or a path has a character 0");
        }
        byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
        return Arrays.copyOf(bytes, bytes.length + 1);
    }

    /** Copies a text into the data, alone, and returns its address. */
    long copyText(String text) {
        return copyAll(text(text));
    }

    /** Copies bytes into the data, alone, and returns their address. */
    long copyAll(byte[] bytes) {
        long address = reserve(bytes.length);
        copyIn(bytes, 0);
        return address;
    }

    /** Fills the struct {@code situ_read} and returns its address. A length of a bound that is absent is 0. */
    long read(long snapshot, long lower, long lowerBytes, long upper, long upperBytes, long prefix, long prefixBytes,
            boolean bypassesCache, boolean isMemoryOnly) {
        fixed.set(JAVA_LONG, READ, snapshot);
        fixed.set(JAVA_LONG, READ + 8, lower);
        fixed.set(JAVA_LONG, READ + 16, lowerBytes);
        fixed.set(JAVA_LONG, READ + 24, upper);
        fixed.set(JAVA_LONG, READ + 32, upperBytes);
        fixed.set(JAVA_LONG, READ + 40, prefix);
        fixed.set(JAVA_LONG, READ + 48, prefixBytes);
        fixed.set(JAVA_INT, READ + 56, bypassesCache ? 1 : 0);
        fixed.set(JAVA_INT, READ + 60, isMemoryOnly ? 1 : 0);
        return at(READ);
    }

    /** Fills the struct {@code situ_transaction_options} and returns its address. */
    long transaction(int kind, int isolation, long lockTimeoutMs, long bytesMax, int durability) {
        fixed.set(JAVA_INT, TRANSACTION, kind);
        fixed.set(JAVA_INT, TRANSACTION + 4, isolation);
        fixed.set(JAVA_LONG, TRANSACTION + 8, lockTimeoutMs);
        fixed.set(JAVA_LONG, TRANSACTION + 16, bytesMax);
        fixed.set(JAVA_INT, TRANSACTION + 24, durability);
        return at(TRANSACTION);
    }

    /** Returns the status of a call, or throws the error that it stands for. */
    int check(int status) {
        if (status < 0) {
            throw Native.failure(status, number(ERROR));
        }
        return status;
    }

    /** Copies the bytes of the {@code situ_value} at a place, and frees them. */
    byte[] takeValue(int place) {
        return Native.takeValue(at(place));
    }

    /** Frees the bytes of a {@code situ_value} by the address of its owner. */
    static void freeValue(long owner) {
        Scratch scratch = borrow();
        try {
            scratch.fixed.set(JAVA_LONG, VALUE + 16, owner);
            Native.run(Native.VALUE_FREE, scratch.at(VALUE));
        } finally {
            scratch.giveBack();
        }
    }
}
