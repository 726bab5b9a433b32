package io.situ.kafka.streams;

import io.situ.store.Options;
import java.util.Map;
import org.apache.kafka.common.config.ConfigException;

/** The settings of an application that concern its stores in Situ. They go into the properties of its StreamsConfig. */
public final class SituConfig {
    /**
     * The memory for the blocks, filters and memtables of all stores of an application on this machine, in bytes. Half
     * of it is cache, half is memtables. Default: 256 MiB; at least 4 MiB. The heap of the JVM is not part of it.
     */
    public static final String MEMORY_BYTES = "situ.memory.bytes";

    /**
     * The heap that uncommitted writes of all stores of an application may take on this machine, in bytes. Default: 64
     * MiB. Under exactly-once, stores ask for a commit before {@code commit.interval.ms} where a quarter is in use.
     * Where a half is, a store that has more than its share writes to the disk before the commit. A crash until then
     * costs a whole restore of that store and partition.
     */
    public static final String UNCOMMITTED_BYTES = "situ.uncommitted.bytes";

    static final long MEMORY_BYTES_DEFAULT = 256L << 20;
    static final long UNCOMMITTED_BYTES_DEFAULT = 64L << 20;
    private static final long MEMORY_BYTES_MIN = 4L << 20;
    private static final long MEMTABLE_BYTES_MAX = 64L << 20;

    private SituConfig() {}

    /** Returns the options of the store that all stores of an application share. */
    static Options options(Map<String, ?> configs) {
        long memory = bytes(configs, MEMORY_BYTES, MEMORY_BYTES_DEFAULT, MEMORY_BYTES_MIN);
        long memtables = memory / 2;
        return new Options()
                .set("cache_bytes", memory - memtables)
                .set("memtables_bytes_max", memtables)
                .set("memtable_bytes", Math.min(memtables / 4, MEMTABLE_BYTES_MAX))
                // After a crash, opening reads the log. It need not be longer than what memtables hold.
                .set("log_bytes_max", 2 * memtables);
    }

    static long uncommittedBytes(Map<String, ?> configs) {
        return bytes(configs, UNCOMMITTED_BYTES, UNCOMMITTED_BYTES_DEFAULT, 0);
    }

    private static long bytes(Map<String, ?> configs, String name, long otherwise, long min) {
        Object given = configs.get(name);
        if (given == null) {
            return otherwise;
        }
        long bytes;
        try {
            bytes = Long.parseLong(given.toString().trim());
        } catch (NumberFormatException notANumber) {
            throw new ConfigException(name, given, "not a number of bytes");
        }
        if (bytes < min) {
            throw new ConfigException(name, given, "at least " + min + " bytes");
        }
        return bytes;
    }
}
