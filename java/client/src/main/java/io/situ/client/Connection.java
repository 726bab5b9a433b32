package io.situ.client;

import java.io.IOException;

/** A transport to one server with the state of its answers. One call at a time uses it. */
final class Connection {
    /** A command line with the longest key fits. */
    private static final int HEAD_BYTES = 512;

    final Transport transport;
    final Input input;
    /** The exchange of blocking calls. */
    final Exchange exchange = new Exchange(HEAD_BYTES);
    final String version;
    /** The server whose pool the connection belongs to. */
    Server server;
    /** When the connection went back to its pool. */
    long idleSince;

    private Connection(Transport transport, long deadline, byte[] login) throws IOException {
        this.transport = transport;
        input = new Input(transport);
        try {
            if (login != null) {
                exchange.raw(login);
                run(exchange, deadline);
                if (exchange.status() != Exchange.Status.STORED) {
                    throw new ProtocolException("the server refused the user: " + exchange.text());
                }
            }
            // The answer proves that the server runs and speaks the text protocol.
            exchange.command("version");
            run(exchange, deadline);
            if (exchange.isError()) {
                throw new ProtocolException("the server refused a command: " + exchange.text());
            }
            version = Answers.version(exchange);
        } catch (IOException | RuntimeException failed) {
            transport.close();
            throw failed;
        }
    }

    /** Connects by the best transport that both sides have and the options allow. */
    static Connection connect(ServerAddress address, Options options, long deadline) throws IOException {
        TransportChoice choice = options.transport();
        boolean wanted = choice == TransportChoice.SHARED_MEMORY;
        if (wanted || choice == TransportChoice.AUTO && address.isUnix() && SharedMemoryTransport.isSupported()) {
            if (!address.isUnix() || !SharedMemoryTransport.isSupported()) {
                throw new IOException("shared memory needs the path of the server's Unix socket, and Linux");
            }
            Transport transport =
                    SharedMemoryTransport.connect(address, options.login(), options.ringBytes(), deadline);
            if (transport != null) {
                return new Connection(transport, deadline, null);
            }
            if (wanted) {
                throw new IOException("the server does not offer shared memory");
            }
        }
        return new Connection(SocketTransport.connect(address, deadline), deadline, options.login());
    }

    /** Sends a request and receives its answer. After an exception, the connection can only be closed. */
    void run(Exchange call, long deadline) throws IOException {
        send(call, deadline);
        receive(call, deadline);
    }

    void send(Exchange call, long deadline) throws IOException {
        while (!call.send(transport)) {
            transport.flush();
            await(false, true, deadline);
        }
        while (!transport.flush()) {
            await(false, true, deadline);
        }
    }

    void receive(Exchange call, long deadline) throws IOException {
        do {
            await(true, false, deadline);
        } while (!call.receive(input));
    }

    private void await(boolean readable, boolean writable, long deadline) throws IOException {
        if (System.nanoTime() - deadline >= 0) {
            throw new java.net.SocketTimeoutException("the server did not answer in time");
        }
        transport.await(readable, writable, deadline);
    }

    void close() {
        transport.close();
    }
}
