package io.quoit.netty;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.File;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Assumptions;

/** Children of this process, for what lasts as long as a process. */
final class Child {
    private Child() {}

    /** Runs a class under the commands that come before it; returns what it printed. */
    static String run(List<String> before, Class<?> main, String... arguments) throws Exception {
        return run(before, main.getName(), arguments);
    }

    /** The same for a class that is for a newer Java than these tests. */
    static String run(List<String> before, String main, String... arguments) throws Exception {
        List<String> command = new ArrayList<>(before);
        command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
        if (Runtime.version().feature() >= 22) {
            command.add("--enable-native-access=ALL-UNNAMED");
        }
        command.add("-D" + NativeLoader.ACCESS_PROPERTY + "=" + System.getProperty(NativeLoader.ACCESS_PROPERTY, ""));
        // It is over before the best compiler's work would pay, or that of more than one thread that collects.
        command.addAll(List.of("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-ea", "-cp", classPath(), main));
        command.addAll(List.of(arguments));
        Process child = new ProcessBuilder(command).redirectErrorStream(true).start();
        String output = new String(child.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        assertEquals(0, child.waitFor(), output);
        return output;
    }

    /** Surefire may have put the class path into the manifest of a jar. */
    private static String classPath() {
        return System.getProperty("surefire.test.class.path", System.getProperty("java.class.path"));
    }

    /** The path of a program of util-linux; without it, the test that needs it is left out. */
    static String tool(String name) {
        for (String folder : System.getenv().getOrDefault("PATH", "/usr/bin").split(File.pathSeparator)) {
            Path file = Path.of(folder, name);
            if (Files.isExecutable(file)) {
                return file.toString();
            }
        }
        Assumptions.abort(name + " of util-linux is not installed");
        return null;
    }
}
