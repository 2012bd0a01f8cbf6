/** Quoit's transport for Netty. Where it is a named module, run Java 22 or newer with {@code --enable-native-access=io.quoit.netty}. */
module io.quoit.netty {
    requires transitive io.netty.transport;
    requires transitive io.netty.transport.unix.common;
    requires transitive io.netty.buffer;
    requires transitive io.netty.common;
    // For QuoitJmx alone.
    requires static transitive java.management;

    exports io.quoit.netty;
}
