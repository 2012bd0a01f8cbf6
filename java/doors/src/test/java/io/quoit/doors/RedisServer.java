package io.quoit.doors;

import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;

/** A Redis server of the machine's own, on a free port of loopback, which keeps nothing on the disk. */
final class RedisServer implements AutoCloseable {
    private static final String PROGRAM = "redis-server";
    private static final String TAKEN = "Address already in use";
    private static final String READY = "Ready to accept connections";

    final int port;
    private final Process process;
    private final Path folder;

    private RedisServer(int port, Process process, Path folder) {
        this.port = port;
        this.process = process;
        this.folder = folder;
    }

    static RedisServer start() throws IOException {
        Path program = Arrays.stream(System.getenv().getOrDefault("PATH", "/usr/bin").split(File.pathSeparator))
                .map(place -> Path.of(place, PROGRAM))
                .filter(Files::isExecutable)
                .findFirst()
                .orElseThrow(() -> new AssertionError(
                        PROGRAM + " was not found on the path; install Redis (Debian: apt install redis-server)"));
        while (true) {
            Optional<RedisServer> started = start(program);
            if (started.isPresent()) {
                return started.get();
            }
        }
    }

    /** Starts it on a port that was free a moment ago; empty if another process was first. */
    private static Optional<RedisServer> start(Path program) throws IOException {
        int port;
        try (ServerSocket free = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            port = free.getLocalPort();
        }
        return start(program, port);
    }

    static Optional<RedisServer> start(Path program, int port) throws IOException {
        Path folder = Files.createTempDirectory("quoit-redis");
        List<String> command = List.of(
                program.toString(), "--bind", "127.0.0.1", "--port", String.valueOf(port), "--save", "", "--appendonly",
                "no", "--dir", folder.toString(), "--client-output-buffer-limit", "pubsub 0 0 0");
        Process process = new ProcessBuilder(command).redirectErrorStream(true).start();
        RedisServer server = new RedisServer(port, process, folder);
        StringBuilder said = new StringBuilder();
        BufferedReader output = new BufferedReader(new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8));
        for (String line = output.readLine(); line != null; line = output.readLine()) {
            if (line.contains(READY)) {
                // What it says later is not wanted, and must not fill the pipe.
                Thread reader = new Thread(() -> output.lines().forEach(ignored -> {}), "redis-output");
                reader.setDaemon(true);
                reader.start();
                return Optional.of(server);
            }
            said.append(line).append('\n');
        }
        server.close();
        if (said.indexOf(TAKEN) >= 0) {
            return Optional.empty();
        }
        throw new AssertionError(PROGRAM + " did not start:\n" + said);
    }

    @Override
    public void close() throws IOException {
        process.destroy();
        try {
            if (!process.waitFor(20, TimeUnit.SECONDS)) {
                process.destroyForcibly();
            }
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
            process.destroyForcibly();
        }
        try (Stream<Path> left = Files.list(folder)) {
            for (Path file : left.toList()) {
                Files.delete(file);
            }
        }
        Files.delete(folder);
    }
}
