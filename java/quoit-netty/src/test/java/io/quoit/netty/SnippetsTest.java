package io.quoit.netty;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;

import java.io.IOException;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import javax.tools.DiagnosticCollector;
import javax.tools.JavaCompiler;
import javax.tools.JavaFileObject;
import javax.tools.SimpleJavaFileObject;
import javax.tools.ToolProvider;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.TestFactory;
import org.junit.jupiter.api.io.TempDir;

/** The blocks of Java in the documents compile. They are statements; a reader brings the imports. */
class SnippetsTest {
    private static final List<String> IMPORTS = List.of(
            "io.netty.bootstrap.*",
            "io.netty.channel.*",
            "io.netty.channel.group.*",
            "io.netty.handler.logging.LoggingHandler",
            "io.netty.util.concurrent.GlobalEventExecutor",
            "io.quoit.netty.*",
            "java.util.concurrent.TimeUnit");

    private static final Pattern BLOCK = Pattern.compile("^ *```java\n(.*?)^ *```$", Pattern.MULTILINE | Pattern.DOTALL);

    @TempDir
    private Path folder;

    /** A source of one class, which is nowhere in a file. */
    private static final class Source extends SimpleJavaFileObject {
        private final String text;

        Source(String statements) {
            super(URI.create("string:///Snippet.java"), Kind.SOURCE);
            String imports =
                    IMPORTS.stream().map(name -> "import " + name + "; ").collect(Collectors.joining());
            // The semicolon ends a fragment of a statement. All is on the first line, so that lines are those of the block.
            text = imports + "class Snippet { void run() throws Exception { " + statements + "; } }";
        }

        @Override
        public CharSequence getCharContent(boolean ignoreEncodingErrors) {
            return text;
        }
    }

    @TestFactory
    Stream<DynamicTest> compile() throws IOException {
        Path root = root();
        List<Path> documents = new ArrayList<>(List.of(root.resolve("README.md")));
        try (Stream<Path> files = Files.list(root.resolve("docs"))) {
            files.filter(file -> file.toString().endsWith(".md")).sorted().forEach(documents::add);
        }
        List<DynamicTest> blocks = new ArrayList<>();
        for (Path document : documents) {
            String text = Files.readString(document);
            Matcher block = BLOCK.matcher(text);
            while (block.find()) {
                long line = text.substring(0, block.start(1)).lines().count() + 1;
                String statements = block.group(1);
                blocks.add(DynamicTest.dynamicTest(
                        document.getFileName() + ":" + line, () -> assertEquals(List.of(), faults(statements))));
            }
        }
        assertFalse(blocks.isEmpty(), "there is no block");
        return blocks.stream();
    }

    private List<String> faults(String statements) throws IOException {
        JavaCompiler compiler = ToolProvider.getSystemJavaCompiler();
        DiagnosticCollector<JavaFileObject> found = new DiagnosticCollector<>();
        List<String> options = List.of(
                "-proc:none", "-d", folder.toString(), "-classpath", System.getProperty("java.class.path"));
        boolean compiled = compiler.getTask(null, null, found, options, null, List.of(new Source(statements + "\n")))
                .call();
        if (compiled) {
            return List.of();
        }
        return found.getDiagnostics().stream().map(Object::toString).toList();
    }

    /** Of the repository: tests are run in the folder of their module, or in that of all. */
    private static Path root() {
        Path folder = Path.of("").toAbsolutePath();
        while (!Files.exists(folder.resolve("docs/netty.md"))) {
            folder = folder.getParent();
        }
        return folder;
    }
}
