package io.situ.store;

import static io.situ.store.StoreTest.bytes;

import java.nio.file.Path;

/** A program that ends while an asynchronous call is under way. Its own hook then completes the first call. */
final class LastCall {
    private LastCall() {}

    public static void main(String[] arguments) {
        Keyspace map = Store.open(Path.of(arguments[0])).keyspace("default");
        Runtime.getRuntime().addShutdownHook(new Thread(() -> look(map)));
        // The library does not know this call, so it does not end.
        Completion.of((done, context) -> {});
    }

    private static void look(Keyspace map) {
        try {
            for (int i = 0; i < 5000; i++) {
                for (Thread hook : Thread.getAllStackTraces().keySet()) {
                    if (hook.getName().equals("situ-exit")) {
                        System.out.println("the end waits");
                        map.putAsync(bytes("key"), bytes("value"), Durability.SYNCED).join();
                        hook.join();
                        return;
                    }
                }
                Thread.sleep(1);
            }
        } catch (InterruptedException ended) {
            throw new AssertionError(ended);
        }
    }
}
