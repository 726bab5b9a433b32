package io.situ.store;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.invoke.MethodHandle;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** The classes compared with {@code situ.h}. */
class HeaderTest extends StoreTest {
    private static String header;

    @BeforeAll
    static void read() throws Exception {
        header = Files.readString(Path.of("../../crates/situ-c/include/situ.h"));
    }

    private static Map<String, Integer> constants(String prefix) {
        Map<String, Integer> constants = new TreeMap<>();
        Matcher found = Pattern.compile("#define SITU_" + prefix + "(\\w+) (-?\\d+)").matcher(header);
        while (found.find()) {
            constants.put(found.group(1), Integer.parseInt(found.group(2)));
        }
        return constants;
    }

    @Test
    void everyErrorHasAKind() {
        Map<String, Integer> errors = constants("ERROR_");
        assertEquals(SituException.Kind.values().length, errors.size());
        errors.forEach((name, status) -> {
            SituException.Kind kind = SituException.Kind.of(status);
            assertEquals(name, kind.name());
            boolean isRetryable = Native.call(Native.IS_RETRYABLE, status) == 1;
            assertEquals(isRetryable, new SituException(kind, "").isRetryable(), name);
        });
        assertEquals(SituException.Kind.INTERNAL, SituException.Kind.of(-1000));
    }

    @Test
    void constantsAreThoseOfC() {
        Map<String, Integer> all = constants("");
        assertEquals(all.get("OK"), Native.OK);
        assertEquals(all.get("MISS"), Native.MISS);
        for (Durability each : Durability.values()) {
            assertEquals(all.get(each.name()), each.ordinal());
        }
        for (TransactionKind each : TransactionKind.values()) {
            assertEquals(all.get(each.name()), each.ordinal());
        }
        for (LockMode each : LockMode.values()) {
            assertEquals(all.get(each.name()), each.ordinal());
        }
        for (Isolation each : Isolation.values()) {
            assertEquals(all.get("ISOLATION_" + each.name()), each.ordinal());
        }
    }

    /** Every function is linked, with as many parameters as it has in C. */
    @Test
    void functionsAreThoseOfC() throws Exception {
        Map<String, Integer> linked = new TreeMap<>();
        for (Field field : Native.class.getDeclaredFields()) {
            if (field.getType() == MethodHandle.class && !Modifier.isPrivate(field.getModifiers())) {
                MethodHandle handle = (MethodHandle) field.get(null);
                linked.put("situ_" + field.getName().toLowerCase(Locale.ROOT), handle.type().parameterCount());
            }
        }
        Map<String, Integer> declared = new TreeMap<>();
        String code = header.replaceAll("(?s)/\\*.*?\\*/", "").replaceAll("//.*", "").replaceAll("typedef [^;]*;", "");
        Matcher found = Pattern.compile("\\b(situ_\\w+)\\(([^)]*)\\);").matcher(code);
        while (found.find()) {
            String parameters = found.group(2).strip();
            boolean isNone = parameters.isEmpty() || parameters.equals("void");
            declared.put(found.group(1), isNone ? 0 : parameters.split(",").length);
        }
        assertTrue(declared.size() > 60, declared.keySet().toString());
        assertEquals(declared, linked);
    }
}
