package io.quoit.netty;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.netty.bootstrap.Bootstrap;
import io.netty.bootstrap.ServerBootstrap;
import io.netty.testsuite.transport.TestsuitePermutation.BootstrapFactory;
import io.netty.testsuite.transport.socket.ServerSocketSuspendTest;
import io.netty.testsuite.transport.socket.SocketChannelNotYetConnectedTest;
import io.netty.testsuite.transport.socket.SocketConnectionAttemptTest;
import io.netty.testsuite.transport.socket.SocketShutdownOutputByPeerTest;
import io.netty.testsuite.transport.socket.SocketShutdownOutputBySelfTest;
import io.netty.testsuite.transport.socket.WriteBeforeRegisteredTest;
import java.lang.reflect.Field;
import java.util.List;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Nested;

/** Netty's own tests of one end of a connection. */
class NettyEndSuiteTest {
    @Nested
    class ChannelNotYetConnected extends SocketChannelNotYetConnectedTest {
        @Override
        protected List<BootstrapFactory<Bootstrap>> newFactories() {
            return UnderTest.clients();
        }
    }

    @Nested
    class ConnectionAttempt extends SocketConnectionAttemptTest {
        /** Else its cancelling skips itself, and its time-out is none. */
        @BeforeAll
        static void itKnowsTheAddressThatNeverAnswers() throws Exception {
            var clients = UnderTest.clients();
            Field port = Class.forName("io.netty.testsuite.transport.socket.SocketTestPermutation")
                    .getDeclaredField("BAD_PORT");
            port.setAccessible(true);
            assertEquals(SilentListener.address().getPort(), port.get(null), "looked before " + clients);
        }

        @Override
        protected List<BootstrapFactory<Bootstrap>> newFactories() {
            return UnderTest.clients();
        }
    }

    @Nested
    class ShutdownOutputBySelf extends SocketShutdownOutputBySelfTest {
        @Override
        protected List<BootstrapFactory<Bootstrap>> newFactories() {
            return UnderTest.clients();
        }
    }

    @Nested
    class WriteBeforeRegistered extends WriteBeforeRegisteredTest {
        @Override
        protected List<BootstrapFactory<Bootstrap>> newFactories() {
            return UnderTest.clients();
        }
    }

    @Nested
    class ServerSocketSuspend extends ServerSocketSuspendTest {
        @Override
        protected List<BootstrapFactory<ServerBootstrap>> newFactories() {
            return UnderTest.servers();
        }
    }

    @Nested
    class ShutdownOutputByPeer extends SocketShutdownOutputByPeerTest {
        @Override
        protected List<BootstrapFactory<ServerBootstrap>> newFactories() {
            return UnderTest.servers();
        }
    }
}
