package io.situ.client;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.StructLayout;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.VarHandle;
import java.nio.charset.StandardCharsets;

/**
 * The system calls that shared memory needs, for Linux on 64-bit processors. None of them is linked as critical: a
 * critical call that waits would hold off the garbage collector.
 */
final class Posix {
    static final int POLLIN = 1;
    static final int EAGAIN = 11;
    static final int EINTR = 4;

    private static final int AF_UNIX = 1;
    private static final int SOCK_STREAM = 1;
    private static final int SOCK_CLOEXEC = 0x80000;
    private static final int SOCK_NONBLOCK = 0x800;
    private static final int MSG_DONTWAIT = 0x40;
    private static final int MSG_NOSIGNAL = 0x4000;
    private static final int MSG_CTRUNC = 0x8;
    private static final int MSG_CMSG_CLOEXEC = 0x40000000;
    private static final int SOL_SOCKET = 1;
    private static final int SCM_RIGHTS = 1;
    private static final int PROT_READ_WRITE = 3;
    private static final int MAP_SHARED = 1;
    private static final int EFD_CLOEXEC_NONBLOCK = 0x80800;
    private static final int SOCKADDR_UN_BYTES = 110;
    private static final int MSGHDR_BYTES = 56;
    private static final int CMSG_BYTES = 64;

    private static final Linker LINKER = Linker.nativeLinker();
    private static final Linker.Option ERRNO = Linker.Option.captureCallState("errno");
    private static final StructLayout STATE = Linker.Option.captureStateLayout();
    private static final VarHandle ERRNO_HANDLE = STATE.varHandle(MemoryLayout.PathElement.groupElement("errno"));

    private static final MethodHandle SOCKET = function("socket", JAVA_INT, JAVA_INT, JAVA_INT, JAVA_INT);
    private static final MethodHandle CONNECT = function("connect", JAVA_INT, JAVA_INT, ADDRESS, JAVA_INT);
    private static final MethodHandle RECVMSG = function("recvmsg", JAVA_LONG, JAVA_INT, ADDRESS, JAVA_INT);
    private static final MethodHandle SEND = function("send", JAVA_LONG, JAVA_INT, ADDRESS, JAVA_LONG, JAVA_INT);
    private static final MethodHandle RECV = function("recv", JAVA_LONG, JAVA_INT, ADDRESS, JAVA_LONG, JAVA_INT);
    private static final MethodHandle READ = function("read", JAVA_LONG, JAVA_INT, ADDRESS, JAVA_LONG);
    private static final MethodHandle WRITE = function("write", JAVA_LONG, JAVA_INT, ADDRESS, JAVA_LONG);
    private static final MethodHandle POLL = function("poll", JAVA_INT, ADDRESS, JAVA_LONG, JAVA_INT);
    private static final MethodHandle CLOSE = function("close", JAVA_INT, JAVA_INT);
    private static final MethodHandle EVENTFD = function("eventfd", JAVA_INT, JAVA_INT, JAVA_INT);
    private static final MethodHandle MMAP =
            function("mmap", ADDRESS, ADDRESS, JAVA_LONG, JAVA_INT, JAVA_INT, JAVA_INT, JAVA_LONG);
    private static final MethodHandle MUNMAP = function("munmap", JAVA_INT, ADDRESS, JAVA_LONG);
    private static final MethodHandle LSEEK = function("lseek", JAVA_LONG, JAVA_INT, JAVA_LONG, JAVA_INT);

    private Posix() {}

    /** Returns true if this platform has the calls and layouts that this class assumes. */
    static boolean isSupported() {
        return System.getProperty("os.name").equals("Linux") && ADDRESS.byteSize() == 8;
    }

    private static MethodHandle function(String name, MemoryLayout result, MemoryLayout... arguments) {
        MemorySegment symbol = LINKER.defaultLookup().find(name)
                .orElseThrow(() -> new UnsatisfiedLinkError("the C library has no " + name));
        return LINKER.downcallHandle(symbol, FunctionDescriptor.of(result, arguments), ERRNO);
    }

    /** Memory for the error number of a call. One thread at a time uses it. */
    static MemorySegment newState(Arena arena) {
        return arena.allocate(STATE);
    }

    static int errno(MemorySegment state) {
        return (int) ERRNO_HANDLE.get(state, 0L);
    }

    private static IOException error(String call, MemorySegment state) {
        return new IOException(call + " failed with error number " + errno(state));
    }

    private static AssertionError impossible(Throwable thrown) {
        return new AssertionError("a call of the C library threw", thrown);
    }

    static int unixSocket(MemorySegment state) throws IOException {
        try {
            int fd = (int) SOCKET.invokeExact(state, AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
            if (fd < 0) {
                throw error("socket", state);
            }
            return fd;
        } catch (IOException failed) {
            throw failed;
        } catch (Throwable thrown) {
            throw impossible(thrown);
        }
    }

    /** Returns false if the server's queue of connections is full. */
    static boolean connect(int fd, String path, MemorySegment state) throws IOException {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment address = arena.allocate(SOCKADDR_UN_BYTES, 8);
            address.set(ValueLayout.JAVA_SHORT, 0, (short) AF_UNIX);
            byte[] bytes = path.getBytes(StandardCharsets.UTF_8);
            MemorySegment.copy(bytes, 0, address, ValueLayout.JAVA_BYTE, 2, bytes.length);
            int result = (int) CONNECT.invokeExact(state, fd, address, SOCKADDR_UN_BYTES);
            if (result < 0 && errno(state) != EAGAIN) {
                throw error("connect to " + path, state);
            }
            return result == 0;
        } catch (IOException failed) {
            throw failed;
        } catch (Throwable thrown) {
            throw impossible(thrown);
        }
    }

    /** The bytes and the descriptor of one message. */
    record Message(int count, int descriptor) {}

    /** Receives bytes, and a descriptor if one comes with them. A count of -1 stands for nothing there yet. */
    static Message receiveMessage(int fd, byte[] bytes, MemorySegment state) throws IOException {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment data = arena.allocate(bytes.length);
            MemorySegment vector = arena.allocate(16, 8);
            vector.set(ADDRESS, 0, data);
            vector.set(JAVA_LONG, 8, bytes.length);
            MemorySegment control = arena.allocate(CMSG_BYTES, 8);
            MemorySegment header = arena.allocate(MSGHDR_BYTES, 8);
            header.set(ADDRESS, 16, vector);
            header.set(JAVA_LONG, 24, 1);
            header.set(ADDRESS, 32, control);
            header.set(JAVA_LONG, 40, CMSG_BYTES);
            long count = (long) RECVMSG.invokeExact(state, fd, header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
            if (count < 0) {
                if (errno(state) == EAGAIN || errno(state) == EINTR) {
                    return new Message(-1, -1);
                }
                throw error("recvmsg", state);
            }
            MemorySegment.copy(data, ValueLayout.JAVA_BYTE, 0, bytes, 0, (int) count);
            int descriptor = -1;
            long controlBytes = header.get(JAVA_LONG, 40);
            for (long at = 0; at + 16 <= controlBytes;) {
                long length = control.get(JAVA_LONG, at);
                if (length < 16 || length > controlBytes - at) {
                    break;
                }
                if (control.get(JAVA_INT, at + 8) == SOL_SOCKET && control.get(JAVA_INT, at + 12) == SCM_RIGHTS) {
                    for (long place = at + 16; place + 4 <= at + length; place += 4) {
                        // Only one descriptor is expected. Others are closed, so that none stays open.
                        if (descriptor >= 0) {
                            close(descriptor);
                        }
                        descriptor = control.get(JAVA_INT, place);
                    }
                }
                at += length + 7 & ~7L;
            }
            if ((header.get(JAVA_INT, 48) & MSG_CTRUNC) != 0) {
                if (descriptor >= 0) {
                    close(descriptor);
                }
                throw new ProtocolException("the server sent more descriptors than one");
            }
            return new Message((int) count, descriptor);
        } catch (IOException failed) {
            throw failed;
        } catch (Throwable thrown) {
            throw impossible(thrown);
        }
    }

    /** Sends without waiting. Returns the count, or -1 with the error number in {@code state}. */
    static long send(int fd, MemorySegment data, long length, MemorySegment state) {
        try {
            return (long) SEND.invokeExact(state, fd, data, length, MSG_DONTWAIT | MSG_NOSIGNAL);
        } catch (Throwable thrown) {
            throw impossible(thrown);
        }
    }

    /** Receives without waiting. Returns the count, 0 at the end, or -1 with the error number in {@code state}. */
    static long receive(int fd, MemorySegment data, long length, MemorySegment state) {
        try {
            return (long) RECV.invokeExact(state, fd, data, length, MSG_DONTWAIT);
        } catch (Throwable thrown) {
            throw impossible(thrown);
        }
    }

    /** Waits for one of {@code count} descriptors. */
    static void poll(MemorySegment entries, int count, int timeoutMs, MemorySegment state) throws IOException {
        try {
            int result = (int) POLL.invokeExact(state, entries, (long) count, timeoutMs);
            if (result < 0 && errno(state) != EINTR) {
                throw error("poll", state);
            }
        } catch (IOException failed) {
            throw failed;
        } catch (Throwable thrown) {
            throw impossible(thrown);
        }
    }

    static void setPollEntry(MemorySegment entries, int index, int fd) {
        entries.set(JAVA_INT, index * 8L, fd);
        entries.set(ValueLayout.JAVA_SHORT, index * 8L + 4, (short) POLLIN);
    }

    static boolean isPolled(MemorySegment entries, int index) {
        return entries.get(ValueLayout.JAVA_SHORT, index * 8L + 6) != 0;
    }

    static int newEventDescriptor(MemorySegment state) throws IOException {
        try {
            int fd = (int) EVENTFD.invokeExact(state, 0, EFD_CLOEXEC_NONBLOCK);
            if (fd < 0) {
                throw error("eventfd", state);
            }
            return fd;
        } catch (IOException failed) {
            throw failed;
        } catch (Throwable thrown) {
            throw impossible(thrown);
        }
    }

    /** Adds one to the counter of an event descriptor. A counter that is full wakes as well. */
    static void signal(int eventFd, MemorySegment one, MemorySegment state) {
        try {
            long ignored = (long) WRITE.invokeExact(state, eventFd, one, 8L);
        } catch (Throwable thrown) {
            throw impossible(thrown);
        }
    }

    static void clearSignal(int eventFd, MemorySegment scratch, MemorySegment state) {
        try {
            long ignored = (long) READ.invokeExact(state, eventFd, scratch, 8L);
        } catch (Throwable thrown) {
            throw impossible(thrown);
        }
    }

    static void close(int fd) {
        try (Arena arena = Arena.ofConfined()) {
            int ignored = (int) CLOSE.invokeExact(newState(arena), fd);
        } catch (Throwable thrown) {
            throw impossible(thrown);
        }
    }

    /** Returns the length of a file. */
    static long length(int fd, MemorySegment state) throws IOException {
        try {
            long length = (long) LSEEK.invokeExact(state, fd, 0L, 2);
            if (length < 0) {
                throw error("lseek", state);
            }
            return length;
        } catch (IOException failed) {
            throw failed;
        } catch (Throwable thrown) {
            throw impossible(thrown);
        }
    }

    /** Maps a file for reading and writing. The arena unmaps it. */
    static MemorySegment map(int fd, long length, Arena arena, MemorySegment state) throws IOException {
        try {
            MemorySegment address = (MemorySegment) MMAP.invokeExact(
                    state, MemorySegment.NULL, length, PROT_READ_WRITE, MAP_SHARED, fd, 0L);
            if (address.address() == -1) {
                throw error("mmap", state);
            }
            return address.reinterpret(length, arena, Posix::unmap);
        } catch (IOException failed) {
            throw failed;
        } catch (Throwable thrown) {
            throw impossible(thrown);
        }
    }

    private static void unmap(MemorySegment mapped) {
        try (Arena arena = Arena.ofConfined()) {
            int ignored = (int) MUNMAP.invokeExact(newState(arena), mapped, mapped.byteSize());
        } catch (Throwable thrown) {
            throw impossible(thrown);
        }
    }
}
