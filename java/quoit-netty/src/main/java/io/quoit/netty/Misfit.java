package io.quoit.netty;

import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;

/**
 * What a library is for that could not be loaded. The dynamic linker itself says of one for another processor that it is not there, and
 * of one for the other C library what happens to be missing first.
 */
final class Misfit {
    /** What is mapped into this process. */
    private static final Path MAPS = Path.of("/proc/self/maps");

    private static final int CLASS = 4;
    private static final int DATA = 5;
    private static final int MACHINE = 18;
    private static final int HEADER = 64;
    private static final byte CLASS_64 = 2;
    private static final byte LITTLE_ENDIAN = 1;
    private static final int X86_64 = 62;
    private static final int AARCH64 = 183;

    /** More than any libquoit has. */
    private static final int LARGEST = 16 << 20;

    private Misfit() {}

    /** What is wrong with a file, and what to take; empty where nothing can be told. */
    static String of(Path file) {
        byte[] library;
        try (InputStream in = Files.newInputStream(file)) {
            library = in.readNBytes(LARGEST);
        } catch (IOException notThere) {
            return "";
        }
        return of(library, System.getProperty("os.arch", ""), BundledLibrary.onMusl(MAPS));
    }

    static String of(byte[] library, String architecture, boolean onMusl) {
        if (library.length < HEADER || library[0] != 0x7f || library[1] != 'E' || library[2] != 'L' || library[3] != 'F') {
            return "";
        }
        boolean arm = architecture.equals("aarch64") || architecture.equals("arm64");
        String here = arm ? "aarch_64" : "x86_64";
        String classifier = "linux-" + here + (onMusl ? "-musl" : "");
        String take = ": take the jar of quoit-netty-native whose classifier is " + classifier;
        if (library[CLASS] != CLASS_64 || library[DATA] != LITTLE_ENDIAN) {
            return "; it is not for a 64-bit processor such as this one" + take;
        }
        int machine = library[MACHINE] & 0xff | (library[MACHINE + 1] & 0xff) << 8;
        if (machine != (arm ? AARCH64 : X86_64)) {
            String name = machine == X86_64 ? "x86_64" : machine == AARCH64 ? "aarch_64" : "ELF's machine " + machine;
            return "; it is for " + name + ", and this Java is for " + here + take;
        }
        String bytes = new String(library, StandardCharsets.ISO_8859_1);
        boolean needsGlibc = bytes.contains("\0libc.so.6\0");
        boolean needsMusl = bytes.contains("\0libc.so\0");
        if (needsGlibc != needsMusl && needsMusl != onMusl) {
            return (onMusl
                            ? "; it is for glibc, and this Java runs on musl"
                            : "; it is for musl, and this Java runs on glibc")
                    + take;
        }
        return "";
    }
}
