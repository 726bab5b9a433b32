package io.situ.client.spy;

import static java.nio.charset.StandardCharsets.US_ASCII;

import io.situ.client.AsyncSituClient;
import io.situ.client.DeadlineException;
import io.situ.client.Item;
import io.situ.client.ServerAddress;
import io.situ.client.SituClient;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.time.Duration;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;

/**
 * The common calls of spymemcached's {@code MemcachedClient}. As there, calls that wait have a deadline of 2.5
 * seconds and throw {@link OperationTimeoutException}, and expiry times are memcached's.
 *
 * <p>Keys go to servers as libmemcached's ketama has it. spymemcached's own ketama writes the names of servers in
 * another way, so in a group of several servers both place keys differently.
 */
public final class MemcachedClient implements AutoCloseable {
    private static final Duration TIMEOUT = Duration.ofMillis(2500);

    private final SituClient client;
    private final AsyncSituClient async;
    private final SerializingTranscoder transcoder;

    /** Makes a client of servers. It connects when it is first used. */
    public MemcachedClient(InetSocketAddress... servers) {
        this(Arrays.asList(servers));
    }

    /** Makes a client of servers. It connects when it is first used. */
    public MemcachedClient(List<InetSocketAddress> servers) {
        this(SituClient.builder()
                .servers(servers.stream().map(server -> ServerAddress.tcp(server.getHostString(), server.getPort()))
                        .toList())
                .timeout(TIMEOUT).build(), new SerializingTranscoder());
    }

    /** Makes a view of a client, with other addresses, deadlines or allowed classes. */
    public MemcachedClient(SituClient client, SerializingTranscoder transcoder) {
        this.client = client;
        async = client.async();
        this.transcoder = transcoder;
    }

    private Object object(Item item) {
        return item == null ? null : transcoder.deserialize(item.value(), item.flags());
    }

    private static <T> T waiting(Supplier<T> call) {
        try {
            return call.get();
        } catch (DeadlineException late) {
            throw new OperationTimeoutException(late);
        }
    }

    /** Returns a value; null if there is no such item. */
    public Object get(String key) {
        return waiting(() -> object(client.gets(key)));
    }

    /** Returns a value with its cas id; null if there is no such item. */
    public CASValue<Object> gets(String key) {
        return casValue(waiting(() -> client.gets(key)));
    }

    private CASValue<Object> casValue(Item item) {
        return item == null ? null : new CASValue<>(item.cas(), object(item));
    }

    /** Returns a value with its cas id, and sets the expiry time; null if there is no such item. */
    public CASValue<Object> getAndTouch(String key, int exp) {
        return casValue(waiting(() -> client.gat(key, exp)));
    }

    /** Returns the values that exist among keys. */
    public Map<String, Object> getBulk(Collection<String> keys) {
        return objects(waiting(() -> client.getsAll(keys)));
    }

    /** Returns the values that exist among keys. */
    public Map<String, Object> getBulk(String... keys) {
        return getBulk(Arrays.asList(keys));
    }

    private Map<String, Object> objects(Map<String, Item> items) {
        Map<String, Object> objects = new HashMap<>();
        items.forEach((key, item) -> objects.put(key, object(item)));
        return objects;
    }

    /** Gets a value. */
    public OperationFuture<Object> asyncGet(String key) {
        return new OperationFuture<>(key, async.gets(key).thenApply(this::object));
    }

    /** Gets a value with its cas id. */
    public OperationFuture<CASValue<Object>> asyncGets(String key) {
        return new OperationFuture<>(key, async.gets(key).thenApply(this::casValue));
    }

    /** Gets the values that exist among keys. */
    public OperationFuture<Map<String, Object>> asyncGetBulk(Collection<String> keys) {
        return new OperationFuture<>(String.join(" ", keys), async.getsAll(keys).thenApply(this::objects));
    }

    /** Stores a value. */
    public OperationFuture<Boolean> set(String key, int exp, Object value) {
        SerializingTranscoder.Encoded encoded = transcoder.encode(value);
        return new OperationFuture<>(
                key, async.set(key, encoded.bytes(), exp, encoded.flags()).thenApply(done -> true));
    }

    /** Stores a value if there is no such item. */
    public OperationFuture<Boolean> add(String key, int exp, Object value) {
        SerializingTranscoder.Encoded encoded = transcoder.encode(value);
        return new OperationFuture<>(key, async.add(key, encoded.bytes(), exp, encoded.flags()));
    }

    /** Stores a value if there is such an item. */
    public OperationFuture<Boolean> replace(String key, int exp, Object value) {
        SerializingTranscoder.Encoded encoded = transcoder.encode(value);
        return new OperationFuture<>(key, async.replace(key, encoded.bytes(), exp, encoded.flags()));
    }

    /** Adds a value at the end of an item. */
    public OperationFuture<Boolean> append(String key, Object value) {
        return new OperationFuture<>(key, async.append(key, transcoder.encode(value).bytes()));
    }

    /** Adds a value at the beginning of an item. */
    public OperationFuture<Boolean> prepend(String key, Object value) {
        return new OperationFuture<>(key, async.prepend(key, transcoder.encode(value).bytes()));
    }

    /** Stores a value that does not expire if the item still has this cas id. */
    public CASResponse cas(String key, long casId, Object value) {
        return cas(key, casId, 0, value);
    }

    /** Stores a value if the item still has this cas id. */
    public CASResponse cas(String key, long casId, int exp, Object value) {
        SerializingTranscoder.Encoded encoded = transcoder.encode(value);
        return switch (waiting(() -> client.cas(key, encoded.bytes(), casId, exp, encoded.flags()))) {
            case STORED -> CASResponse.OK;
            case EXISTS -> CASResponse.EXISTS;
            case NOT_FOUND -> CASResponse.NOT_FOUND;
        };
    }

    /** Deletes an item. */
    public OperationFuture<Boolean> delete(String key) {
        return new OperationFuture<>(key, async.delete(key));
    }

    /** Sets an item's expiry time. */
    public OperationFuture<Boolean> touch(String key, int exp) {
        return new OperationFuture<>(key, async.touch(key, exp));
    }

    /** Adds to a number. Returns the sum, or -1 if there is no such item. */
    public long incr(String key, long by) {
        return waiting(() -> client.incr(key, by)).orElse(-1);
    }

    /** Subtracts from a number. Returns the difference, or -1 if there is no such item. */
    public long decr(String key, long by) {
        return waiting(() -> client.decr(key, by)).orElse(-1);
    }

    /** Adds to a number. If there is no such item, stores and returns the default, which does not expire. */
    public long incr(String key, long by, long def) {
        return count(() -> client.incr(key, by).orElse(-1), key, def);
    }

    /** Subtracts from a number. If there is no such item, stores and returns the default, which does not expire. */
    public long decr(String key, long by, long def) {
        return count(() -> client.decr(key, by).orElse(-1), key, def);
    }

    private long count(Supplier<Long> change, String key, long def) {
        while (true) {
            long result = waiting(change);
            if (result != -1) {
                return result;
            }
            byte[] text = Long.toUnsignedString(def).getBytes(US_ASCII);
            if (waiting(() -> client.add(key, text, 0, 0))) {
                return def;
            }
        }
    }

    /** Removes all items of all servers. */
    public OperationFuture<Boolean> flush() {
        return new OperationFuture<>("", async.flush().thenApply(done -> true));
    }

    /** Removes, after some seconds, all items of all servers. */
    public OperationFuture<Boolean> flush(int delay) {
        return new OperationFuture<>("", async.flush(delay).thenApply(done -> true));
    }

    /** Returns the statistics of each server. */
    public Map<SocketAddress, Map<String, String>> getStats() {
        return byAddress(waiting(client::stats));
    }

    /** Returns the statistics of each server on a topic. */
    public Map<SocketAddress, Map<String, String>> getStats(String topic) {
        return byAddress(waiting(() -> client.stats(topic)));
    }

    /** Returns the version of each server. */
    public Map<SocketAddress, String> getVersions() {
        return byAddress(waiting(client::version));
    }

    private static <T> Map<SocketAddress, T> byAddress(Map<ServerAddress, T> results) {
        Map<SocketAddress, T> byAddress = new LinkedHashMap<>();
        results.forEach((server, result) -> byAddress.put(server.isUnix()
                ? java.net.UnixDomainSocketAddress.of(server.host())
                : InetSocketAddress.createUnresolved(server.host(), server.port()), result));
        return byAddress;
    }

    /** Closes the client at once. */
    public void shutdown() {
        client.close();
    }

    /** Waits until the asynchronous calls have ended, at most for a time, and closes the client. */
    public boolean shutdown(long timeout, TimeUnit unit) {
        boolean ended = waitForQueues(timeout, unit);
        client.close();
        return ended;
    }

    /** Waits until the asynchronous calls that were made so far have ended. Returns false after a time. */
    public boolean waitForQueues(long timeout, TimeUnit unit) {
        // Answers come in the order of requests, so the last one's answer is the end of all.
        CompletableFuture<Boolean> last = async.version().handle((versions, failed) -> failed == null);
        return last.completeOnTimeout(false, timeout, unit).join();
    }

    @Override
    public void close() {
        shutdown();
    }
}
