package io.situ.client.spy;

import static java.nio.charset.StandardCharsets.UTF_8;

import io.situ.client.Serializer;
import io.situ.client.Serializers;
import io.situ.client.SituException;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.util.Date;
import java.util.zip.GZIPInputStream;
import java.util.zip.GZIPOutputStream;

/**
 * The bytes and flags of spymemcached's transcoder of the same name: texts in UTF-8, numbers in as many bytes as they
 * need, dates, byte arrays, and other objects by Java's serialisation. Values above 16 KiB are compressed if that makes
 * them smaller.
 *
 * <p>Unlike the original, it reads objects of listed classes only: see {@link Serializers#java}.
 */
public final class SerializingTranscoder implements Serializer<Object> {
    private static final int SERIALIZED = 1;
    private static final int COMPRESSED = 2;
    private static final int SPECIAL_MASK = 0xff00;
    private static final int BOOLEAN = 1 << 8;
    private static final int INT = 2 << 8;
    private static final int LONG = 3 << 8;
    private static final int DATE = 4 << 8;
    private static final int BYTE = 5 << 8;
    private static final int FLOAT = 6 << 8;
    private static final int DOUBLE = 7 << 8;
    private static final int BYTE_ARRAY = 8 << 8;
    private static final int COMPRESSION_BYTES = 16384;

    private final Serializer<Object> objects;
    private final int bytesMax;

    /** Makes a transcoder that reads objects of the platform's classes and of the allowed ones. */
    public SerializingTranscoder(String... allowed) {
        this(20 << 20, allowed);
    }

    /** Makes one that refuses values above a size. */
    public SerializingTranscoder(int bytesMax, String... allowed) {
        this.bytesMax = bytesMax;
        objects = Serializers.java(allowed);
    }

    /** The bytes and flags of a value. */
    record Encoded(byte[] bytes, int flags) {}

    Encoded encode(Object object) {
        Encoded plain = encodePlain(object);
        if (plain.bytes.length > bytesMax) {
            throw new IllegalArgumentException("a value of " + plain.bytes.length + " bytes is above " + bytesMax);
        }
        if (plain.bytes.length <= COMPRESSION_BYTES) {
            return plain;
        }
        byte[] compressed = compress(plain.bytes);
        return compressed.length < plain.bytes.length ? new Encoded(compressed, plain.flags | COMPRESSED) : plain;
    }

    private Encoded encodePlain(Object object) {
        return switch (object) {
            case String text -> new Encoded(text.getBytes(UTF_8), 0);
            case Long number -> new Encoded(number(number, 8), LONG);
            case Integer number -> new Encoded(number(number & 0xffff_ffffL, 4), INT);
            case Boolean value -> new Encoded(new byte[] {(byte) (value ? '1' : '0')}, BOOLEAN);
            case Date date -> new Encoded(number(date.getTime(), 8), DATE);
            case Byte value -> new Encoded(new byte[] {value}, BYTE);
            case Float value -> new Encoded(number(Float.floatToRawIntBits(value) & 0xffff_ffffL, 4), FLOAT);
            case Double value -> new Encoded(number(Double.doubleToRawLongBits(value), 8), DOUBLE);
            case byte[] bytes -> new Encoded(bytes, BYTE_ARRAY);
            default -> new Encoded(objects.serialize(object), SERIALIZED);
        };
    }

    @Override
    public byte[] serialize(Object object) {
        return encode(object).bytes;
    }

    @Override
    public int flags(Object object) {
        return encode(object).flags;
    }

    @Override
    public Object deserialize(byte[] bytes, int flags) {
        byte[] plain = (flags & COMPRESSED) != 0 ? decompress(bytes) : bytes;
        if ((flags & SERIALIZED) != 0) {
            return objects.deserialize(plain, flags);
        }
        return switch (flags & SPECIAL_MASK) {
            case BOOLEAN -> plain.length == 1 && plain[0] == '1';
            case INT -> (int) number(plain);
            case LONG -> number(plain);
            case DATE -> new Date(number(plain));
            case BYTE -> (byte) number(plain);
            case FLOAT -> Float.intBitsToFloat((int) number(plain));
            case DOUBLE -> Double.longBitsToDouble(number(plain));
            case BYTE_ARRAY -> plain;
            default -> new String(plain, UTF_8);
        };
    }

    /** Returns the bytes of a number in big-endian order, without leading zeros. */
    private static byte[] number(long number, int bytesMax) {
        int count = (64 - Long.numberOfLeadingZeros(number) + 7) / 8;
        byte[] bytes = new byte[Math.min(count, bytesMax)];
        long rest = number;
        for (int at = bytes.length - 1; at >= 0; at--) {
            bytes[at] = (byte) rest;
            rest >>>= 8;
        }
        return bytes;
    }

    private static long number(byte[] bytes) {
        if (bytes.length > 8) {
            throw new SituException("a number has at most 8 bytes, and not " + bytes.length);
        }
        long number = 0;
        for (byte b : bytes) {
            number = number << 8 | b & 0xff;
        }
        return number;
    }

    private static byte[] compress(byte[] bytes) {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        try (GZIPOutputStream gzip = new GZIPOutputStream(out)) {
            gzip.write(bytes);
        } catch (IOException impossible) {
            throw new AssertionError("memory can be written", impossible);
        }
        return out.toByteArray();
    }

    private byte[] decompress(byte[] bytes) {
        try (GZIPInputStream in = new GZIPInputStream(new ByteArrayInputStream(bytes))) {
            byte[] plain = in.readNBytes(bytesMax + 1);
            if (plain.length > bytesMax) {
                throw new SituException("a value is above " + bytesMax + " bytes when it is decompressed");
            }
            return plain;
        } catch (IOException damaged) {
            throw new SituException("cannot decompress a value", damaged);
        }
    }
}
