package io.situ.kafka.trial;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import java.util.function.IntSupplier;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * {@code Speed <results.jsonl> <turns> <partitions> <records> <keys> <topologies>}: an application with our stores and
 * with RocksDB's, in turns, on the same input. A line of the results has: records a second from the first to the last
 * record of the output, memory of the process each second, and the time from a kill to the next record of the output.
 *
 * <p>System properties choose other runs: {@code trial.stores}, {@code trial.guarantee}, {@code trial.memory} (our
 * budget), {@code trial.key.bytes} and {@code trial.value.bytes}.
 */
final class Speed {
    static final String GUARANTEE = System.getProperty("trial.guarantee", "exactly_once_v2");
    private static final String MEMORY = System.getProperty("trial.memory", String.valueOf(128 << 20));

    static final List<String> STORES = List.of(System.getProperty("trial.stores", "situ,rocksdb").split(","));

    private static final int KEY_BYTES = Integer.getInteger("trial.key.bytes", 12);
    private static final int VALUE_BYTES = Integer.getInteger("trial.value.bytes", 8);

    private Speed() {}

    /** Runs the measurements. */
    public static void main(String[] arguments) throws Exception {
        Path results = Path.of(arguments[0]);
        int turns = Integer.parseInt(arguments[1]);
        int partitions = Integer.parseInt(arguments[2]);
        int records = Integer.parseInt(arguments[3]);
        int keys = Integer.parseInt(arguments[4]);
        for (String topology : arguments[5].split(",")) {
            for (int turn = 0; turn < turns; turn++) {
                List<String> stores = turn % 2 == 0 ? STORES : STORES.reversed();
                for (String store : stores) {
                    String line = measure(topology, store, turn, partitions, records, keys);
                    System.out.println(line);
                    Files.writeString(results, line + "\n",
                            java.nio.file.StandardOpenOption.CREATE, java.nio.file.StandardOpenOption.APPEND);
                }
            }
        }
    }

    /**
     * Sends records with keys by chance. Their times go on by a millisecond each ten records, from {@code time} on. The
     * broker deletes what is older than a week, by these times, half a minute after its start.
     */
    static void fill(Broker broker, String topic, long time, int records, int keys, int partitions) {
        Random random = new Random(35);
        send(broker, topic, time, records, () -> random.nextInt(keys), partitions);
    }

    /** Sends one record for each key, with times until {@code time}. */
    static void fillEach(Broker broker, String topic, long time, int keys, int partitions) {
        int[] next = {0};
        send(broker, topic, time - keys / 10, keys, () -> next[0]++, partitions);
    }

    private static void send(Broker broker, String topic, long time, int records, IntSupplier keys, int partitions) {
        Random random = new Random(36);
        try (var producer = new KafkaProducer<String, byte[]>(
                Map.of("bootstrap.servers", broker.address, "linger.ms", "20", "batch.size", "200000", "enable.idempotence", "false"),
                new StringSerializer(), new ByteArraySerializer())) {
            for (int number = 0; number < records; number++) {
                int key = keys.getAsInt();
                byte[] value = new byte[VALUE_BYTES];
                random.nextBytes(value);
                ByteBuffer.wrap(value).putLong(number);
                String name = ("%0" + (KEY_BYTES - 4) + "d").formatted(key);
                producer.send(new ProducerRecord<>(topic, key % partitions, time + number / 10, "key-" + name, value));
            }
        }
    }

    /** Counts the records of the output. */
    static final class Output implements AutoCloseable {
        private final KafkaConsumer<byte[], byte[]> consumer;
        private final List<TopicPartition> partitions = new ArrayList<>();
        long count;

        Output(Broker broker, int partitionCount) {
            consumer = new KafkaConsumer<>(
                    Map.of("bootstrap.servers", broker.address, "isolation.level", "read_committed", "fetch.max.wait.ms", "20"),
                    new ByteArrayDeserializer(), new ByteArrayDeserializer());
            for (int number = 0; number < partitionCount; number++) {
                partitions.add(new TopicPartition("out", number));
            }
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
        }

        /** Polls until the count is {@code wanted} or nothing comes for a while. */
        boolean await(long wanted, long patienceMs) {
            long last = System.nanoTime();
            while (count < wanted && System.nanoTime() - last < TimeUnit.MILLISECONDS.toNanos(patienceMs)) {
                int polled = consumer.poll(Duration.ofMillis(20)).count();
                if (polled > 0) {
                    count += polled;
                    last = System.nanoTime();
                }
            }
            return count >= wanted;
        }

        @Override
        public void close() {
            consumer.close();
        }
    }

    static Process start(Broker broker, String topology, String store, Path place, List<String> said) throws Exception {
        Process process = Processes.start(
                List.of("-Xmx384m", "-Xms384m", "-XX:+AlwaysPreTouch"),
                List.of(Application.class.getName(), broker.address, topology, store, place.resolve("state").toString(),
                        GUARANTEE, "0", MEMORY),
                place.resolve("errors.log"));
        Thread reader = new Thread(() -> {
            try (var lines = new BufferedReader(new InputStreamReader(process.getInputStream()))) {
                for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                    synchronized (said) {
                        said.add(line);
                    }
                }
            } catch (java.io.IOException killed) {
                // The process was killed.
            }
        });
        reader.setDaemon(true);
        reader.start();
        return process;
    }

    private static String measure(String topology, String store, int turn, int partitions, int records, int keys) throws Exception {
        Path place = Files.createTempDirectory(Path.of(System.getProperty("trial.directory", "/tmp")), "kafka-speed");
        Process process = null;
        try (Broker broker = new Broker(place)) {
            broker.createTopics(partitions, topology.equals("join") ? new String[] {"in", "other", "out"} : new String[] {"in", "out"});
            long time = System.currentTimeMillis();
            if (topology.equals("join")) {
                fillEach(broker, "other", time, keys, partitions);
            }
            fill(broker, "in", time, records, keys, partitions);
            List<String> said = new ArrayList<>();
            process = start(broker, topology, store, place, said);
            List<Long> memory = new ArrayList<>();
            Process sampled = process;
            Thread sampler = new Thread(() -> {
                try {
                    while (sampled.isAlive()) {
                        long bytes = Processes.residentBytes(sampled);
                        synchronized (memory) {
                            memory.add(bytes);
                        }
                        Thread.sleep(1_000);
                    }
                } catch (java.io.IOException | InterruptedException ended) {
                    // The process has ended.
                }
            });
            sampler.setDaemon(true);
            sampler.start();
            long seconds;
            long cpuMs;
            long restartMs;
            long restored = 0;
            try (Output output = new Output(broker, partitions)) {
                // The first tenth warms up.
                long warm = records / 10;
                if (!output.await(warm, 60_000)) {
                    throw new IllegalStateException("no output: " + place + ": " + said);
                }
                long from = output.count;
                long begun = System.nanoTime();
                long cpuBegun = cpu(process);
                if (!output.await(records - records / 100, 20_000)) {
                    throw new IllegalStateException("the output ended at " + output.count + " records: " + said);
                }
                long done = output.count;
                seconds = System.nanoTime() - begun;
                cpuMs = cpu(process) - cpuBegun;
                double rate = (done - from) * 1e9 / seconds;
                String sizes;
                synchronized (memory) {
                    sizes = memory.stream().map(bytes -> String.valueOf(bytes >> 20)).collect(Collectors.joining(","));
                }
                output.await(Long.MAX_VALUE, 3_000);
                process.destroyForcibly().waitFor();
                int before;
                synchronized (said) {
                    before = said.size();
                }
                long killed = System.nanoTime();
                process = start(broker, topology, store, place, said);
                fill(broker, "in", time, 1_000, keys, partitions);
                boolean goesOn = output.await(output.count + 1, 120_000);
                restartMs = (System.nanoTime() - killed) / 1_000_000;
                synchronized (said) {
                    if (!goesOn) {
                        throw new IllegalStateException("no output after the kill: " + said.subList(before, said.size()));
                    }
                    for (String line : said.subList(before, said.size())) {
                        String[] words = line.split(" ");
                        restored += words.length > 4 && words[1].equals("restored") ? Long.parseLong(words[4]) : 0;
                    }
                }
                return "{\"topology\":\"%s\",\"store\":\"%s\",\"turn\":%d,\"partitions\":%d,\"records\":%d,\"keys\":%d,\"guarantee\":\"%s\",\"records_per_s\":%.0f,\"cpu_us_per_record\":%.2f,\"key_bytes\":%d,\"value_bytes\":%d,\"rss_mib_each_s\":[%s],\"crash_to_output_ms\":%d,\"restored\":%d}"
                        .formatted(topology, store, turn, partitions, records, keys, GUARANTEE, rate, cpuMs * 1e3 / (done - from), KEY_BYTES, VALUE_BYTES, sizes, restartMs, restored);
            }
        } finally {
            if (process != null) {
                process.destroyForcibly().waitFor();
            }
            try (var files = Files.walk(place)) {
                files.sorted(Comparator.reverseOrder()).forEach(file -> file.toFile().delete());
            }
        }
    }

    /** Returns the processor time of a process, in milliseconds. */
    static long cpu(Process process) {
        return process.info().totalCpuDuration().orElse(Duration.ZERO).toMillis();
    }
}
