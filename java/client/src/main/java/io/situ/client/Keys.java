package io.situ.client;

import java.nio.charset.StandardCharsets;
import java.security.DigestException;
import java.security.MessageDigest;

/** The key of a call in bytes, and its hash. Each thread has one, which its calls use again and again. */
final class Keys {
    /** The longest key in bytes. */
    static final int KEY_BYTES_MAX = 250;

    private static final ThreadLocal<Keys> OF_THREAD = ThreadLocal.withInitial(Keys::new);

    final byte[] bytes = new byte[KEY_BYTES_MAX];
    int length;
    private final MessageDigest md5 = Continuum.md5();
    private final byte[] digest = new byte[16];

    private Keys() {}

    static Keys of(String key) {
        Keys keys = OF_THREAD.get();
        keys.take(key);
        return keys;
    }

    static Keys of(byte[] key) {
        Keys keys = OF_THREAD.get();
        if (key.length > KEY_BYTES_MAX) {
            throw tooLong(key.length);
        }
        System.arraycopy(key, 0, keys.bytes, 0, key.length);
        keys.length = key.length;
        keys.check();
        return keys;
    }

    private void take(String key) {
        int count = key.length();
        if (count > KEY_BYTES_MAX) {
            throw tooLong(count);
        }
        for (int index = 0; index < count; index++) {
            char c = key.charAt(index);
            if (c >= 0x80) {
                byte[] encoded = key.getBytes(StandardCharsets.UTF_8);
                if (encoded.length > KEY_BYTES_MAX) {
                    throw tooLong(encoded.length);
                }
                System.arraycopy(encoded, 0, bytes, 0, encoded.length);
                count = encoded.length;
                break;
            }
            bytes[index] = (byte) c;
        }
        length = count;
        check();
    }

    private void check() {
        if (length == 0) {
            throw new IllegalArgumentException("a key has at least one byte");
        }
        for (int index = 0; index < length; index++) {
            if ((bytes[index] & 0xff) <= ' ' || bytes[index] == 0x7f) {
                throw new IllegalArgumentException("a key has no spaces and no control characters");
            }
        }
    }

    private static IllegalArgumentException tooLong(int length) {
        return new IllegalArgumentException("a key has at most 250 bytes; this one has " + length);
    }

    /** Returns the hash that the continuum takes. */
    long hash() {
        try {
            md5.update(bytes, 0, length);
            md5.digest(digest, 0, digest.length);
            return Continuum.hash(digest, 0);
        } catch (DigestException impossible) {
            throw new AssertionError("MD5 has 16 bytes", impossible);
        }
    }
}
