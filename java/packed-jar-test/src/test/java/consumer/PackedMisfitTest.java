package consumer;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** {@link Consumer} with libraries that somebody can have taken by mistake: NIO answers, and one message says what to take. */
class PackedMisfitTest {
    @TempDir
    private Path folder;

    private static Path real() throws Exception {
        return Path.of(System.getenv("QUOIT_LIBRARY")).toRealPath();
    }

    private static String output(List<String> command, Map<String, String> environment) throws Exception {
        ProcessBuilder builder = new ProcessBuilder(command).redirectErrorStream(true);
        builder.environment().remove("QUOIT_LIBRARY");
        builder.environment().putAll(environment);
        Process process = builder.start();
        String output = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        assertEquals(0, process.waitFor(), output);
        return output;
    }

    private static List<String> consumer(List<String> before, String... options) {
        String jars = Stream.of(System.getProperty("java.class.path").split(File.pathSeparator))
                .filter(part -> part.contains("netty") || part.endsWith("classes"))
                .filter(part -> !part.endsWith("test-classes"))
                .collect(Collectors.joining(File.pathSeparator));
        List<String> command = new ArrayList<>(before);
        command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
        command.add("--enable-native-access=ALL-UNNAMED");
        command.addAll(List.of(options));
        command.addAll(List.of("-cp", jars, "consumer.Consumer"));
        return command;
    }

    private void compile(String source, Path library, String... options) throws Exception {
        Path text = Files.writeString(folder.resolve("library.c"), source);
        List<String> command =
                new ArrayList<>(List.of("cc", "-shared", "-fPIC", "-o", library.toString(), text.toString()));
        command.addAll(List.of(options));
        output(command, Map.of());
    }

    /** A library that needs another of this name, which is not there when it is loaded. */
    private Path needing(String name, String versions) throws Exception {
        Path needed = folder.resolve("needed.so");
        Path script = Files.writeString(folder.resolve("versions"), versions);
        List<String> options = new ArrayList<>(List.of("-nostdlib", "-Wl,-soname," + name));
        if (!versions.isEmpty()) {
            options.add("-Wl,--version-script=" + script);
        }
        compile("int needed(void) { return 0; }", needed, options.toArray(String[]::new));
        Path library = folder.resolve("libquoit.so");
        compile("int needed(void); int quoit_other(void) { return needed(); }", library, "-nostdlib", needed.toString());
        return library;
    }

    private void fallsBack(Path library, String... words) throws Exception {
        String output = output(consumer(List.of(), "-Dio.quoit.netty.library=" + library), Map.of());
        assertTrue(output.contains("transport=nio answer=word"), output);
        assertTrue(output.contains(library + " cannot be used: "), output);
        for (String word : words) {
            assertTrue(output.contains(word), "no \"" + word + "\" in: " + output);
        }
    }

    @Test
    void oneForAnotherProcessorIsExplained() throws Exception {
        byte[] bytes = Files.readAllBytes(real());
        bytes[18] = 22;
        bytes[19] = 0;
        Path library = Files.write(folder.resolve("libquoit.so"), bytes);
        fallsBack(library, "it is for ELF's machine 22, and this Java is for ", "quoit-netty-native whose classifier is linux-");
    }

    @Test
    void oneForMuslIsExplained() throws Exception {
        fallsBack(needing("libc.so", ""), "it is for musl, and this Java runs on glibc", "quoit-netty-native whose classifier is linux-");
    }

    @Test
    void oneForANewerGlibcIsExplained() throws Exception {
        fallsBack(needing("libc.so.6", "GLIBC_2.99 { needed; };"), "GLIBC_2.99", "glibc 2.17");
    }

    @Test
    void aFolderThatIsReadOnlyIsNamed() throws Exception {
        List<String> mounting = List.of(
                "unshare", "--mount", "--map-root-user", "sh", "-c", "mount -t tmpfs -o ro none \"$0\" && exec \"$@\"", folder.toString());
        List<String> trying = new ArrayList<>(mounting);
        trying.add("true");
        Assumptions.assumeTrue(
                new ProcessBuilder(trying).redirectErrorStream(true).start().waitFor() == 0, "nothing can be mounted here");
        String output = output(consumer(mounting, "-Dio.quoit.netty.workdir=" + folder), Map.of());
        assertTrue(output.contains("transport=nio answer=word"), output);
        assertTrue(output.contains("cannot be put into " + folder), output);
        assertTrue(output.contains("Read-only file system"), output);
        assertTrue(output.contains("io.quoit.netty.workdir name a folder that can be written"), output);
    }

    /** One of another version is loaded before, whose functions end the process: nothing of it is used. */
    @Test
    void anotherLibquoitInTheProcessIsNotTouched() throws Exception {
        StringBuilder source = new StringBuilder("#include <stdlib.h>\n");
        for (String name : List.of("abi_check", "version", "layout", "loop_create", "turn", "error_text", "config_default")) {
            source.append("void quoit_").append(name).append("(void) { abort(); }\n");
        }
        Path other = folder.resolve("libquoit.so.0");
        compile(source.toString(), other, "-Wl,-soname,libquoit.so.0");
        String output = output(consumer(List.of()), Map.of("LD_PRELOAD", other.toString()));
        assertTrue(output.contains("transport=quoit answer=word cause=none"), output);
    }
}
