package io.situ.kafka.trial;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.LongDeserializer;
import org.apache.kafka.common.serialization.LongSerializer;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * {@code Kills <situ|rocksdb> <seconds> <seed>}: two instances of an application under exactly-once, each with standbys of
 * the other's tasks, killed and restarted at random. It ends well if the output is a model's, record for record, if the
 * stores hold what the changelog does, and, with Situ, if no state was restored from the beginning after a kill.
 */
final class Kills {
    private static final int PARTITIONS = 4;
    private static final int KEYS = 2_000;
    private static final long RECORDS_PER_S = 2_000;

    private Kills() {}

    /** An instance of the application, and what it has said. */
    private static final class Instance {
        final int number;
        final Path directory;
        final List<String> said = new ArrayList<>();
        Process process;
        int lives;

        Instance(int number, Path place) throws IOException {
            this.number = number;
            directory = Files.createDirectories(place.resolve("instance-" + number));
        }

        void start(Broker broker, String store) throws IOException {
            lives++;
            process = Processes.start(
                    List.of("-Xmx256m"),
                    List.of(Application.class.getName(), broker.address, "sum", store, directory.toString(),
                            "exactly_once_v2", "1", String.valueOf(64 << 20)),
                    directory.resolve("errors.log"));
            Process mine = process;
            int life = lives;
            Thread reader = new Thread(() -> {
                try (var lines = new BufferedReader(new InputStreamReader(mine.getInputStream()))) {
                    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                        synchronized (said) {
                            said.add(life + " " + line);
                        }
                    }
                } catch (IOException killed) {
                    // The last lines of a killed process may be cut off.
                }
            });
            reader.setDaemon(true);
            reader.start();
        }

        void command(String command) throws IOException {
            process.outputWriter().write(command + "\n");
            process.outputWriter().flush();
        }

        List<String> lines(String what) {
            synchronized (said) {
                return said.stream().filter(line -> line.contains(what)).toList();
            }
        }
    }

    private static KafkaConsumer<String, Long> consumer(Broker broker) {
        return new KafkaConsumer<>(
                Map.of("bootstrap.servers", broker.address, "isolation.level", "read_committed", "auto.offset.reset", "earliest"),
                new StringDeserializer(),
                new LongDeserializer());
    }

    /** Reads a topic to its end. */
    private static List<ConsumerRecord<String, Long>> read(Broker broker, String topic) {
        List<ConsumerRecord<String, Long>> records = new ArrayList<>();
        try (var consumer = consumer(broker)) {
            List<TopicPartition> partitions = new ArrayList<>();
            for (int number = 0; number < PARTITIONS; number++) {
                partitions.add(new TopicPartition(topic, number));
            }
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            while (partitions.stream().anyMatch(partition -> consumer.position(partition) < ends.get(partition))) {
                consumer.poll(Duration.ofMillis(200)).forEach(records::add);
            }
        }
        return records;
    }

    /** Runs the trial. */
    public static void main(String[] arguments) throws Exception {
        String store = arguments[0];
        long seconds = Long.parseLong(arguments[1]);
        Random random = new Random(Long.parseLong(arguments[2]));
        Path place = Files.createTempDirectory(Path.of(System.getProperty("trial.directory", "/tmp")), "kafka-kills");
        List<Instance> instances = List.of(new Instance(0, place), new Instance(1, place));
        boolean isGood = true;
        try (Broker broker = new Broker(place)) {
            broker.createTopics(PARTITIONS, "in", "out");
            for (Instance instance : instances) {
                instance.start(broker, store);
            }
            AtomicBoolean stop = new AtomicBoolean();
            Map<String, List<Long>> sent = new HashMap<>();
            Thread producer = new Thread(() -> produce(broker, stop, sent, new Random(random.nextLong())));
            producer.start();
            int kills = 0;
            long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(seconds);
            Thread.sleep(15_000);
            while (System.nanoTime() < end) {
                Instance victim = instances.get(random.nextInt(2));
                victim.process.destroyForcibly().waitFor();
                kills++;
                Thread.sleep(random.nextInt(6) == 0 ? 5_000 : random.nextInt(1_000));
                victim.start(broker, store);
                Thread.sleep(2_000 + random.nextInt(10_000));
            }
            stop.set(true);
            producer.join();
            long records = sent.values().stream().mapToLong(List::size).sum();
            System.out.println("kills " + kills + ", records " + records);
            waitForOutput(broker, records);
            isGood &= checkOutput(broker, sent);
            isGood &= checkStores(broker, instances);
            isGood &= checkRestores(instances) || store.equals("rocksdb");
            for (Instance instance : instances) {
                instance.process.outputWriter().close();
                instance.process.waitFor(30, TimeUnit.SECONDS);
            }
        } finally {
            for (Instance instance : instances) {
                if (instance.process != null) {
                    instance.process.destroyForcibly();
                }
            }
        }
        for (Instance instance : instances) {
            Files.write(instance.directory.resolve("said.log"), instance.said.stream().filter(line -> !line.contains("entry ")).toList());
        }
        System.out.println(isGood ? "good" : "BAD: what is left is in " + place);
        if (isGood) {
            try (var files = Files.walk(place)) {
                files.sorted(java.util.Comparator.reverseOrder()).forEach(file -> file.toFile().delete());
            }
        }
        System.exit(isGood ? 0 : 1);
    }

    private static void produce(Broker broker, AtomicBoolean stop, Map<String, List<Long>> sent, Random random) {
        try (var producer = new KafkaProducer<String, Long>(
                Map.of("bootstrap.servers", broker.address, "enable.idempotence", "true", "acks", "all"),
                new StringSerializer(),
                new LongSerializer())) {
            long begun = System.nanoTime();
            for (long number = 0; !stop.get(); number++) {
                String key = "k" + random.nextInt(KEYS);
                long value = random.nextInt(1_000);
                producer.send(new ProducerRecord<>("in", key, value));
                sent.computeIfAbsent(key, any -> new ArrayList<>()).add(value);
                if (number % 100 == 0) {
                    long ahead = begun + number * 1_000_000_000 / RECORDS_PER_S - System.nanoTime();
                    if (ahead > 0) {
                        TimeUnit.NANOSECONDS.sleep(ahead);
                    }
                }
            }
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    /** Waits until each record of the input has one of the output. */
    private static void waitForOutput(Broker broker, long records) throws InterruptedException {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(120);
        while (System.nanoTime() < end && read(broker, "out").size() < records) {
            Thread.sleep(1_000);
        }
    }

    private static boolean checkOutput(Broker broker, Map<String, List<Long>> sent) {
        Map<String, List<Long>> expected = new TreeMap<>();
        sent.forEach((key, values) -> {
            long sum = 0;
            List<Long> sums = new ArrayList<>();
            for (long value : values) {
                sum += value;
                sums.add(sum);
            }
            expected.put(key, sums);
        });
        Map<String, List<Long>> found = new TreeMap<>();
        read(broker, "out").forEach(record -> found.computeIfAbsent(record.key(), any -> new ArrayList<>()).add(record.value()));
        boolean same = expected.equals(found);
        System.out.println("output: " + (same ? "each record once, in order" : "NOT the model's"));
        if (!same) {
            expected.forEach((key, sums) -> {
                if (!sums.equals(found.get(key))) {
                    System.out.println("  " + key + " expected " + sums.size() + " records, found "
                            + (found.get(key) == null ? 0 : found.get(key).size()));
                }
            });
        }
        return same;
    }

    /** Compares what both instances hold together with the changelog. */
    private static boolean checkStores(Broker broker, List<Instance> instances) throws Exception {
        Map<String, Long> changelog = new TreeMap<>();
        try (var consumer = new KafkaConsumer<>(
                Map.of("bootstrap.servers", (Object) broker.address, "isolation.level", "read_committed"),
                new StringDeserializer(),
                new org.apache.kafka.common.serialization.ByteArrayDeserializer())) {
            List<TopicPartition> partitions = new ArrayList<>();
            for (int number = 0; number < PARTITIONS; number++) {
                partitions.add(new TopicPartition("trial-sums-changelog", number));
            }
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            while (partitions.stream().anyMatch(partition -> consumer.position(partition) < ends.get(partition))) {
                for (var record : consumer.poll(Duration.ofMillis(200))) {
                    changelog.put(record.key(), java.nio.ByteBuffer.wrap(record.value()).getLong(record.value().length - 8));
                }
            }
        }
        for (int attempt = 0; attempt < 60; attempt++) {
            Map<String, Long> stores = new TreeMap<>();
            for (Instance instance : instances) {
                int before = instance.lines("dumped").size();
                int from = instance.lines("entry ").size();
                instance.command("dump sums");
                for (int wait = 0; wait < 100 && instance.lines("dumped").size() == before; wait++) {
                    Thread.sleep(100);
                }
                // An instance that has no active task answers that it has none.
                List<String> entries = instance.lines("entry ");
                for (String line : entries.subList(from, entries.size())) {
                    String[] words = line.split(" ");
                    stores.put(words[2], Long.parseLong(words[3]));
                }
            }
            if (stores.equals(changelog)) {
                System.out.println("stores: the " + stores.size() + " keys of the changelog");
                return true;
            }
            Thread.sleep(1_000);
        }
        System.out.println("stores: NOT those of the changelog");
        return false;
    }

    /**
     * Prints what was restored after kills. Returns true if no instance restored a state from the beginning that it had
     * restored in part before.
     */
    private static boolean checkRestores(List<Instance> instances) {
        long restored = 0;
        int whole = 0;
        List<Long> running = new ArrayList<>();
        for (Instance instance : instances) {
            String before = "";
            Set<String> known = new HashSet<>();
            for (String line : instance.said) {
                String[] words = line.split(" ");
                int life = Integer.parseInt(words[0]);
                if (words.length > 4 && words[2].equals("restored")) {
                    restored += life > 1 ? Long.parseLong(words[5]) : 0;
                }
                boolean begins = words.length > 5 && (words[2].equals("restore") || words[2].equals("standby"));
                if (begins && !words[5].equals("0")) {
                    known.add(words[3]);
                } else if (begins && known.contains(words[3])) {
                    whole++;
                    System.out.println("  from the beginning: instance " + instance.number + ": " + line);
                }
                if (words.length > 3 && words[2].equals("state") && words[3].equals("RUNNING") && life > 1
                        && !before.equals(words[0])) {
                    running.add(Long.parseLong(words[1]));
                    before = words[0];
                }
            }
            instance.lines("failure").forEach(line -> System.out.println("  instance " + instance.number + ": " + line));
        }
        running.sort(null);
        System.out.println("after kills: " + restored + " records restored, " + whole
                + " states from the beginning, running after "
                + (running.isEmpty() ? "-" : running.get(running.size() / 2) + " ms (median), " + running.getLast() + " ms at most"));
        return whole == 0;
    }
}
