package io.quoit.peers;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import io.netty.channel.ChannelHandler;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.EventLoopGroup;
import io.netty.handler.codec.http.DefaultFullHttpResponse;
import io.netty.handler.codec.http.DefaultHttpHeadersFactory;
import io.netty.handler.codec.http.DefaultHttpResponse;
import io.netty.handler.codec.http.FullHttpResponse;
import io.netty.handler.codec.http.HttpHeaders;
import io.netty.handler.codec.http.HttpRequest;
import io.netty.handler.codec.http.HttpResponse;
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

/**
 * Answers /plaintext and /json, as Netty's TechEmpower entry does: the date is written once a second. Also /healthz, and
 * /bytes/N, whose body {@link LongBody} writes.
 */
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
    private static final AsciiString BINARY = AsciiString.cached("application/octet-stream");
    private static final AsciiString LENGTH_NAME = AsciiString.cached("Content-Length");

    private static final String MESSAGE = "Hello, World!";
    private static final byte[] PLAINTEXT = MESSAGE.getBytes(StandardCharsets.US_ASCII);
    private static final AsciiString PLAINTEXT_LENGTH = AsciiString.cached(String.valueOf(PLAINTEXT.length));
    private static final ByteBuf PLAINTEXT_BYTES = Unpooled.unreleasableBuffer(
            Unpooled.directBuffer(PLAINTEXT.length).writeBytes(PLAINTEXT).asReadOnly());

    private static final ByteBuf HEALTHY =
            Unpooled.unreleasableBuffer(Unpooled.copiedBuffer("ok", StandardCharsets.US_ASCII).asReadOnly());
    private static final AsciiString HEALTHY_LENGTH = AsciiString.cached("2");

    private static final String BYTES = "/bytes/";
    /** As many as surely fit a long. */
    private static final int MOST_DIGITS = 18;

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
                answer(context, request.uri());
            }
        } finally {
            ReferenceCountUtil.release(message);
        }
    }

    private void answer(ChannelHandlerContext context, String uri) {
        switch (uri) {
            case "/plaintext" -> write(context, filled(PLAINTEXT_BYTES.duplicate(), TEXT, PLAINTEXT_LENGTH));
            case "/json" -> {
                byte[] body = json();
                ByteBuf bytes = context.alloc().directBuffer(body.length).writeBytes(body);
                write(context, filled(bytes, JSON, String.valueOf(body.length)));
            }
            case "/healthz" -> write(context, filled(HEALTHY.duplicate(), TEXT, HEALTHY_LENGTH));
            default -> answerAtLength(context, length(uri));
        }
    }

    private static void write(ChannelHandlerContext context, HttpResponse response) {
        context.write(response, context.voidPromise());
    }

    /** The N of /bytes/N; -1 for anything else. */
    private static long length(String uri) {
        if (!uri.startsWith(BYTES)) {
            return -1;
        }
        String digits = uri.substring(BYTES.length());
        return digits.matches("[0-9]{1," + MOST_DIGITS + "}") ? Long.parseLong(digits) : -1;
    }

    private void answerAtLength(ChannelHandlerContext context, long length) {
        if (length < 0) {
            FullHttpResponse none = new DefaultFullHttpResponse(
                    HttpVersion.HTTP_1_1, HttpResponseStatus.NOT_FOUND, Unpooled.EMPTY_BUFFER);
            none.headers().set(LENGTH_NAME, "0");
            write(context, none);
        } else if (length == 0) {
            write(context, filled(Unpooled.EMPTY_BUFFER, BINARY, "0"));
        } else {
            HttpResponse head = new DefaultHttpResponse(HttpVersion.HTTP_1_1, HttpResponseStatus.OK);
            fill(head.headers(), BINARY, String.valueOf(length));
            write(context, head);
            // Ahead of this handler, so that the requests behind this one wait for the end of the body.
            context.pipeline().addBefore(context.name(), null, new LongBody(length));
        }
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
        fill(response.headers(), type, length);
        return response;
    }

    private void fill(HttpHeaders headers, AsciiString type, CharSequence length) {
        headers.add(SERVER_NAME, SERVER);
        headers.add(DATE_NAME, date);
        headers.add(TYPE_NAME, type);
        headers.add(LENGTH_NAME, length);
    }

    @Override
    public void channelReadComplete(ChannelHandlerContext context) {
        context.flush();
    }

    @Override
    public void channelWritabilityChanged(ChannelHandlerContext context) {
        // A peer that does not read its responses is not read from.
        context.channel().config().setAutoRead(context.channel().isWritable());
    }

    @Override
    public void exceptionCaught(ChannelHandlerContext context, Throwable cause) {
        context.close();
    }
}
