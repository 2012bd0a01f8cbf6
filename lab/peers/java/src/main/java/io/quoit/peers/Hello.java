package io.quoit.peers;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import io.netty.channel.ChannelHandler;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.EventLoopGroup;
import io.netty.handler.codec.http.DefaultFullHttpResponse;
import io.netty.handler.codec.http.DefaultHttpHeadersFactory;
import io.netty.handler.codec.http.FullHttpResponse;
import io.netty.handler.codec.http.HttpHeaders;
import io.netty.handler.codec.http.HttpRequest;
import io.netty.handler.codec.http.HttpResponseStatus;
import io.netty.handler.codec.http.HttpVersion;
import io.netty.handler.codec.http.LastHttpContent;
import io.netty.util.AsciiString;
import io.netty.util.ReferenceCountUtil;
import java.nio.charset.StandardCharsets;
import java.time.ZoneOffset;
import java.time.ZonedDateTime;
import java.time.format.DateTimeFormatter;
import java.util.Locale;
import java.util.concurrent.TimeUnit;

/** Answers /plaintext and /json, as Netty's TechEmpower entry does: the date is written once a second. */
@ChannelHandler.Sharable
final class Hello extends ChannelInboundHandlerAdapter {
    private static final DateTimeFormatter DATE =
            DateTimeFormatter.ofPattern("EEE, dd MMM yyyy HH:mm:ss 'GMT'", Locale.ENGLISH);

    private static final AsciiString SERVER_NAME = AsciiString.cached("Server");
    private static final AsciiString SERVER = AsciiString.cached("quoit");
    private static final AsciiString DATE_NAME = AsciiString.cached("Date");
    private static final AsciiString TYPE_NAME = AsciiString.cached("Content-Type");
    private static final AsciiString TEXT = AsciiString.cached("text/plain");
    private static final AsciiString JSON = AsciiString.cached("application/json");
    private static final AsciiString LENGTH_NAME = AsciiString.cached("Content-Length");

    private static final String MESSAGE = "Hello, World!";
    private static final byte[] PLAINTEXT = MESSAGE.getBytes(StandardCharsets.US_ASCII);
    private static final AsciiString PLAINTEXT_LENGTH = AsciiString.cached(String.valueOf(PLAINTEXT.length));
    private static final ByteBuf PLAINTEXT_BYTES = Unpooled.unreleasableBuffer(
            Unpooled.directBuffer(PLAINTEXT.length).writeBytes(PLAINTEXT).asReadOnly());

    private volatile AsciiString date;

    Hello(EventLoopGroup group) {
        writeDate();
        group.next().scheduleAtFixedRate(this::writeDate, 1, 1, TimeUnit.SECONDS);
    }

    private void writeDate() {
        date = new AsciiString(DATE.format(ZonedDateTime.now(ZoneOffset.UTC)));
    }

    @Override
    public void channelRead(ChannelHandlerContext context, Object message) {
        if (message == LastHttpContent.EMPTY_LAST_CONTENT) {
            return;
        }
        try {
            if (message instanceof HttpRequest request) {
                context.write(response(context, request), context.voidPromise());
            }
        } finally {
            ReferenceCountUtil.release(message);
        }
    }

    private FullHttpResponse response(ChannelHandlerContext context, HttpRequest request) {
        return switch (request.uri()) {
            case "/plaintext" -> filled(PLAINTEXT_BYTES.duplicate(), TEXT, PLAINTEXT_LENGTH);
            case "/json" -> {
                byte[] body = json();
                ByteBuf bytes = context.alloc().directBuffer(body.length).writeBytes(body);
                yield filled(bytes, JSON, String.valueOf(body.length));
            }
            default -> {
                FullHttpResponse none = new DefaultFullHttpResponse(
                        HttpVersion.HTTP_1_1, HttpResponseStatus.NOT_FOUND, Unpooled.EMPTY_BUFFER);
                none.headers().set(LENGTH_NAME, "0");
                yield none;
            }
        };
    }

    /** Serialised anew, as the benchmarks ask for. */
    private static byte[] json() {
        return ("{\"message\":\"" + MESSAGE + "\"}").getBytes(StandardCharsets.US_ASCII);
    }

    private FullHttpResponse filled(ByteBuf body, AsciiString type, CharSequence length) {
        DefaultHttpHeadersFactory unchecked =
                DefaultHttpHeadersFactory.headersFactory().withValidation(false);
        FullHttpResponse response = new DefaultFullHttpResponse(
                HttpVersion.HTTP_1_1, HttpResponseStatus.OK, body, unchecked, unchecked);
        HttpHeaders headers = response.headers();
        headers.add(SERVER_NAME, SERVER);
        headers.add(DATE_NAME, date);
        headers.add(TYPE_NAME, type);
        headers.add(LENGTH_NAME, length);
        return response;
    }

    @Override
    public void channelReadComplete(ChannelHandlerContext context) {
        context.flush();
    }

    @Override
    public void exceptionCaught(ChannelHandlerContext context, Throwable cause) {
        context.close();
    }
}
