package io.situ.client;

import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;

/**
 * A client with blocking calls. It is for many threads. Each call has a deadline: one second, unless
 * {@link Builder#timeout} or {@link #withTimeout} says otherwise.
 *
 * <pre>{@code
 * try (SituClient client = SituClient.connect("/run/situ.sock")) {
 *     client.set("greeting", "hello".getBytes(UTF_8), Expiry.after(Duration.ofMinutes(5)));
 *     byte[] value = client.get("greeting");
 * }
 * }</pre>
 *
 * <p>All calls throw {@link DeadlineException} if the deadline passes, {@link UnavailableException} if the server
 * cannot be reached or its connection ends, {@link ServerErrorException} if the server refuses, and
 * {@link IllegalArgumentException} if a key or a value is not allowed. After the first two, the server may have
 * executed the call. The client repeats retrievals once by itself, and no other call that a server may have executed.
 */
public final class SituClient implements AutoCloseable {
    /** The result of a retrieval into memory of the caller, when there is no such item. */
    public static final int MISS = -1;

    private final Core core;
    private final long timeoutNs;

    private SituClient(Core core, long timeoutNs) {
        this.core = core;
        this.timeoutNs = timeoutNs;
    }

    /** Returns a builder. */
    public static Builder builder() {
        return new Builder();
    }

    /**
     * Returns a client with default settings. The client connects when it is first used.
     *
     * @param servers addresses as {@link ServerAddress#parse} accepts them
     */
    public static SituClient connect(String... servers) {
        return builder().servers(servers).build();
    }

    /** Returns a view of this client with another deadline for each call. Both share connections. */
    public SituClient withTimeout(Duration timeout) {
        return new SituClient(core, positiveNanos(timeout));
    }

    /** Returns the same calls with futures. Both share settings and servers. */
    public AsyncSituClient async() {
        return new AsyncSituClient(core, timeoutNs);
    }

    /** Returns a view whose values are objects. */
    public <T> TypedClient<T> typed(Serializer<T> serializer) {
        return new TypedClient<>(this, serializer);
    }

    private static long positiveNanos(Duration time) {
        if (time.isZero() || time.isNegative() || time.compareTo(Duration.ofDays(365)) > 0) {
            throw new IllegalArgumentException("a timeout is positive and at most a year: " + time);
        }
        return time.toNanos();
    }

    private long deadline() {
        return System.nanoTime() + timeoutNs;
    }

    // Retrievals

    /** Returns a value; null if there is no such item. */
    public byte[] get(String key) {
        Keys keys = Keys.of(key);
        long hash = core.hash(keys);
        long deadline = deadline();
        for (int attempt = 0;; attempt++) {
            Connection connection = core.borrow(hash, deadline);
            connection.exchange.retrieve(Exchange.GET, keys);
            if (answered(connection, deadline, attempt)) {
                byte[] value = connection.exchange.value();
                connection.server.giveBack(connection);
                return value;
            }
        }
    }

    /** Returns an item with its flags and its cas id; null if there is no such item. */
    public Item gets(String key) {
        Keys keys = Keys.of(key);
        long hash = core.hash(keys);
        long deadline = deadline();
        for (int attempt = 0;; attempt++) {
            Connection connection = core.borrow(hash, deadline);
            connection.exchange.retrieve(Exchange.GETS, keys);
            if (answered(connection, deadline, attempt)) {
                Item item = connection.exchange.item();
                connection.server.giveBack(connection);
                return item;
            }
        }
    }

    /**
     * Copies a value into an array. A hit allocates nothing.
     *
     * @return the length of the value, or {@link #MISS}. If it is more than the array's length, the array has the
     *     beginning of the value.
     */
    public int get(byte[] key, byte[] destination) {
        return get(Keys.of(key), destination, null);
    }

    /** The same for a key as text. */
    public int get(String key, byte[] destination) {
        return get(Keys.of(key), destination, null);
    }

    /**
     * Copies a value into a segment, off the heap or on it. A hit allocates nothing if the segment is off the heap and
     * the server is reached by shared memory.
     *
     * @return the length of the value, or {@link #MISS}. If it is more than the segment's length, the segment has the
     *     beginning of the value.
     */
    public int get(byte[] key, MemorySegment destination) {
        return get(Keys.of(key), null, destination);
    }

    /** The same for a key as text. */
    public int get(String key, MemorySegment destination) {
        return get(Keys.of(key), null, destination);
    }

    private int get(Keys keys, byte[] array, MemorySegment segment) {
        long hash = core.hash(keys);
        long deadline = deadline();
        for (int attempt = 0;; attempt++) {
            Connection connection = core.borrow(hash, deadline);
            Exchange exchange = connection.exchange;
            exchange.retrieve(Exchange.GET, keys);
            if (array != null) {
                exchange.into(array, 0, array.length);
            } else {
                exchange.into(segment);
            }
            if (answered(connection, deadline, attempt)) {
                int length = exchange.found() ? exchange.dataLength() : MISS;
                connection.server.giveBack(connection);
                return length;
            }
        }
    }

    /** Returns the values that exist among keys. */
    public Map<String, byte[]> getAll(Collection<String> keys) {
        Map<String, byte[]> values = new HashMap<>();
        getSeveral(keys, false).forEach((key, item) -> values.put(key, item.value()));
        return values;
    }

    /** Returns the items that exist among keys, with their flags and cas ids. */
    public Map<String, Item> getsAll(Collection<String> keys) {
        return getSeveral(keys, true);
    }

    private Map<String, Item> getSeveral(Collection<String> keys, boolean withCas) {
        long deadline = deadline();
        Map<String, Item> found = new HashMap<>();
        List<String> wanted = keys.stream().distinct().toList();
        List<String> failed = getSeveralOnce(wanted, withCas, deadline, found, false);
        if (!failed.isEmpty()) {
            getSeveralOnce(failed, withCas, deadline, found, true);
        }
        return found;
    }

    /**
     * Asks all servers at once, for a part of the keys at a time. Connections are borrowed in the order of servers, so
     * that threads do not wait for each other in a circle. Returns the keys whose server failed.
     */
    private List<String> getSeveralOnce(
            List<String> keys, boolean withCas, long deadline, Map<String, Item> found, boolean last) {
        Map<Integer, List<String>> perServer = new TreeMap<>();
        for (String key : keys) {
            int server = core.servers.indexOf(core.server(core.hash(Keys.of(key))));
            perServer.computeIfAbsent(server, index -> new ArrayList<>()).add(key);
        }
        List<String> failed = new ArrayList<>();
        for (int from = 0; !perServer.isEmpty(); from += MultiGetExchange.KEYS_MAX) {
            Map<Connection, MultiGetExchange> open = new LinkedHashMap<>();
            try {
                for (var entry : perServer.entrySet()) {
                    Server server = core.servers.get(entry.getKey());
                    List<String> part = part(entry.getValue(), from);
                    try {
                        Connection connection = server.borrow(deadline);
                        MultiGetExchange exchange = new MultiGetExchange(part, withCas);
                        open.put(connection, exchange);
                        connection.send(exchange, deadline);
                    } catch (UnavailableException unavailable) {
                        failed.addAll(repeatable(unavailable, part, last));
                    } catch (IOException broken) {
                        Connection connection = lastOf(open);
                        open.remove(connection);
                        failed.addAll(repeatable(fail(connection, broken), part, last));
                    }
                }
                while (!open.isEmpty()) {
                    var entry = open.entrySet().iterator().next();
                    Connection connection = entry.getKey();
                    MultiGetExchange exchange = entry.getValue();
                    try {
                        connection.receive(exchange, deadline);
                    } catch (IOException broken) {
                        open.remove(connection);
                        failed.addAll(repeatable(fail(connection, broken), exchange.keys(), last));
                        continue;
                    }
                    open.remove(connection);
                    connection.server.giveBack(connection);
                    if (exchange.isError()) {
                        throw new ServerErrorException(exchange.text());
                    }
                    found.putAll(exchange.items());
                }
            } finally {
                // After an exception, answers of these are still on their way.
                open.keySet().forEach(connection -> connection.server.discard(connection));
            }
            int next = from + MultiGetExchange.KEYS_MAX;
            perServer.values().removeIf(all -> all.size() <= next);
        }
        return failed;
    }

    private static List<String> part(List<String> keys, int from) {
        return keys.subList(from, Math.min(from + MultiGetExchange.KEYS_MAX, keys.size()));
    }

    private static Connection lastOf(Map<Connection, MultiGetExchange> open) {
        Connection last = null;
        for (Connection connection : open.keySet()) {
            last = connection;
        }
        return last;
    }

    private static List<String> repeatable(SituException reason, List<String> keys, boolean last) {
        if (last || !(reason instanceof UnavailableException)) {
            throw reason;
        }
        return keys;
    }

    /** Sets an item's expiry time and returns the item; null if there is no such item. */
    public Item gat(String key, int expiry) {
        Keys keys = Keys.of(key);
        long deadline = deadline();
        Connection connection = core.borrow(core.hash(keys), deadline);
        connection.exchange.retrieveAndTouch(keys, expiry);
        return finish(connection, deadline, Answers::item);
    }

    // Storage

    /** Stores a value with flags 0. */
    public void set(String key, byte[] value, int expiry) {
        store(Exchange.SET, Keys.of(key), value, 0, value.length, expiry, 0);
    }

    /** Stores a value. */
    public void set(String key, byte[] value, int expiry, int flags) {
        store(Exchange.SET, Keys.of(key), value, 0, value.length, expiry, flags);
    }

    /** Stores a value for a key in bytes. */
    public void set(byte[] key, byte[] value, int expiry, int flags) {
        store(Exchange.SET, Keys.of(key), value, 0, value.length, expiry, flags);
    }

    /** Stores a part of an array. */
    public void set(byte[] key, byte[] array, int offset, int length, int expiry, int flags) {
        java.util.Objects.checkFromIndexSize(offset, length, array.length);
        store(Exchange.SET, Keys.of(key), array, offset, length, expiry, flags);
    }

    /** Stores a segment. Over shared memory it is copied once, into the ring. */
    public void set(byte[] key, MemorySegment value, int expiry, int flags) {
        store(Exchange.SET, Keys.of(key), value, expiry, flags);
    }

    /** Stores a segment. Over shared memory it is copied once, into the ring. */
    public void set(String key, MemorySegment value, int expiry, int flags) {
        store(Exchange.SET, Keys.of(key), value, expiry, flags);
    }

    /** Stores a value if there is no such item. Returns false if there is one. */
    public boolean add(String key, byte[] value, int expiry, int flags) {
        return store(Exchange.ADD, Keys.of(key), value, 0, value.length, expiry, flags);
    }

    /** Stores a value if there is such an item. Returns false if there is none. */
    public boolean replace(String key, byte[] value, int expiry, int flags) {
        return store(Exchange.REPLACE, Keys.of(key), value, 0, value.length, expiry, flags);
    }

    /** Adds bytes at the end of a value. Returns false if there is no such item. */
    public boolean append(String key, byte[] more) {
        return store(Exchange.APPEND, Keys.of(key), more, 0, more.length, 0, 0);
    }

    /** Adds bytes at the beginning of a value. Returns false if there is no such item. */
    public boolean prepend(String key, byte[] more) {
        return store(Exchange.PREPEND, Keys.of(key), more, 0, more.length, 0, 0);
    }

    private boolean store(byte[] verb, Keys keys, byte[] value, int offset, int length, int expiry, int flags) {
        long deadline = deadline();
        Connection connection = core.borrow(core.hash(keys), deadline);
        connection.exchange.store(verb, keys, flags, expiry, 0, length);
        connection.exchange.value(value, offset);
        return finish(connection, deadline, Answers::stored);
    }

    private boolean store(byte[] verb, Keys keys, MemorySegment value, int expiry, int flags) {
        long deadline = deadline();
        Exchange.checkLength(value.byteSize());
        Connection connection = core.borrow(core.hash(keys), deadline);
        connection.exchange.store(verb, keys, flags, expiry, 0, value.byteSize());
        connection.exchange.value(value);
        return finish(connection, deadline, Answers::stored);
    }

    /** Stores a value if the item still has this cas id. */
    public CasResult cas(String key, byte[] value, long cas, int expiry, int flags) {
        Keys keys = Keys.of(key);
        long deadline = deadline();
        Connection connection = core.borrow(core.hash(keys), deadline);
        connection.exchange.store(Exchange.CAS, keys, flags, expiry, cas, value.length);
        connection.exchange.value(value, 0);
        return finish(connection, deadline, Answers::compared);
    }

    // Other commands with a key

    /** Deletes an item. Returns false if there is no such item. */
    public boolean delete(String key) {
        Keys keys = Keys.of(key);
        long deadline = deadline();
        Connection connection = core.borrow(core.hash(keys), deadline);
        connection.exchange.command(Exchange.DELETE, keys);
        return finish(connection, deadline, Answers::deleted);
    }

    /**
     * Adds to a value that is a decimal number, and returns the sum, an unsigned number that wraps around; empty if
     * there is no such item.
     */
    public OptionalLong incr(String key, long by) {
        return count(Exchange.INCREMENT, key, by);
    }

    /**
     * Subtracts from a value that is a decimal number, and returns the difference, at least 0; empty if there is no
     * such item.
     */
    public OptionalLong decr(String key, long by) {
        return count(Exchange.DECREMENT, key, by);
    }

    private OptionalLong count(byte[] verb, String key, long by) {
        Keys keys = Keys.of(key);
        long deadline = deadline();
        Connection connection = core.borrow(core.hash(keys), deadline);
        connection.exchange.commandUnsigned(verb, keys, by);
        return finish(connection, deadline, Answers::number);
    }

    /** Sets an item's expiry time. Returns false if there is no such item. */
    public boolean touch(String key, int expiry) {
        Keys keys = Keys.of(key);
        long deadline = deadline();
        Connection connection = core.borrow(core.hash(keys), deadline);
        connection.exchange.commandSigned(Exchange.TOUCH, keys, expiry);
        return finish(connection, deadline, Answers::touched);
    }

    // Commands to all servers

    /** Removes all items of all servers. */
    public void flush() {
        flush(0);
    }

    /** Removes, after some seconds, all items of all servers that are older than that moment. */
    public void flush(int delaySeconds) {
        long deadline = deadline();
        for (Server server : core.servers) {
            Connection connection = server.borrow(deadline);
            connection.exchange.command(flushCommand(delaySeconds));
            finish(connection, deadline, Answers::done);
        }
    }

    static String flushCommand(int delaySeconds) {
        if (delaySeconds < 0) {
            throw new IllegalArgumentException("a delay is not negative: " + delaySeconds);
        }
        return delaySeconds == 0 ? "flush_all" : "flush_all " + delaySeconds;
    }

    /** Returns the statistics of each server. */
    public Map<ServerAddress, Map<String, String>> stats() {
        return stats("");
    }

    /** Returns the statistics of each server on a topic, such as {@code settings}. */
    public Map<ServerAddress, Map<String, String>> stats(String topic) {
        long deadline = deadline();
        Map<ServerAddress, Map<String, String>> all = new LinkedHashMap<>();
        for (Server server : core.servers) {
            StatisticsExchange exchange = new StatisticsExchange(topic);
            finish(server.borrow(deadline), exchange, deadline, answer -> null);
            all.put(server.address, exchange.values());
        }
        return all;
    }

    /** Returns the version of each server. */
    public Map<ServerAddress, String> version() {
        long deadline = deadline();
        Map<ServerAddress, String> versions = new LinkedHashMap<>();
        for (Server server : core.servers) {
            Connection connection = server.borrow(deadline);
            connection.exchange.command("version");
            versions.put(server.address, finish(connection, deadline, Answers::version));
        }
        return versions;
    }

    // Transports and servers

    /**
     * Returns the transport of the latest connection to each server. A server that the client has not connected to is
     * missing.
     */
    public Map<ServerAddress, TransportKind> transports() {
        Map<ServerAddress, TransportKind> transports = new LinkedHashMap<>();
        for (Server server : core.servers) {
            if (server.transport() != null) {
                transports.put(server.address, server.transport());
            }
        }
        return transports;
    }

    /** Returns the server that a key belongs to, without regard to failures. */
    public ServerAddress serverOf(String key) {
        return core.own(core.hash(Keys.of(key))).address;
    }

    // The course of a call

    /**
     * Runs the exchange of a connection that retrieves. Returns false if the connection failed and the caller should
     * try another one. After true, the caller gives the connection back.
     */
    private boolean answered(Connection connection, long deadline, int attempt) {
        try {
            connection.run(connection.exchange, deadline);
        } catch (IOException failed) {
            SituException reason = fail(connection, failed);
            if (attempt > 0 || !(reason instanceof UnavailableException)) {
                throw reason;
            }
            return false;
        } catch (RuntimeException | Error failed) {
            connection.server.discard(connection);
            throw failed;
        }
        if (connection.exchange.isError()) {
            throw refused(connection, connection.exchange);
        }
        return true;
    }

    private <T> T finish(Connection connection, long deadline, AsyncExchange.Result<Exchange, T> result) {
        return finish(connection, connection.exchange, deadline, result);
    }

    /** Runs an exchange, gives the connection back, and returns the result. */
    private static <T> T finish(
            Connection connection, Exchange exchange, long deadline, AsyncExchange.Result<Exchange, T> result) {
        T value;
        try {
            connection.run(exchange, deadline);
            if (exchange.isError()) {
                throw refused(connection, exchange);
            }
            value = result.of(exchange);
        } catch (IOException failed) {
            throw fail(connection, failed);
        } catch (ServerErrorException refused) {
            throw refused;
        } catch (RuntimeException | Error failed) {
            connection.server.discard(connection);
            throw failed;
        }
        connection.server.giveBack(connection);
        return value;
    }

    private static ServerErrorException refused(Connection connection, Exchange exchange) {
        ServerErrorException refused = new ServerErrorException(exchange.text());
        connection.server.giveBack(connection);
        return refused;
    }

    private static SituException fail(Connection connection, IOException failed) {
        connection.server.discard(connection);
        return connection.server.failure(failed);
    }

    /** Closes all connections. Calls that are running fail at the latest at their deadlines. */
    @Override
    public void close() {
        core.close();
    }

    /** The settings of a client. Each has a default that fits most uses. */
    public static final class Builder {
        private List<ServerAddress> servers = List.of();
        private TransportChoice transport = TransportChoice.AUTO;
        private long timeoutNs = TimeUnit.SECONDS.toNanos(1);
        private long connectTimeoutNs = TimeUnit.SECONDS.toNanos(1);
        private int connectionsMax = 8;
        private int queueCallsMax = 16384;
        private long queueBytesMax = 64 << 20;
        private int ringBytes = 256 << 10;
        private boolean failover = true;
        private byte[] login;

        private Builder() {}

        /** Sets the servers, by addresses as {@link ServerAddress#parse} accepts them. */
        public Builder servers(String... addresses) {
            return servers(Arrays.stream(addresses).map(ServerAddress::parse).toList());
        }

        /**
         * Sets the servers. A key belongs to the server that libmemcached chooses with
         * {@code MEMCACHED_BEHAVIOR_KETAMA_WEIGHTED}, if both have the same names of servers: a host's name and its
         * address are two names. The order of servers does not matter.
         */
        public Builder servers(List<ServerAddress> addresses) {
            if (addresses.stream().distinct().count() != addresses.size()) {
                throw new IllegalArgumentException("a server occurs twice: " + addresses);
            }
            servers = List.copyOf(addresses);
            return this;
        }

        /** Sets the choice of the transport; {@link TransportChoice#AUTO} by default. */
        public Builder transport(TransportChoice choice) {
            transport = java.util.Objects.requireNonNull(choice);
            return this;
        }

        /** Sets the deadline of each call, from its beginning; one second by default. */
        public Builder timeout(Duration time) {
            timeoutNs = positiveNanos(time);
            return this;
        }

        /** Sets the time for a connection to be made; one second by default. A call's deadline ends it, too. */
        public Builder connectTimeout(Duration time) {
            connectTimeoutNs = positiveNanos(time);
            return this;
        }

        /**
         * Sets the connections to each server for blocking calls; 8 by default. As many calls can run at once, and
         * others wait. Asynchronous calls have one connection more.
         */
        public Builder connections(int max) {
            connectionsMax = positive(max);
            return this;
        }

        /**
         * Sets the bounds of the queue of asynchronous calls to each server, those that wait for an answer included;
         * 16,384 calls and 64 MiB of keys and values by default. A call beyond them fails with
         * {@link QueueFullException}.
         */
        public Builder queue(int callsMax, long bytesMax) {
            queueCallsMax = positive(callsMax);
            if (bytesMax < 1) {
                throw new IllegalArgumentException("not positive: " + bytesMax);
            }
            queueBytesMax = bytesMax;
            return this;
        }

        /**
         * Sets the size of each of the two rings of a connection in shared memory; 256 KiB by default. The server
         * rounds it up to a power of two, and has a limit.
         */
        public Builder ringBytes(int bytes) {
            ringBytes = positive(bytes);
            return this;
        }

        /**
         * Sends keys of a server that is out of service to the next server; true by default. Without failover, calls
         * for them fail. With failover, a client can read an old value: one that a server had before it was out of
         * service, if another server took a newer one meanwhile.
         */
        public Builder failover(boolean on) {
            failover = on;
            return this;
        }

        /** Sets the user that the client authenticates as. The password travels unencrypted. */
        public Builder user(String name, String password) {
            if ((name + password).chars().anyMatch(c -> c <= ' ') || name.isEmpty() || password.isEmpty()) {
                throw new IllegalArgumentException("a user and a password have no spaces, and are not empty");
            }
            byte[] data = (name + " " + password).getBytes(StandardCharsets.UTF_8);
            byte[] line = Exchange.ascii("set auth 0 0 " + data.length + "\r\n");
            login = Arrays.copyOf(line, line.length + data.length + 2);
            System.arraycopy(data, 0, login, line.length, data.length);
            login[login.length - 2] = '\r';
            login[login.length - 1] = '\n';
            return this;
        }

        private static int positive(int number) {
            if (number < 1) {
                throw new IllegalArgumentException("not positive: " + number);
            }
            return number;
        }

        /**
         * Returns the client. It connects when it is first used.
         *
         * @throws IllegalArgumentException if no server was set
         */
        public SituClient build() {
            if (servers.isEmpty()) {
                throw new IllegalArgumentException("a client needs a server");
            }
            Options options = new Options(servers, transport, timeoutNs, connectTimeoutNs, connectionsMax,
                    queueCallsMax, queueBytesMax, ringBytes, failover, login);
            return new SituClient(new Core(options), timeoutNs);
        }
    }
}
