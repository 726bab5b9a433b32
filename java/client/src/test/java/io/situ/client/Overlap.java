package io.situ.client;

import static java.nio.charset.StandardCharsets.US_ASCII;

import java.io.IOException;
import java.util.Arrays;
import java.util.Random;
import java.util.concurrent.TimeUnit;

/**
 * Measures what slices save: SET and GET of long values over shared memory, with slices and with whole values, in turns.
 *
 * <p>{@code Overlap PATH CALLS} prints a line of JSON for each case. With slices, both sides copy at the same time. For
 * whole values, the client publishes a value when all of it lies in the ring, and starts to copy one out when all of the
 * answer lies there. The ring has room for all values of both kinds, so that nothing else differs. Values and places lie
 * on the heap.
 */
public final class Overlap {
    private static final int[] VALUE_BYTES = {64 << 10, 128 << 10, 256 << 10, 512 << 10};
    private static final int RING_BYTES = SharedMemoryTransport.RING_BYTES_MAX;
    private static final int TURN_CALLS = 100;
    private static final byte[] END = "\r\nEND\r\n".getBytes(US_ASCII);
    private static final byte[] STORED = "STORED\r\n".getBytes(US_ASCII);

    private final SharedMemoryTransport transport;
    private final boolean isWhole;
    private final byte[] answer = new byte[64];
    private final byte[] value;
    private final byte[] place;
    private final byte[] set;
    private final byte[] get;
    private final byte[] head;

    private Overlap(ServerAddress address, boolean isWhole, int bytes) throws IOException {
        int slice = SharedMemoryTransport.sliceBytesMax;
        if (isWhole) {
            SharedMemoryTransport.sliceBytesMax = RING_BYTES;
        }
        transport = SharedMemoryTransport.connect(
                address, null, RING_BYTES, System.nanoTime() + TimeUnit.SECONDS.toNanos(10));
        SharedMemoryTransport.sliceBytesMax = slice;
        if (transport == null || transport.ringBytes() != RING_BYTES) {
            throw new IOException("the server has to offer rings of " + RING_BYTES + " bytes");
        }
        this.isWhole = isWhole;
        value = new byte[bytes];
        new Random(bytes).nextBytes(value);
        place = new byte[bytes];
        set = ("set overlap 0 0 " + bytes + "\r\n").getBytes(US_ASCII);
        get = "get overlap\r\n".getBytes(US_ASCII);
        head = ("VALUE overlap 0 " + bytes + "\r\n").getBytes(US_ASCII);
    }

    private void send(byte[] bytes, int length) throws IOException {
        if (transport.write(bytes, 0, length) != length) {
            throw new IOException("the ring has no room for a request");
        }
    }

    private void receive(byte[] into, int length) throws IOException {
        for (int taken = 0; taken < length; ) {
            int count = transport.read(into, taken, length - taken);
            taken += count;
            if (count == 0) {
                transport.await(true, false, Transport.NO_DEADLINE);
            }
        }
    }

    private void expect(byte[] wanted) throws IOException {
        receive(answer, wanted.length);
        if (!Arrays.equals(answer, 0, wanted.length, wanted, 0, wanted.length)) {
            throw new IOException("not the answer: " + new String(answer, 0, wanted.length, US_ASCII));
        }
    }

    private void set() throws IOException {
        send(set, set.length);
        send(value, value.length);
        send(END, 2);
        transport.flush();
        expect(STORED);
    }

    private void get() throws IOException {
        send(get, get.length);
        transport.flush();
        while (isWhole && transport.readableBytes() < head.length + value.length + END.length) {
            Thread.onSpinWait();
        }
        expect(head);
        receive(place, place.length);
        expect(END);
    }

    /** Runs the measurements. */
    public static void main(String[] arguments) throws Exception {
        ServerAddress address = ServerAddress.parse(arguments[0]);
        int turns = Integer.parseInt(arguments[1]) / TURN_CALLS;
        for (int bytes : VALUE_BYTES) {
            Overlap[] ways = {new Overlap(address, false, bytes), new Overlap(address, true, bytes)};
            for (boolean isSet : new boolean[] {true, false}) {
                long[][] times = new long[ways.length][turns * TURN_CALLS];
                // The first half of the turns is not counted.
                for (int turn = -turns; turn < turns; turn++) {
                    for (int way = 0; way < ways.length; way++) {
                        for (int call = 0; call < TURN_CALLS; call++) {
                            long begin = System.nanoTime();
                            if (isSet) {
                                ways[way].set();
                            } else {
                                ways[way].get();
                            }
                            if (turn >= 0) {
                                times[way][turn * TURN_CALLS + call] = System.nanoTime() - begin;
                            }
                        }
                        if (!isSet && !Arrays.equals(ways[way].place, ways[way].value)) {
                            throw new IOException("the value is not the one that was set");
                        }
                    }
                }
                for (int way = 0; way < ways.length; way++) {
                    Arrays.sort(times[way]);
                    System.out.printf("{\"operation\": \"%s\", \"value_bytes\": %d, \"slices\": %b, \"requests\": %d, "
                                    + "\"p50_us\": %.2f, \"p99_us\": %.2f}%n", isSet ? "SET" : "GET", bytes,
                            !ways[way].isWhole, times[way].length, times[way][times[way].length / 2] / 1e3,
                            times[way][times[way].length * 99 / 100] / 1e3);
                }
            }
            for (Overlap way : ways) {
                way.transport.close();
            }
        }
    }
}
