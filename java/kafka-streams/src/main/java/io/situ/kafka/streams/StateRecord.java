package io.situ.kafka.streams;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.streams.errors.ProcessorStateException;
import org.apache.kafka.streams.query.Position;

/**
 * The record of one keyspace: all that the store knows of it besides its entries. A commit writes it with the entries,
 * in one batch.
 */
final class StateRecord {
    private static final int VERSION = 1;

    /** The offsets of the changelog that the entries correspond to. */
    final Map<TopicPartition, Long> offsets = new HashMap<>();
    /** The records of the input that the entries come from. */
    Position position = Position.emptyPosition();
    /** True if uncommitted writes may be among the entries. */
    boolean ahead;

    /** Returns the key of the record of a keyspace. */
    static byte[] key(String keyspace) {
        return keyspace.getBytes(StandardCharsets.UTF_8);
    }

    byte[] encode() {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        try (DataOutputStream out = new DataOutputStream(bytes)) {
            out.writeByte(VERSION);
            out.writeBoolean(ahead);
            out.writeInt(offsets.size());
            for (Map.Entry<TopicPartition, Long> offset : offsets.entrySet()) {
                out.writeUTF(offset.getKey().topic());
                out.writeInt(offset.getKey().partition());
                out.writeLong(offset.getValue());
            }
            out.writeInt(position.getTopics().size());
            for (String topic : position.getTopics()) {
                Map<Integer, Long> partitions = position.getPartitionPositions(topic);
                out.writeUTF(topic);
                out.writeInt(partitions.size());
                for (Map.Entry<Integer, Long> partition : partitions.entrySet()) {
                    out.writeInt(partition.getKey());
                    out.writeLong(partition.getValue());
                }
            }
        } catch (IOException impossible) {
            throw new AssertionError(impossible);
        }
        return bytes.toByteArray();
    }

    static StateRecord decode(byte[] bytes) {
        StateRecord record = new StateRecord();
        try (DataInputStream in = new DataInputStream(new ByteArrayInputStream(bytes))) {
            int version = in.readByte();
            if (version != VERSION) {
                throw new ProcessorStateException("a later release has written the state: format " + version);
            }
            record.ahead = in.readBoolean();
            for (int left = in.readInt(); left > 0; left--) {
                String topic = in.readUTF();
                record.offsets.put(new TopicPartition(topic, in.readInt()), in.readLong());
            }
            for (int topics = in.readInt(); topics > 0; topics--) {
                String topic = in.readUTF();
                for (int left = in.readInt(); left > 0; left--) {
                    int partition = in.readInt();
                    record.position.withComponent(topic, partition, in.readLong());
                }
            }
        } catch (IOException cut) {
            throw new ProcessorStateException("the record of a state store is cut off", cut);
        }
        return record;
    }
}
