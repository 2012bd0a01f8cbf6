package io.quoit.netty;

import io.netty.buffer.Unpooled;
import io.netty.channel.Channel;
import io.netty.channel.ChannelFuture;
import io.netty.channel.ChannelProgressiveFuture;
import io.netty.channel.ChannelProgressiveFutureListener;
import io.netty.channel.ChannelProgressivePromise;
import io.netty.channel.DefaultFileRegion;
import io.netty.channel.FileRegion;
import io.netty.handler.stream.ChunkedFile;
import io.netty.handler.stream.ChunkedNioFile;
import io.netty.handler.stream.ChunkedWriteHandler;
import io.netty.util.AbstractReferenceCounted;
import java.io.File;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.channels.WritableByteChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Map;
import java.util.Set;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

/** Files that are sent, as who sends them and who receives them can see it: on Netty's epoll transport first, and the same here. */
class FileTracesTest {
    private static final int LENGTH = 1_000_000;
    private static Path file;

    @BeforeAll
    static void makeFile() throws IOException {
        file = Files.createTempFile("quoit", "file");
        Files.write(file, Peers.bytes(LENGTH));
    }

    @AfterAll
    static void removeFile() throws IOException {
        Files.delete(file);
    }

    private enum Scenario {
        ALL_OF_IT(scene -> {
            scene.connect();
            write(scene, new DefaultFileRegion(file.toFile(), 0, LENGTH));
            scene.peerReads(LENGTH);
            finish(scene);
        }),
        ALL_OF_IT_BY_ITS_CHANNEL(scene -> {
            scene.connect();
            FileChannel open = FileChannel.open(file);
            write(scene, new DefaultFileRegion(open, 0, LENGTH));
            scene.peerReads(LENGTH);
            finish(scene);
            scene.trace.outcome("the file is open: " + open.isOpen());
        }),
        A_PART(scene -> {
            scene.connect();
            write(scene, new DefaultFileRegion(file.toFile(), 1000, 500_000));
            scene.peerReads(500_000);
            finish(scene);
        }),
        A_BYTE(scene -> {
            scene.connect();
            write(scene, new DefaultFileRegion(file.toFile(), LENGTH - 1, 1));
            scene.peerReads(1);
            finish(scene);
        }),
        NOTHING(scene -> {
            scene.connect();
            write(scene, new DefaultFileRegion(file.toFile(), 0, 0)).await();
            finish(scene);
        }),
        NOTHING_BEHIND_ITS_END(scene -> {
            scene.connect();
            write(scene, new DefaultFileRegion(file.toFile(), LENGTH, 0)).await();
            finish(scene);
        }),
        BETWEEN_BUFFERS(scene -> {
            scene.connect();
            scene.child
                    .eventLoop()
                    .submit(() -> {
                        scene.trace.of("head", scene.child.write(Unpooled.wrappedBuffer(new byte[10])));
                        write(scene, new DefaultFileRegion(file.toFile(), 0, 100_000), false);
                        write(scene, new DefaultFileRegion(file.toFile(), 0, 0), false);
                        scene.trace.of("tail", scene.child.write(Unpooled.wrappedBuffer(new byte[20])));
                        scene.child.flush();
                    })
                    .sync();
            scene.peerReads(100_030);
            finish(scene);
        }),
        PAST_ITS_END(scene -> {
            scene.connect();
            ChannelFuture written = write(scene, new DefaultFileRegion(file.toFile(), LENGTH - 1000, 2000));
            scene.peerReads(1000);
            written.await();
            finish(scene);
        }),
        BEHIND_ITS_END(scene -> {
            scene.connect();
            write(scene, new DefaultFileRegion(file.toFile(), LENGTH + 1000, 2000)).await();
            finish(scene);
        }),
        BEHIND_ITS_END_BETWEEN_BUFFERS(scene -> {
            scene.connect();
            scene.child
                    .eventLoop()
                    .submit(() -> {
                        scene.trace.of("head", scene.child.write(Unpooled.wrappedBuffer(new byte[10])));
                        write(scene, new DefaultFileRegion(file.toFile(), LENGTH, 5), false);
                        scene.trace.of("tail", scene.child.write(Unpooled.wrappedBuffer(new byte[20])));
                        scene.child.flush();
                    })
                    .sync();
            scene.trace.await("unregistered");
            finish(scene);
        }),
        SHORTENED(scene -> {
            Path shortened = Files.createTempFile("quoit", "short");
            Files.write(shortened, new byte[3000]);
            scene.connect();
            DefaultFileRegion region = new DefaultFileRegion(shortened.toFile(), 0, 3000);
            region.open();
            try (FileChannel writer = FileChannel.open(shortened, StandardOpenOption.WRITE)) {
                writer.truncate(1000);
            }
            ChannelFuture written = write(scene, region);
            scene.peerReads(1000);
            written.await();
            finish(scene);
            Files.delete(shortened);
        }),
        CLOSED(scene -> {
            scene.connect();
            FileChannel open = FileChannel.open(file);
            open.close();
            write(scene, new DefaultFileRegion(open, 0, 1000)).await();
            finish(scene);
        }),
        MISSING(scene -> {
            scene.connect();
            write(scene, new DefaultFileRegion(new File(file.toString() + ".missing"), 0, 1000)).await();
            finish(scene);
        }),
        ALREADY_RELEASED(scene -> {
            scene.connect();
            DefaultFileRegion region = new DefaultFileRegion(file.toFile(), 0, 1000);
            region.open();
            region.release();
            scene.trace.of("file", scene.child.writeAndFlush(region)).await();
            finish(scene);
        }),
        OF_ANOTHER_KIND(scene -> {
            scene.connect();
            write(scene, new Region(100_000, Integer.MAX_VALUE));
            scene.peerReads(100_000);
            finish(scene);
        }),
        OF_ANOTHER_KIND_THAT_FAILS(scene -> {
            scene.connect();
            ChannelFuture written = write(scene, new Region(100_000, 50_000));
            written.await();
            finish(scene);
        }),
        TO_A_PEER_THAT_RESETS(scene -> {
            scene.connect();
            ChannelFuture written = write(scene, new Region(Long.MAX_VALUE, Integer.MAX_VALUE));
            scene.peerReadsOne();
            scene.peerResets();
            written.await();
            scene.trace.await("inactive");
        }),
        WHILE_THE_CHANNEL_IS_CLOSED(scene -> {
            scene.connect();
            ChannelFuture written = write(scene, new Region(Long.MAX_VALUE, Integer.MAX_VALUE));
            scene.peerReadsOne();
            scene.serverCloses();
            written.await();
        }),
        ON_A_CLOSED_CHANNEL(scene -> {
            scene.connect();
            scene.serverCloses();
            scene.trace.await("unregistered");
            write(scene, new DefaultFileRegion(file.toFile(), 0, LENGTH)).await();
        }),
        WRITTEN_WITHOUT_A_FLUSH(scene -> {
            scene.connect();
            ChannelFuture written = write(scene, new DefaultFileRegion(file.toFile(), 0, LENGTH), false);
            scene.serverCloses();
            written.await();
            scene.peerReads();
        }),
        IN_CHUNKS(scene -> {
            scene.connect();
            scene.child.pipeline().addFirst(new ChunkedWriteHandler());
            scene.trace.of("file", scene.child.writeAndFlush(new ChunkedFile(file.toFile())));
            scene.peerReads(LENGTH);
            finish(scene);
        }),
        IN_CHUNKS_OF_A_PART(scene -> {
            scene.connect();
            scene.child.pipeline().addFirst(new ChunkedWriteHandler());
            ChannelProgressivePromise promise = scene.child.newProgressivePromise();
            scene.trace.of(
                    "file",
                    scene.child.writeAndFlush(
                            new ChunkedNioFile(FileChannel.open(file), 1000, 100_000, 3000), promise));
            scene.peerReads(100_000);
            finish(scene);
        }),
        IN_CHUNKS_PAST_ITS_END(scene -> {
            scene.connect();
            scene.child.pipeline().addFirst(new ChunkedWriteHandler());
            scene.trace.of(
                            "file",
                            scene.child.writeAndFlush(
                                    new ChunkedFile(new RandomAccessFile(file.toFile(), "r"), LENGTH, 5000, 4096)))
                    .await();
            finish(scene);
        }),
        IN_CHUNKS_TO_A_PEER_THAT_RESETS(scene -> {
            scene.connect();
            scene.child.pipeline().addFirst(new ChunkedWriteHandler());
            ChannelFuture written = scene.trace.of("file", scene.child.writeAndFlush(new ChunkedFile(file.toFile())));
            scene.peerReadsOne();
            scene.peerResets();
            scene.trace.await("inactive");
            written.await();
        });

        private final Traces.Steps<Scene> steps;

        Scenario(Traces.Steps<Scene> steps) {
            this.steps = steps;
        }

        /** Unix sockets do not reset, and NIO's are other ones. */
        boolean onlyTcp() {
            return name().endsWith("RESETS") || this == CLOSED;
        }
    }

    /** A region that is no file: zeros, and a failure where it says so. */
    private static final class Region extends AbstractReferenceCounted implements FileRegion {
        private static final int PART = 10_000;
        private final long count;
        private final long failsAt;
        private long transferred;

        Region(long count, long failsAt) {
            this.count = count;
            this.failsAt = failsAt;
        }

        @Override
        public long position() {
            return 0;
        }

        @Override
        @Deprecated
        public long transfered() {
            return transferred;
        }

        @Override
        public long transferred() {
            return transferred;
        }

        @Override
        public long count() {
            return count;
        }

        @Override
        public long transferTo(WritableByteChannel target, long position) throws IOException {
            if (transferred >= failsAt) {
                throw new IOException("the region's own");
            }
            int written = target.write(ByteBuffer.allocate((int) Math.min(count - transferred, PART)));
            transferred += written;
            return written;
        }

        @Override
        protected void deallocate() {}

        @Override
        public FileRegion retain() {
            super.retain();
            return this;
        }

        @Override
        public FileRegion retain(int increment) {
            super.retain(increment);
            return this;
        }

        @Override
        public FileRegion touch() {
            return this;
        }

        @Override
        public FileRegion touch(Object hint) {
            return this;
        }
    }

    private static ChannelFuture write(Scene scene, FileRegion region) {
        return write(scene, region, true);
    }

    /** Writes with progress that has to grow, and come to the region's count where the write is done. */
    private static ChannelFuture write(Scene scene, FileRegion region, boolean flush) {
        Channel channel = scene.child;
        ChannelProgressivePromise promise = channel.newProgressivePromise();
        scene.trace.of("file", promise);
        promise.addListener(new ChannelProgressiveFutureListener() {
            private long last;
            private boolean shrank;
            private long total;

            @Override
            public void operationProgressed(ChannelProgressiveFuture future, long progress, long total) {
                shrank |= progress < last;
                last = progress;
                this.total = total;
            }

            @Override
            public void operationComplete(ChannelProgressiveFuture future) {
                String progress = shrank ? "shrinking" : future.isSuccess() ? String.valueOf(last) : "in part";
                scene.trace.add("progress " + progress + " of " + total + ", references " + region.refCnt());
            }
        });
        if (flush) {
            channel.writeAndFlush(region, promise);
        } else {
            channel.write(region, promise);
        }
        return promise;
    }

    /** Writes once more, if that is possible, and closes. */
    private static void finish(Scene scene) throws Exception {
        scene.write(7).await();
        scene.serverCloses();
        scene.peerReads();
        scene.trace.await("unregistered");
    }

    static Stream<Arguments> scenarios() {
        return Stream.of(Scenario.values())
                .flatMap(scenario -> scenario.onlyTcp()
                        ? Stream.of(Arguments.of(scenario, "TCP"))
                        : Stream.of(Arguments.of(scenario, "TCP"), Arguments.of(scenario, "UNIX")));
    }

    /** What differs, by design: the reasons stand in docs/netty.md. */
    private static final Traces TRACES = new Traces(Map.of(), Set.of("CLOSED on TCP"));

    @ParameterizedTest
    @MethodSource("scenarios")
    void filesAreSentAsByNettysOwnTransport(Scenario scenario, String family) throws Exception {
        TRACES.compare(
                scenario + " on " + family, family.equals("UNIX") ? Scene::onUnixSockets : Scene::onTcp, scenario.steps);
    }
}
