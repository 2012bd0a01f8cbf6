package io.quoit.netty;

import io.netty.channel.ChannelException;
import io.netty.util.collection.LongObjectHashMap;
import io.quoit.netty.Abi.DatagramOptions;
import io.quoit.netty.Abi.Event;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/** The datagram sockets of one loop; its thread only. */
final class DatagramTable {
    private final NativeLibrary library;
    private final long loop;
    private final QuoitIoHandlerConfig config;
    private final LeaseReturns returns;
    private final LongObjectHashMap<QuoitDatagramChannel> sockets = new LongObjectHashMap<>();

    DatagramTable(NativeLibrary library, long loop, QuoitIoHandlerConfig config, LeaseReturns returns) {
        this.library = library;
        this.loop = loop;
        this.config = config;
        this.returns = returns;
    }

    /** Gives a channel's descriptor to the loop, which owns it from now on, even on failure; returns the socket's id. */
    long open(QuoitDatagramChannel channel, int descriptor) {
        QuoitDatagramChannelConfig options = channel.config();
        ByteBuffer room = ByteBuffer.allocateDirect(8 + DatagramOptions.STRUCT_SIZE).order(ByteOrder.nativeOrder());
        long at = library.address(room);
        room.putInt(8, DatagramOptions.STRUCT_SIZE);
        library.datagramOptionsDefault(at + 8);
        int told = options.tellsUnreachable() ? Abi.DATAGRAM_TELL_UNREACHABLE : 0;
        room.putInt(8 + DatagramOptions.FLAGS, Abi.DATAGRAM_PAUSED | told)
                .putInt(8 + DatagramOptions.MAX_DATAGRAM, options.maxDatagram())
                .putInt(8 + DatagramOptions.SLOTS, options.slots())
                .putInt(8 + DatagramOptions.GRO, options.joins() ? Abi.GRO_TRANSPARENT : Abi.GRO_OFF)
                .putInt(8 + DatagramOptions.HIGH_WATER, config.highWater())
                .putInt(8 + DatagramOptions.LOW_WATER, config.lowWater())
                .putInt(8 + DatagramOptions.QUEUED_SENDS, DatagramOutbound.MOST_SENDS);
        if (library.datagramSocketAdopt(descriptor, at + 8, at) < 0
                || library.openDatagram(loop, room.getLong(0), 0, at) < 0) {
            throw new ChannelException("a datagram socket cannot be opened: " + library.errorText());
        }
        long id = room.getLong(0);
        sockets.put(id, channel);
        return id;
    }

    /** The receive memory of a socket that was opened. */
    LeasePool pool(QuoitDatagramChannel channel) {
        QuoitDatagramChannelConfig options = channel.config();
        int slots = options.slots();
        return new LeasePool(library, returns, slots, options.slotSize(), Math.max(1, slots / 2), slots);
    }

    /** Reports an event of a datagram socket, and returns how many I/O events that is. */
    int dispatch(int kind, ByteBuffer events, int at) {
        long id = events.getLong(at + Event.CONNECTION);
        long token = events.getLong(at + Event.TOKEN);
        int error = events.getInt(at + Event.ERROR);
        QuoitDatagramChannel channel = kind == Abi.EVENT_DATAGRAM_CLOSED ? sockets.remove(id) : sockets.get(id);
        if (channel == null) {
            if (kind == Abi.EVENT_DATAGRAMS) {
                returns.give(events.getLong(at + Event.LEASE));
            }
            return 0;
        }
        switch (kind) {
            case Abi.EVENT_DATAGRAMS ->
                channel.inbound().received(events.getLong(at + Event.DATA), events.getLong(at + Event.LEASE));
            case Abi.EVENT_DATAGRAM_SENT -> channel.outbound().sent(token, error);
            case Abi.EVENT_DATAGRAM_REFUSED ->
                channel.outbound().refused(token, events.getShort(at + Event.REASON), error);
            case Abi.EVENT_DATAGRAM_ERROR -> failed(channel, events, at);
            case Abi.EVENT_DATAGRAM_CLOSED -> channel.ended(error);
            default -> {
                // OPENED, WRITABLE and PRESSURE change nothing here.
                return 0;
            }
        }
        return 1;
    }

    /** Something went wrong, and if a receiver could not be reached, its address is there for the time of this turn. */
    private void failed(QuoitDatagramChannel channel, ByteBuffer events, int at) {
        IOException failure = Errno.datagramFailure(events.getInt(at + Event.ERROR));
        if (events.getShort(at + Event.REASON) == Abi.DATAGRAM_ERROR_UNREACHABLE) {
            int length = events.getInt(at + Event.LENGTH);
            ByteBuffer receiver = library.view(events.getLong(at + Event.DATA), length);
            failure = new ReceiverUnreachableException((InetSocketAddress) Addresses.read(receiver, length), failure);
        }
        channel.failed(failure);
    }

    /** Whether memory of Java's is in the library's hands. */
    boolean lends() {
        for (QuoitDatagramChannel channel : sockets.values()) {
            if (channel.outbound().lends()) {
                return true;
            }
        }
        return false;
    }

    /** The loop is gone, and with it all sockets. */
    void destroyed() {
        for (QuoitDatagramChannel channel : sockets.values()) {
            channel.ended(0);
        }
        sockets.clear();
    }
}
