package consumer;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.jar.JarFile;
import java.util.stream.Stream;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Runs {@link Consumer} with the packed jars, as users do: right, and wrong in every way that has a message. */
class PackedJarTest {
    private static final String NATIVE_ACCESS = "--enable-native-access=ALL-UNNAMED";
    private static final String BY_JNI = "-Dio.quoit.netty.access=jni";
    private static final String BY_FFM = "-Dio.quoit.netty.access=ffm";

    /** A program that ends at once is not worth what the best compiler and collector take to begin: half of its time. */
    private static List<String> starting(String java, String... options) {
        List<String> all = new ArrayList<>(List.of(java, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"));
        all.addAll(List.of(options));
        return all;
    }

    private static List<String> jars() {
        return Stream.of(System.getProperty("java.class.path").split(File.pathSeparator))
                .filter(part -> part.contains("netty") || part.endsWith("classes"))
                .filter(part -> !part.endsWith("test-classes"))
                .toList();
    }

    private static String javaHere() {
        return Path.of(System.getProperty("java.home"), "bin", "java").toString();
    }

    private static String run(List<String> command, Map<String, String> environment) throws Exception {
        ProcessBuilder builder = new ProcessBuilder(command);
        builder.environment().remove("QUOIT_LIBRARY");
        builder.environment().putAll(environment);
        builder.redirectErrorStream(true);
        Process process = builder.start();
        String output = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        assertEquals(0, process.waitFor(), output);
        return output;
    }

    private static String onClassPath(String java, Map<String, String> environment, String... options) throws Exception {
        return run(command(java, options), environment);
    }

    private static List<String> command(String java, String... options) {
        List<String> all = starting(java, options);
        all.addAll(List.of("-cp", String.join(File.pathSeparator, jars()), "consumer.Consumer"));
        return all;
    }

    private static void assertFallsBack(String output, String... words) {
        assertTrue(output.contains("transport=nio answer=word"), output);
        for (String word : words) {
            assertTrue(output.contains(word), "no \"" + word + "\" in: " + output);
        }
    }

    private static void assertRuns(String output, String access) {
        assertTrue(output.contains("transport=quoit answer=word cause=none access=" + access), output);
        assertTrue(!output.contains("WARNING: A restricted method"), output);
    }

    @Test
    void thePackedJarsAreEnough() throws Exception {
        assertRuns(onClassPath(javaHere(), Map.of(), NATIVE_ACCESS), "ffm");
        assertRuns(onClassPath(javaHere(), Map.of(), NATIVE_ACCESS, BY_FFM), "ffm");
        assertRuns(onClassPath(javaHere(), Map.of(), NATIVE_ACCESS, BY_JNI), "jni");
    }

    @Test
    void theyAreModulesToo() throws Exception {
        assertRuns(run(asModules(javaHere(), "--enable-native-access=io.quoit.netty"), Map.of()), "ffm");
        assertRuns(run(asModules(javaHere(), "--enable-native-access=io.quoit.netty", BY_JNI), Map.of()), "jni");
    }

    private static List<String> asModules(String java, String... options) {
        List<String> command = starting(java, options);
        List<String> modules = jars().stream().filter(part -> part.endsWith(".jar")).toList();
        List<String> classes = jars().stream().filter(part -> !part.endsWith(".jar")).toList();
        command.addAll(List.of(
                "--module-path", String.join(File.pathSeparator, modules),
                "--add-modules", "ALL-MODULE-PATH",
                "-cp", String.join(File.pathSeparator, classes),
                "consumer.Consumer"));
        return command;
    }

    /** What the profile {@code dist} packs beside, of which a part is no source folder of the project's. */
    @Test
    void theSourcesAndTheDocumentationAreComplete() throws Exception {
        Path jar = jars().stream()
                .map(Path::of)
                .filter(path -> path.getFileName().toString().matches("quoit-netty-\\d.*\\.jar"))
                .findFirst()
                .orElseThrow();
        String stem = jar.toString().replaceAll("\\.jar$", "");
        Assumptions.assumeTrue(Files.exists(Path.of(stem + "-sources.jar")), "packed without the profile dist");
        assertContains(stem + "-sources.jar", "io/quoit/netty/Quoit.java", "META-INF/versions/22/io/quoit/netty/FfmLibrary.java");
        assertContains(stem + "-javadoc.jar", "io.quoit.netty/io/quoit/netty/Quoit.html");
    }

    private static void assertContains(String jar, String... entries) throws Exception {
        try (JarFile file = new JarFile(jar)) {
            for (String entry : entries) {
                assertNotNull(file.getEntry(entry), jar + " lacks " + entry);
            }
        }
    }

    /** Each of Java 17 and 21 that is installed, found among the system's or named by JAVA_17_HOME and JAVA_21_HOME. */
    @ParameterizedTest
    @ValueSource(ints = {17, 21})
    void anOlderJavaRunsOnQuoitByJni(int version) throws Exception {
        String older = olderJava(version);
        Assumptions.assumeTrue(older != null, "no Java " + version + " is installed");
        assertRuns(onClassPath(older, Map.of()), "jni");
        assertRuns(run(asModules(older), Map.of()), "jni");
        assertFallsBack(onClassPath(older, Map.of(), BY_FFM), "io.quoit.netty.access", "needs Java 22");
    }

    @Test
    void aWayOfCallingThatThereIsNotIsNamed() throws Exception {
        assertFallsBack(
                onClassPath(javaHere(), Map.of(), NATIVE_ACCESS, "-Dio.quoit.netty.access=panama"),
                "io.quoit.netty.access",
                "panama");
    }

    private static String olderJava(int version) throws Exception {
        List<Path> homes = new ArrayList<>();
        String named = System.getenv("JAVA_" + version + "_HOME");
        if (named != null) {
            homes.add(Path.of(named));
        }
        Path system = Path.of("/usr/lib/jvm");
        if (Files.isDirectory(system)) {
            try (Stream<Path> all = Files.list(system)) {
                all.filter(home -> home.getFileName().toString().matches(".*\\b" + version + "\\b.*"))
                        .forEach(homes::add);
            }
        }
        return homes.stream()
                .map(home -> home.resolve("bin/java"))
                .filter(Files::isExecutable)
                .map(Path::toString)
                .findFirst()
                .orElse(null);
    }

    /** As in a jar of all jars, made by a tool that knows nothing of such parts; Java 25 then takes it for one of Java 17. */
    @Test
    void aJarThatHasLostItsPartForJava22IsExplained() throws Exception {
        assertFallsBack(
                onClassPath(javaHere(), Map.of(), NATIVE_ACCESS, "-Djdk.util.jar.enableMultiRelease=false"),
                "Multi-Release: true",
                "io.quoit.netty.access");
        assertRuns(onClassPath(javaHere(), Map.of(), NATIVE_ACCESS, "-Djdk.util.jar.enableMultiRelease=false", BY_JNI), "jni");
    }

    /** Java itself says it, in the words of its version, as long as it does not deny. */
    @ParameterizedTest
    @ValueSource(strings = {BY_FFM, BY_JNI})
    void nativeAccessThatIsNotAskedForIsWarnedOfOnce(String way) throws Exception {
        String output = onClassPath(javaHere(), Map.of(), way);
        assertTrue(output.contains("transport=quoit answer=word cause=none"), output);
        assertEquals(2, output.split("--enable-native-access=ALL-UNNAMED", -1).length, output);
    }

    @ParameterizedTest
    @ValueSource(strings = {BY_FFM, BY_JNI})
    void deniedNativeAccessIsExplained(String way) throws Exception {
        assertFallsBack(
                onClassPath(javaHere(), Map.of(), "--illegal-native-access=deny", way),
                "--enable-native-access=ALL-UNNAMED");
    }

    @Test
    void aLibraryThatIsNotThereIsNamed() throws Exception {
        assertFallsBack(
                onClassPath(javaHere(), Map.of("QUOIT_LIBRARY", "/nowhere/libquoit.so"), NATIVE_ACCESS),
                "/nowhere/libquoit.so",
                "QUOIT_LIBRARY");
    }

    @ParameterizedTest
    @ValueSource(strings = {BY_FFM, BY_JNI})
    void aLibraryThatIsAnotherIsNamed(String way, @TempDir Path folder) throws Exception {
        Path text = Files.writeString(folder.resolve("libquoit.so"), "this is no library");
        assertFallsBack(
                onClassPath(javaHere(), Map.of(), NATIVE_ACCESS, way, "-Dio.quoit.netty.library=" + text),
                text + " cannot be used: ",
                "name a libquoit.so for this machine");
        assertFallsBack(
                onClassPath(javaHere(), Map.of(), NATIVE_ACCESS, way, "-Dio.quoit.netty.library=" + someLibrary()),
                someLibrary() + " cannot be used: it lacks quoit_version",
                "another version");
    }

    /** Beside a libquoit that is named: what is built with it is taken in place of the jar's, and has to fit. */
    @Test
    void aLibraryForJniThatIsAnotherIsNamed(@TempDir Path folder) throws Exception {
        Path quoit = Files.createSymbolicLink(
                folder.resolve("libquoit.so"), Path.of(System.getenv("QUOIT_LIBRARY")).toRealPath());
        Path jni = folder.resolve("libquoit_jni.so");
        String[] options = {NATIVE_ACCESS, BY_JNI, "-Dio.quoit.netty.library=" + quoit};
        assertRuns(onClassPath(javaHere(), Map.of(), options), "jni");
        Files.writeString(jni, "this is no library");
        assertFallsBack(onClassPath(javaHere(), Map.of(), options), jni + ", by which this Java calls libquoit, cannot be used");
        compile(folder, "int nothing;", jni);
        assertFallsBack(onClassPath(javaHere(), Map.of(), options), jni + " lacks the function ", "another version");
        Files.delete(jni);
        Files.copy(Path.of(System.getenv("QUOIT_LIBRARY")).resolveSibling("libquoit_jni.so"), jni);
        assertRuns(onClassPath(javaHere(), Map.of(), options), "jni");
    }

    /** A library that is surely no libquoit. */
    private static Path someLibrary() {
        return Path.of(System.getProperty("java.home"), "lib", "libjava.so");
    }

    /**
     * Libquoit itself, behind a library that asks it for a version by so much higher: what it answers is what one of an
     * older minor, or another major version answers. The minor version that this program wants may be older than the
     * library's, but by far less than this.
     */
    @ParameterizedTest
    @CsvSource({"1024, " + BY_FFM, "1024, " + BY_JNI, "65536, " + BY_FFM, "65536, " + BY_JNI})
    void aLibraryOfAnotherAbiVersionIsNamed(int higher, String way, @TempDir Path folder) throws Exception {
        Path other = folder.resolve("libquoit-other.so");
        Path real = Path.of(System.getenv("QUOIT_LIBRARY")).toRealPath();
        // Depends on libquoit though it names nothing of it, and on that very file.
        Path soname = Files.createSymbolicLink(folder.resolve("libquoit.so.0"), real);
        compile(folder, OTHER_VERSION, other, "-DHIGHER=" + higher, "-Wl,--no-as-needed", soname.toString(), "-Wl,-rpath," + folder);
        String output = onClassPath(
                javaHere(), Map.of(), NATIVE_ACCESS, way, "-Dio.quoit.netty.library=" + other);
        assertFallsBack(output, other + ": this program wants version ", "install a libquoit that fits");
        // What is logged, and what is printed as the cause: once each.
        assertEquals(2, output.split("install a libquoit", -1).length - 1, output);
    }

    /** Makes a library of a source in C. */
    private static void compile(Path folder, String text, Path library, String... options) throws Exception {
        Path source = Files.writeString(folder.resolve("library.c"), text);
        List<String> compiler =
                new ArrayList<>(List.of("cc", "-shared", "-fPIC", "-o", library.toString(), source.toString()));
        compiler.addAll(List.of(options));
        Process compiling = new ProcessBuilder(compiler).redirectErrorStream(true).start();
        String complaints = new String(compiling.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        assertEquals(0, compiling.waitFor(), complaints);
    }

    private static final String OTHER_VERSION =
            """
            #define _GNU_SOURCE
            #include <dlfcn.h>
            #include <stdint.h>

            int quoit_abi_check(uint32_t version)
            {
                int (*real)(uint32_t) = (int (*)(uint32_t))dlsym(RTLD_NEXT, "quoit_abi_check");
                return real(version + HIGHER);
            }
            """;

    @Test
    void aFolderThatCannotBeWrittenIsNamed() throws Exception {
        assertFallsBack(
                onClassPath(javaHere(), Map.of(), NATIVE_ACCESS, "-Dio.quoit.netty.workdir=/nowhere"),
                "/nowhere",
                "io.quoit.netty.workdir");
    }

    /** Java itself loads a library by an absolute path only. */
    @ParameterizedTest
    @ValueSource(strings = {BY_FFM, BY_JNI})
    void aFolderMayBeNamedFromWhereTheProgramIs(String way, @TempDir Path own) throws Exception {
        Path folder = Files.createDirectory(own.resolve("libraries"));
        for (String named : List.of("libraries", "")) {
            List<String> command = new ArrayList<>(List.of("sh", "-c", "cd \"$0\" && exec \"$@\"", own.toString()));
            command.addAll(command(javaHere(), NATIVE_ACCESS, way, "-Dio.quoit.netty.workdir=" + named));
            assertRuns(run(command, Map.of()), way.substring(way.indexOf('=') + 1));
        }
        assertEquals(0, folder.toFile().list().length, "what was loaded is deleted");
    }

    /** As a limit of the length of files does, in place of a disk. */
    @Test
    void aFolderThatIsFullIsNamedAndNothingIsLeftInIt(@TempDir Path folder) throws Exception {
        List<String> command = new ArrayList<>(List.of("sh", "-c", "ulimit -f 1000 && exec \"$@\"", "sh"));
        command.addAll(command(javaHere(), NATIVE_ACCESS, "-Dio.quoit.netty.workdir=" + folder));
        assertFallsBack(
                run(command, Map.of()), "cannot be put into " + folder, "File too large", "io.quoit.netty.workdir");
        assertEquals(0, folder.toFile().list().length, "a part of the library");
    }

    @ParameterizedTest
    @ValueSource(strings = {BY_FFM, BY_JNI})
    void aFolderWithoutExecutionIsNamed(String way, @TempDir Path own) throws Exception {
        List<String> mounting = List.of(
                "unshare", "--mount", "--map-root-user", "sh", "-c", "mount -t tmpfs -o noexec none \"$0\" && \"$@\"");
        List<String> command = new ArrayList<>();
        Path folder = own;
        if (succeeds(mounting, own.toString(), "true")) {
            command.addAll(mounting);
            command.add(own.toString());
        } else {
            folder = mountedWithoutExecution();
            Assumptions.assumeTrue(folder != null, "no folder is mounted noexec, and none can be");
        }
        command.addAll(command(javaHere(), NATIVE_ACCESS, way, "-Dio.quoit.netty.workdir=" + folder));
        assertFallsBack(run(command, Map.of()), "noexec", "io.quoit.netty.workdir");
    }

    private static boolean succeeds(List<String> command, String... arguments) throws Exception {
        List<String> all = new ArrayList<>(command);
        all.addAll(List.of(arguments));
        try {
            return new ProcessBuilder(all).redirectErrorStream(true).start().waitFor() == 0;
        } catch (IOException notThere) {
            return false;
        }
    }

    private static Path mountedWithoutExecution() throws IOException {
        for (String line : Files.readAllLines(Path.of("/proc/mounts"))) {
            String[] words = line.split(" ");
            Path place = Path.of(words[1]);
            boolean memory = words[2].equals("tmpfs") || words[2].equals("ramfs");
            if (memory && words[3].contains("noexec") && Files.isDirectory(place) && Files.isWritable(place)) {
                return place;
            }
        }
        return null;
    }
}
