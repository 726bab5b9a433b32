package io.situ.kafka.trial;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;

/** A broker in a process of its own, in KRaft mode. Its data goes with it. */
final class Broker implements AutoCloseable {
    private final Process process;
    final String address;

    Broker(Path directory) throws Exception {
        int port = freePort();
        int controller = freePort();
        address = "127.0.0.1:" + port;
        Properties settings = new Properties();
        settings.put("process.roles", "broker,controller");
        settings.put("node.id", "1");
        settings.put("controller.quorum.voters", "1@127.0.0.1:" + controller);
        settings.put("listeners", "PLAINTEXT://" + address + ",CONTROLLER://127.0.0.1:" + controller);
        settings.put("advertised.listeners", "PLAINTEXT://" + address);
        settings.put("controller.listener.names", "CONTROLLER");
        settings.put("inter.broker.listener.name", "PLAINTEXT");
        settings.put("log.dirs", directory.resolve("broker").toString());
        settings.put("offsets.topic.replication.factor", "1");
        settings.put("offsets.topic.num.partitions", "4");
        settings.put("transaction.state.log.replication.factor", "1");
        settings.put("transaction.state.log.min.isr", "1");
        settings.put("transaction.state.log.num.partitions", "4");
        settings.put("group.initial.rebalance.delay.ms", "0");
        settings.put("group.min.session.timeout.ms", "1000");
        Path file = directory.resolve("server.properties");
        try (var out = Files.newOutputStream(file)) {
            settings.store(out, null);
        }
        Processes.run(List.of("kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c", file.toString()));
        process = Processes.start(
                List.of("-Xmx512m"), List.of("kafka.Kafka", file.toString()), directory.resolve("broker.log"));
        for (long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60); ; Thread.sleep(100)) {
            try (Socket socket = new Socket()) {
                socket.connect(new InetSocketAddress("127.0.0.1", port), 100);
                return;
            } catch (IOException notYet) {
                if (System.nanoTime() > end || !process.isAlive()) {
                    process.destroyForcibly();
                    throw new IOException("the broker does not answer: " + directory.resolve("broker.log"), notYet);
                }
            }
        }
    }

    void createTopics(int partitions, String... names) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", address))) {
            List<NewTopic> topics = new ArrayList<>();
            for (String name : names) {
                topics.add(new NewTopic(name, partitions, (short) 1));
            }
            admin.createTopics(topics).all().get();
            // A producer that comes before the partitions have their leaders can lose its order for good.
            Thread.sleep(2_000);
        }
    }

    private static int freePort() throws IOException {
        try (ServerSocket socket = new ServerSocket(0)) {
            return socket.getLocalPort();
        }
    }

    @Override
    public void close() throws InterruptedException {
        process.destroyForcibly().waitFor();
    }
}
