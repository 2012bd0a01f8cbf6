package io.quoit.netty;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;

/** The requests that all doors send: those of {@code fuzz/http-requests.txt}, and others made of their lines. */
final class HttpRequests {
    /** How the name of a request ends for whose rest a server may wait. */
    static final String UNFINISHED = " ...";

    private HttpRequests() {}

    /** A request; its lines are the parts that others can be made of. */
    record Request(String name, List<String> lines) {
        String text() {
            return String.join("", lines);
        }
    }

    static List<Request> read() throws IOException {
        List<Request> requests = new ArrayList<>();
        for (String line : Files.readAllLines(root().resolve("fuzz/http-requests.txt"))) {
            if (line.startsWith("= ")) {
                requests.add(new Request(line.substring(2), new ArrayList<>()));
            } else if (!line.isEmpty() && !line.startsWith("#")) {
                requests.get(requests.size() - 1).lines().add(unescape(line));
            }
        }
        return requests;
    }

    /** As the head of the file says. */
    private static String unescape(String line) {
        StringBuilder text = new StringBuilder();
        for (int at = 0; at < line.length(); at++) {
            if (line.charAt(at) != '\\') {
                text.append(line.charAt(at));
                continue;
            }
            at++;
            switch (line.charAt(at)) {
                case 'r' -> text.append('\r');
                case 'n' -> text.append('\n');
                case 't' -> text.append('\t');
                case 's' -> text.append(' ');
                case '\\' -> text.append('\\');
                case 'x' -> {
                    text.append((char) Integer.parseInt(line, at + 1, at + 3, 16));
                    at += 2;
                }
                case '{' -> {
                    int space = line.indexOf(' ', at);
                    int end = line.indexOf('}', at);
                    text.append(unescape(line.substring(space + 1, end)).repeat(Integer.parseInt(line, at + 1, space, 10)));
                    at = end;
                }
                default -> throw new IllegalArgumentException(line);
            }
        }
        return text.toString();
    }

    /** A request made of the lines of others. */
    static String mixed(Random random, List<Request> requests) {
        StringBuilder text = new StringBuilder();
        for (int number = random.nextInt(1, 4); number > 0; number--) {
            text.append(random.nextInt(3) > 0 ? "POST /x HTTP/1.1\r\nHost: x\r\n" : any(random, requests).get(0));
            for (int fields = random.nextInt(4); fields > 0; fields--) {
                List<String> lines = any(random, requests);
                // Any line of a head, and sometimes one of a body, but not the end of a head.
                String line = lines.get(random.nextInt(Math.min(4, lines.size())));
                if (line != lines.get(0) && !line.equals("\r\n")) {
                    text.append(line);
                }
            }
            text.append("\r\n");
            List<String> lines = any(random, requests);
            int end = lines.indexOf("\r\n");
            if (end >= 0) {
                text.append(String.join("", lines.subList(end + 1, lines.size())));
            }
        }
        return text.toString();
    }

    private static List<String> any(Random random, List<Request> requests) {
        return requests.get(random.nextInt(requests.size())).lines();
    }

    private static Path root() {
        Path folder = Path.of("").toAbsolutePath();
        while (!Files.exists(folder.resolve("docs/netty.md"))) {
            folder = folder.getParent();
        }
        return folder;
    }
}
