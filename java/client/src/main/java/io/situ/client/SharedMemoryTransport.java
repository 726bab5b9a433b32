package io.situ.client;

import java.io.EOFException;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;

/**
 * A connection in shared memory, version 1, as {@code docs/formats/shared-memory.md} describes it.
 *
 * <p>Long values pass in slices: the count is stored after each, so that the server copies one slice while this side
 * copies the next.
 *
 * <p><b>Invariants.</b> {@code published <= written <= serverRead + ringBytes}, and
 * {@code read <= serverWritten <= read + ringBytes}. Counts of the server that break them end the connection.
 */
final class SharedMemoryTransport implements Transport {
    static final int RING_BYTES_MIN = 4096;
    static final int RING_BYTES_MAX = 4 << 20;
    static final int HEADER_BYTES = 4096;
    static final long MAGIC = 0x316d_6873_7574_6973L;
    static final long MAGIC_AT = 0;
    static final long RING_BYTES_AT = 8;
    static final long TO_SERVER_WRITTEN_AT = 128;
    static final long TO_SERVER_READ_AT = 256;
    static final long TO_CLIENT_WRITTEN_AT = 384;
    static final long TO_CLIENT_READ_AT = 512;
    static final long SERVER_SLEEPS_AT = 640;
    static final long CLIENT_SLEEPS_AT = 768;
    static final int WAKE_READER = 1;
    static final int WAKE_WRITER = 2;

    private static final ValueLayout.OfLong LONG = ValueLayout.JAVA_LONG.withOrder(ByteOrder.LITTLE_ENDIAN);
    private static final ValueLayout.OfInt INT = ValueLayout.JAVA_INT.withOrder(ByteOrder.LITTLE_ENDIAN);
    private static final VarHandle COUNT = LONG.varHandle();
    private static final VarHandle SLEEPS = INT.varHandle();

    /** The longest slice of later connections. Only a measurement sets it: {@code Overlap} compares with whole values. */
    static int sliceBytesMax = 16 << 10;

    private static final int ANSWER_BYTES_MAX = 512;
    private static final int BELLS = 64;
    private static final int LOOKS_PER_CLOCK = 32;
    /** Looks on a core that another thread wants. */
    private static final int LOOKS_ON_SHARED_CORE = 4;
    /** Giving the core away takes longer only if another thread took it. */
    private static final long RAN_ANOTHER_NS = 1000;
    private static final long SPIN_NS_MAX =
            Runtime.getRuntime().availableProcessors() > 1 ? TimeUnit.MICROSECONDS.toNanos(50) : 0;

    private final Arena arena;
    private final int fd;
    private final int eventFd;
    private final MemorySegment memory;
    private final int ringBytes;
    private final int sliceBytes;
    private final MemorySegment state;
    private final MemorySegment bells;
    private final MemorySegment polled;
    private final MemorySegment one;
    private final MemorySegment wakeState;

    private long written;
    private long published;
    private long serverRead;
    private long read;
    private long serverWritten;
    /** The time for the next look at the rings before sleep. It shrinks while the server takes longer than that. */
    private long spinNs = SPIN_NS_MAX;

    /** True if another thread took the core when it was given away, perhaps the server's. */
    private boolean coreIsShared;

    /** Waits that were too long since the last short one. */
    private int longWaits;
    /** True once the server has closed the socket. Bytes in the ring are still delivered. */
    private boolean ended;

    private final Object wakeLock = new Object();
    private volatile boolean woken;
    private volatile boolean sleeping;
    private boolean closed;

    private SharedMemoryTransport(Arena arena, int fd, int eventFd, MemorySegment memory, int ringBytes) {
        this.arena = arena;
        this.fd = fd;
        this.eventFd = eventFd;
        this.memory = memory;
        this.ringBytes = ringBytes;
        sliceBytes = Math.min(sliceBytesMax, ringBytes / 4);
        state = Posix.newState(arena);
        wakeState = Posix.newState(arena);
        bells = arena.allocate(BELLS);
        polled = arena.allocate(16, 8);
        one = arena.allocate(8, 8);
        one.set(ValueLayout.JAVA_LONG, 0, 1);
        Posix.setPollEntry(polled, 0, fd);
        Posix.setPollEntry(polled, 1, eventFd);
    }

    /** Returns true if this platform can map shared memory and pass descriptors, and Java's options allow it. */
    static boolean isSupported() {
        try {
            return Posix.isSupported();
        } catch (LinkageError refused) {
            // The C library lacks a call, or the access to native code is denied.
            return false;
        }
    }

    /**
     * Connects and asks for shared memory.
     *
     * @param login a command that authenticates, or null
     * @return the transport, or null if the server does not offer shared memory
     */
    static SharedMemoryTransport connect(ServerAddress address, byte[] login, int wishedRingBytes, long deadline)
            throws IOException {
        Arena arena = Arena.ofShared();
        int fd = -1;
        int eventFd = -1;
        boolean done = false;
        try {
            MemorySegment state = Posix.newState(arena);
            fd = Posix.unixSocket(state);
            while (!Posix.connect(fd, address.host(), state)) {
                if (System.nanoTime() >= deadline) {
                    throw new IOException("the server did not accept a connection in time");
                }
                LockSupport.parkNanos(1_000_000);
            }
            if (login != null) {
                send(fd, login, arena, state);
                Greeting answer = receiveLine(fd, arena, state, deadline);
                answer.refuseDescriptor();
                if (!answer.line.equals("STORED")) {
                    throw new ProtocolException("the server refused the user: " + answer.line);
                }
            }
            send(fd, ("shm 1 " + wishedRingBytes + "\r\n").getBytes(StandardCharsets.US_ASCII), arena, state);
            Greeting greeting = receiveLine(fd, arena, state, deadline);
            if (!greeting.line.startsWith("SHM ")) {
                greeting.refuseDescriptor();
                String line = greeting.line;
                if (line.equals("ERROR") || line.startsWith("SERVER_ERROR") || line.startsWith("CLIENT_ERROR")) {
                    return null;
                }
                throw new ProtocolException("not an answer to shm: " + line);
            }
            if (greeting.descriptor < 0) {
                throw new ProtocolException("the server offered shared memory without a descriptor");
            }
            int ringBytes;
            MemorySegment memory;
            try {
                ringBytes = ringBytes(greeting.line);
                long bytes = HEADER_BYTES + 2L * ringBytes;
                if (Posix.length(greeting.descriptor, state) < bytes) {
                    throw new ProtocolException("the server's memory is shorter than its rings");
                }
                memory = Posix.map(greeting.descriptor, bytes, arena, state);
            } finally {
                Posix.close(greeting.descriptor);
            }
            if (memory.get(LONG, MAGIC_AT) != MAGIC || memory.get(LONG, RING_BYTES_AT) != ringBytes) {
                throw new ProtocolException("the server's memory does not begin as version 1 does");
            }
            eventFd = Posix.newEventDescriptor(state);
            SharedMemoryTransport transport = new SharedMemoryTransport(arena, fd, eventFd, memory, ringBytes);
            done = true;
            return transport;
        } finally {
            if (!done) {
                if (eventFd >= 0) {
                    Posix.close(eventFd);
                }
                if (fd >= 0) {
                    Posix.close(fd);
                }
                arena.close();
            }
        }
    }

    private record Greeting(String line, int descriptor) {
        /** Closes a descriptor that came with an answer that should have none. */
        void refuseDescriptor() {
            if (descriptor >= 0) {
                Posix.close(descriptor);
            }
        }
    }

    private static void send(int fd, byte[] bytes, Arena arena, MemorySegment state) throws IOException {
        MemorySegment data = arena.allocateFrom(ValueLayout.JAVA_BYTE, bytes);
        // A new socket has room for one command.
        if (Posix.send(fd, data, bytes.length, state) != bytes.length) {
            throw new IOException("cannot send to the server: error number " + Posix.errno(state));
        }
    }

    private static Greeting receiveLine(int fd, Arena arena, MemorySegment state, long deadline) throws IOException {
        MemorySegment entry = arena.allocate(8, 8);
        Posix.setPollEntry(entry, 0, fd);
        StringBuilder line = new StringBuilder();
        byte[] bytes = new byte[ANSWER_BYTES_MAX];
        int descriptor = -1;
        try {
            while (true) {
                long left = deadline - System.nanoTime();
                if (left <= 0) {
                    throw new IOException("the server did not answer in time");
                }
                Posix.poll(entry, 1, pollMillis(left), state);
                Posix.Message message = Posix.receiveMessage(fd, bytes, state);
                if (message.descriptor() >= 0) {
                    if (descriptor >= 0) {
                        Posix.close(message.descriptor());
                    } else {
                        descriptor = message.descriptor();
                    }
                }
                if (message.count() == 0) {
                    throw new EOFException("the server closed the connection");
                }
                line.append(new String(bytes, 0, Math.max(message.count(), 0), StandardCharsets.ISO_8859_1));
                int end = line.indexOf("\r\n");
                if (end >= 0) {
                    // Bells may follow.
                    Greeting greeting = new Greeting(line.substring(0, end), descriptor);
                    descriptor = -1;
                    return greeting;
                }
                if (line.length() >= ANSWER_BYTES_MAX) {
                    throw new ProtocolException("the server's answer is too long");
                }
            }
        } finally {
            if (descriptor >= 0) {
                Posix.close(descriptor);
            }
        }
    }

    private static int ringBytes(String line) throws ProtocolException {
        String[] words = line.split(" ");
        try {
            if (words.length == 3 && words[1].equals("1")) {
                int bytes = Integer.parseInt(words[2]);
                if (bytes >= RING_BYTES_MIN && bytes <= RING_BYTES_MAX && Integer.bitCount(bytes) == 1) {
                    return bytes;
                }
            }
        } catch (NumberFormatException notANumber) {
            // Falls through to the error.
        }
        throw new ProtocolException("not an answer to shm: " + line);
    }

    /** Returns a time left in the form that poll takes, rounded up. */
    private static int pollMillis(long leftNs) {
        return (int) Math.min(TimeUnit.NANOSECONDS.toMillis(leftNs) + 1, 60_000);
    }

    @Override
    public TransportKind kind() {
        return TransportKind.SHARED_MEMORY;
    }

    /** Returns the size of each ring. */
    int ringBytes() {
        return ringBytes;
    }

    @Override
    public int write(byte[] source, int offset, int length) throws IOException {
        int taken = 0;
        while (taken < length) {
            int count = nextWrite(length - taken);
            if (count == 0) {
                break;
            }
            long at = HEADER_BYTES + (written & ringBytes - 1);
            MemorySegment.copy(source, offset + taken, memory, ValueLayout.JAVA_BYTE, at, count);
            taken += count;
            wrote(count);
        }
        return taken;
    }

    @Override
    public int write(MemorySegment source, long offset, int length) throws IOException {
        int taken = 0;
        while (taken < length) {
            int count = nextWrite(length - taken);
            if (count == 0) {
                break;
            }
            MemorySegment.copy(source, offset + taken, memory, HEADER_BYTES + (written & ringBytes - 1), count);
            taken += count;
            wrote(count);
        }
        return taken;
    }

    /** Returns the length of the next contiguous piece; 0 if the ring is full. */
    private int nextWrite(int wanted) throws IOException {
        if (written - serverRead == ringBytes) {
            publish();
            loadServerRead();
        }
        int room = (int) (ringBytes - (written - serverRead));
        int contiguous = ringBytes - (int) (written & ringBytes - 1);
        return Math.min(Math.min(wanted, sliceBytes), Math.min(room, contiguous));
    }

    private void wrote(int count) {
        written += count;
        if (written - published >= sliceBytes) {
            publish();
        }
    }

    private void publish() {
        if (published != written) {
            COUNT.setRelease(memory, TO_SERVER_WRITTEN_AT, written);
            published = written;
            ring(WAKE_READER);
        }
    }

    /** Wakes the server if it sleeps and waits for this. */
    private void ring(int bit) {
        VarHandle.fullFence();
        if (((int) SLEEPS.getOpaque(memory, SERVER_SLEEPS_AT) & bit) != 0
                && (int) SLEEPS.getAndSet(memory, SERVER_SLEEPS_AT, 0) != 0) {
            // A full buffer holds other bells, and a broken connection shows at the next read.
            Posix.send(fd, one, 1, state);
        }
    }

    private void loadServerRead() throws ProtocolException {
        long count = (long) COUNT.getAcquire(memory, TO_SERVER_READ_AT);
        if (count - serverRead < 0 || published - count < 0) {
            throw new ProtocolException("the server's count of bytes read is impossible");
        }
        serverRead = count;
    }

    private void loadServerWritten() throws ProtocolException {
        long count = (long) COUNT.getAcquire(memory, TO_CLIENT_WRITTEN_AT);
        if (count - serverWritten < 0 || count - read > ringBytes) {
            throw new ProtocolException("the server's count of bytes written is impossible");
        }
        serverWritten = count;
    }

    /** Returns the number of bytes that the server has written and this side has not read. */
    int readableBytes() throws ProtocolException {
        loadServerWritten();
        return (int) (serverWritten - read);
    }

    @Override
    public boolean flush() {
        publish();
        return true;
    }

    @Override
    public int read(byte[] destination, int offset, int length) throws IOException {
        int count = nextRead(length);
        if (count > 0) {
            long at = HEADER_BYTES + ringBytes + (read & ringBytes - 1);
            MemorySegment.copy(memory, ValueLayout.JAVA_BYTE, at, destination, offset, count);
            tookOut(count);
        }
        return count;
    }

    @Override
    public int read(MemorySegment destination, long offset, int length) throws IOException {
        int count = nextRead(length);
        if (count > 0) {
            long at = HEADER_BYTES + ringBytes + (read & ringBytes - 1);
            MemorySegment.copy(memory, at, destination, offset, count);
            tookOut(count);
        }
        return count;
    }

    private int nextRead(int wanted) throws IOException {
        if (serverWritten == read) {
            loadServerWritten();
            if (serverWritten == read) {
                if (ended) {
                    throw new EOFException("the server closed the connection");
                }
                return 0;
            }
        }
        int contiguous = ringBytes - (int) (read & ringBytes - 1);
        return (int) Math.min(Math.min(wanted, sliceBytes), Math.min(serverWritten - read, contiguous));
    }

    private void tookOut(int count) {
        read += count;
        COUNT.setRelease(memory, TO_CLIENT_READ_AT, read);
        ring(WAKE_WRITER);
    }

    private boolean isReady(boolean readable, boolean writable) throws IOException {
        if (ended || woken) {
            return true;
        }
        if (readable) {
            if (serverWritten == read) {
                loadServerWritten();
            }
            if (serverWritten != read) {
                return true;
            }
        }
        if (writable) {
            loadServerRead();
            return written - serverRead < ringBytes;
        }
        return false;
    }

    @Override
    public void await(boolean readable, boolean writable, long deadline) throws IOException {
        if (spin(readable, writable, deadline)) {
            spinNs = SPIN_NS_MAX;
            longWaits = 0;
        } else {
            long begin = System.nanoTime() - spinNs;
            sleep(readable, writable, deadline);
            if (System.nanoTime() - begin <= SPIN_NS_MAX) {
                spinNs = SPIN_NS_MAX;
                longWaits = 0;
            } else {
                // A side that sleeps cannot tell how soon the other one was ready, so each 16th look is a long one.
                longWaits++;
                spinNs = longWaits % 16 == 0 ? SPIN_NS_MAX : spinNs / 2;
            }
        }
        if (woken) {
            woken = false;
        }
    }

    /** Returns true if there is something to do. */
    private boolean spin(boolean readable, boolean writable, long deadline) throws IOException {
        long end = 0;
        while (true) {
            int looks = coreIsShared ? LOOKS_ON_SHARED_CORE : LOOKS_PER_CLOCK;
            for (int look = 0; look < looks; look++) {
                if (isReady(readable, writable)) {
                    return true;
                }
                Thread.onSpinWait();
            }
            long now = System.nanoTime();
            end = end == 0 ? now + spinNs : end;
            if (now - end >= 0 || now >= deadline) {
                return false;
            }
            Thread.yield();
            coreIsShared = System.nanoTime() - now >= RAN_ANOTHER_NS;
        }
    }

    private void sleep(boolean readable, boolean writable, long deadline) throws IOException {
        long left = deadline == NO_DEADLINE ? Long.MAX_VALUE : deadline - System.nanoTime();
        if (left <= 0) {
            return;
        }
        sleeping = true;
        SLEEPS.setVolatile(memory, CLIENT_SLEEPS_AT, (readable ? WAKE_READER : 0) | (writable ? WAKE_WRITER : 0));
        VarHandle.fullFence();
        if (!isReady(readable, writable)) {
            Posix.poll(polled, 2, left == Long.MAX_VALUE ? -1 : pollMillis(left), state);
            if (Posix.isPolled(polled, 0)) {
                takeBells();
            }
            if (Posix.isPolled(polled, 1)) {
                Posix.clearSignal(eventFd, bells, state);
            }
        }
        sleeping = false;
        SLEEPS.setVolatile(memory, CLIENT_SLEEPS_AT, 0);
    }

    private void takeBells() {
        long count = Posix.receive(fd, bells, BELLS, state);
        int errno = count < 0 ? Posix.errno(state) : 0;
        if (count == 0 || errno != 0 && errno != Posix.EAGAIN && errno != Posix.EINTR) {
            ended = true;
        }
    }

    @Override
    public void wake() {
        woken = true;
        if (sleeping) {
            synchronized (wakeLock) {
                if (!closed) {
                    Posix.signal(eventFd, one, wakeState);
                }
            }
        }
    }

    @Override
    public void checkIdle() throws IOException {
        takeBells();
        if (readableBytes() != 0) {
            throw new ProtocolException("the server sent bytes that it was not asked for");
        }
        if (ended) {
            throw new EOFException("the server closed the connection");
        }
    }

    @Override
    public void close() {
        synchronized (wakeLock) {
            if (!closed) {
                closed = true;
                Posix.close(fd);
                Posix.close(eventFd);
                arena.close();
            }
        }
    }
}
