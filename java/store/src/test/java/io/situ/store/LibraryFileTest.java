package io.situ.store;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;

/** The places where the native library is looked for, each in a process of its own. */
class LibraryFileTest extends StoreTest {
    private static final String CLASSES = System.getProperty("java.class.path");

    private String load(String classPath, String... options) throws Exception {
        List<String> all = new ArrayList<>(List.of(options));
        all.add("-Djava.io.tmpdir=" + directory);
        Process process = java(all, classPath, Version.class.getName());
        String said = new String(process.getInputStream().readAllBytes()).strip();
        assertEquals(0, process.waitFor(), said);
        return said;
    }

    private static void assertSaid(String part, String said) {
        assertTrue(said.contains(part), said);
    }

    static Path library() {
        Path named = Path.of(System.getProperty("situ.library"));
        return (Files.isDirectory(named) ? named.resolve("libsitu.so") : named).toAbsolutePath();
    }

    @Test
    void thePropertyNamesAFileOrADirectory() throws Exception {
        assertSaid("version 0.", load(CLASSES, "-Dsitu.library=" + library()));
        assertSaid("version 0.", load(CLASSES, "-Dsitu.library=" + library().getParent()));
        assertSaid(directory + "/libsitu.so does not exist", load(CLASSES, "-Dsitu.library=" + directory));
        Path text = Files.writeString(directory.resolve("text.so"), "this is no library");
        assertSaid("text.so cannot be loaded", load(CLASSES, "-Dsitu.library=" + text));
    }

    @Test
    void theJarMayHaveTheLibrary() throws Exception {
        Path place = directory.resolve("bundle/io/situ/store/linux-"
                + System.getProperty("os.arch").replace("amd64", "x86_64"));
        Files.createDirectories(place);
        Files.copy(library(), place.resolve("libsitu.so"));
        assertSaid("version 0.", load(CLASSES + File.pathSeparator + directory.resolve("bundle")));
        try (var left = Files.list(directory)) {
            assertEquals(List.of(directory.resolve("bundle")), left.filter(path -> !path.endsWith("store")).toList());
        }
    }

    @Test
    void theLibraryPathComesLast() throws Exception {
        assertSaid("version 0.", load(CLASSES, "-Djava.library.path=" + library().getParent()));
        assertSaid("there is no libsitu.so: not by -Dsitu.library=PATH, not in the jar for linux-",
                load(CLASSES, "-Djava.library.path=" + directory));
    }
}
