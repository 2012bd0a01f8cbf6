package io.quoit.netty;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.SocketException;

/**
 * A datagram did not arrive, as the network has told by ICMP, with {@link QuoitChannelOption#IP_RECVERR}. The cause says why:
 * a {@link java.net.PortUnreachableException} if nobody is at the port, a {@link java.net.NoRouteToHostException} if no way
 * leads to the host. The channel goes on. ICMP can be forged by whoever sees the traffic: take it as a hint.
 */
public final class ReceiverUnreachableException extends SocketException {
    private static final long serialVersionUID = 1L;

    /** Where the datagram went. */
    private final InetSocketAddress receiver;

    ReceiverUnreachableException(InetSocketAddress receiver, IOException cause) {
        super("a datagram to " + receiver + " did not arrive: " + cause.getMessage());
        initCause(cause);
        this.receiver = receiver;
    }

    /**
     * To whom the datagram was sent; of several, the kernel does not say which one it was.
     *
     * @return the receiver's address, an IPv4 one as such on sockets of both families
     */
    public InetSocketAddress receiver() {
        return receiver;
    }
}
