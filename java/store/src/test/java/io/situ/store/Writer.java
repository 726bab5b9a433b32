package io.situ.store;

import static io.situ.store.StoreTest.bytes;

import java.nio.file.Path;

/**
 * A program that writes until it is killed. A batch puts a number into two keyspaces, durably; then the program prints
 * the number. Every third batch is written asynchronously.
 */
final class Writer {
    private Writer() {}

    /** Returns the key of a number. */
    static byte[] key(int number) {
        return bytes(String.format("%08d", number));
    }

    public static void main(String[] arguments) {
        try (Store store = Store.open(Path.of(arguments[0])); Keyspace one = store.keyspace("one");
                Keyspace two = store.keyspace("two"); Batch batch = new Batch()) {
            for (int number = Integer.parseInt(arguments[1]);; number++) {
                batch.put(one, key(number), new byte[500]).put(two, key(number), key(number));
                if (number % 3 == 0) {
                    store.writeAsync(batch, Durability.SYNCED).join();
                } else {
                    store.write(batch, Durability.SYNCED);
                }
                System.out.println(number);
            }
        }
    }
}
