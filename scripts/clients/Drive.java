import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Random;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import net.rubyeye.xmemcached.XMemcachedClientBuilder;
import net.rubyeye.xmemcached.command.BinaryCommandFactory;
import net.spy.memcached.CASResponse;
import net.spy.memcached.ConnectionFactoryBuilder;
import net.spy.memcached.transcoders.SerializingTranscoder;

/**
 * Runs the list of operations with a Java client, and prints a line for each: its name, a tab, and its result.
 *
 * <pre>java -cp CLASSPATH Drive.java spymemcached|spymemcached-binary|xmemcached|xmemcached-binary VERSION HOST PORT</pre>
 *
 * {@code scripts/clients/run.py} has the list and the form of the lines. An adapter gives each client the same methods. The methods
 * that it lacks are operations that the client does not offer. If the first operation fails, the rest is not run.
 */
public class Drive {
    static final int TIMEOUT_MS = 20_000;
    // The clients refuse larger values themselves: here the server has to. Compression would make the large values small.
    static final int VALUE_MAX = 64 << 20;

    static class NotOffered extends Exception {}

    record Found(Object value, long token) {}

    interface Client {
        boolean set(String key, int expire, Object value) throws Exception;
        Object get(String key) throws Exception;
        boolean add(String key, Object value) throws Exception;
        boolean replace(String key, Object value) throws Exception;
        boolean append(String key, String value) throws Exception;
        boolean prepend(String key, String value) throws Exception;
        Found gets(String key) throws Exception;
        boolean cas(String key, long token, Object value) throws Exception;
        long incr(String key, int by) throws Exception;
        long decr(String key, int by) throws Exception;
        boolean delete(String key) throws Exception;
        Map<String, Object> getMany(List<String> keys) throws Exception;
        boolean touch(String key, int expire) throws Exception;
        Object gat(String key, int expire) throws Exception;
        Map<String, String> stats() throws Exception;
        String version() throws Exception;
        boolean flushAll() throws Exception;
    }

    static class Spymemcached implements Client {
        final net.spy.memcached.MemcachedClient client;
        final boolean binary;

        Spymemcached(InetSocketAddress address, boolean binary) throws Exception {
            this.binary = binary;
            SerializingTranscoder transcoder = new SerializingTranscoder(VALUE_MAX);
            transcoder.setCompressionThreshold(Integer.MAX_VALUE);
            client = new net.spy.memcached.MemcachedClient(
                    new ConnectionFactoryBuilder()
                            .setProtocol(binary ? ConnectionFactoryBuilder.Protocol.BINARY : ConnectionFactoryBuilder.Protocol.TEXT)
                            .setOpTimeout(TIMEOUT_MS)
                            .setTranscoder(transcoder)
                            .build(),
                    List.of(address));
        }

        static <T> T wait(Future<T> answer) throws Exception {
            return answer.get(TIMEOUT_MS, TimeUnit.MILLISECONDS);
        }

        public boolean set(String key, int expire, Object value) throws Exception { return wait(client.set(key, expire, value)); }
        public Object get(String key) { return client.get(key); }
        public boolean add(String key, Object value) throws Exception { return wait(client.add(key, 0, value)); }
        public boolean replace(String key, Object value) throws Exception { return wait(client.replace(key, 0, value)); }
        public boolean append(String key, String value) throws Exception { return wait(client.append(key, value)); }
        public boolean prepend(String key, String value) throws Exception { return wait(client.prepend(key, value)); }
        public Found gets(String key) {
            var found = client.gets(key);
            return new Found(found.getValue(), found.getCas());
        }
        public boolean cas(String key, long token, Object value) { return client.cas(key, token, value) == CASResponse.OK; }
        public long incr(String key, int by) { return client.incr(key, by); }
        public long decr(String key, int by) { return client.decr(key, by); }
        public boolean delete(String key) throws Exception { return wait(client.delete(key)); }
        public Map<String, Object> getMany(List<String> keys) { return client.getBulk(keys); }
        public boolean touch(String key, int expire) throws Exception { return wait(client.touch(key, expire)); }
        public Object gat(String key, int expire) throws Exception {
            // In the text protocol, the client has no command for it.
            if (!binary) throw new NotOffered();
            return client.getAndTouch(key, expire).getValue();
        }
        public Map<String, String> stats() { return client.getStats().values().iterator().next(); }
        public String version() { return client.getVersions().values().iterator().next(); }
        public boolean flushAll() throws Exception { return wait(client.flush()); }
    }

    static class Xmemcached implements Client {
        final net.rubyeye.xmemcached.MemcachedClient client;
        final boolean binary;

        Xmemcached(InetSocketAddress address, boolean binary) throws Exception {
            this.binary = binary;
            var builder = new XMemcachedClientBuilder(List.of(address));
            if (binary) builder.setCommandFactory(new BinaryCommandFactory());
            builder.setOpTimeout(TIMEOUT_MS);
            var transcoder = new net.rubyeye.xmemcached.transcoders.SerializingTranscoder(VALUE_MAX);
            transcoder.setCompressionThreshold(Integer.MAX_VALUE);
            builder.setTranscoder(transcoder);
            client = builder.build();
        }

        public boolean set(String key, int expire, Object value) throws Exception { return client.set(key, expire, value); }
        public Object get(String key) throws Exception { return client.get(key); }
        public boolean add(String key, Object value) throws Exception { return client.add(key, 0, value); }
        public boolean replace(String key, Object value) throws Exception { return client.replace(key, 0, value); }
        public boolean append(String key, String value) throws Exception { return client.append(key, value); }
        public boolean prepend(String key, String value) throws Exception { return client.prepend(key, value); }
        public Found gets(String key) throws Exception {
            var found = client.gets(key);
            return new Found(found.getValue(), found.getCas());
        }
        public boolean cas(String key, long token, Object value) throws Exception { return client.cas(key, 0, value, token); }
        public long incr(String key, int by) throws Exception { return client.incr(key, by); }
        public long decr(String key, int by) throws Exception { return client.decr(key, by); }
        public boolean delete(String key) throws Exception { return client.delete(key); }
        public Map<String, Object> getMany(List<String> keys) throws Exception { return client.get(keys); }
        public boolean touch(String key, int expire) throws Exception { return client.touch(key, expire); }
        public Object gat(String key, int expire) throws Exception {
            try {
                return client.getAndTouch(key, expire);
            } catch (UnsupportedOperationException none) {
                throw new NotOffered();
            }
        }
        public Map<String, String> stats() throws Exception { return client.getStats().values().iterator().next(); }
        public String version() throws Exception { return client.getVersions().values().iterator().next(); }
        public boolean flushAll() throws Exception {
            // It returns nothing.
            client.flushAll();
            return true;
        }
    }

    static void expect(Object found, Object wanted) {
        if (!Objects.equals(found, wanted)) {
            throw new IllegalStateException("returned " + brief(found) + ", expected " + brief(wanted));
        }
    }

    static String brief(Object value) {
        String text = String.valueOf(value);
        return text.length() <= 60 ? text : text.substring(0, 57) + "...";
    }

    interface Run {
        void run() throws Exception;
    }

    interface Store {
        boolean store() throws Exception;
    }

    /** Checks that a call stores nothing. Some clients throw an exception then, others return false. */
    static void refused(Store call) {
        boolean stored;
        try {
            stored = call.store();
        } catch (Exception refusal) {
            return;
        }
        expect(stored, false);
    }

    static String noise(int length) {
        return new Random(length).ints(length, 'a', 'z' + 1).collect(StringBuilder::new, StringBuilder::appendCodePoint, StringBuilder::append)
                .toString();
    }

    static Map<String, Run> operations(Client client) {
        Map<String, Run> all = new java.util.LinkedHashMap<>();
        all.put("set", () -> expect(client.set("key", 0, "value"), true));
        all.put("get", () -> expect(client.get("key"), "value"));
        all.put("get missing", () -> expect(client.get("missing"), null));
        all.put("types", () -> {
            for (Object value : List.of(7, 7L, 2.5, true, "text", new ArrayList<>(List.of(1, "two")))) {
                expect(client.set("typed", 0, value), true);
                expect(client.get("typed"), value);
            }
        });
        all.put("add", () -> {
            expect(client.add("added", "one"), true);
            expect(client.get("added"), "one");
        });
        all.put("add existing", () -> {
            expect(client.add("added", "two"), false);
            expect(client.get("added"), "one");
        });
        all.put("replace", () -> {
            expect(client.replace("added", "three"), true);
            expect(client.get("added"), "three");
            expect(client.replace("missing", "three"), false);
            expect(client.get("missing"), null);
        });
        all.put("append", () -> {
            expect(client.set("joined", 0, "b"), true);
            expect(client.append("joined", "c"), true);
            expect(client.get("joined"), "bc");
        });
        all.put("prepend", () -> {
            expect(client.prepend("joined", "a"), true);
            expect(client.get("joined"), "abc");
        });
        all.put("cas", () -> {
            expect(client.set("swapped", 0, "one"), true);
            Found found = client.gets("swapped");
            expect(found.value(), "one");
            expect(client.cas("swapped", found.token(), "two"), true);
            expect(client.get("swapped"), "two");
        });
        all.put("cas conflict", () -> {
            Found found = client.gets("swapped");
            expect(client.set("swapped", 0, "three"), true);
            expect(client.cas("swapped", found.token(), "four"), false);
            expect(client.get("swapped"), "three");
        });
        all.put("incr", () -> {
            expect(client.set("count", 0, "10"), true);
            expect(client.incr("count", 5), 15L);
        });
        all.put("decr", () -> {
            expect(client.decr("count", 6), 9L);
            // memcached keeps the length of the number, with a space in the place of a digit.
            expect(String.valueOf(client.get("count")).trim(), "9");
        });
        all.put("delete", () -> {
            expect(client.delete("key"), true);
            expect(client.get("key"), null);
        });
        all.put("delete missing", () -> expect(client.delete("key"), false));
        all.put("many keys", () -> {
            Map<String, Object> items = new HashMap<>();
            for (int number = 0; number < 100; number++) {
                items.put("many" + number, "value" + number);
                expect(client.set("many" + number, 0, "value" + number), true);
            }
            List<String> keys = new ArrayList<>(items.keySet());
            keys.add("missing");
            expect(client.getMany(keys), items);
        });
        all.put("touch", () -> {
            expect(client.set("touched", 100, "value"), true);
            expect(client.touch("touched", 1), true);
            expect(client.get("touched"), "value");
            Thread.sleep(2500);
            expect(client.get("touched"), null);
            expect(client.touch("touched", 1), false);
        });
        all.put("gat", () -> {
            expect(client.set("gotten", 100, "value"), true);
            expect(client.gat("gotten", 1), "value");
            Thread.sleep(2500);
            expect(client.get("gotten"), null);
        });
        all.put("expiry", () -> {
            expect(client.set("short", 1, "value"), true);
            expect(client.set("long", 100, "value"), true);
            Thread.sleep(2500);
            expect(client.get("short"), null);
            expect(client.get("long"), "value");
        });
        all.put("900 KB", () -> {
            String value = noise(900_000);
            expect(client.set("large", 0, value), true);
            expect(client.get("large").equals(value), true);
        });
        all.put("over 1 MB", () -> refused(() -> client.set("over", 0, noise(2_000_000))));
        all.put("after over 1 MB", () -> {
            expect(client.set("after", 0, "value"), true);
            expect(client.get("after"), "value");
            expect(client.get("over"), null);
        });
        all.put("key of 250 bytes", () -> {
            expect(client.set("k".repeat(250), 0, "value"), true);
            expect(client.get("k".repeat(250)), "value");
        });
        all.put("stats", () -> {
            Map<String, String> stats = client.stats();
            expect(Long.parseLong(stats.get("curr_items")) >= 1 && Long.parseLong(stats.get("pid")) >= 1, true);
        });
        all.put("version", () -> {
            String version = client.version();
            if (!version.matches("[0-9].*")) throw new IllegalStateException("returned " + brief(version));
        });
        all.put("1000 in a row", () -> {
            for (int step = 0; step < 1000; step++) {
                expect(client.set("row" + step, 0, "value" + step), true);
                expect(client.get("row" + step), "value" + step);
            }
        });
        all.put("two at once", () -> {
            ExecutorService threads = Executors.newFixedThreadPool(2);
            List<Future<?>> ends = new ArrayList<>();
            for (int number = 0; number < 2; number++) {
                String name = "thread" + number;
                ends.add(threads.submit(() -> {
                    for (int step = 0; step < 200; step++) {
                        expect(client.set(name + "-" + step, 0, name + step), true);
                        expect(client.get(name + "-" + step), name + step);
                    }
                    return null;
                }));
            }
            threads.shutdown();
            for (Future<?> end : ends) end.get();
        });
        all.put("flush_all", () -> {
            expect(client.set("flushed", 0, "value"), true);
            expect(client.flushAll(), true);
            expect(client.get("flushed"), null);
            expect(client.set("flushed", 0, "again"), true);
            expect(client.get("flushed"), "again");
        });
        return all;
    }

    public static void main(String[] arguments) throws Exception {
        String name = arguments[0];
        InetSocketAddress address = new InetSocketAddress(arguments[2], Integer.parseInt(arguments[3]));
        boolean binary = name.endsWith("-binary");
        System.setProperty("net.spy.log.LoggerImpl", "net.spy.memcached.compat.log.SunLogger");
        java.util.logging.LogManager.getLogManager().reset();
        System.out.println("client\t" + arguments[1] + "\t" + (binary ? "binary" : "text"));
        Client client = name.startsWith("spymemcached") ? new Spymemcached(address, binary) : new Xmemcached(address, binary);
        for (Map.Entry<String, Run> operation : operations(client).entrySet()) {
            String result;
            try {
                operation.getValue().run();
                result = "ok";
            } catch (NotOffered none) {
                result = "not offered";
            } catch (Exception failure) {
                String why = (failure.getClass().getSimpleName() + ": " + failure.getMessage()).replaceAll("\\s+", " ");
                result = "failed: " + why.substring(0, Math.min(200, why.length()));
            }
            System.out.println(operation.getKey() + "\t" + result);
            if (operation.getKey().equals("set") && !result.equals("ok")) break;
        }
        System.exit(0);
    }
}
