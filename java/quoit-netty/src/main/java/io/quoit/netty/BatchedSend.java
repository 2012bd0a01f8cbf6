package io.quoit.netty;

import io.netty.channel.ChannelOutboundBuffer;
import java.io.IOException;
import java.nio.ByteBuffer;

/**
 * What one channel sends with one batch of commands, and what the library has told of it. A channel has one, from
 * {@link BatchedSends}, for as long as the library may still refuse some of it, and so no other. The loop's thread only.
 */
final class BatchedSend {
    /** Up to so many bytes, what is flushed behind it in the same batch becomes part of it, whatever its messages. */
    private static final int LEAST_FOLLOWING = 4 << 10;

    private final CommandBatch commands;
    private final OutboundWalk walk;

    /** The offset of copied bytes in the staging memory, how many they are, and how many they may become there. */
    private int region;

    /** 0 if nothing is copied: what is sent is lent, or was refused before. */
    private int length;
    private int room;
    /** The place of its command in the batch. */
    private int command;

    private boolean taken;

    /** It is of copied bytes that were refused before. */
    boolean resent;
    /** What it lends was refused. */
    boolean lentRefused;
    /** Why its channel's sends are refused for good: the connection has broken, or ends. */
    IOException broken;

    BatchedSend(CommandBatch commands, OutboundWalk walk) {
        this.commands = commands;
        this.walk = walk;
    }

    /** Copies all that is flushed, which the walk has just measured; returns false if the batch has no room for it. */
    boolean copy(long connection, ChannelOutboundBuffer flushed) throws IOException {
        int bytes = walk.bytes();
        region = commands.stage(bytes);
        if (region < 0) {
            return false;
        }
        walk.stage(flushed, region, bytes);
        length = bytes;
        room = bytes;
        command = commands.send(connection, commands.stagingAddress() + region, bytes, Outbound.COPY_TOKEN);
        return true;
    }

    /** Whether more can be copied behind what is. */
    boolean canGrow() {
        return length > 0 && !taken;
    }

    /** Copies all that is flushed, which the walk measures, behind what is copied; returns false if there is no room for that. */
    boolean append(ChannelOutboundBuffer flushed) throws IOException {
        int most = Math.min(commands.roomAt(region, room), LEAST_FOLLOWING);
        if (!walk.stage(flushed, region + length, most - length)) {
            if (!walk.isToBeCopied(flushed) || !makeRoom(walk.bytes())) {
                return false;
            }
            walk.stage(flushed, region + length, walk.bytes());
        }
        int bytes = walk.bytes();
        if (bytes > 0) {
            length += bytes;
            if (length > room) {
                room = length;
                commands.extend(region, room);
            }
            commands.sendMore(command, commands.stagingAddress() + region, length);
        }
        return true;
    }

    /** Makes sure that so many more bytes have room, if a connection may have as many copied. */
    private boolean makeRoom(int bytes) {
        int most = walk.copyMost();
        int longer = length + bytes;
        if (longer > most) {
            return false;
        }
        if (longer > commands.roomAt(region, room)) {
            int twice = Math.min(2 * longer, most);
            int moved = commands.move(region, length, twice);
            if (moved < 0) {
                return false;
            }
            region = moved;
            room = twice;
        }
        return true;
    }

    /** The library takes the batch: nothing can be added any more. */
    void taken() {
        taken = true;
    }

    /** What is copied. */
    ByteBuffer bytes() {
        return commands.staging().duplicate().limit(region + length).position(region);
    }

    int length() {
        return length;
    }

    /** For another channel, or another batch. */
    void clear() {
        length = 0;
        taken = false;
        resent = false;
        lentRefused = false;
        broken = null;
    }
}
