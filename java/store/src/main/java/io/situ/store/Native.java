package io.situ.store;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;

/**
 * The functions of {@code situ.h}.
 *
 * <p>Addresses pass as numbers: handles are guarded by {@link Shared} and {@link Owned}, and the rest lies in the
 * {@link Scratch} of the call. Only memory of the caller passes as a segment, so that it cannot be freed meanwhile.
 *
 * <p>No function is linked as critical. A critical call holds back the garbage collector until it returns, and almost
 * every function may wait: a read for the disk, a write for room in memory. There is little to gain, too: the
 * transition and the copies in {@link Scratch} are a small part of a read.
 *
 * <p>The parameters of all handles are {@code long}, so one method for each number of arguments calls them. The
 * just-in-time compiler inlines these methods, and sees the handle as the constant that it is.
 */
final class Native {
    static final int OK = 0;
    static final int MISS = 1;

    /** All memory, to copy bytes of the library from their address. */
    private static final MemorySegment MEMORY = MemorySegment.NULL.reinterpret(Long.MAX_VALUE);

    private static final Linker LINKER = Linker.nativeLinker();
    private static final SymbolLookup LIBRARY = LibraryFile.load();

    static final MethodHandle VERSION = pointer("situ_version", "");
    static final MethodHandle DESTROY = status("situ_destroy", "pp");
    static final MethodHandle IS_RETRYABLE = status("situ_is_retryable", "i");
    static final MethodHandle ERROR_TEXT = pointer("situ_error_text", "p");
    static final MethodHandle ERROR_FREE = nothing("situ_error_free", "p");
    static final MethodHandle VALUE_FREE = nothing("situ_value_free", "p");

    static final MethodHandle OPTIONS_NEW = pointer("situ_options_new", "");
    static final MethodHandle OPTIONS_SET = status("situ_options_set", "pppp");
    static final MethodHandle OPTIONS_FREE = nothing("situ_options_free", "p");

    static final MethodHandle STORE_OPEN = status("situ_store_open", "pppp");
    static final MethodHandle STORE_OPEN_READ_ONLY = status("situ_store_open_read_only", "pppp");
    static final MethodHandle STORE_CLOSE = status("situ_store_close", "pp");
    static final MethodHandle STORE_FREE = nothing("situ_store_free", "p");
    static final MethodHandle STORE_KEYSPACE = status("situ_store_keyspace", "ppppp");
    static final MethodHandle STORE_EXISTING_KEYSPACE = status("situ_store_existing_keyspace", "pppp");
    static final MethodHandle STORE_DROP_KEYSPACE = status("situ_store_drop_keyspace", "ppp");
    static final MethodHandle STORE_KEYSPACE_NAMES = status("situ_store_keyspace_names", "ppp");
    static final MethodHandle STORE_WRITE = status("situ_store_write", "ppip");
    static final MethodHandle STORE_WRITE_ASYNC = nothing("situ_store_write_async", "ppipp");
    static final MethodHandle STORE_SYNC = status("situ_store_sync", "pp");
    static final MethodHandle STORE_FLUSH = status("situ_store_flush", "pp");
    static final MethodHandle STORE_WAIT_IDLE = status("situ_store_wait_idle", "pp");
    static final MethodHandle STORE_CHECKPOINT = status("situ_store_checkpoint", "ppp");
    static final MethodHandle STORE_SNAPSHOT = status("situ_store_snapshot", "ppp");
    static final MethodHandle STORE_PROPERTY = status("situ_store_property", "pppp");
    static final MethodHandle STORE_BEGIN = status("situ_store_begin", "pppp");

    static final MethodHandle SNAPSHOT_SEQUENCE = pointer("situ_snapshot_sequence", "p");
    static final MethodHandle SNAPSHOT_FREE = nothing("situ_snapshot_free", "p");

    static final MethodHandle KEYSPACE_FREE = nothing("situ_keyspace_free", "p");
    static final MethodHandle KEYSPACE_PUT = status("situ_keyspace_put", "pppppip");
    static final MethodHandle KEYSPACE_PUT_ASYNC = nothing("situ_keyspace_put_async", "pppppipp");
    static final MethodHandle KEYSPACE_DELETE = status("situ_keyspace_delete", "pppip");
    static final MethodHandle KEYSPACE_DELETE_ASYNC = nothing("situ_keyspace_delete_async", "pppipp");
    static final MethodHandle KEYSPACE_DELETE_RANGE = status("situ_keyspace_delete_range", "pppppip");
    static final MethodHandle KEYSPACE_GET = status("situ_keyspace_get", "pppppp");
    static final MethodHandle KEYSPACE_GET_ASYNC = nothing("situ_keyspace_get_async", "pppppp");
    static final MethodHandle KEYSPACE_GET_INTO = status("situ_keyspace_get_into", "pppppppp");
    static final MethodHandle KEYSPACE_GET_MANY = status("situ_keyspace_get_many", "pppppp");
    static final MethodHandle KEYSPACE_POP_FIRST = status("situ_keyspace_pop_first", "ppippp");
    static final MethodHandle KEYSPACE_POP_LAST = status("situ_keyspace_pop_last", "ppippp");
    static final MethodHandle KEYSPACE_CURSOR = status("situ_keyspace_cursor", "pppp");
    static final MethodHandle KEYSPACE_FLUSH = status("situ_keyspace_flush", "pp");
    static final MethodHandle KEYSPACE_COMPACT = status("situ_keyspace_compact", "pppppp");
    static final MethodHandle KEYSPACE_APPROXIMATE_BYTES = status("situ_keyspace_approximate_bytes", "ppppppp");
    static final MethodHandle KEYSPACE_PROPERTY = status("situ_keyspace_property", "pppp");

    static final MethodHandle CURSOR_FREE = nothing("situ_cursor_free", "p");
    static final MethodHandle CURSOR_SEEK_TO_FIRST = status("situ_cursor_seek_to_first", "pp");
    static final MethodHandle CURSOR_SEEK_TO_LAST = status("situ_cursor_seek_to_last", "pp");
    static final MethodHandle CURSOR_SEEK = status("situ_cursor_seek", "pppp");
    static final MethodHandle CURSOR_SEEK_FOR_PREV = status("situ_cursor_seek_for_prev", "pppp");
    static final MethodHandle CURSOR_NEXT = status("situ_cursor_next", "pp");
    static final MethodHandle CURSOR_PREV = status("situ_cursor_prev", "pp");
    static final MethodHandle CURSOR_ENTRY = status("situ_cursor_entry", "pppppp");
    static final MethodHandle CURSOR_READ = status("situ_cursor_read", "pippppp");

    static final MethodHandle BATCH_NEW = pointer("situ_batch_new", "");
    static final MethodHandle BATCH_FREE = nothing("situ_batch_free", "p");
    static final MethodHandle BATCH_PUT = status("situ_batch_put", "ppppppp");
    static final MethodHandle BATCH_DELETE = status("situ_batch_delete", "ppppp");
    static final MethodHandle BATCH_DELETE_RANGE = status("situ_batch_delete_range", "ppppppp");
    static final MethodHandle BATCH_LENGTH = pointer("situ_batch_length", "p");
    static final MethodHandle BATCH_BYTES = pointer("situ_batch_bytes", "p");
    static final MethodHandle BATCH_CLEAR = nothing("situ_batch_clear", "p");

    static final MethodHandle TRANSACTION_FREE = nothing("situ_transaction_free", "p");
    static final MethodHandle TRANSACTION_COMMIT = status("situ_transaction_commit", "ppp");
    static final MethodHandle TRANSACTION_COMMIT_ASYNC = nothing("situ_transaction_commit_async", "ppp");
    static final MethodHandle TRANSACTION_GET = status("situ_transaction_get", "pppppp");
    static final MethodHandle TRANSACTION_GET_FOR_UPDATE = status("situ_transaction_get_for_update", "ppppipp");
    static final MethodHandle TRANSACTION_LOCK = status("situ_transaction_lock", "ppppip");
    static final MethodHandle TRANSACTION_PUT = status("situ_transaction_put", "ppppppp");
    static final MethodHandle TRANSACTION_DELETE = status("situ_transaction_delete", "ppppp");
    static final MethodHandle TRANSACTION_CURSOR = status("situ_transaction_cursor", "ppppp");
    static final MethodHandle TRANSACTION_SET_SAVEPOINT = status("situ_transaction_set_savepoint", "pp");
    static final MethodHandle TRANSACTION_ROLLBACK_TO_SAVEPOINT =
            status("situ_transaction_rollback_to_savepoint", "pp");
    static final MethodHandle TRANSACTION_POP_SAVEPOINT = status("situ_transaction_pop_savepoint", "pp");

    private static final MethodHandle KEYSPACE_PUT_SEGMENTS = status("situ_keyspace_put", "pspspip");
    private static final MethodHandle KEYSPACE_GET_SEGMENT = status("situ_keyspace_get", "pspppp");
    private static final MethodHandle KEYSPACE_GET_INTO_SEGMENT = status("situ_keyspace_get_into", "ppppsppp");
    private static final MethodHandle BATCH_PUT_SEGMENTS = status("situ_batch_put", "ppspspp");
    private static final MethodHandle BATCH_DELETE_SEGMENT = status("situ_batch_delete", "ppspp");

    private Native() {}

    private static MethodHandle status(String name, String parameters) {
        return function(name, JAVA_INT, parameters);
    }

    private static MethodHandle pointer(String name, String parameters) {
        return function(name, JAVA_LONG, parameters);
    }

    private static MethodHandle nothing(String name, String parameters) {
        return function(name, null, parameters);
    }

    /**
     * Links a function. Of the parameters, {@code p} is a pointer or a size, {@code i} an {@code int}, and {@code s} a
     * pointer to memory of the caller.
     */
    private static MethodHandle function(String name, MemoryLayout result, String parameters) {
        MemorySegment symbol = LIBRARY.find(name)
                .orElseThrow(() -> new UnsatisfiedLinkError("libsitu.so is another version: it has no " + name));
        MemoryLayout[] layouts = parameters.chars().mapToObj(Native::layout).toArray(MemoryLayout[]::new);
        FunctionDescriptor descriptor = result == null
                ? FunctionDescriptor.ofVoid(layouts) : FunctionDescriptor.of(result, layouts);
        MethodHandle handle = LINKER.downcallHandle(symbol, descriptor);
        MethodType type = handle.type();
        for (int place = 0; place < type.parameterCount(); place++) {
            if (type.parameterType(place) == int.class) {
                type = type.changeParameterType(place, long.class);
            }
        }
        return MethodHandles.explicitCastArguments(handle, type);
    }

    private static MemoryLayout layout(int parameter) {
        return switch (parameter) {
            case 'p' -> JAVA_LONG;
            case 'i' -> JAVA_INT;
            case 's' -> ADDRESS;
            default -> throw new AssertionError("no parameter is a " + (char) parameter);
        };
    }

    /** Returns what a call threw: a refusal of a segment of the caller, or an error of the virtual machine. */
    private static RuntimeException unexpected(Throwable thrown) {
        return switch (thrown) {
            case Error error -> throw error;
            case RuntimeException refused -> refused;
            default -> throw new AssertionError("a call of the library threw", thrown);
        };
    }

    /** Copies a text of the library. */
    static String text(long address) {
        return MEMORY.getString(address);
    }

    /** Copies bytes of the library. */
    static byte[] copy(long address, long bytes) {
        byte[] copy = new byte[Math.toIntExact(bytes)];
        MemorySegment.copy(MEMORY, JAVA_BYTE, address, copy, 0, copy.length);
        return copy;
    }

    /** Copies the bytes of a {@code situ_value} at an address, and frees them. */
    static byte[] takeValue(long value) {
        try {
            return copy(MEMORY.get(JAVA_LONG, value), MEMORY.get(JAVA_LONG, value + 8));
        } finally {
            run(VALUE_FREE, value);
        }
    }

    /** Copies the bytes of a {@code situ_value}, as many as fit, and frees them. Returns their number. */
    static int takeValue(long value, MemorySegment into) {
        try {
            long bytes = MEMORY.get(JAVA_LONG, value + 8);
            MemorySegment.copy(MEMORY, MEMORY.get(JAVA_LONG, value), into, 0, Math.min(bytes, into.byteSize()));
            return (int) bytes;
        } finally {
            run(VALUE_FREE, value);
        }
    }

    /** Returns the exception for a status that is negative, and frees the error. */
    static SituException failure(int status, long error) {
        String text = text(number(ERROR_TEXT, error));
        run(ERROR_FREE, error);
        return new SituException(SituException.Kind.of(status), text);
    }

    static long number(MethodHandle function) {
        try {
            return (long) function.invokeExact();
        } catch (Throwable thrown) {
            throw unexpected(thrown);
        }
    }

    static long number(MethodHandle function, long a) {
        try {
            return (long) function.invokeExact(a);
        } catch (Throwable thrown) {
            throw unexpected(thrown);
        }
    }

    static void run(MethodHandle function, long a) {
        try {
            function.invokeExact(a);
        } catch (Throwable thrown) {
            throw unexpected(thrown);
        }
    }

    static void run(MethodHandle function, long a, long b, long c) {
        try {
            function.invokeExact(a, b, c);
        } catch (Throwable thrown) {
            throw unexpected(thrown);
        }
    }

    static void run(MethodHandle function, long a, long b, long c, long d, long e) {
        try {
            function.invokeExact(a, b, c, d, e);
        } catch (Throwable thrown) {
            throw unexpected(thrown);
        }
    }

    static void run(MethodHandle function, long a, long b, long c, long d, long e, long f) {
        try {
            function.invokeExact(a, b, c, d, e, f);
        } catch (Throwable thrown) {
            throw unexpected(thrown);
        }
    }

    static void run(MethodHandle function, long a, long b, long c, long d, long e, long f, long g, long h) {
        try {
            function.invokeExact(a, b, c, d, e, f, g, h);
        } catch (Throwable thrown) {
            throw unexpected(thrown);
        }
    }

    static int call(MethodHandle function, long a) {
        try {
            return (int) function.invokeExact(a);
        } catch (Throwable thrown) {
            throw unexpected(thrown);
        }
    }

    static int call(MethodHandle function, long a, long b) {
        try {
            return (int) function.invokeExact(a, b);
        } catch (Throwable thrown) {
            throw unexpected(thrown);
        }
    }

    static int call(MethodHandle function, long a, long b, long c) {
        try {
            return (int) function.invokeExact(a, b, c);
        } catch (Throwable thrown) {
            throw unexpected(thrown);
        }
    }

    static int call(MethodHandle function, long a, long b, long c, long d) {
        try {
            return (int) function.invokeExact(a, b, c, d);
        } catch (Throwable thrown) {
            throw unexpected(thrown);
        }
    }

    static int call(MethodHandle function, long a, long b, long c, long d, long e) {
        try {
            return (int) function.invokeExact(a, b, c, d, e);
        } catch (Throwable thrown) {
            throw unexpected(thrown);
        }
    }

    static int call(MethodHandle function, long a, long b, long c, long d, long e, long f) {
        try {
            return (int) function.invokeExact(a, b, c, d, e, f);
        } catch (Throwable thrown) {
            throw unexpected(thrown);
        }
    }

    static int call(MethodHandle function, long a, long b, long c, long d, long e, long f, long g) {
        try {
            return (int) function.invokeExact(a, b, c, d, e, f, g);
        } catch (Throwable thrown) {
            throw unexpected(thrown);
        }
    }

    static int call(MethodHandle function, long a, long b, long c, long d, long e, long f, long g, long h) {
        try {
            return (int) function.invokeExact(a, b, c, d, e, f, g, h);
        } catch (Throwable thrown) {
            throw unexpected(thrown);
        }
    }

    static int put(long keyspace, MemorySegment key, MemorySegment value, long durable, long error) {
        try {
            return (int) KEYSPACE_PUT_SEGMENTS.invokeExact(
                    keyspace, key, key.byteSize(), value, value.byteSize(), durable, error);
        } catch (Throwable thrown) {
            throw unexpected(thrown);
        }
    }

    static int get(long keyspace, MemorySegment key, long read, long value, long error) {
        try {
            return (int) KEYSPACE_GET_SEGMENT.invokeExact(keyspace, key, key.byteSize(), read, value, error);
        } catch (Throwable thrown) {
            throw unexpected(thrown);
        }
    }

    static int getInto(long keyspace, long key, long keyBytes, long read, MemorySegment buffer, long used, long error) {
        try {
            return (int) KEYSPACE_GET_INTO_SEGMENT.invokeExact(
                    keyspace, key, keyBytes, read, buffer, buffer.byteSize(), used, error);
        } catch (Throwable thrown) {
            throw unexpected(thrown);
        }
    }

    static int batchPut(long batch, long keyspace, MemorySegment key, MemorySegment value, long error) {
        try {
            return (int) BATCH_PUT_SEGMENTS.invokeExact(
                    batch, keyspace, key, key.byteSize(), value, value.byteSize(), error);
        } catch (Throwable thrown) {
            throw unexpected(thrown);
        }
    }

    static int batchDelete(long batch, long keyspace, MemorySegment key, long error) {
        try {
            return (int) BATCH_DELETE_SEGMENT.invokeExact(batch, keyspace, key, key.byteSize(), error);
        } catch (Throwable thrown) {
            throw unexpected(thrown);
        }
    }
}
