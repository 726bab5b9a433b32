package io.situ.store;

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.function.LongFunction;

/**
 * Options of a store, or of a keyspace, by name.
 *
 * <p>Of a store: {@code create_if_missing}, {@code error_if_exists}, {@code durability} (buffered, synced),
 * {@code cache_bytes}, {@code open_tables_max}, {@code log_bytes_max}, {@code changes_kept_bytes},
 * {@code memtables_bytes_max}, {@code compaction_threads}, {@code compaction_bytes_per_s_max},
 * {@code requests_outstanding_max}, {@code transaction_locks_max}, {@code value_segment_bytes}, {@code value_trim},
 * {@code value_victims}, {@code value_inflation_percent_max}, {@code slow_operation} (milliseconds, or none).
 *
 * <p>Of keyspaces: {@code memtable_bytes}, {@code memtables_max}, {@code compression} (none, lz4, zstd, zstd level 5;
 * one for each level, separated by commas), {@code block_bytes}, {@code filter_bits_per_key}, {@code level0_tables},
 * {@code level0_tables_max}, {@code level_base_bytes}, {@code level_multiplier}, {@code table_bytes},
 * {@code value_log_min_bytes} (or none), {@code uses_reserve}. In the options of a store, those of keyspaces count for
 * the keyspace {@code default}, and for each that exists when the store is opened.
 *
 * <p>The Rust types <a href="https://docs.rs/situ">Options and KeyspaceOptions</a> document their fields, which have
 * these names.
 */
public final class Options {
    private final Map<String, String> values = new LinkedHashMap<>();

    /** Makes the default options. */
    public Options() {}

    /**
     * Sets an option.
     *
     * @param value a {@code Long}, an {@code Integer}, a {@code Boolean} or a {@code String}
     * @throws SituException if there is no such option, or if it does not take the value
     */
    public Options set(String name, Object value) {
        String text = switch (value) {
            case Long number -> number.toString();
            case Integer number -> number.toString();
            case Boolean flag -> flag.toString();
            case String string -> string;
            default -> throw new IllegalArgumentException(
                    "the option " + name + " takes a Long, an Integer, a Boolean or a String, and no "
                            + value.getClass().getName());
        };
        // The library says at once if it does not take the option.
        Scratch scratch = Scratch.borrow();
        try {
            withHandle(scratch, Map.of(name, text), handle -> handle);
        } finally {
            scratch.giveBack();
        }
        values.put(name, text);
        return this;
    }

    /** Calls the library with these options; 0 stands for defaults if there are none. */
    static <T> T with(Scratch scratch, Options options, LongFunction<T> call) {
        return options == null || options.values.isEmpty()
                ? call.apply(0) : withHandle(scratch, options.values, call);
    }

    private static <T> T withHandle(Scratch scratch, Map<String, String> values, LongFunction<T> call) {
        long handle = Native.number(Native.OPTIONS_NEW);
        try {
            values.forEach((name, value) -> {
                byte[] nameText = Scratch.text(name);
                byte[] valueText = Scratch.text(value);
                long at = scratch.reserve(nameText.length + valueText.length);
                scratch.copyIn(nameText, 0);
                scratch.copyIn(valueText, nameText.length);
                scratch.check(Native.call(Native.OPTIONS_SET, handle, at, at + nameText.length, scratch.error));
            });
            return call.apply(handle);
        } finally {
            Native.run(Native.OPTIONS_FREE, handle);
        }
    }

    @Override
    public String toString() {
        return values.toString();
    }
}
