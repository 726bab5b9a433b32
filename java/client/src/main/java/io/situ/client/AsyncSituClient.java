package io.situ.client;

import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.TimeUnit;

/**
 * A client whose calls return futures. The calls to one server share a connection: requests leave without waiting for
 * earlier answers.
 *
 * <p>Futures fail with the exceptions that {@link SituClient} throws, and with {@link QueueFullException}. They
 * complete in the thread that reads answers, so functions that wait belong into the {@code Async} variants of
 * {@link CompletableFuture}'s methods. A cancelled call may be executed.
 *
 * <p>Arrays and segments must not change before the future completes and, after a failure, while the client is open. A
 * segment must be accessible from all threads.
 */
public final class AsyncSituClient {
    private static final int HEAD_BYTES = 64;

    private final Core core;
    private final long timeoutNs;

    AsyncSituClient(Core core, long timeoutNs) {
        this.core = core;
        this.timeoutNs = timeoutNs;
    }

    private <E extends Exchange, T> CompletableFuture<T> submit(
            Server server, long hash, E exchange, AsyncExchange.Result<E, T> result) {
        AsyncExchange<T> call = new AsyncExchange<>(exchange, hash, System.nanoTime() + timeoutNs, result);
        call.future.orTimeout(timeoutNs, TimeUnit.NANOSECONDS);
        server.pipeline.submit(call);
        return call.future;
    }

    private <T> CompletableFuture<T> submit(Keys keys, Exchange exchange, AsyncExchange.Result<Exchange, T> result) {
        long hash = core.hash(keys);
        return submit(core.server(hash), hash, exchange, result);
    }

    private static Exchange exchange(Keys keys) {
        return new Exchange(HEAD_BYTES + keys.length);
    }

    /** Returns a value; null if there is no such item. */
    public CompletableFuture<byte[]> get(String key) {
        Keys keys = Keys.of(key);
        Exchange exchange = exchange(keys);
        exchange.retrieve(Exchange.GET, keys);
        return submit(keys, exchange, Answers::value);
    }

    /** Returns an item with its flags and its cas id; null if there is no such item. */
    public CompletableFuture<Item> gets(String key) {
        Keys keys = Keys.of(key);
        Exchange exchange = exchange(keys);
        exchange.retrieve(Exchange.GETS, keys);
        return submit(keys, exchange, Answers::item);
    }

    /**
     * Copies a value into a segment, and returns the value's length or {@link SituClient#MISS}. If the segment is
     * shorter, it has the beginning of the value. The client may write to the segment until the future completes and,
     * after a failure, while the client is open.
     */
    public CompletableFuture<Integer> get(String key, MemorySegment destination) {
        Keys keys = Keys.of(key);
        Exchange exchange = exchange(keys);
        exchange.retrieve(Exchange.GET, keys);
        exchange.into(destination);
        return submit(keys, exchange, answer -> answer.found() ? answer.dataLength() : SituClient.MISS);
    }

    /** Returns the values that exist among keys. */
    public CompletableFuture<Map<String, byte[]>> getAll(Collection<String> keys) {
        return getSeveral(keys.stream().distinct().toList(), false, true).thenApply(items -> {
            Map<String, byte[]> values = new HashMap<>();
            items.forEach((key, item) -> values.put(key, item.value()));
            return values;
        });
    }

    /** Returns the items that exist among keys, with their flags and cas ids. */
    public CompletableFuture<Map<String, Item>> getsAll(Collection<String> keys) {
        return getSeveral(keys.stream().distinct().toList(), true, true);
    }

    private CompletableFuture<Map<String, Item>> getSeveral(List<String> keys, boolean withCas, boolean repeat) {
        Map<Server, List<String>> perServer = new LinkedHashMap<>();
        for (String key : keys) {
            Server server = core.server(core.hash(Keys.of(key)));
            perServer.computeIfAbsent(server, any -> new ArrayList<>()).add(key);
        }
        List<CompletableFuture<Map<String, Item>>> parts = new ArrayList<>();
        perServer.forEach((server, all) -> {
            for (int from = 0; from < all.size(); from += MultiGetExchange.KEYS_MAX) {
                List<String> some = all.subList(from, Math.min(from + MultiGetExchange.KEYS_MAX, all.size()));
                MultiGetExchange exchange = new MultiGetExchange(some, withCas);
                CompletableFuture<Map<String, Item>> part =
                        submit(server, AsyncExchange.NO_HASH, exchange, MultiGetExchange::items);
                // Another server may have taken the place of one that failed.
                parts.add(!repeat ? part : part.exceptionallyCompose(reason ->
                        reason instanceof UnavailableException ? getSeveral(some, withCas, false)
                                : CompletableFuture.failedFuture(reason)));
            }
        });
        return all(parts).thenApply(maps -> {
            Map<String, Item> items = new HashMap<>();
            maps.forEach(items::putAll);
            return items;
        });
    }

    /** Returns a future of all results; it fails as the first one that fails. */
    private static <T> CompletableFuture<List<T>> all(List<CompletableFuture<T>> futures) {
        CompletableFuture<List<T>> whole = new CompletableFuture<>();
        CompletableFuture.allOf(futures.toArray(CompletableFuture[]::new)).whenComplete((none, reason) -> {
            if (reason == null) {
                whole.complete(futures.stream().map(CompletableFuture::join).toList());
            } else {
                boolean wrapped = reason instanceof CompletionException && reason.getCause() != null;
                whole.completeExceptionally(wrapped ? reason.getCause() : reason);
            }
        });
        return whole;
    }

    /** Sets an item's expiry time and returns the item; null if there is no such item. */
    public CompletableFuture<Item> gat(String key, int expiry) {
        Keys keys = Keys.of(key);
        Exchange exchange = exchange(keys);
        exchange.retrieveAndTouch(keys, expiry);
        return submit(keys, exchange, Answers::item);
    }

    /** Stores a value with flags 0. */
    public CompletableFuture<Void> set(String key, byte[] value, int expiry) {
        return set(key, value, expiry, 0);
    }

    /** Stores a value. */
    public CompletableFuture<Void> set(String key, byte[] value, int expiry, int flags) {
        return store(Exchange.SET, key, value, expiry, flags, AsyncSituClient::setDone);
    }

    /** Stores a segment. Over shared memory it is copied once, into the ring. */
    public CompletableFuture<Void> set(String key, MemorySegment value, int expiry, int flags) {
        Keys keys = Keys.of(key);
        Exchange exchange = exchange(keys);
        exchange.store(Exchange.SET, keys, flags, expiry, 0, value.byteSize());
        exchange.value(value);
        return submit(keys, exchange, AsyncSituClient::setDone);
    }

    private static Void setDone(Exchange answer) throws ProtocolException {
        Answers.stored(answer);
        return null;
    }

    /** Stores a value if there is no such item. Returns false if there is one. */
    public CompletableFuture<Boolean> add(String key, byte[] value, int expiry, int flags) {
        return store(Exchange.ADD, key, value, expiry, flags, Answers::stored);
    }

    /** Stores a value if there is such an item. Returns false if there is none. */
    public CompletableFuture<Boolean> replace(String key, byte[] value, int expiry, int flags) {
        return store(Exchange.REPLACE, key, value, expiry, flags, Answers::stored);
    }

    /** Adds bytes at the end of a value. Returns false if there is no such item. */
    public CompletableFuture<Boolean> append(String key, byte[] more) {
        return store(Exchange.APPEND, key, more, 0, 0, Answers::stored);
    }

    /** Adds bytes at the beginning of a value. Returns false if there is no such item. */
    public CompletableFuture<Boolean> prepend(String key, byte[] more) {
        return store(Exchange.PREPEND, key, more, 0, 0, Answers::stored);
    }

    /** Stores a value if the item still has this cas id. */
    public CompletableFuture<CasResult> cas(String key, byte[] value, long cas, int expiry, int flags) {
        Keys keys = Keys.of(key);
        Exchange exchange = exchange(keys);
        exchange.store(Exchange.CAS, keys, flags, expiry, cas, value.length);
        exchange.value(value, 0);
        return submit(keys, exchange, Answers::compared);
    }

    private <T> CompletableFuture<T> store(byte[] verb, String key, byte[] value, int expiry, int flags,
            AsyncExchange.Result<Exchange, T> result) {
        Keys keys = Keys.of(key);
        Exchange exchange = exchange(keys);
        exchange.store(verb, keys, flags, expiry, 0, value.length);
        exchange.value(value, 0);
        return submit(keys, exchange, result);
    }

    /** Deletes an item. Returns false if there is no such item. */
    public CompletableFuture<Boolean> delete(String key) {
        Keys keys = Keys.of(key);
        Exchange exchange = exchange(keys);
        exchange.command(Exchange.DELETE, keys);
        return submit(keys, exchange, Answers::deleted);
    }

    /** Adds to a number, as {@link SituClient#incr} does. */
    public CompletableFuture<OptionalLong> incr(String key, long by) {
        return count(Exchange.INCREMENT, key, by);
    }

    /** Subtracts from a number, as {@link SituClient#decr} does. */
    public CompletableFuture<OptionalLong> decr(String key, long by) {
        return count(Exchange.DECREMENT, key, by);
    }

    private CompletableFuture<OptionalLong> count(byte[] verb, String key, long by) {
        Keys keys = Keys.of(key);
        Exchange exchange = exchange(keys);
        exchange.commandUnsigned(verb, keys, by);
        return submit(keys, exchange, Answers::number);
    }

    /** Sets an item's expiry time. Returns false if there is no such item. */
    public CompletableFuture<Boolean> touch(String key, int expiry) {
        Keys keys = Keys.of(key);
        Exchange exchange = exchange(keys);
        exchange.commandSigned(Exchange.TOUCH, keys, expiry);
        return submit(keys, exchange, Answers::touched);
    }

    /** Removes all items of all servers. */
    public CompletableFuture<Void> flush() {
        return flush(0);
    }

    /** Removes, after some seconds, all items of all servers that are older than that moment. */
    public CompletableFuture<Void> flush(int delaySeconds) {
        return everywhere(() -> command(SituClient.flushCommand(delaySeconds)), Answers::done).thenApply(all -> null);
    }

    /** Returns the statistics of each server. */
    public CompletableFuture<Map<ServerAddress, Map<String, String>>> stats() {
        return stats("");
    }

    /** Returns the statistics of each server on a topic, such as {@code settings}. */
    public CompletableFuture<Map<ServerAddress, Map<String, String>>> stats(String topic) {
        return everywhere(() -> new StatisticsExchange(topic), StatisticsExchange::values);
    }

    /** Returns the version of each server. */
    public CompletableFuture<Map<ServerAddress, String>> version() {
        return everywhere(() -> command("version"), Answers::version);
    }

    private static Exchange command(String line) {
        Exchange exchange = new Exchange(HEAD_BYTES);
        exchange.command(line);
        return exchange;
    }

    private <E extends Exchange, T> CompletableFuture<Map<ServerAddress, T>> everywhere(
            java.util.function.Supplier<E> exchange, AsyncExchange.Result<E, T> result) {
        List<CompletableFuture<T>> futures = new ArrayList<>();
        for (Server server : core.servers) {
            futures.add(submit(server, AsyncExchange.NO_HASH, exchange.get(), result));
        }
        return all(futures).thenApply(results -> {
            Map<ServerAddress, T> byServer = new LinkedHashMap<>();
            for (int index = 0; index < results.size(); index++) {
                byServer.put(core.servers.get(index).address, results.get(index));
            }
            return byServer;
        });
    }
}
