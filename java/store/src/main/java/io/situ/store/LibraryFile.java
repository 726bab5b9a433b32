package io.situ.store;

import java.io.IOException;
import java.io.InputStream;
import java.lang.foreign.Arena;
import java.lang.foreign.SymbolLookup;
import java.lang.foreign.ValueLayout;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.Locale;

/**
 * The file of the native library. The first of these is loaded:
 * <ol>
 * <li>the file that the system property {@code situ.library} names, or {@code libsitu.so} in that directory;
 * <li>the library in the jar, if the jar has one for this platform;
 * <li>the library that {@code System.loadLibrary} finds.
 * </ol>
 *
 * <p>The library in the jar is copied to a new temporary file, which is removed once it is loaded. A file that stays
 * for the next process was rejected: another user could put one of the same name into the directory first.
 */
final class LibraryFile {
    private static final String NAME = "libsitu.so";

    private LibraryFile() {}

    static SymbolLookup load() {
        if (!System.getProperty("os.name").equals("Linux") || ValueLayout.ADDRESS.byteSize() != 8) {
            throw new UnsatisfiedLinkError("Situ needs Linux on a 64-bit processor");
        }
        String property = System.getProperty("situ.library");
        if (property != null) {
            Path path = Path.of(property).toAbsolutePath();
            return open(Files.isDirectory(path) ? path.resolve(NAME) : path);
        }
        String resource = platform() + "/" + NAME;
        try (InputStream bundled = LibraryFile.class.getResourceAsStream(resource)) {
            if (bundled != null) {
                return openCopy(bundled);
            }
        } catch (IOException failed) {
            UnsatisfiedLinkError error = new UnsatisfiedLinkError("cannot copy " + resource + " of the jar to "
                    + System.getProperty("java.io.tmpdir") + ": " + failed
                    + "; -Dsitu.library=PATH names a library outside of the jar");
            error.initCause(failed);
            throw error;
        }
        try {
            System.loadLibrary("situ");
        } catch (UnsatisfiedLinkError missing) {
            UnsatisfiedLinkError error = new UnsatisfiedLinkError("there is no " + NAME
                    + ": not by -Dsitu.library=PATH, not in the jar for " + platform() + ", not in java.library.path");
            error.initCause(missing);
            throw error;
        }
        return SymbolLookup.loaderLookup();
    }

    /** Returns the name of the platform in the jar, such as {@code linux-x86_64}. */
    private static String platform() {
        String processor = System.getProperty("os.arch").toLowerCase(Locale.ROOT);
        return "linux-" + (processor.equals("amd64") ? "x86_64" : processor);
    }

    private static SymbolLookup openCopy(InputStream library) throws IOException {
        Path copy = Files.createTempFile("libsitu-", ".so");
        try {
            Files.copy(library, copy, StandardCopyOption.REPLACE_EXISTING);
            return open(copy);
        } finally {
            Files.delete(copy);
        }
    }

    private static SymbolLookup open(Path path) {
        try {
            return SymbolLookup.libraryLookup(path, Arena.global());
        } catch (IllegalArgumentException notALibrary) {
            UnsatisfiedLinkError error = new UnsatisfiedLinkError(Files.exists(path)
                    ? path + " cannot be loaded: it is no library for this platform, or lies on a disk without programs"
                    : path + " does not exist; cargo build --release -p situ-c makes the library");
            error.initCause(notALibrary);
            throw error;
        }
    }
}
