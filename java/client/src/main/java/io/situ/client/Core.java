package io.situ.client;

import java.util.ArrayList;
import java.util.List;

/** The servers of a client, and the choice among them. All views of a client share it. */
final class Core {
    final Options options;
    final List<Server> servers = new ArrayList<>();
    private final Continuum continuum;

    Core(Options options) {
        this.options = options;
        for (ServerAddress address : options.servers()) {
            servers.add(new Server(address, options, this::reroute));
        }
        continuum = servers.size() > 1 ? new Continuum(options.servers()) : null;
    }

    /** Returns the hash of a key, or {@link AsyncExchange#NO_HASH} where there is only one server. */
    long hash(Keys key) {
        return continuum == null ? AsyncExchange.NO_HASH : key.hash();
    }

    /** Returns the key's own server, whatever its state. */
    Server own(long hash) {
        return servers.get(continuum == null ? 0 : continuum.server(hash));
    }

    /** Returns the server of a hash: the key's own one, or another one if that is out of service. */
    Server server(long hash) {
        if (continuum == null) {
            return servers.get(0);
        }
        Server own = own(hash);
        if (own.isUsable() || !options.failover()) {
            return own;
        }
        return servers.get(continuum.usableServer(hash, index -> servers.get(index).isUsable()));
    }

    /** Borrows a connection to the server of a hash. */
    Connection borrow(long hash, long deadline) {
        for (int attempt = 1;; attempt++) {
            Server server = server(hash);
            try {
                return server.borrow(deadline);
            } catch (UnavailableException failed) {
                boolean others = options.failover() && attempt < servers.size();
                if (!others || server(hash) == server || System.nanoTime() - deadline >= 0) {
                    throw failed;
                }
            }
        }
    }

    private boolean reroute(AsyncExchange<?> exchange) {
        if (!options.failover() || exchange.hash == AsyncExchange.NO_HASH) {
            return false;
        }
        Server server = server(exchange.hash);
        if (!server.isUsable()) {
            return false;
        }
        server.pipeline.submit(exchange);
        return true;
    }

    void close() {
        servers.forEach(Server::close);
    }
}
