package io.quoit.netty;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.Arrays;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class MisfitTest {
    private static byte[] library(int bits, int machine, String needed) {
        byte[] library = Arrays.copyOf(new byte[] {0x7f, 'E', 'L', 'F', (byte) bits, 1}, 128);
        library[18] = (byte) machine;
        library[19] = (byte) (machine >> 8);
        byte[] name = ("\0" + needed + "\0").getBytes(StandardCharsets.US_ASCII);
        System.arraycopy(name, 0, library, 64, name.length);
        return library;
    }

    @ParameterizedTest
    @CsvSource({
        "1, 3, libc.so.6, amd64, false, not for a 64-bit processor, linux-x86_64",
        "2, 183, libc.so.6, amd64, false, 'it is for aarch_64, and this Java is for x86_64', linux-x86_64",
        "2, 62, libc.so.6, aarch64, false, 'it is for x86_64, and this Java is for aarch_64', linux-aarch_64",
        "2, 22, libc.so.6, amd64, true, it is for ELF's machine 22, linux-x86_64-musl",
        "2, 62, libc.so, amd64, false, 'it is for musl, and this Java runs on glibc', linux-x86_64",
        "2, 183, libc.so.6, aarch64, true, 'it is for glibc, and this Java runs on musl', linux-aarch_64-musl",
    })
    void whatIsWrongIsTold(int bits, int machine, String needed, String here, boolean musl, String said, String classifier) {
        String found = Misfit.of(library(bits, machine, needed), here, musl);
        assertTrue(found.contains(said), found);
        assertTrue(found.endsWith("whose classifier is " + classifier), found);
    }

    @Test
    void whatFitsOrIsNoLibraryIsLeftToTheLinker() {
        assertEquals("", Misfit.of(library(2, 62, "libc.so.6"), "amd64", false));
        assertEquals("", Misfit.of(library(2, 62, "libc.so"), "amd64", true));
        assertEquals("", Misfit.of(library(2, 62, ""), "amd64", false));
        assertEquals("", Misfit.of(library(2, 183, "libc.so.6"), "aarch64", false));
        assertEquals("", Misfit.of(new byte[200], "amd64", false));
        assertEquals("", Misfit.of(Arrays.copyOf(library(2, 183, ""), 30), "amd64", false));
        assertEquals("", Misfit.of(Path.of("/nowhere/libquoit.so")));
    }
}
