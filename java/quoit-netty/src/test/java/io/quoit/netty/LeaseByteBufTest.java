package io.quoit.netty;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufAllocator;
import io.netty.buffer.Unpooled;
import io.netty.channel.Channel;
import io.netty.channel.EventLoopGroup;
import io.netty.util.internal.PlatformDependent;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Consumer;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** The buffers of received bytes read as Netty's own do; with and without Unsafe, in a run of the tests each. */
class LeaseByteBufTest {
    private static final int LENGTH = 100;
    /** More than slots. */
    private static final int MANY = 5000;

    private final Peers.Keeper keeper = new Peers.Keeper();

    /** What a build that tests with Unsafe asks for; otherwise it is Netty's choice. */
    @Test
    void unsafeIsUsedWhereNettyMay() throws Exception {
        assertTrue(PlatformDependent.hasUnsafe() || !Boolean.getBoolean("quoit.test.unsafe"));
        received(new byte[] {1}, bytes -> {
            Class<?> expected = PlatformDependent.hasUnsafe() ? UnsafeLeaseByteBuf.class : LeaseByteBuf.class;
            // The leak detector wraps it.
            assertInstanceOf(expected, bytes.unwrap());
        });
    }

    private interface Check {
        void check(ByteBuf bytes) throws Exception;
    }

    private void received(byte[] sent, Check check) throws Exception {
        EventLoopGroup group = UnderTest.group(1);
        try {
            Channel server = Peers.serve(group, () -> keeper);
            try (Socket client = Peers.connect(server)) {
                client.getOutputStream().write(sent);
                ByteBuf bytes = keeper.message();
                for (int left = sent.length - bytes.readableBytes(); left > 0; ) {
                    ByteBuf rest = keeper.message();
                    left -= rest.readableBytes();
                    rest.release();
                }
                check.check(bytes);
                assertTrue(bytes.release());
            }
        } finally {
            group.shutdownGracefully(0, 1, TimeUnit.SECONDS).sync();
        }
    }

    @Test
    void everyReadIsThatOfTheSameBytesElsewhere(@TempDir Path folder) throws Exception {
        try (FileChannel channel = FileChannel.open(
                folder.resolve("file"), StandardOpenOption.CREATE, StandardOpenOption.READ, StandardOpenOption.WRITE)) {
            channel.write(ByteBuffer.allocate(2 * LENGTH));
            channel.position(0);
            everyReadIsThatOfTheSameBytesElsewhere(channel);
        }
    }

    private void everyReadIsThatOfTheSameBytesElsewhere(FileChannel channel) throws Exception {
        byte[] sent = Peers.bytes(LENGTH);
        ByteBuf heap = Unpooled.wrappedBuffer(sent);
        received(sent, bytes -> {
            assertEquals(LENGTH, bytes.readableBytes());
            assertEquals(LENGTH, bytes.capacity());
            for (int at = 0; at <= LENGTH - Long.BYTES; at++) {
                assertEquals(heap.getByte(at), bytes.getByte(at));
                assertEquals(heap.getShort(at), bytes.getShort(at));
                assertEquals(heap.getShortLE(at), bytes.getShortLE(at));
                assertEquals(heap.getMedium(at), bytes.getMedium(at));
                assertEquals(heap.getInt(at), bytes.getInt(at));
                assertEquals(heap.getIntLE(at), bytes.getIntLE(at));
                assertEquals(heap.getLong(at), bytes.getLong(at));
                assertEquals(heap.getLongLE(at), bytes.getLongLE(at));
            }
            assertEquals(heap, bytes);
            assertEquals(heap.hashCode(), bytes.hashCode());
            assertEquals(heap.slice(7, 50), bytes.slice(7, 50));
            assertEquals(heap.indexOf(0, LENGTH, sent[60]), bytes.indexOf(0, LENGTH, sent[60]));
            ByteArrayOutputStream stream = new ByteArrayOutputStream();
            bytes.getBytes(0, stream, LENGTH);
            assertArrayEquals(sent, stream.toByteArray());
            ByteBuffer view = bytes.nioBuffer(3, 9);
            assertEquals(ByteBuffer.wrap(sent, 3, 9), view);
            ByteBuf copy = bytes.copy(1, 20);
            assertEquals(heap.slice(1, 20), copy);
            copy.release();
            // Behind are bytes that others have received before.
            List<Executable> past = List.of(
                    () -> bytes.getByte(LENGTH),
                    () -> bytes.getShort(LENGTH - 1),
                    () -> bytes.getShortLE(LENGTH - 1),
                    () -> bytes.getMedium(LENGTH - 2),
                    () -> bytes.getInt(LENGTH - 3),
                    () -> bytes.getIntLE(LENGTH - 3),
                    () -> bytes.getLong(LENGTH - 7),
                    () -> bytes.getLongLE(LENGTH - 7),
                    () -> bytes.getUnsignedMediumLE(LENGTH - 2),
                    () -> bytes.getByte(-1),
                    () -> bytes.setByte(LENGTH, 0),
                    () -> bytes.setShort(LENGTH - 1, 0),
                    () -> bytes.setMedium(LENGTH - 2, 0),
                    () -> bytes.setInt(LENGTH - 3, 0),
                    () -> bytes.setLong(LENGTH - 7, 0),
                    () -> bytes.setShortLE(LENGTH - 1, 0),
                    () -> bytes.setMediumLE(LENGTH - 2, 0),
                    () -> bytes.setIntLE(LENGTH - 3, 0),
                    () -> bytes.setLongLE(LENGTH - 7, 0),
                    () -> bytes.nioBuffer(0, LENGTH + 1),
                    () -> bytes.slice(1, LENGTH),
                    () -> bytes.copy(1, LENGTH),
                    () -> bytes.getBytes(1, new ByteArrayOutputStream(), LENGTH),
                    () -> bytes.getBytes(1, channel, LENGTH),
                    () -> bytes.getBytes(1, channel, 0, LENGTH),
                    () -> bytes.setBytes(1, new ByteArrayInputStream(new byte[LENGTH]), LENGTH),
                    () -> bytes.setBytes(1, channel, LENGTH),
                    () -> bytes.setBytes(1, channel, 0, LENGTH),
                    () -> bytes.setBytes(1, ByteBuffer.allocate(LENGTH)),
                    () -> bytes.setZero(1, LENGTH),
                    () -> bytes.getBytes(1, new byte[LENGTH]));
            for (int which = 0; which < past.size(); which++) {
                assertThrows(IndexOutOfBoundsException.class, past.get(which), "access " + which);
            }
        });
    }

    @Test
    void everyWriteIsThatOfTheSameNumberElsewhere() throws Exception {
        byte[] sent = Peers.bytes(LENGTH);
        List<Consumer<ByteBuf>> writes = List.of(
                bytes -> bytes.setByte(3, 0x81),
                bytes -> bytes.setShort(3, 0x8182),
                bytes -> bytes.setShortLE(3, 0x8182),
                bytes -> bytes.setMedium(3, 0x818283),
                bytes -> bytes.setMediumLE(3, 0x818283),
                bytes -> bytes.setInt(3, 0x81828384),
                bytes -> bytes.setIntLE(3, 0x81828384),
                bytes -> bytes.setLong(3, 0x8182838485868788L),
                bytes -> bytes.setLongLE(3, 0x8182838485868788L));
        received(sent, bytes -> {
            ByteBuf heap = Unpooled.wrappedBuffer(sent);
            for (int which = 0; which < writes.size(); which++) {
                writes.get(which).accept(heap);
                writes.get(which).accept(bytes);
                assertEquals(heap, bytes, "write " + which);
            }
        });
    }

    @Test
    void itsBytesCanBeChangedAndItShrinks() throws Exception {
        received(Peers.bytes(LENGTH), bytes -> {
            bytes.setInt(4, 0x01020304).setBytes(10, new byte[] {9, 8, 7});
            assertEquals(0x01020304, bytes.getInt(4));
            assertEquals(0x090807, bytes.getMedium(10));
            assertSame(bytes, bytes.capacity(12));
            assertEquals(12, bytes.writerIndex());
            assertThrows(IndexOutOfBoundsException.class, () -> bytes.getByte(12));
            bytes.writeByte(7);
            assertTrue(bytes.capacity() >= bytes.writerIndex());
            assertEquals(7, bytes.getByte(12));
        });
    }

    /** As what Netty's own transports have received does. */
    @ParameterizedTest
    @ValueSource(ints = {1, LENGTH, 1024, 16 * 1024})
    void itGrowsIntoMemoryOfItsChannel(int length) throws Exception {
        byte[] sent = Peers.bytes(length);
        byte[] more = Peers.bytes(3 * length + 7);
        received(sent, bytes -> {
            byte[] first = new byte[bytes.readableBytes()];
            bytes.getBytes(0, first);
            assertEquals(Integer.MAX_VALUE, bytes.maxCapacity());
            ByteBuf heap = Unpooled.buffer().writeBytes(first);
            ByteBuf slice = bytes.retainedSlice(0, 1);
            ByteBufAllocator allocator = bytes.alloc();
            for (ByteBuf each : List.of(heap, bytes)) {
                each.writeBytes(more).writeInt(5).writeLongLE(6);
            }
            assertEquals(heap, bytes);
            assertEquals(heap.getByte(0), slice.getByte(0));
            slice.release();
            assertSame(allocator, bytes.alloc());
            assertTrue(!bytes.hasMemoryAddress() || bytes.memoryAddress() != 0);
            assertEquals(heap.nioBuffer(), bytes.nioBuffer());
            // And further, and back.
            for (ByteBuf each : List.of(heap, bytes)) {
                each.capacity(8 * length + 100).setByte(8 * length + 99, 3).capacity(length);
                assertEquals(length, each.writerIndex());
            }
            assertEquals(heap, bytes);
            assertThrows(IndexOutOfBoundsException.class, () -> bytes.getByte(length));
            assertSame(bytes, bytes.ensureWritable(1));
            assertThrows(IllegalArgumentException.class, () -> bytes.capacity(-1));
        });
    }

    /** Its slot is free while it lives on, and serves what comes next. */
    @Test
    void whatHasGrownHoldsNoSlot() throws Exception {
        EventLoopGroup group = UnderTest.group(1);
        try {
            Channel server = Peers.serve(group, () -> keeper);
            try (Socket client = Peers.connect(server)) {
                List<ByteBuf> grown = new ArrayList<>();
                for (int round = 0; round < MANY; round++) {
                    byte[] sent = {(byte) round, (byte) (round >> 8)};
                    client.getOutputStream().write(sent);
                    ByteBuf bytes = keeper.message();
                    assertInstanceOf(LeaseSlot.Buffer.class, bytes.unwrap());
                    grown.add(bytes.writeBytes(sent));
                }
                for (int round = 0; round < grown.size(); round++) {
                    ByteBuf bytes = grown.get(round);
                    assertEquals(bytes.getShortLE(0), bytes.getShortLE(2));
                    assertEquals((short) round, bytes.getShortLE(0));
                    assertTrue(bytes.release());
                }
            }
        } finally {
            group.shutdownGracefully(0, 1, TimeUnit.SECONDS).sync();
        }
    }
}
