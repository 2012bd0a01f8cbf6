package io.quoit.netty;

import io.quoit.netty.Abi.ConnectOptions;
import io.quoit.netty.Abi.StreamOptions;
import java.net.SocketAddress;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;

/**
 * What a connect asks of the library.
 *
 * @param remote where to
 * @param local the address to bind to first, or null
 * @param timeoutNanos how long it may take
 * @param noDelay TCP_NODELAY
 * @param receiveBuffer SO_RCVBUF in bytes; 0 leaves it to the kernel
 * @param sendBuffer SO_SNDBUF in bytes; 0 leaves it to the kernel
 */
record Connecting(
        SocketAddress remote,
        SocketAddress local,
        long timeoutNanos,
        boolean noDelay,
        int receiveBuffer,
        int sendBuffer) {
    /** Adds the command; the batch keeps the structure until it is taken. */
    void write(NativeLibrary library, CommandBatch commands, long token) {
        byte[] to = Addresses.text(remote).getBytes(StandardCharsets.UTF_8);
        byte[] from = local == null ? new byte[0] : Addresses.text(local).getBytes(StandardCharsets.UTF_8);
        int length = ConnectOptions.STRUCT_SIZE + to.length + from.length;
        ByteBuffer room = ByteBuffer.allocateDirect(length).order(ByteOrder.nativeOrder());
        long at = library.address(room);
        room.putInt(0, ConnectOptions.STRUCT_SIZE);
        library.connectOptionsDefault(at);
        room.putInt(ConnectOptions.ADDRESS_LENGTH, to.length)
                .putLong(ConnectOptions.ADDRESS, at + ConnectOptions.STRUCT_SIZE)
                .putLong(ConnectOptions.TIMEOUT_NS, timeoutNanos)
                .putInt(ConnectOptions.STREAM + StreamOptions.NO_DELAY, noDelay ? 1 : 0)
                .putInt(ConnectOptions.STREAM + StreamOptions.RECEIVE_BUFFER, receiveBuffer)
                .putInt(ConnectOptions.STREAM + StreamOptions.SEND_BUFFER, sendBuffer)
                .put(ConnectOptions.STRUCT_SIZE, to)
                .put(ConnectOptions.STRUCT_SIZE + to.length, from);
        if (local != null) {
            room.putLong(ConnectOptions.LOCAL, at + ConnectOptions.STRUCT_SIZE + to.length)
                    .putInt(ConnectOptions.LOCAL_LENGTH, from.length);
        }
        commands.connect(room, at, ConnectOptions.STRUCT_SIZE, token);
    }
}
