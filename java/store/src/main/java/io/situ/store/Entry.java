package io.situ.store;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HexFormat;

/**
 * A key and its value. Entries are equal if their bytes are.
 *
 * @param key the key; the record does not copy it
 * @param value the value; the record does not copy it
 */
public record Entry(byte[] key, byte[] value) {
    private static final int SHOWN_BYTES_MAX = 64;

    @Override
    public boolean equals(Object other) {
        return other instanceof Entry(byte[] otherKey, byte[] otherValue)
                && Arrays.equals(key, otherKey) && Arrays.equals(value, otherValue);
    }

    @Override
    public int hashCode() {
        return 31 * Arrays.hashCode(key) + Arrays.hashCode(value);
    }

    @Override
    public String toString() {
        return shown(key) + "=" + shown(value);
    }

    /** Returns bytes as text if all of them are printable, and in hexadecimal otherwise. */
    private static String shown(byte[] bytes) {
        if (bytes == null) {
            return "null";
        }
        byte[] head = bytes.length > SHOWN_BYTES_MAX ? Arrays.copyOf(bytes, SHOWN_BYTES_MAX) : bytes;
        String text = new String(head, StandardCharsets.ISO_8859_1);
        boolean isPrintable = text.chars().allMatch(c -> c > ' ' && c < 0x7f);
        return (isPrintable ? text : HexFormat.of().formatHex(head)) + (head == bytes ? "" : "...");
    }
}
