package io.quoit.netty;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class BundledLibraryTest {
    @ParameterizedTest
    @CsvSource({
        "/lib/ld-musl-x86_64.so.1, true",
        "/lib/ld-musl-aarch64.so.1, true",
        "/lib/x86_64-linux-gnu/libc.so.6, false",
        "/lib64/ld-linux-x86-64.so.2, false",
    })
    void muslIsKnownByItsLoader(String mapped, boolean musl, @TempDir Path folder) throws Exception {
        Path maps = Files.writeString(
                folder.resolve("maps"),
                "55d0c0a00000-55d0c0a01000 r--p 00000000 fe:00 1 /usr/bin/java\n7f00-7f01 r-xp 00000000 fe:00 2 " + mapped + "\n");
        assertEquals(musl, BundledLibrary.onMusl(maps));
    }

    @Test
    void withoutMapsItIsNotMusl(@TempDir Path folder) {
        assertEquals(false, BundledLibrary.onMusl(folder.resolve("nothing")));
    }

    @Test
    void anErrorOfTheLinkersNamesWhatToInstall() {
        assertTrue(remedy("libc.so.6: version `GLIBC_2.34' not found").contains("glibc 2.17"));
        assertTrue(remedy("Error loading shared library ld-linux-x86-64.so.2").contains("-musl"));
        assertTrue(remedy("failed to map segment from shared object").contains(BundledLibrary.FOLDER_PROPERTY));
        assertTrue(remedy("Native Library x.so already loaded in another classloader").contains("out of the jar"));
        assertEquals("; name another", remedy("something else"));
    }

    private static String remedy(String text) {
        return BundledLibrary.remedy(text, "name another");
    }
}
