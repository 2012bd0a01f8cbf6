package io.quoit.netty;

import io.netty.util.internal.SystemPropertyUtil;
import io.netty.util.internal.logging.InternalLogger;
import io.netty.util.internal.logging.InternalLoggerFactory;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;

/** Finds libquoit, opens it, and checks that it is the one that this package was written for. Done once. */
final class NativeLoader {
    /** System property: the file to open instead of the one in the jar. */
    static final String FILE_PROPERTY = "io.quoit.netty.library";
    /** Environment: the same, for all of Quoit's languages. */
    static final String FILE_VARIABLE = "QUOIT_LIBRARY";

    /** System property: {@code ffm} or {@code jni}, in place of what this Java gets by itself. */
    static final String ACCESS_PROPERTY = "io.quoit.netty.access";

    /** The first Java with the foreign function interface. */
    private static final int FFM_SINCE = 22;

    private static final String JNI_FILE = "libquoit_jni.so";

    private static final InternalLogger LOGGER = InternalLoggerFactory.getInstance(NativeLoader.class);

    private static final String RESOURCE = "quoit-layout.txt";

    private static Path file;
    /** What was taken out of a jar. */
    private static final List<Path> EXTRACTED = new ArrayList<>();

    private NativeLoader() {}

    /** The library, or why there is none. */
    record Outcome(NativeLibrary library, Throwable cause) {}

    private static final class Holder {
        static final Outcome OUTCOME = load();
    }

    static Outcome outcome() {
        return Holder.OUTCOME;
    }

    /** The library. */
    static NativeLibrary library() {
        Outcome outcome = outcome();
        if (outcome.cause != null) {
            throw (UnsupportedOperationException)
                    new UnsupportedOperationException(outcome.cause.getMessage()).initCause(outcome.cause);
        }
        return outcome.library;
    }

    /** The file to open; set before the class that opens it is initialised. */
    static Path file() {
        return file;
    }

    private static Outcome load() {
        try {
            return new Outcome(open(), null);
        } catch (Throwable cause) {
            return new Outcome(null, cause);
        }
    }

    private static NativeLibrary open() throws Exception {
        String system = System.getProperty("os.name", "");
        if (!system.equals("Linux")) {
            throw new UnsupportedOperationException(
                    "Quoit runs on Linux only; this is " + system + ": stay on Netty's own transports");
        }
        String access = access(SystemPropertyUtil.get(ACCESS_PROPERTY), Runtime.version().feature());
        NativeLibrary library;
        try {
            file = choose();
            library = access.equals(NativeLibrary.JNI) ? jni() : ffm();
        } catch (IllegalCallerException denied) {
            throw explained(denied);
        } finally {
            for (Path path : EXTRACTED) {
                // Loaded or not, nobody needs the name any more.
                Files.deleteIfExists(path);
            }
        }
        check(library);
        LOGGER.debug("Quoit {} is called by {}, from {}", library.version(), access, file);
        return library;
    }

    /** How native code is called: as it is asked for, or as this version of Java can. */
    static String access(String asked, int java) {
        if (asked == null || asked.isEmpty()) {
            return java >= FFM_SINCE ? NativeLibrary.FFM : NativeLibrary.JNI;
        }
        if (asked.equals(NativeLibrary.FFM) && java < FFM_SINCE) {
            throw new UnsupportedOperationException("the system property " + ACCESS_PROPERTY + " asks for " + asked
                    + ", which needs Java " + FFM_SINCE + "; this is Java " + java + ": leave it out, or say jni");
        }
        if (!asked.equals(NativeLibrary.FFM) && !asked.equals(NativeLibrary.JNI)) {
            throw new UnsupportedOperationException(
                    "the system property " + ACCESS_PROPERTY + " is ffm, jni or nothing, and not \"" + asked + "\"");
        }
        return asked;
    }

    /** Which opens the file that was chosen. */
    static NativeLibrary jni() throws IOException {
        return new JniLibrary(chooseJni(), file);
    }

    /** By its name, as it is for a newer Java than this class. */
    private static NativeLibrary ffm() throws Exception {
        try {
            return (NativeLibrary) Class.forName("io.quoit.netty.FfmLibrary", true, NativeLoader.class.getClassLoader())
                    .getDeclaredConstructor()
                    .newInstance();
        } catch (ReflectiveOperationException | LinkageError failure) {
            throw explained(failure);
        }
    }

    private static Path choose() throws IOException {
        String named = SystemPropertyUtil.get(FILE_PROPERTY);
        String by = "the system property " + FILE_PROPERTY;
        if (named == null || named.isEmpty()) {
            named = System.getenv(FILE_VARIABLE);
            by = "the environment's " + FILE_VARIABLE;
        }
        if (named == null || named.isEmpty()) {
            return extracted(BundledLibrary.QUOIT);
        }
        Path path = Path.of(named).toAbsolutePath();
        if (!Files.isReadable(path)) {
            throw new UnsupportedOperationException(path + ", named by " + by + ", cannot be read: let it name a "
                    + "libquoit.so for this machine, as `make capi` of the Quoit repository builds it");
        }
        return path;
    }

    /** What JNI needs: beside a libquoit that was named, as they are built together, or in the jar. */
    private static Path chooseJni() throws IOException {
        Path beside = file.resolveSibling(JNI_FILE);
        return EXTRACTED.isEmpty() && Files.isReadable(beside) ? beside : extracted(BundledLibrary.JNI);
    }

    private static Path extracted(String library) throws IOException {
        Path path = BundledLibrary.extract(library);
        EXTRACTED.add(path);
        return path;
    }

    /** The failure of opening the library, in words that say what to do. */
    private static Exception explained(Throwable failure) {
        Throwable cause = failure;
        while (cause.getCause() != null
                && (cause instanceof ExceptionInInitializerError || cause instanceof ReflectiveOperationException)) {
            cause = cause.getCause();
        }
        if (cause instanceof IllegalCallerException) {
            String module = NativeLoader.class.getModule().isNamed() ? "io.quoit.netty" : "ALL-UNNAMED";
            return new UnsupportedOperationException(
                    "this Java denies calls of native code: run it with --enable-native-access=" + module, cause);
        }
        String misfit = cause instanceof ClassNotFoundException ? "" : Misfit.of(file);
        if (!misfit.isEmpty()) {
            return new UnsupportedOperationException(file + " cannot be used: " + cause.getMessage() + misfit, cause);
        }
        String text = String.valueOf(cause.getMessage());
        if (cause instanceof ClassNotFoundException) {
            return new UnsupportedOperationException(
                    "the part of quoit-netty for Java 22 is missing: keep META-INF/versions and the manifest's "
                            + "Multi-Release: true when the jar is packed anew, or set the system property "
                            + ACCESS_PROPERTY + " to jni",
                    cause);
        }
        return new UnsupportedOperationException(file + " cannot be used: " + text + BundledLibrary.remedy(text, BundledLibrary.NAME_ANOTHER), cause);
    }

    private static void check(NativeLibrary library) throws IOException {
        if (library.abiCheck(Abi.VERSION) < 0) {
            // What the library says has the remedy.
            throw new UnsupportedOperationException(file + ": " + library.errorText());
        }
        String lacking = lacking(library.layout(), goldenLayout());
        if (lacking != null) {
            throw new UnsupportedOperationException(
                    file + ": its layout lacks \"" + lacking + "\": it is libquoit of another version; install the one that "
                            + "belongs to this jar's version");
        }
    }

    static List<String> goldenLayout() throws IOException {
        try (InputStream in = NativeLoader.class.getResourceAsStream(RESOURCE)) {
            if (in == null) {
                throw new IOException("the jar lacks its " + RESOURCE);
            }
            return new String(in.readAllBytes(), StandardCharsets.US_ASCII)
                    .lines()
                    .map(String::strip)
                    .filter(line -> !line.isEmpty())
                    .toList();
        }
    }

    /**
     * The first line of the golden layout that the library's lacks; null if none. Structures that begin with their
     * size may have grown, and so may the minor version.
     */
    static String lacking(String library, List<String> golden) {
        Set<String> lines = new HashSet<>();
        library.lines().map(String::strip).forEach(lines::add);
        Set<String> growing = new HashSet<>();
        for (String line : golden) {
            String[] words = line.split(" ");
            if (words.length == 5 && words[0].equals("field") && words[2].equals("size") && words[3].equals("0")) {
                growing.add(words[1]);
            }
        }
        for (String line : golden) {
            String[] words = line.split(" ");
            boolean mayDiffer = words[0].equals("struct") && growing.contains(words[1])
                    || words[0].equals("constant") && words[1].equals("QUOIT_ABI_MINOR");
            if (!mayDiffer && !lines.contains(line)) {
                return line;
            }
        }
        return null;
    }
}
