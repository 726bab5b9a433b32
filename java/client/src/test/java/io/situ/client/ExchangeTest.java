package io.situ.client;

import static java.nio.charset.StandardCharsets.ISO_8859_1;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.Random;
import org.junit.jupiter.api.Test;

/** Requests and answers, in pieces of all sizes, right ones and wrong ones. */
class ExchangeTest {
    /** A transport in memory that takes and gives a few bytes at a time. */
    private static final class Pieces implements Transport {
        final ByteArrayOutputStream taken = new ByteArrayOutputStream();
        private final byte[] answer;
        private final int piece;
        private int given;
        private boolean pause;

        Pieces(byte[] answer, int piece) {
            this.answer = answer;
            this.piece = piece;
        }

        @Override
        public TransportKind kind() {
            return TransportKind.TCP;
        }

        @Override
        public int write(byte[] source, int offset, int length) {
            int count = next(length);
            taken.write(source, offset, count);
            return count;
        }

        @Override
        public int write(MemorySegment source, long offset, int length) {
            int count = next(length);
            taken.writeBytes(source.asSlice(offset, count).toArray(ValueLayout.JAVA_BYTE));
            return count;
        }

        /** Every other call has nothing. */
        private int next(int length) {
            pause = !pause;
            return pause ? 0 : Math.min(length, piece);
        }

        @Override
        public boolean flush() {
            return true;
        }

        @Override
        public int read(byte[] destination, int offset, int length) throws IOException {
            if (given == answer.length) {
                throw new java.io.EOFException();
            }
            int count = Math.min(next(length), answer.length - given);
            System.arraycopy(answer, given, destination, offset, count);
            given += count;
            return count;
        }

        @Override
        public int read(MemorySegment destination, long offset, int length) throws IOException {
            byte[] bytes = new byte[length];
            int count = read(bytes, 0, length);
            MemorySegment.copy(bytes, 0, destination, ValueLayout.JAVA_BYTE, offset, count);
            return count;
        }

        @Override
        public void await(boolean readable, boolean writable, long deadline) {}

        @Override
        public void wake() {}

        @Override
        public void checkIdle() {}

        @Override
        public void close() {}
    }

    private static Exchange run(Exchange exchange, String answer, int piece) throws IOException {
        Pieces pieces = new Pieces(answer.getBytes(ISO_8859_1), piece);
        Input input = new Input(pieces);
        while (!exchange.receive(input)) {
            // The transport has more.
        }
        return exchange;
    }

    private static Exchange get() {
        Exchange exchange = new Exchange(16);
        exchange.retrieve(Exchange.GETS, Keys.of("key"));
        return exchange;
    }

    @Test
    void answersAreUnderstoodInPieces() throws Exception {
        String big = "x".repeat(10_000);
        for (int piece : new int[] {1, 2, 3, 7, 100, 5000, 100_000}) {
            Exchange got = run(get(), "VALUE key 4294967295 5 18446744073709551615\r\na\r\nbc\r\nEND\r\n", piece);
            assertArrayEquals("a\r\nbc".getBytes(ISO_8859_1), got.item().value());
            assertEquals(-1, got.item().flags());
            assertEquals(-1, got.item().cas());
            got = run(get(), "VALUE key 0 10000\r\n" + big + "\r\nEND\r\n", piece);
            assertEquals(big, new String(got.value(), ISO_8859_1));
            Exchange into = get();
            byte[] place = new byte[9000];
            into.into(place, 1000, 8000);
            run(into, "VALUE key 0 10000\r\n" + big + "\r\nEND\r\n", piece);
            assertEquals(big.substring(2000), new String(place, 1000, 8000, ISO_8859_1));
            assertEquals(0, place[999]);
            assertEquals(null, run(get(), "END\r\n", piece).value());
            Exchange refused = run(get(), "SERVER_ERROR out of memory\r\n", piece);
            assertTrue(refused.isError());
            assertEquals("SERVER_ERROR out of memory", refused.text());
        }
    }

    @Test
    void requestsAreWrittenInPieces() throws Exception {
        for (int piece : new int[] {1, 3, 100}) {
            Exchange set = new Exchange(4);
            set.store(Exchange.CAS, Keys.of("key"), -1, -5, -1, 4);
            set.value("..\r\nab..".getBytes(ISO_8859_1), 2);
            Pieces pieces = new Pieces(new byte[0], piece);
            while (!set.send(pieces)) {
                // The transport has room again.
            }
            assertEquals("cas key 4294967295 -5 4 18446744073709551615\r\n\r\nab\r\n",
                    pieces.taken.toString(ISO_8859_1));
        }
        Exchange number = new Exchange(4);
        for (long by : new long[] {0, 9, 10, Long.MAX_VALUE, Long.MIN_VALUE, -1}) {
            number.commandUnsigned(Exchange.INCREMENT, Keys.of("k"), by);
            Pieces pieces = new Pieces(new byte[0], 50);
            while (!number.send(pieces)) {
                // The transport has room again.
            }
            assertEquals("incr k " + Long.toUnsignedString(by) + "\r\n", pieces.taken.toString(ISO_8859_1));
        }
        number.commandSigned(Exchange.TOUCH, Keys.of("k"), Integer.MIN_VALUE);
        Pieces pieces = new Pieces(new byte[0], 50);
        while (!number.send(pieces)) {
            // The transport has room again.
        }
        assertEquals("touch k -2147483648\r\n", pieces.taken.toString(ISO_8859_1));
    }

    @Test
    void wrongAnswersAreErrors() {
        for (String answer : new String[] {
            "VALUE other 0 1\r\nx\r\nEND\r\n", "VALUE key 0 1\r\nxx\r\nEND\r\n", "VALUE key 0 -1\r\n",
            "VALUE key 0\r\n",
            "VALUE key 0 x\r\n", "VALUE key 0 2147483646\r\n", "VALUE key 0 99999999999999999999\r\n", "STORED\r\n",
            "hello\r\n", "\r\n", "VALUE key 0 1\r\nx\r\nVALUE key 0 1\r\nx\r\nEND\r\n", "x".repeat(5000),
            "VALUE key 0 1 "
        }) {
            assertThrows(IOException.class, () -> run(get(), answer, 100), answer);
        }
        Exchange set = new Exchange(16);
        set.store(Exchange.SET, Keys.of("key"), 0, 0, 0, 1);
        set.value(new byte[1], 0);
        assertThrows(IOException.class, () -> run(set, "CLIENT_ERROR bad data chunk\r\n", 10));
        assertThrows(IOException.class, () -> run(set, "END\r\n", 10));
    }

    @Test
    void noAnswerBreaksTheReader() {
        Random random = new Random(42);
        String good = "VALUE key 7 5 12\r\nabcde\r\nEND\r\nSTAT a b\r\nEND\r\nSTORED\r\nVERSION 1\r\n17\r\n";
        int complete = 0;
        for (int round = 0; round < 20_000; round++) {
            byte[] bytes = good.substring(random.nextInt(3) == 0 ? random.nextInt(good.length()) : 0)
                    .getBytes(ISO_8859_1);
            for (int change = random.nextInt(3); change > 0; change--) {
                bytes[random.nextInt(bytes.length)] = (byte) (random.nextBoolean() ? random.nextInt(256)
                        : "0123456789 \r\nVSE".charAt(random.nextInt(16)));
            }
            Exchange exchange = switch (random.nextInt(3)) {
                case 0 -> get();
                case 1 -> new StatisticsExchange("");
                default -> {
                    Exchange delete = new Exchange(16);
                    delete.command(Exchange.DELETE, Keys.of("key"));
                    yield delete;
                }
            };
            try {
                run(exchange, new String(bytes, ISO_8859_1), 1 + random.nextInt(20));
                complete++;
            } catch (IOException refused) {
                // The only way to refuse.
            }
        }
        assertTrue(complete > 1000, "some answers are complete: " + complete);
    }
}
