package io.situ.client;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.ObjectInputFilter;
import java.io.ObjectInputStream;
import java.io.ObjectOutputStream;
import java.nio.charset.StandardCharsets;

/** Serialisers for common types. */
public final class Serializers {
    /** Byte arrays as they are. */
    public static final Serializer<byte[]> BYTES = new Serializer<>() {
        @Override
        public byte[] serialize(byte[] object) {
            return object;
        }

        @Override
        public byte[] deserialize(byte[] bytes, int flags) {
            return bytes;
        }
    };

    /** Strings in UTF-8. */
    public static final Serializer<String> STRING = new Serializer<>() {
        @Override
        public byte[] serialize(String object) {
            return object.getBytes(StandardCharsets.UTF_8);
        }

        @Override
        public String deserialize(byte[] bytes, int flags) {
            return new String(bytes, StandardCharsets.UTF_8);
        }
    };

    private static final int DEPTH_MAX = 100;
    private static final String PLATFORM =
            "java.lang.*;java.math.*;java.time.**;java.util.*;java.util.concurrent.*;java.util.concurrent.atomic.*;";

    private Serializers() {}

    /**
     * Returns a serialiser for {@link java.io.Serializable} objects, with Java's serialisation.
     *
     * <p>A server's bytes are data that others may have written. So only listed classes are read. The list holds the
     * classes of {@code java.lang}, {@code java.math}, {@code java.time} and {@code java.util}, and the given patterns.
     * A pattern is the name of a class, {@code package.*} for a package, or {@code package.**} for a package and those
     * below it, as in {@link ObjectInputFilter.Config#createFilter}.
     *
     * @throws IllegalArgumentException if a pattern is not one of these
     */
    public static Serializer<Object> java(String... allowed) {
        ObjectInputFilter filter = filter(allowed);
        return new Serializer<>() {
            @Override
            public byte[] serialize(Object object) {
                return toBytes(object);
            }

            @Override
            public Object deserialize(byte[] bytes, int flags) {
                return fromBytes(bytes, filter);
            }
        };
    }

    /** Returns the filter that lets the platform's values and the allowed classes pass. */
    static ObjectInputFilter filter(String... allowed) {
        for (String pattern : allowed) {
            if (!pattern.matches("[\\p{L}_$][\\p{L}\\p{N}_$.]*(\\*\\*?)?")) {
                throw new IllegalArgumentException("not a class or a package: " + pattern);
            }
        }
        String listed = String.join(";", allowed);
        return ObjectInputFilter.Config.createFilter(
                "maxdepth=" + DEPTH_MAX + ";" + PLATFORM + (listed.isEmpty() ? "" : listed + ";") + "!*");
    }

    static byte[] toBytes(Object object) {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        try (ObjectOutputStream out = new ObjectOutputStream(bytes)) {
            out.writeObject(object);
        } catch (IOException failed) {
            throw new SituException("cannot serialise an object of " + object.getClass(), failed);
        }
        return bytes.toByteArray();
    }

    static Object fromBytes(byte[] bytes, ObjectInputFilter filter) {
        try (ObjectInputStream in = new ObjectInputStream(new ByteArrayInputStream(bytes))) {
            in.setObjectInputFilter(filter);
            return in.readObject();
        } catch (IOException | ClassNotFoundException failed) {
            throw new SituException("cannot deserialise a value; are its classes allowed?", failed);
        }
    }
}
