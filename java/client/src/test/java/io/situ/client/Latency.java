package io.situ.client;

import java.net.InetSocketAddress;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.TimeUnit;

/**
 * Measures the latency of get and set by every transport, in one process with one thread.
 *
 * <p>{@code Latency ADDRESS [VALUE_BYTES [CALLS]]}: a TCP address is also measured with spymemcached.
 */
public final class Latency {
    private Latency() {}

    private interface Call {
        void run() throws Exception;
    }

    /** Runs the measurements and prints a line for each. */
    public static void main(String[] arguments) throws Exception {
        ServerAddress address = ServerAddress.parse(arguments[0]);
        int bytes = arguments.length > 1 ? Integer.parseInt(arguments[1]) : 100;
        int calls = arguments.length > 2 ? Integer.parseInt(arguments[2]) : 50_000;
        System.out.printf("%-14s %-8s %7s %9s %9s %9s%n", "transport", "call", "bytes", "p50 us", "p99 us", "mean us");
        for (TransportChoice choice : List.of(TransportChoice.SOCKET, TransportChoice.SHARED_MEMORY)) {
            if (choice == TransportChoice.SHARED_MEMORY && !address.isUnix()) {
                continue;
            }
            try (SituClient client = SituClient.builder().servers(List.of(address)).transport(choice)
                    .timeout(Duration.ofSeconds(10)).build()) {
                byte[] key = "latency-key".getBytes();
                byte[] value = new byte[bytes];
                byte[] place = new byte[bytes];
                try {
                    client.set(key, value, 0, 0);
                } catch (UnavailableException notOffered) {
                    System.out.println(choice + ": " + notOffered.getMessage());
                    continue;
                }
                String kind = client.transports().get(address).toString();
                measure(kind, "set", bytes, calls, () -> client.set(key, value, 0, 0));
                measure(kind, "get", bytes, calls, () -> client.get(key, place));
                AsyncSituClient async = client.async();
                measure(kind, "asyncget", bytes, calls, () -> async.get("latency-key").join());
            }
        }
        if (!address.isUnix()) {
            var spy = new net.spy.memcached.MemcachedClient(new InetSocketAddress(address.host(), address.port()));
            byte[] value = new byte[bytes];
            spy.set("latency-key", 0, value).get();
            measure("spymemcached", "set", bytes, calls, () -> spy.set("latency-key", 0, value).get());
            measure("spymemcached", "get", bytes, calls, () -> spy.get("latency-key"));
            spy.shutdown();
        }
    }

    private static void measure(String transport, String name, int bytes, int calls, Call call) throws Exception {
        for (int i = 0; i < calls / 2; i++) {
            call.run();
        }
        long[] times = new long[calls];
        for (int i = 0; i < calls; i++) {
            long begin = System.nanoTime();
            call.run();
            times[i] = System.nanoTime() - begin;
        }
        Arrays.sort(times);
        System.out.printf("%-14s %-8s %7d %9.2f %9.2f %9.2f%n", transport, name, bytes, times[calls / 2] / 1e3,
                times[calls * 99 / 100] / 1e3,
                Arrays.stream(times).average().orElse(0) / TimeUnit.MICROSECONDS.toNanos(1));
    }
}
