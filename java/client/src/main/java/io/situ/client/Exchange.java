package io.situ.client;

import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/**
 * A request and its answer in memcached's text protocol. A request is encoded by one of the methods {@code retrieve},
 * {@code store}, {@code command}; {@link #send} and {@link #receive} move it as far as the transport allows, and are
 * called again until they return true. A blocking connection uses one exchange for all its calls.
 */
class Exchange {
    /** The meaning of an answer's line that is not a value. */
    enum Status {
        NONE, END, STORED, NOT_STORED, EXISTS, NOT_FOUND, DELETED, TOUCHED, OK, RESET, NUMBER, VERSION, ERROR,
        CLIENT_ERROR, SERVER_ERROR
    }

    /** The form of an answer. */
    private enum Form {
        LINE, VALUES, STATISTICS
    }

    /** The next part of an answer. */
    private enum Part {
        LINE, DATA, END_OF_DATA
    }

    /** Storage commands. */
    static final byte[] SET = ascii("set ");
    static final byte[] ADD = ascii("add ");
    static final byte[] REPLACE = ascii("replace ");
    static final byte[] APPEND = ascii("append ");
    static final byte[] PREPEND = ascii("prepend ");
    static final byte[] CAS = ascii("cas ");
    /** Other commands with a key. */
    static final byte[] GET = ascii("get ");
    static final byte[] GETS = ascii("gets ");
    static final byte[] GATS = ascii("gats ");
    static final byte[] DELETE = ascii("delete ");
    static final byte[] TOUCH = ascii("touch ");
    static final byte[] INCREMENT = ascii("incr ");
    static final byte[] DECREMENT = ascii("decr ");

    /** The longest value that the protocol can announce. */
    static final long VALUE_BYTES_MAX = Integer.MAX_VALUE - 2;

    private static final byte[] END_OF_LINE = ascii("\r\n");
    private static final byte[] VALUE = ascii("VALUE ");
    private static final byte[] NO_BYTES = {};
    private static final Status[] WORDS = {
        Status.END, Status.STORED, Status.NOT_STORED, Status.EXISTS, Status.NOT_FOUND, Status.DELETED, Status.TOUCHED,
        Status.OK, Status.RESET, Status.ERROR
    };
    private static final byte[][] WORD_BYTES =
            Arrays.stream(WORDS).map(word -> ascii(word.name())).toArray(byte[][]::new);
    private static final byte[] VERSION = ascii("VERSION ");
    private static final byte[] CLIENT_ERROR = ascii("CLIENT_ERROR ");
    private static final byte[] SERVER_ERROR = ascii("SERVER_ERROR ");
    private static final byte[] ERROR = ascii("ERROR");

    // The request.
    private byte[] head;
    private int headLength;
    private int keyAt;
    private int keyLength;
    private byte[] heapValue;
    private MemorySegment segmentValue;
    private long valueOffset;
    private int valueLength;
    private boolean hasValue;
    private Form form;
    /** Bytes of the request that the transport has taken. */
    private long sent;

    // The place for a value.
    private byte[] destination;
    private MemorySegment segmentDestination;
    private long destinationOffset;
    private int destinationLength;

    // The answer.
    private Part part;
    private int dataLength;
    private int dataTaken;
    private Status status;
    private String text;
    private long number;
    private boolean found;
    private int flags;
    private long cas;
    private byte[] value;

    Exchange(int headBytes) {
        head = new byte[headBytes];
    }

    static byte[] ascii(String text) {
        return text.getBytes(StandardCharsets.US_ASCII);
    }

    // Requests

    private void begin(Form answer) {
        form = answer;
        headLength = 0;
        keyLength = 0;
        heapValue = null;
        segmentValue = null;
        hasValue = false;
        destination = null;
        segmentDestination = null;
        restart();
    }

    /** Forgets what was sent and received, so that the request can be sent again. */
    void restart() {
        sent = 0;
        part = Part.LINE;
        status = Status.NONE;
        text = null;
        found = false;
        cas = 0;
        flags = 0;
        value = null;
        dataLength = 0;
    }

    /** Begins a retrieval of one key. Without a destination, a new array takes the value. */
    void retrieve(byte[] verb, Keys key) {
        begin(Form.VALUES);
        put(verb);
        putKey(key);
        put(END_OF_LINE);
    }

    /** Begins a retrieval that sets the expiry time. */
    void retrieveAndTouch(Keys key, int expiry) {
        begin(Form.VALUES);
        put(GATS);
        putSigned(expiry);
        put((byte) ' ');
        putKey(key);
        put(END_OF_LINE);
    }

    /** Begins a retrieval of several keys; {@link #addKey} and {@link #endKeys} follow. */
    void retrieveSeveral(byte[] verb) {
        begin(Form.VALUES);
        put(verb);
    }

    void addKey(Keys key) {
        put(key.bytes, key.length);
        put((byte) ' ');
    }

    void endKeys() {
        headLength--;
        put(END_OF_LINE);
    }

    void into(byte[] place, int offset, int length) {
        destination = place;
        destinationOffset = offset;
        destinationLength = length;
    }

    void into(MemorySegment place) {
        segmentDestination = place;
        destinationOffset = 0;
        destinationLength = (int) Math.min(place.byteSize(), Integer.MAX_VALUE);
    }

    /** Begins a storage command; {@link #value} follows. */
    void store(byte[] verb, Keys key, int itemFlags, int expiry, long casId, long length) {
        checkLength(length);
        begin(Form.LINE);
        put(verb);
        putKey(key);
        put((byte) ' ');
        putUnsigned(itemFlags & 0xffff_ffffL);
        put((byte) ' ');
        putSigned(expiry);
        put((byte) ' ');
        putUnsigned(length);
        if (verb == CAS) {
            put((byte) ' ');
            putUnsigned(casId);
        }
        put(END_OF_LINE);
        hasValue = true;
        valueLength = (int) length;
    }

    static void checkLength(long length) {
        if (length > VALUE_BYTES_MAX) {
            throw new IllegalArgumentException("a value has at most " + VALUE_BYTES_MAX + " bytes: " + length);
        }
    }

    void value(byte[] bytes, int offset) {
        heapValue = bytes;
        valueOffset = offset;
    }

    void value(MemorySegment segment) {
        segmentValue = segment;
        valueOffset = 0;
    }

    /** Begins a command with a key and a signed number. */
    void commandSigned(byte[] verb, Keys key, int argument) {
        beginCommand(verb, key);
        put((byte) ' ');
        putSigned(argument);
        put(END_OF_LINE);
    }

    /** Begins a command with a key and an unsigned number. */
    void commandUnsigned(byte[] verb, Keys key, long argument) {
        beginCommand(verb, key);
        put((byte) ' ');
        putUnsigned(argument);
        put(END_OF_LINE);
    }

    /** Begins a command with a key. */
    void command(byte[] verb, Keys key) {
        beginCommand(verb, key);
        put(END_OF_LINE);
    }

    private void beginCommand(byte[] verb, Keys key) {
        begin(Form.LINE);
        put(verb);
        putKey(key);
    }

    /** Begins a command without a key; the answer is a line. */
    void command(String line) {
        begin(Form.LINE);
        put(ascii(line));
        put(END_OF_LINE);
    }

    /** Begins a command that is given with its data; the answer is a line. */
    void raw(byte[] bytes) {
        begin(Form.LINE);
        put(bytes);
    }

    /** Begins a {@code stats} command; the answer is statistics or one line. */
    void statistics(String line) {
        command(line);
        form = Form.STATISTICS;
    }

    private void putKey(Keys key) {
        keyAt = headLength;
        keyLength = key.length;
        put(key.bytes, key.length);
    }

    private void put(byte[] bytes) {
        put(bytes, bytes.length);
    }

    private void put(byte[] bytes, int length) {
        ensure(length);
        System.arraycopy(bytes, 0, head, headLength, length);
        headLength += length;
    }

    private void put(byte b) {
        ensure(1);
        head[headLength++] = b;
    }

    private void ensure(int more) {
        if (head.length - headLength < more) {
            head = Arrays.copyOf(head, Math.max(head.length * 2, headLength + more));
        }
    }

    private void putSigned(int number) {
        if (number < 0) {
            put((byte) '-');
        }
        putUnsigned(Math.abs((long) number));
    }

    private void putUnsigned(long number) {
        int digits = 1;
        for (long rest = Long.divideUnsigned(number, 10); rest != 0; rest /= 10) {
            digits++;
        }
        ensure(digits);
        long rest = number;
        for (int at = headLength + digits - 1; at >= headLength; at--) {
            long quotient = Long.divideUnsigned(rest, 10);
            head[at] = (byte) ('0' + (rest - quotient * 10));
            rest = quotient;
        }
        headLength += digits;
    }

    /** Returns the bytes of memory that the request keeps while it waits. */
    long requestBytes() {
        return headLength + (hasValue ? valueLength : 0);
    }

    /** Returns true if a server that executed the request twice would do no harm. */
    boolean isRepeatable() {
        return form == Form.VALUES && head[1] == 'e' || form == Form.STATISTICS;
    }

    /** Gives bytes to the transport. Returns true when it has taken all; a flush follows. */
    boolean send(Transport transport) throws IOException {
        if (sent < headLength) {
            sent += transport.write(head, (int) sent, headLength - (int) sent);
            if (sent < headLength) {
                return false;
            }
        }
        if (!hasValue) {
            return true;
        }
        long behindValue = (long) headLength + valueLength;
        while (sent < behindValue) {
            int done = (int) (sent - headLength);
            int count = heapValue != null
                    ? transport.write(heapValue, (int) valueOffset + done, valueLength - done)
                    : transport.write(segmentValue, valueOffset + done, valueLength - done);
            if (count == 0) {
                return false;
            }
            sent += count;
        }
        int end = (int) (sent - behindValue);
        if (end < 2) {
            sent += transport.write(END_OF_LINE, end, 2 - end);
        }
        return sent == behindValue + 2;
    }

    boolean isPartlySent() {
        return sent > 0;
    }

    // Answers

    /** Reads what is there of the answer. Returns true when it is complete. */
    boolean receive(Input input) throws IOException {
        while (true) {
            switch (part) {
                case LINE -> {
                    if (!input.nextLine()) {
                        return false;
                    }
                    if (line(input)) {
                        return true;
                    }
                }
                case DATA -> {
                    if (dataTaken < dataLength) {
                        int count = takeData(input);
                        if (count == 0) {
                            return false;
                        }
                        dataTaken += count;
                    } else {
                        part = Part.END_OF_DATA;
                    }
                }
                case END_OF_DATA -> {
                    if (!input.takeEndOfData()) {
                        return false;
                    }
                    part = Part.LINE;
                    valueEnds();
                }
            }
        }
    }

    /** Understands a line. Returns true if it ends the answer. */
    private boolean line(Input input) throws IOException {
        byte[] bytes = input.buffer;
        int start = input.lineStart;
        int end = input.lineEnd;
        if (form == Form.VALUES && startsWith(bytes, start, end, VALUE)) {
            valueLine(input, start + VALUE.length, end);
            return false;
        }
        if (form == Form.STATISTICS && end - start > 5 && bytes[start] == 'S' && bytes[start + 4] == ' ') {
            statisticLine(input.line().substring(5));
            return false;
        }
        status = Status.NONE;
        for (int index = 0; index < WORDS.length; index++) {
            byte[] word = WORD_BYTES[index];
            if (end - start == word.length && startsWith(bytes, start, end, word)) {
                status = WORDS[index];
                break;
            }
        }
        if (status == Status.NONE) {
            otherLine(input, bytes, start, end);
        }
        boolean error = isError();
        boolean expected = switch (form) {
            case VALUES -> status == Status.END;
            case STATISTICS -> status == Status.END || status == Status.RESET || status == Status.OK;
            case LINE -> status != Status.END;
        };
        if (!expected && !error) {
            throw unexpected(input);
        }
        if (error && text == null) {
            text = input.line();
        }
        if (hasValue && (status == Status.ERROR || status == Status.CLIENT_ERROR)) {
            // The server may take the value for commands.
            throw new ProtocolException("the server refused a storage command: " + text);
        }
        return true;
    }

    private void otherLine(Input input, byte[] bytes, int start, int end) throws IOException {
        if (end > start && bytes[start] >= '0' && bytes[start] <= '9') {
            status = Status.NUMBER;
            number = unsigned(input, start, numberEnd(bytes, start, end));
        } else if (startsWith(bytes, start, end, VERSION)) {
            status = Status.VERSION;
            text = input.line().substring(VERSION.length);
        } else if (startsWith(bytes, start, end, CLIENT_ERROR)) {
            status = Status.CLIENT_ERROR;
        } else if (startsWith(bytes, start, end, SERVER_ERROR)) {
            status = Status.SERVER_ERROR;
        } else if (startsWith(bytes, start, end, ERROR)) {
            status = Status.ERROR;
        } else {
            throw unexpected(input);
        }
    }

    private static ProtocolException unexpected(Input input) {
        return new ProtocolException("the server sent an unexpected line: " + input.line());
    }

    private static boolean startsWith(byte[] bytes, int start, int end, byte[] prefix) {
        return end - start >= prefix.length
                && Arrays.equals(bytes, start, start + prefix.length, prefix, 0, prefix.length);
    }

    /** Understands the rest of {@code VALUE key flags length [cas]}. */
    private void valueLine(Input input, int start, int end) throws IOException {
        byte[] bytes = input.buffer;
        int keyEnd = wordEnd(bytes, start, end);
        int flagsEnd = wordEnd(bytes, keyEnd + 1, end);
        int lengthEnd = wordEnd(bytes, flagsEnd + 1, end);
        if (flagsEnd >= end) {
            throw unexpected(input);
        }
        flags = (int) unsigned(input, keyEnd + 1, flagsEnd);
        long length = unsigned(input, flagsEnd + 1, lengthEnd);
        cas = lengthEnd < end ? unsigned(input, lengthEnd + 1, end) : 0;
        if (length < 0 || length > VALUE_BYTES_MAX) {
            throw unexpected(input);
        }
        dataLength = (int) length;
        dataTaken = 0;
        part = Part.DATA;
        valueBegins(bytes, start, keyEnd);
        if (destination == null && segmentDestination == null) {
            value = dataLength == 0 ? NO_BYTES : new byte[dataLength];
        }
    }

    private static int wordEnd(byte[] bytes, int start, int end) {
        int at = Math.min(start, end);
        while (at < end && bytes[at] != ' ') {
            at++;
        }
        return at;
    }

    private static int numberEnd(byte[] bytes, int start, int end) {
        int at = end;
        while (at > start && bytes[at - 1] == ' ') {
            at--;
        }
        return at;
    }

    private static long unsigned(Input input, int start, int end) throws ProtocolException {
        if (start >= end || end - start > 20) {
            throw unexpected(input);
        }
        long number = 0;
        for (int at = start; at < end; at++) {
            int digit = input.buffer[at] - '0';
            if (digit < 0 || digit > 9) {
                throw unexpected(input);
            }
            // Only a number of twenty digits can be too large.
            if (at - start == 19 && Long.compareUnsigned(number, Long.divideUnsigned(-1L - digit, 10)) > 0) {
                throw unexpected(input);
            }
            number = number * 10 + digit;
        }
        return number;
    }

    private int takeData(Input input) throws IOException {
        int left = dataLength - dataTaken;
        if (value != null) {
            return input.take(value, dataTaken, left);
        }
        int room = destinationLength - dataTaken;
        if (room <= 0) {
            return input.skip(left);
        }
        return destination != null
                ? input.take(destination, (int) destinationOffset + dataTaken, Math.min(left, room))
                : input.take(segmentDestination, destinationOffset + dataTaken, Math.min(left, room));
    }

    /** A value begins. Its key must be the one that was asked for. */
    void valueBegins(byte[] bytes, int keyStart, int keyEnd) throws IOException {
        if (found || !Arrays.equals(bytes, keyStart, keyEnd, head, keyAt, keyAt + keyLength)) {
            throw new ProtocolException("the server sent the value of another key");
        }
    }

    /** A value is complete. */
    void valueEnds() {
        found = true;
    }

    /** A line of statistics, without {@code STAT}. */
    void statisticLine(String line) {
        throw new IllegalStateException("no statistics were asked for");
    }

    // Results

    Status status() {
        return status;
    }

    boolean isError() {
        return status == Status.ERROR || status == Status.CLIENT_ERROR || status == Status.SERVER_ERROR;
    }

    /** Returns the text of an error or a version. */
    String text() {
        return text;
    }

    long number() {
        return number;
    }

    boolean found() {
        return found;
    }

    int dataLength() {
        return dataLength;
    }

    int flags() {
        return flags;
    }

    /** Returns the value; null for a miss. */
    byte[] value() {
        return found ? value : null;
    }

    Item item() {
        return found ? new Item(value, flags, cas) : null;
    }

    /** Returns the last value of a retrieval of several keys, while it is complete. */
    Item lastItem() {
        return new Item(value, flags, cas);
    }

    /** Drops what the caller gave, so that an idle connection keeps no memory of a call. */
    void release() {
        heapValue = null;
        segmentValue = null;
        destination = null;
        segmentDestination = null;
        value = null;
        text = null;
    }
}
