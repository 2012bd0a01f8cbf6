package io.quoit.netty;

import io.netty.util.internal.SystemPropertyUtil;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.stream.Stream;

/** What a classifier jar brings ({@code quoit-netty-native}, {@code linux-x86_64}), put into files: libquoit and libquoit_jni. */
final class BundledLibrary {
    /** System property: the folder that the library is put into. Default: {@code java.io.tmpdir}. */
    static final String FOLDER_PROPERTY = "io.quoit.netty.workdir";

    /** Their names: the first part of those in the jar. */
    static final String QUOIT = "libquoit";
    static final String JNI = "libquoit_jni";

    /** Remedies where a library that was found is not the right one. */
    static final String NAME_ANOTHER = "name a libquoit.so for this machine by the system property "
            + NativeLoader.FILE_PROPERTY + " or the environment's " + NativeLoader.FILE_VARIABLE;

    static final String JNI_BESIDE =
            "put the libquoit_jni.so for this machine beside the libquoit.so that is named";

    /** What is mapped into this process. */
    private static final Path MAPS = Path.of("/proc/self/maps");

    private BundledLibrary() {}

    /** The name of a library's resource for this machine. */
    static String resource(String library) {
        String architecture = System.getProperty("os.arch", "");
        String name =
                switch (architecture) {
                    case "amd64", "x86_64" -> "x86_64";
                    case "aarch64", "arm64" -> "aarch_64";
                    default -> architecture;
                };
        return "META-INF/native/" + library + "_linux_" + name + (onMusl(MAPS) ? "_musl" : "") + ".so";
    }

    /** Whether a process with these maps runs on musl, whose loader is its C library. */
    static boolean onMusl(Path maps) {
        try (Stream<String> lines = Files.lines(maps, StandardCharsets.ISO_8859_1)) {
            return lines.anyMatch(line -> line.contains("/ld-musl-"));
        } catch (IOException | UncheckedIOException unknown) {
            return false; // most are not
        }
    }

    /** Puts a library into a file of its own, which is the caller's to delete. */
    static Path extract(String library) throws IOException {
        String resource = resource(library);
        try (InputStream in = BundledLibrary.class.getClassLoader().getResourceAsStream(resource)) {
            if (in == null) {
                throw new UnsupportedOperationException("there is no " + resource + " on the class path: add the jar "
                        + "io.quoit:quoit-netty-native with the classifier of this machine, or "
                        + (library.equals(QUOIT) ? NAME_ANOTHER : JNI_BESIDE));
            }
            Path folder = folder();
            Path file = null;
            try {
                file = Files.createTempFile(folder, library, ".so",
                        PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rwx------")));
                try (OutputStream out = Files.newOutputStream(file)) {
                    in.transferTo(out);
                }
                return file;
            } catch (IOException failure) {
                if (file != null) {
                    // A part of it, as where the disk is full.
                    Files.deleteIfExists(file);
                }
                throw new UnsupportedOperationException("the library cannot be put into " + folder + " (" + failure + "): let the "
                        + "system property " + FOLDER_PROPERTY + " name a folder that can be written and has room", failure);
            }
        }
    }

    /** Absolute, which a library that is to be loaded has to be. */
    private static Path folder() {
        String named = SystemPropertyUtil.get(FOLDER_PROPERTY);
        return Path.of(named == null || named.isEmpty() ? System.getProperty("java.io.tmpdir") : named)
                .toAbsolutePath();
    }

    /** What to do about an error of the dynamic linker's; {@code otherwise} if it is none of those that are known. */
    static String remedy(String text, String otherwise) {
        if (text.contains("failed to map segment") || text.contains("Operation not permitted")) {
            return "; its folder is mounted noexec: let the system property " + FOLDER_PROPERTY
                    + " name a folder on which files can be executed";
        }
        if (text.contains("already loaded in another classloader")) {
            return "; another class loader of this process has it: name no libquoit.so, so that each takes a file of its own out of "
                    + "the jar, or let all have these classes from one class loader";
        }
        if (text.contains("GLIBC_")) {
            return "; this system's glibc is older than the library's: take the released jar, whose library needs glibc 2.17, "
                    + "or build one on this machine (`make jni` builds both of Quoit's), and " + otherwise;
        }
        if (text.contains("musl") || text.contains("ld-linux")) {
            return "; the library is for another C library than this system's: take the jar whose classifier is this "
                    + "machine's, with -musl at its end for musl";
        }
        return "; " + otherwise;
    }
}
