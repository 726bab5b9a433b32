package io.situ.client;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;
import static java.lang.foreign.ValueLayout.JAVA_SHORT;

import java.io.EOFException;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.VarHandle;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * The server's end of connections in shared memory, written by docs/formats/shared-memory.md alone. It passes the bytes
 * of the rings on to a server's Unix socket, so that a client can use all commands of that server. It breaks the format
 * where a test asks for it.
 */
public final class RingBridge implements AutoCloseable {
    /** The ways to behave. */
    public enum Way {
        GOOD, ERROR, SERVER_ERROR, SILENT, NO_DESCRIPTOR, BAD_MAGIC, SHORT_MEMORY, BAD_SIZE, BREACH_WRITTEN,
        BREACH_READ, CLOSE_ON_REQUEST, STALL
    }

    private static final Linker LINKER = Linker.nativeLinker();
    private static final MethodHandle SOCKET = function("socket", JAVA_INT, JAVA_INT, JAVA_INT, JAVA_INT);
    private static final MethodHandle BIND = function("bind", JAVA_INT, JAVA_INT, ADDRESS, JAVA_INT);
    private static final MethodHandle CONNECT = function("connect", JAVA_INT, JAVA_INT, ADDRESS, JAVA_INT);
    private static final MethodHandle LISTEN = function("listen", JAVA_INT, JAVA_INT, JAVA_INT);
    private static final MethodHandle ACCEPT = function("accept", JAVA_INT, JAVA_INT, ADDRESS, ADDRESS);
    private static final MethodHandle SHUTDOWN = function("shutdown", JAVA_INT, JAVA_INT, JAVA_INT);
    private static final MethodHandle SENDMSG = function("sendmsg", JAVA_LONG, JAVA_INT, ADDRESS, JAVA_INT);
    private static final MethodHandle MEMFD = function("memfd_create", JAVA_INT, ADDRESS, JAVA_INT);
    private static final MethodHandle FTRUNCATE = function("ftruncate", JAVA_INT, JAVA_INT, JAVA_LONG);
    private static final VarHandle COUNT = JAVA_LONG.varHandle();
    private static final VarHandle BITS = JAVA_INT.varHandle();

    private final Path folder;
    private final ServerAddress address;
    private final ServerAddress upstream;
    private final Way way;
    private final long spinNs;
    private final int ringLimit;
    private final int listener;
    private final Set<Integer> open = ConcurrentHashMap.newKeySet();
    private volatile boolean closed;

    /** Connections in shared memory. */
    final AtomicInteger rings = new AtomicInteger();
    /** Bells that the bridge has sent, and received. */
    final AtomicInteger bellsSent = new AtomicInteger();
    final AtomicInteger bellsReceived = new AtomicInteger();

    public RingBridge(ServerAddress upstream, Way way, int ringLimit, long spinNs) throws Exception {
        this.upstream = upstream;
        this.way = way;
        this.ringLimit = ringLimit;
        this.spinNs = spinNs;
        folder = Files.createTempDirectory("situ-ring");
        address = ServerAddress.unix(folder.resolve("socket").toString());
        listener = named(BIND, address.host());
        check(call(LISTEN, listener, 64));
        Thread.ofPlatform().daemon().start(this::acceptAll);
    }

    public ServerAddress address() {
        return address;
    }

    private static MethodHandle function(String name, MemoryLayout result, MemoryLayout... arguments) {
        return LINKER.downcallHandle(LINKER.defaultLookup().find(name).orElseThrow(),
                FunctionDescriptor.of(result, arguments));
    }

    private static long call(MethodHandle function, Object... arguments) {
        try {
            return ((Number) function.invokeWithArguments(arguments)).longValue();
        } catch (Throwable thrown) {
            throw new AssertionError(thrown);
        }
    }

    private static int check(long result) throws IOException {
        if (result < 0) {
            throw new IOException("a system call failed");
        }
        return (int) result;
    }

    private static int named(MethodHandle bindOrConnect, String path) throws IOException {
        int fd = check(call(SOCKET, 1, 1, 0));
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment name = arena.allocate(110, 8);
            name.set(JAVA_SHORT, 0, (short) 1);
            MemorySegment.copy(arena.allocateFrom(path), 0, name, 2, path.length() + 1);
            check(call(bindOrConnect, fd, name, 110));
        }
        return fd;
    }

    private void acceptAll() {
        while (true) {
            int client = (int) call(ACCEPT, listener, MemorySegment.NULL, MemorySegment.NULL);
            if (closed || client < 0) {
                return;
            }
            open.add(client);
            Thread.ofPlatform().daemon().start(() -> serve(client));
        }
    }

    private void serve(int client) {
        int server = -1;
        try (Arena arena = Arena.ofShared()) {
            MemorySegment state = Posix.newState(arena);
            StringBuilder line = new StringBuilder();
            while (line.indexOf("\n") < 0) {
                MemorySegment one = arena.allocate(1);
                awaitInput(client, -1, 1000, arena, state);
                long count = Posix.receive(client, one, 1, state);
                if (count == 0) {
                    return;
                }
                if (count > 0) {
                    line.append((char) one.get(JAVA_BYTE, 0));
                }
                String text = line.toString();
                if (text.startsWith("set auth ") && text.endsWith("\n")) {
                    StringBuilder data = new StringBuilder();
                    while (data.indexOf("\n") < 0) {
                        awaitInput(client, -1, 1000, arena, state);
                        if (Posix.receive(client, one, 1, state) > 0) {
                            data.append((char) one.get(JAVA_BYTE, 0));
                        }
                    }
                    boolean known = data.toString().equals("user secret\r\n");
                    send(client, known ? "STORED\r\n" : "CLIENT_ERROR authentication failure\r\n", arena, state);
                    line.setLength(0);
                }
            }
            server = named(CONNECT, upstream.host());
            String first = line.toString();
            if (!first.startsWith("shm ") || way == Way.ERROR || way == Way.SERVER_ERROR) {
                if (way == Way.SERVER_ERROR && first.startsWith("shm ")) {
                    send(client, "SERVER_ERROR no memory\r\n", arena, state);
                    first = "";
                }
                // Stock memcached answers ERROR by itself.
                pass(client, server, first, arena, state);
                return;
            }
            if (way == Way.SILENT) {
                awaitInput(client, -1, 10_000, arena, state);
                return;
            }
            ring(client, server, Integer.parseInt(first.trim().split(" ")[2]), arena, state);
        } catch (IOException ended) {
            // The connection ends.
        } finally {
            open.remove(client);
            Posix.close(client);
            if (server >= 0) {
                Posix.close(server);
            }
        }
    }

    private static void awaitInput(int a, int b, int timeoutMs, Arena arena, MemorySegment state) throws IOException {
        try (Arena scratch = Arena.ofConfined()) {
            MemorySegment entries = scratch.allocate(16, 8);
            Posix.setPollEntry(entries, 0, a);
            Posix.setPollEntry(entries, 1, b);
            Posix.poll(entries, 2, timeoutMs, state);
        }
    }

    private static void send(int fd, String text, Arena arena, MemorySegment state) throws IOException {
        byte[] bytes = text.getBytes(StandardCharsets.ISO_8859_1);
        sendAll(fd, arena.allocateFrom(JAVA_BYTE, bytes), bytes.length, state);
    }

    private static void sendAll(int fd, MemorySegment data, long length, MemorySegment state) throws IOException {
        for (long done = 0; done < length;) {
            long count = Posix.send(fd, data.asSlice(done), length - done, state);
            if (count < 0 && Posix.errno(state) != Posix.EAGAIN) {
                throw new IOException("the connection ended");
            }
            if (count < 0) {
                TestServer.pause(1);
            }
            done += Math.max(count, 0);
        }
    }

    private void pass(int client, int server, String first, Arena arena, MemorySegment state) throws IOException {
        send(server, first, arena, state);
        MemorySegment buffer = arena.allocate(1 << 16);
        while (true) {
            awaitInput(client, server, 1000, arena, state);
            for (int from : new int[] {client, server}) {
                long count = Posix.receive(from, buffer, buffer.byteSize(), state);
                if (count == 0) {
                    return;
                }
                if (count > 0) {
                    sendAll(from == client ? server : client, buffer, count, state);
                }
            }
        }
    }

    private void ring(int client, int server, int wish, Arena arena, MemorySegment state) throws IOException {
        int size = 4096;
        while (size < wish && size < ringLimit) {
            size *= 2;
        }
        long bytes = 4096 + 2L * size;
        int file = check(call(MEMFD, arena.allocateFrom("ring"), 1));
        check(call(FTRUNCATE, file, way == Way.SHORT_MEMORY ? bytes - 4096 : bytes));
        MemorySegment memory = Posix.map(file, bytes, arena, state);
        byte[] magic = (way == Way.BAD_MAGIC ? "situshm2" : "situshm1").getBytes(StandardCharsets.US_ASCII);
        MemorySegment.copy(magic, 0, memory, JAVA_BYTE, 0, 8);
        memory.set(JAVA_LONG, 8, size);
        greet(client, "SHM 1 " + (way == Way.BAD_SIZE ? size + 1 : size) + "\r\n",
                way == Way.NO_DESCRIPTOR ? -1 : file, arena);
        Posix.close(file);
        rings.incrementAndGet();
        new Rings(client, server, memory, size, arena, state).run();
    }

    private static void greet(int client, String line, int file, Arena arena) throws IOException {
        MemorySegment vector = arena.allocate(16, 8);
        vector.set(ADDRESS, 0, arena.allocateFrom(line));
        vector.set(JAVA_LONG, 8, line.length());
        MemorySegment control = arena.allocate(24, 8);
        control.set(JAVA_LONG, 0, 20);
        control.set(JAVA_INT, 8, 1);
        control.set(JAVA_INT, 12, 1);
        control.set(JAVA_INT, 16, file);
        MemorySegment header = arena.allocate(56, 8);
        header.set(ADDRESS, 16, vector);
        header.set(JAVA_LONG, 24, 1);
        if (file >= 0) {
            header.set(ADDRESS, 32, control);
            header.set(JAVA_LONG, 40, 24);
        }
        check(call(SENDMSG, client, header, 0));
    }

    /** One connection after its greeting. */
    private final class Rings {
        private final int client;
        private final int server;
        private final MemorySegment memory;
        private final int size;
        private final Arena arena;
        private final MemorySegment state;
        private final MemorySegment scratch;
        private long requestsRead;
        private long answersWritten;
        private boolean stalled;

        Rings(int client, int server, MemorySegment memory, int size, Arena arena, MemorySegment state) {
            this.client = client;
            this.server = server;
            this.memory = memory;
            this.size = size;
            this.arena = arena;
            this.state = state;
            scratch = arena.allocate(size);
        }

        private long requests() {
            return (long) COUNT.getAcquire(memory, 128L) - requestsRead;
        }

        private long room() {
            return size - (answersWritten - (long) COUNT.getAcquire(memory, 512L));
        }

        void run() throws IOException {
            MemorySegment entries = arena.allocate(16, 8);
            long lastProgress = System.nanoTime();
            while (true) {
                if (takeRequests() | putAnswers()) {
                    lastProgress = System.nanoTime();
                    continue;
                }
                if (System.nanoTime() - lastProgress < spinNs) {
                    Thread.onSpinWait();
                    continue;
                }
                boolean full = room() == 0;
                BITS.setVolatile(memory, 640L, full ? 3 : 1);
                VarHandle.fullFence();
                if ((stalled || requests() == 0) && (room() == 0) == full) {
                    Posix.setPollEntry(entries, 0, client);
                    Posix.setPollEntry(entries, 1, full ? -1 : server);
                    Posix.poll(entries, 2, -1, state);
                    if (Posix.isPolled(entries, 0)) {
                        long count = Posix.receive(client, scratch, 64, state);
                        if (count == 0) {
                            return;
                        }
                        bellsReceived.addAndGet((int) Math.max(count, 0));
                    }
                }
                BITS.setVolatile(memory, 640L, 0);
            }
        }

        private boolean takeRequests() throws IOException {
            long count = stalled ? 0 : requests();
            if (count < 0 || count > size) {
                throw new IOException("the client's counts are impossible");
            }
            if (count == 0) {
                return false;
            }
            switch (way) {
                case CLOSE_ON_REQUEST -> throw new EOFException();
                case BREACH_WRITTEN -> COUNT.setRelease(memory, 384L, answersWritten + size + 1);
                case BREACH_READ -> COUNT.setRelease(memory, 256L, 1L << 40);
                default -> { }
            }
            long at = requestsRead % size;
            long piece = Math.min(count, size - at);
            MemorySegment.copy(memory, 4096 + at, scratch, 0, piece);
            if (way == Way.STALL) {
                // The handshake's version passes; the client's own commands wait.
                String text = new String(scratch.asSlice(0, piece).toArray(JAVA_BYTE), StandardCharsets.ISO_8859_1);
                if (!text.startsWith("version")) {
                    stalled = true;
                    return false;
                }
            }
            requestsRead += piece;
            if (way != Way.BREACH_READ) {
                COUNT.setRelease(memory, 256L, requestsRead);
            }
            wake(2);
            sendAll(server, scratch, piece, state);
            return true;
        }

        private boolean putAnswers() throws IOException {
            long room = room();
            if (room < 0 || room > size) {
                throw new IOException("the client's counts are impossible");
            }
            if (room == 0) {
                return false;
            }
            long at = answersWritten % size;
            long count = Posix.receive(server, scratch, Math.min(room, size - at), state);
            if (count == 0) {
                throw new EOFException();
            }
            if (count < 0) {
                return false;
            }
            MemorySegment.copy(scratch, 0, memory, 4096 + size + at, count);
            answersWritten += count;
            if (way != Way.BREACH_WRITTEN) {
                COUNT.setRelease(memory, 384L, answersWritten);
            }
            wake(1);
            return true;
        }

        private void wake(int bit) {
            VarHandle.fullFence();
            if (((int) BITS.getVolatile(memory, 768L) & bit) != 0 && (int) BITS.getAndSet(memory, 768L, 0) != 0) {
                bellsSent.incrementAndGet();
                Posix.send(client, scratch, 1, state);
            }
        }
    }

    /** Ends all connections. */
    void cut() {
        open.forEach(fd -> call(SHUTDOWN, fd, 2));
    }

    @Override
    public void close() throws IOException {
        closed = true;
        call(SHUTDOWN, listener, 2);
        Posix.close(listener);
        cut();
        Files.deleteIfExists(Path.of(address.host()));
        Files.deleteIfExists(folder);
    }
}
