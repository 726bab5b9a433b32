package io.situ.store;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** The examples of the pages run, one after another, as one program. */
class GuideTest extends StoreTest {
    private static final Pattern EXAMPLE = Pattern.compile("(?ms)^```java\\n(.*?)^```$");

    @ParameterizedTest
    @ValueSource(strings = {"../../docs/guide/java.md", "README.md"})
    void theExamplesRun(Path page) throws Exception {
        Set<String> imports = new TreeSet<>();
        StringBuilder body = new StringBuilder();
        Matcher examples = EXAMPLE.matcher(Files.readString(page));
        while (examples.find()) {
            body.append("        {\n");
            for (String line : examples.group(1).split("\n")) {
                if (line.startsWith("import ")) {
                    imports.add(line);
                } else {
                    body.append("            ").append(line).append('\n');
                }
            }
            body.append("        }\n");
        }
        assertFalse(body.isEmpty());
        Path program = Files.writeString(directory.resolve("Examples.java"), String.join("\n", imports)
                + "\nclass Examples {\n    public static void main(String[] arguments) {\n" + body + "    }\n}\n");
        Process process = java(List.of("-Dsitu.library=" + LibraryFileTest.library(),
                "-Dsitu.leaks=true"), System.getProperty("java.class.path"), program.toString());
        String said = new String(process.getInputStream().readAllBytes());
        assertEquals(0, process.waitFor(), said);
        assertFalse(said.contains("WARNING"), said);
    }
}
