package io.quoit.netty;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.netty.buffer.Unpooled;
import io.netty.channel.Channel;
import io.netty.channel.ChannelFutureListener;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.SimpleChannelInboundHandler;
import io.netty.handler.codec.http.DefaultFullHttpResponse;
import io.netty.handler.codec.http.FullHttpResponse;
import io.netty.handler.codec.http.HttpContent;
import io.netty.handler.codec.http.HttpHeaderNames;
import io.netty.handler.codec.http.HttpHeaderValues;
import io.netty.handler.codec.http.HttpHeaders;
import io.netty.handler.codec.http.HttpObject;
import io.netty.handler.codec.http.HttpRequest;
import io.netty.handler.codec.http.HttpResponseStatus;
import io.netty.handler.codec.http.HttpServerCodec;
import io.netty.handler.codec.http.HttpServerExpectContinueHandler;
import io.netty.handler.codec.http.HttpServerKeepAliveHandler;
import io.netty.handler.codec.http.HttpVersion;
import io.netty.handler.codec.http.LastHttpContent;
import io.quoit.netty.HttpRequests.Request;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.Test;

/**
 * What clients see of a server of Netty's codec that is sent the requests of all doors, and mixtures of them: on Netty's epoll
 * transport first, and the same on this one. {@code QUOIT_HTTP_REQUESTS} is how many mixtures are made.
 */
class HttpTracesTest {
    private static final String LAST = "GET /last HTTP/1.1\r\nHost: x\r\n\r\n";

    /** Up to that length a request is sent byte by byte; longer ones are cut twice. */
    private static final int BYTE_WISE = 300;

    /** What a transport reads at once at first. A server that closes may have left what is behind that. */
    private static final int READ_AT_ONCE = 2000;

    /** Clients at a time: an exchange is mostly waiting. */
    private static final int CLIENTS = 4;

    /**
     * What differs where it comes as a whole, as docs/netty.md says: Netty's decoder counts the empty lines before a request that
     * are in one buffer, and a read of this transport brings more. Cut, it depends on what one read finds.
     */
    private static final String DIFFERS = "line: 3000 empty ones first";

    /** Responds with what it was told of a request, and with a refusal to what is none. */
    private static final class Describes extends SimpleChannelInboundHandler<HttpObject> {
        private final StringBuilder told = new StringBuilder();
        private boolean refused;

        @Override
        protected void channelRead0(ChannelHandlerContext context, HttpObject message) {
            if (refused) {
                return;
            }
            if (message.decoderResult().isFailure()) {
                refused = true;
                FullHttpResponse refusal = response(
                        HttpResponseStatus.BAD_REQUEST, told + " " + message.decoderResult().cause());
                refusal.headers().set(HttpHeaderNames.CONNECTION, HttpHeaderValues.CLOSE);
                context.writeAndFlush(refusal).addListener(ChannelFutureListener.CLOSE);
                return;
            }
            if (message instanceof HttpRequest request) {
                told.setLength(0);
                told.append(request.method()).append(' ').append(request.uri()).append(' ').append(request.protocolVersion());
                tell(" [", request.headers());
                told.append(" \"");
            }
            if (message instanceof HttpContent content) {
                told.append(content.content().toString(StandardCharsets.ISO_8859_1));
            }
            if (message instanceof LastHttpContent end) {
                told.append('"');
                tell(" trailer [", end.trailingHeaders());
                context.writeAndFlush(response(HttpResponseStatus.OK, told.toString()));
            }
        }

        private void tell(String before, HttpHeaders fields) {
            fields.forEach(field ->
                    told.append(before).append(field.getKey()).append('=').append(field.getValue()).append(']'));
        }

        private static FullHttpResponse response(HttpResponseStatus status, String body) {
            FullHttpResponse response = new DefaultFullHttpResponse(
                    HttpVersion.HTTP_1_1, status, Unpooled.copiedBuffer(body, StandardCharsets.ISO_8859_1));
            response.headers().setInt(HttpHeaderNames.CONTENT_LENGTH, response.content().readableBytes());
            return response;
        }

        @Override
        public void exceptionCaught(ChannelHandlerContext context, Throwable cause) {
            context.close();
        }
    }

    private static Channel serve(Side side, EventLoopGroup group) throws InterruptedException {
        return side.bootstrap(group)
                .childHandler(new ChannelInitializer<>() {
                    @Override
                    protected void initChannel(Channel channel) {
                        channel.pipeline()
                                .addLast(new HttpServerCodec())
                                .addLast(new HttpServerKeepAliveHandler())
                                .addLast(new HttpServerExpectContinueHandler())
                                .addLast(new Describes());
                    }
                })
                .bind(new InetSocketAddress("127.0.0.1", 0))
                .sync()
                .channel();
    }

    /**
     * What a client sends, piece by piece, and then its end, unless it waits for the server's. With any end it is not looked at
     * whether that is a reset: the server may have more to read when it closes.
     */
    private record Exchange(String name, List<String> pieces, boolean waits, boolean anyEnd) {
        String with(Channel server) throws IOException {
            StringBuilder seen = new StringBuilder();
            try (Socket socket = new Socket()) {
                socket.setTcpNoDelay(true);
                socket.setSoTimeout((int) TimeUnit.SECONDS.toMillis(Peers.PATIENCE_SECONDS));
                socket.connect(server.localAddress());
                try {
                    for (String piece : pieces) {
                        socket.getOutputStream().write(piece.getBytes(StandardCharsets.ISO_8859_1));
                    }
                    if (!waits) {
                        socket.shutdownOutput();
                    }
                } catch (IOException refused) {
                    // The server has refused the rest, and what it has said is still there.
                }
                byte[] room = new byte[8 << 10];
                for (int read = socket.getInputStream().read(room); read >= 0; read = socket.getInputStream().read(room)) {
                    seen.append(new String(room, 0, read, StandardCharsets.ISO_8859_1));
                }
                seen.append(", and its end");
            } catch (SocketTimeoutException late) {
                seen.append(NO_END);
            } catch (IOException reset) {
                seen.append(anyEnd ? ", and its end" : ", and a reset");
            }
            return seen.toString();
        }
    }

    private static final String NO_END = ", and no end";

    private static final String AND_ANOTHER = ", and another";
    private static final String ALONE = ", alone";
    private static final String CUT = ", cut";

    private static List<String> cut(Random random, String text) {
        int first = random.nextInt(1, text.length());
        int second = random.nextInt(first, text.length());
        return List.of(text.substring(0, first), text.substring(first, second), text.substring(second));
    }

    private static List<Exchange> exchanges(List<Request> requests) {
        Random random = new Random(2);
        List<Exchange> exchanges = new ArrayList<>();
        for (Request request : requests) {
            String text = request.text();
            List<String> pieces = cut(random, text + LAST);
            if (text.length() <= BYTE_WISE) {
                pieces = new ArrayList<>(List.of(text.split("")));
                pieces.add(LAST);
            }
            exchanges.add(new Exchange(request.name() + AND_ANOTHER, List.of(text + LAST), false, true));
            exchanges.add(new Exchange(request.name() + ALONE, List.of(text), false, text.length() > READ_AT_ONCE));
            exchanges.add(new Exchange(request.name() + CUT, pieces, false, true));
        }
        exchanges.removeIf(exchange -> exchange.name.equals(DIFFERS + CUT));
        List<Request> parts =
                requests.stream().filter(request -> !request.name().equals(DIFFERS)).toList();
        int count = Integer.parseInt(System.getenv().getOrDefault("QUOIT_HTTP_REQUESTS", "300"));
        for (int number = 0; number < count; number++) {
            String text = HttpRequests.mixed(random, parts) + LAST;
            exchanges.add(new Exchange("mixed " + number, number % 4 == 0 ? cut(random, text) : List.of(text), false, true));
        }
        return exchanges;
    }

    /**
     * Those whose client waits for the end: the stock server has said that it closes, and said the same where another request
     * follows, so that it is not for the client's end.
     */
    private static List<Exchange> closing(List<Request> requests, Map<String, String> seen) {
        List<Exchange> exchanges = new ArrayList<>();
        for (Request request : requests) {
            String alone = lastResponse(seen.get(request.name() + ALONE));
            if (!request.name().endsWith(HttpRequests.UNFINISHED)
                    && alone.contains("connection: close")
                    && alone.equals(lastResponse(seen.get(request.name() + AND_ANOTHER)))) {
                exchanges.add(new Exchange(
                        request.name() + ", to its end",
                        List.of(request.text()),
                        true,
                        request.text().length() > READ_AT_ONCE));
            }
        }
        return exchanges;
    }

    private static String lastResponse(String seen) {
        return seen.substring(Math.max(seen.lastIndexOf("HTTP/1.1 "), 0));
    }

    /** What is seen of each exchange, by its name. */
    private static Map<String, String> seen(List<Exchange> exchanges, Channel server) throws Exception {
        ExecutorService clients = Executors.newFixedThreadPool(CLIENTS);
        try {
            Map<String, Future<String>> running = new LinkedHashMap<>();
            for (Exchange exchange : exchanges) {
                running.put(exchange.name, clients.submit(() -> exchange.with(server)));
            }
            Map<String, String> seen = new LinkedHashMap<>();
            for (Map.Entry<String, Future<String>> one : running.entrySet()) {
                seen.put(one.getKey(), one.getValue().get());
            }
            return seen;
        } finally {
            clients.shutdown();
        }
    }

    private static void compare(List<Exchange> exchanges, Map<String, String> wanted, Map<String, String> found) {
        List<String> faults = new ArrayList<>();
        for (Exchange exchange : exchanges) {
            String stock = wanted.get(exchange.name);
            String ours = found.get(exchange.name);
            if (stock.endsWith(NO_END)) {
                faults.add(exchange.name + ": Netty's own waits for more");
            } else if (stock.equals(ours) == exchange.name.startsWith(DIFFERS)) {
                faults.add(exchange + "\nof Netty's: " + stock + "\nof ours: " + ours);
            }
        }
        assertEquals(List.of(), faults);
    }

    @Test
    void hostileRequestsAreAnsweredAsOnNettysOwnTransport() throws Exception {
        Assumptions.assumeFalse(UnderTest.SMALL, "nothing is copied with small limits, so that a response is done later than Netty's,"
                + " and a read is shorter");
        List<Request> requests = HttpRequests.read();
        assertTrue(requests.size() > 100);
        List<Exchange> exchanges = exchanges(requests);
        EventLoopGroup stockGroup = Side.STOCK.group(UnderTest.config());
        EventLoopGroup ourGroup = Side.OURS.group(UnderTest.config());
        try {
            Channel stock = serve(Side.STOCK, stockGroup);
            Channel ours = serve(Side.OURS, ourGroup);
            Map<String, String> wanted = seen(exchanges, stock);
            compare(exchanges, wanted, seen(exchanges, ours));
            List<Exchange> closing = closing(requests, wanted);
            assertTrue(closing.size() > 10);
            compare(closing, seen(closing, stock), seen(closing, ours));
        } finally {
            ourGroup.shutdownGracefully(0, Peers.PATIENCE_SECONDS, TimeUnit.SECONDS).sync();
            stockGroup.shutdownGracefully(0, Peers.PATIENCE_SECONDS, TimeUnit.SECONDS).sync();
        }
    }
}
