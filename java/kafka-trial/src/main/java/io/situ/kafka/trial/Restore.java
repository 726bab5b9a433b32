package io.situ.kafka.trial;

import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.TimeUnit;

/**
 * {@code Restore <results.jsonl> <turns> <partitions> <keys> <topology>}: a new instance with an empty directory
 * restores a changelog that has each key once, with our stores and with RocksDB's in turns. A line of the results has
 * the time from the beginning of the first partition's restore to the end of the last one's.
 */
final class Restore {
    private Restore() {}

    /** Runs the measurements. */
    public static void main(String[] arguments) throws Exception {
        Path results = Path.of(arguments[0]);
        int turns = Integer.parseInt(arguments[1]);
        int partitions = Integer.parseInt(arguments[2]);
        int keys = Integer.parseInt(arguments[3]);
        String topology = arguments[4];
        Path place = Files.createTempDirectory(Path.of(System.getProperty("trial.directory", "/tmp")), "kafka-restore");
        try (Broker broker = new Broker(place)) {
            broker.createTopics(partitions, "in", "out");
            Speed.fillEach(broker, "in", System.currentTimeMillis(), keys, partitions);
            List<String> said = new ArrayList<>();
            Process first = Speed.start(broker, topology, Speed.STORES.getFirst(), place, said);
            try (Speed.Output output = new Speed.Output(broker, partitions)) {
                if (!output.await(keys, 60_000)) {
                    throw new IllegalStateException("the output ended at " + output.count + " records: " + said);
                }
            }
            close(first);
            for (int turn = 0; turn < turns; turn++) {
                for (String store : turn % 2 == 0 ? Speed.STORES : Speed.STORES.reversed()) {
                    remove(place.resolve("state"));
                    String line = measure(broker, topology, store, turn, partitions, keys, place);
                    System.out.println(line);
                    Files.writeString(results, line + "\n", StandardOpenOption.CREATE, StandardOpenOption.APPEND);
                }
            }
        } finally {
            remove(place);
        }
    }

    private static String measure(
            Broker broker, String topology, String store, int turn, int partitions, int keys, Path place)
            throws Exception {
        List<String> said = new ArrayList<>();
        Process process = Speed.start(broker, topology, store, place, said);
        try {
            long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(120);
            while (timesOf(said, "restored ").size() < partitions || timesOf(said, "state RUNNING").isEmpty()) {
                if (System.nanoTime() > end) {
                    throw new IllegalStateException("the restore does not end: " + said);
                }
                Thread.sleep(20);
            }
            long cpuMs = Speed.cpu(process);
            long restoreMs = timesOf(said, "restored ").getLast() - timesOf(said, "restore ").getFirst();
            long records = 0;
            synchronized (said) {
                for (String line : said) {
                    if (line.contains(" restored ")) {
                        records += Long.parseLong(line.substring(line.lastIndexOf(' ') + 1));
                    }
                }
            }
            return ("{\"restore\":\"%s\",\"store\":\"%s\",\"turn\":%d,\"partitions\":%d,\"keys\":%d,"
                            + "\"guarantee\":\"%s\",\"restored\":%d,\"restore_ms\":%d,\"running_ms\":%d,\"cpu_ms\":%d}")
                    .formatted(topology, store, turn, partitions, keys, Speed.GUARANTEE, records, restoreMs,
                            timesOf(said, "state RUNNING").getFirst(), cpuMs);
        } finally {
            close(process);
        }
    }

    /** Returns when an application has said something, in milliseconds from its start. */
    private static List<Long> timesOf(List<String> said, String what) {
        synchronized (said) {
            return said.stream()
                    .filter(line -> line.contains(" " + what))
                    .map(line -> Long.parseLong(line.substring(0, line.indexOf(' '))))
                    .toList();
        }
    }

    private static void close(Process process) throws Exception {
        process.outputWriter().close();
        if (!process.waitFor(30, TimeUnit.SECONDS)) {
            process.destroyForcibly().waitFor();
        }
    }

    private static void remove(Path directory) throws Exception {
        if (Files.exists(directory)) {
            try (var files = Files.walk(directory)) {
                files.sorted(Comparator.reverseOrder()).forEach(file -> file.toFile().delete());
            }
        }
    }
}
