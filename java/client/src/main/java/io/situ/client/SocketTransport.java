package io.situ.client;

import java.io.EOFException;
import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.net.SocketAddress;
import java.net.StandardProtocolFamily;
import java.net.StandardSocketOptions;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.SocketChannel;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;

/**
 * A TCP or Unix socket. Small pieces pass through two buffers outside the heap. Large pieces of segments go to the
 * channel without a copy in this process.
 */
final class SocketTransport implements Transport {
    private static final int BUFFER_BYTES = 64 << 10;
    /** From this length on, a wrapper of a segment costs less than the copy of its bytes. */
    private static final int DIRECT_BYTES = 16 << 10;
    private static final Consumer<SelectionKey> IGNORE = key -> {};

    private final SocketChannel channel;
    private final TransportKind kind;
    private final Selector selector;
    private final SelectionKey key;
    private final ByteBuffer out = ByteBuffer.allocateDirect(BUFFER_BYTES);
    /** Always ready to be read from. */
    private final ByteBuffer in = ByteBuffer.allocateDirect(BUFFER_BYTES).limit(0);
    private int interest = SelectionKey.OP_READ;

    private SocketTransport(SocketChannel channel, TransportKind kind, Selector selector, SelectionKey key) {
        this.channel = channel;
        this.kind = kind;
        this.selector = selector;
        this.key = key;
    }

    static SocketTransport connect(ServerAddress address, long deadline) throws IOException {
        SocketAddress resolved = address.resolve();
        boolean unix = resolved instanceof UnixDomainSocketAddress;
        if (!unix && ((java.net.InetSocketAddress) resolved).isUnresolved()) {
            throw new java.net.UnknownHostException(address.host());
        }
        SocketChannel channel = unix ? SocketChannel.open(StandardProtocolFamily.UNIX) : SocketChannel.open();
        Selector selector = null;
        try {
            channel.configureBlocking(false);
            if (!unix) {
                channel.setOption(StandardSocketOptions.TCP_NODELAY, true);
            }
            selector = Selector.open();
            SelectionKey key = channel.register(selector, SelectionKey.OP_CONNECT);
            channel.connect(resolved);
            while (!channel.finishConnect()) {
                long millis = millisUntil(deadline);
                if (millis <= 0) {
                    throw new IOException("the server did not accept a connection in time");
                }
                selector.select(IGNORE, millis);
            }
            key.interestOps(SelectionKey.OP_READ);
            return new SocketTransport(channel, unix ? TransportKind.UNIX_SOCKET : TransportKind.TCP, selector, key);
        } catch (IOException | RuntimeException failed) {
            channel.close();
            if (selector != null) {
                selector.close();
            }
            throw failed;
        }
    }

    /** Returns the time left, rounded up to milliseconds; not positive when the deadline has passed. */
    private static long millisUntil(long deadline) {
        return TimeUnit.NANOSECONDS.toMillis(deadline - System.nanoTime() + 999_999);
    }

    @Override
    public TransportKind kind() {
        return kind;
    }

    @Override
    public int write(byte[] source, int offset, int length) throws IOException {
        int taken = 0;
        while (taken < length) {
            int count = Math.min(length - taken, out.remaining());
            if (count == 0) {
                if (!flush()) {
                    break;
                }
                continue;
            }
            out.put(source, offset + taken, count);
            taken += count;
        }
        return taken;
    }

    @Override
    public int write(MemorySegment source, long offset, int length) throws IOException {
        if (length >= DIRECT_BYTES && source.isNative()) {
            return flush() ? Math.max(channel.write(source.asSlice(offset, length).asByteBuffer()), 0) : 0;
        }
        int taken = 0;
        while (taken < length) {
            int count = Math.min(length - taken, out.remaining());
            if (count == 0) {
                if (!flush()) {
                    break;
                }
                continue;
            }
            out.put(source.asSlice(offset + taken, count).asByteBuffer());
            taken += count;
        }
        return taken;
    }

    @Override
    public boolean flush() throws IOException {
        if (out.position() == 0) {
            return true;
        }
        out.flip();
        try {
            channel.write(out);
        } finally {
            out.compact();
        }
        return out.position() == 0;
    }

    @Override
    public int read(byte[] destination, int offset, int length) throws IOException {
        if (!in.hasRemaining() && !fill()) {
            return 0;
        }
        int count = Math.min(length, in.remaining());
        in.get(destination, offset, count);
        return count;
    }

    @Override
    public int read(MemorySegment destination, long offset, int length) throws IOException {
        if (!in.hasRemaining()) {
            if (length >= DIRECT_BYTES && destination.isNative()) {
                return received(channel.read(destination.asSlice(offset, length).asByteBuffer()));
            }
            if (!fill()) {
                return 0;
            }
        }
        int count = Math.min(length, in.remaining());
        destination.asSlice(offset, count).asByteBuffer().put(in.slice(in.position(), count));
        in.position(in.position() + count);
        return count;
    }

    private boolean fill() throws IOException {
        in.clear();
        try {
            return received(channel.read(in)) > 0;
        } finally {
            in.flip();
        }
    }

    private static int received(int count) throws IOException {
        if (count < 0) {
            throw new EOFException("the server closed the connection");
        }
        return count;
    }

    @Override
    public void await(boolean readable, boolean writable, long deadline) throws IOException {
        if (readable && in.hasRemaining()) {
            return;
        }
        int wanted = (readable ? SelectionKey.OP_READ : 0) | (writable ? SelectionKey.OP_WRITE : 0);
        if (wanted != interest) {
            key.interestOps(wanted);
            interest = wanted;
        }
        if (deadline == NO_DEADLINE) {
            selector.select(IGNORE);
            return;
        }
        long millis = millisUntil(deadline);
        if (millis > 0) {
            selector.select(IGNORE, millis);
        } else {
            selector.selectNow(IGNORE);
        }
    }

    @Override
    public void wake() {
        selector.wakeup();
    }

    @Override
    public void checkIdle() throws IOException {
        if (in.hasRemaining() || fill()) {
            throw new ProtocolException("the server sent bytes that it was not asked for");
        }
    }

    @Override
    public void close() {
        try {
            channel.close();
            selector.close();
        } catch (IOException ignored) {
            // Nothing depends on how a connection ends.
        }
    }
}
