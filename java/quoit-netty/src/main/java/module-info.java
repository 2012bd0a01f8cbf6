/** Quoit's transport for Netty. Run with {@code --enable-native-access=io.quoit.netty} where it is a named module. */
module io.quoit.netty {
    requires transitive io.netty.transport;
    requires transitive io.netty.transport.unix.common;
    requires transitive io.netty.buffer;
    requires transitive io.netty.common;
    // For QuoitJmx alone.
    requires static transitive java.management;

    exports io.quoit.netty;
}
