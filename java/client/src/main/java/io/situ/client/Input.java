package io.situ.client;

import java.io.IOException;
import java.lang.foreign.MemorySegment;

/** Received bytes: lines, and the data of values. Data that is not in the buffer yet goes straight to its place. */
final class Input {
    /** Longer than any line of an answer: a key has 250 bytes, and names of statistics are shorter. */
    private static final int BUFFER_BYTES = 4096;

    private final Transport transport;
    final byte[] buffer = new byte[BUFFER_BYTES];
    private int from;
    private int to;
    /** No end of line lies before this place. */
    private int searched;
    /** The last line, without its end. */
    int lineStart;
    int lineEnd;

    Input(Transport transport) {
        this.transport = transport;
    }

    /** Finds the next line. Returns false if it is not there yet. */
    boolean nextLine() throws IOException {
        while (true) {
            for (int at = searched; at < to; at++) {
                if (buffer[at] == '\n') {
                    lineStart = from;
                    lineEnd = at > from && buffer[at - 1] == '\r' ? at - 1 : at;
                    from = at + 1;
                    searched = from;
                    return true;
                }
            }
            searched = to;
            if (!fill()) {
                return false;
            }
        }
    }

    /** Makes room, and reads once. Returns false if nothing came. */
    private boolean fill() throws IOException {
        if (from == to) {
            from = 0;
            to = 0;
            searched = 0;
        } else if (to == BUFFER_BYTES) {
            if (from == 0) {
                throw new ProtocolException("a line of the answer is too long");
            }
            System.arraycopy(buffer, from, buffer, 0, to - from);
            to -= from;
            searched -= from;
            from = 0;
        }
        int count = transport.read(buffer, to, BUFFER_BYTES - to);
        to += count;
        return count > 0;
    }

    /** Returns the bytes in the buffer, at most {@code wanted}. */
    private int buffered(int wanted) {
        return Math.min(to - from, wanted);
    }

    private void consume(int count) {
        from += count;
        searched = from;
    }

    /** Copies up to {@code wanted} bytes. Returns 0 if nothing is there yet. */
    int take(byte[] destination, int offset, int wanted) throws IOException {
        int count = buffered(wanted);
        if (count == 0) {
            return transport.read(destination, offset, wanted);
        }
        System.arraycopy(buffer, from, destination, offset, count);
        consume(count);
        return count;
    }

    /** Copies up to {@code wanted} bytes. Returns 0 if nothing is there yet. */
    int take(MemorySegment destination, long offset, int wanted) throws IOException {
        int count = buffered(wanted);
        if (count == 0) {
            return transport.read(destination, offset, wanted);
        }
        MemorySegment.copy(buffer, from, destination, java.lang.foreign.ValueLayout.JAVA_BYTE, offset, count);
        consume(count);
        return count;
    }

    /** Drops up to {@code wanted} bytes. Returns 0 if nothing is there yet. */
    int skip(int wanted) throws IOException {
        if (from == to && !fill()) {
            return 0;
        }
        int count = buffered(wanted);
        consume(count);
        return count;
    }

    /** Takes the end of line behind data. Returns false if it is not there yet. */
    boolean takeEndOfData() throws IOException {
        while (to - from < 2) {
            if (!fill()) {
                return false;
            }
        }
        if (buffer[from] != '\r' || buffer[from + 1] != '\n') {
            throw new ProtocolException("a value does not end where the server said");
        }
        consume(2);
        return true;
    }

    String line() {
        return new String(buffer, lineStart, lineEnd - lineStart, java.nio.charset.StandardCharsets.UTF_8);
    }
}
