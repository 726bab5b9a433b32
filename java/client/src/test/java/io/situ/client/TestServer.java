package io.situ.client;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.channels.SocketChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Assumptions;

/** A server process of a test: memcached, or Situ if its program is there. */
public final class TestServer implements AutoCloseable {
    private final List<String> command;
    private final Path folder;
    private final ServerAddress address;
    private Process process;

    private TestServer(List<String> command, Path folder, ServerAddress address) throws IOException {
        this.command = command;
        this.folder = folder;
        this.address = address;
        start();
    }

    /** Starts memcached, or skips the test if it is not installed. */
    public static TestServer memcached(boolean unix) throws IOException {
        String program = List.of("/usr/bin/memcached", "/usr/local/bin/memcached").stream()
                .filter(path -> Files.isExecutable(Path.of(path))).findFirst().orElse(null);
        if (program == null) {
            skip("memcached is not installed");
        }
        Path folder = Files.createTempDirectory("situ-java");
        List<String> command = new ArrayList<>(List.of(program, "-m", "64", "-t", "1", "-u", "root"));
        if (unix) {
            String path = folder.resolve("socket").toString();
            command.addAll(List.of("-s", path));
            return new TestServer(command, folder, ServerAddress.unix(path));
        }
        int port = freePort();
        command.addAll(List.of("-l", "127.0.0.1", "-p", Integer.toString(port)));
        return new TestServer(command, folder, ServerAddress.tcp("127.0.0.1", port));
    }

    /** Starts a cache of Situ, or skips the test if the program is not there. */
    public static TestServer situ(boolean unix, String... options) throws IOException {
        String program = System.getProperty("situ.program", "");
        if (program.isEmpty() || !Files.isExecutable(Path.of(program))) {
            skip("there is no program of the server; -Dsitu.program=PATH names it: " + program);
        }
        Path folder = Files.createTempDirectory("situ-java");
        String path = folder.resolve("socket").toString();
        int port = freePort();
        List<String> command = new ArrayList<>(List.of(program, "serve", "--engine", "cache", "--memory", "64M",
                "--listen", "127.0.0.1:" + port, "--unix-socket", path, "--no-http"));
        command.addAll(List.of(options));
        return new TestServer(
                command, folder, unix ? ServerAddress.unix(path) : ServerAddress.tcp("127.0.0.1", port));
    }

    private static void skip(String reason) {
        System.err.println("SKIPPED: " + reason);
        Assumptions.abort(reason);
    }

    /** Skips the test if the server does not offer shared memory. */
    void requireSharedMemory() throws IOException {
        try (SituClient client = SituClient.builder().servers(List.of(address)).build()) {
            client.version();
            if (client.transports().get(address) != TransportKind.SHARED_MEMORY) {
                close();
                skip("the program of the server is of a time before shared memory: " + command.get(0));
            }
        }
    }

    static int freePort() throws IOException {
        try (ServerSocket socket = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            return socket.getLocalPort();
        }
    }

    /** Starts the server again, with the same address. */
    public void start() throws IOException {
        Path log = folder.resolve("log");
        if (address.isUnix()) {
            Files.deleteIfExists(Path.of(address.host()));
        }
        process = new ProcessBuilder(command).redirectErrorStream(true).redirectOutput(log.toFile()).start();
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(20);
        while (true) {
            try (SocketChannel channel =
                    address.isUnix() ? SocketChannel.open(StandardProtocolFamily.UNIX) : SocketChannel.open()) {
                channel.connect(address.isUnix() ? UnixDomainSocketAddress.of(address.host()) : address.resolve());
                return;
            } catch (IOException notYet) {
                if (!process.isAlive() || System.nanoTime() > deadline) {
                    process.destroyForcibly();
                    throw new IOException("the server did not start: " + command + "\n" + Files.readString(log));
                }
            }
            pause(20);
        }
    }

    static void pause(long millis) {
        try {
            Thread.sleep(millis);
        } catch (InterruptedException interrupted) {
            throw new IllegalStateException(interrupted);
        }
    }

    /** Kills the server. */
    public void kill() throws IOException {
        process.destroyForcibly();
        try {
            process.waitFor();
        } catch (InterruptedException interrupted) {
            throw new IOException(interrupted);
        }
    }

    /** Stops or continues the process. */
    void signal(String name) throws Exception {
        new ProcessBuilder("kill", "-" + name, Long.toString(process.pid())).start().waitFor();
    }

    public ServerAddress address() {
        return address;
    }

    @Override
    public void close() throws IOException {
        kill();
        try (var files = Files.list(folder)) {
            for (Path file : files.toList()) {
                Files.deleteIfExists(file);
            }
        }
        Files.deleteIfExists(folder);
    }
}
