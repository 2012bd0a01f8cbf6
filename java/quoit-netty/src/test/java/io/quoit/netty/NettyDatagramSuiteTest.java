package io.quoit.netty;

import io.netty.bootstrap.Bootstrap;
import io.netty.testsuite.transport.TestsuitePermutation.BootstrapComboFactory;
import io.netty.testsuite.transport.TestsuitePermutation.BootstrapFactory;
import io.netty.testsuite.transport.socket.DatagramConnectNotExistsTest;
import io.netty.testsuite.transport.socket.DatagramConnectedWriteExceptionTest;
import io.netty.testsuite.transport.socket.DatagramMulticastIPv6Test;
import io.netty.testsuite.transport.socket.DatagramMulticastTest;
import io.netty.testsuite.transport.socket.DatagramUnicastIPv6MappedTest;
import io.netty.testsuite.transport.socket.DatagramUnicastIPv6Test;
import io.netty.testsuite.transport.socket.DatagramUnicastInetTest;
import java.util.List;
import org.junit.jupiter.api.Nested;

/** Netty's own tests of datagram sockets, on this transport and paired with NIO. */
class NettyDatagramSuiteTest {
    @Nested
    class Unicast extends DatagramUnicastInetTest {
        @Override
        protected List<BootstrapComboFactory<Bootstrap, Bootstrap>> newFactories() {
            return UnderTest.datagramPairs(socketInternetProtocalFamily());
        }
    }

    @Nested
    class UnicastIpv6 extends DatagramUnicastIPv6Test {
        @Override
        protected List<BootstrapComboFactory<Bootstrap, Bootstrap>> newFactories() {
            return UnderTest.datagramPairs(socketInternetProtocalFamily());
        }
    }

    @Nested
    class UnicastIpv6Mapped extends DatagramUnicastIPv6MappedTest {
        @Override
        protected List<BootstrapComboFactory<Bootstrap, Bootstrap>> newFactories() {
            return UnderTest.datagramPairs(socketInternetProtocalFamily());
        }
    }

    @Nested
    class Multicast extends DatagramMulticastTest {
        @Override
        protected List<BootstrapComboFactory<Bootstrap, Bootstrap>> newFactories() {
            return UnderTest.datagramPairs(socketInternetProtocalFamily());
        }
    }

    @Nested
    class MulticastIpv6 extends DatagramMulticastIPv6Test {
        @Override
        protected List<BootstrapComboFactory<Bootstrap, Bootstrap>> newFactories() {
            return UnderTest.datagramPairs(socketInternetProtocalFamily());
        }
    }

    @Nested
    class ConnectNotExists extends DatagramConnectNotExistsTest {
        @Override
        protected List<BootstrapFactory<Bootstrap>> newFactories() {
            return UnderTest.datagrams();
        }
    }

    @Nested
    class ConnectedWriteException extends DatagramConnectedWriteExceptionTest {
        @Override
        protected List<BootstrapFactory<Bootstrap>> newFactories() {
            return UnderTest.datagrams();
        }
    }
}
