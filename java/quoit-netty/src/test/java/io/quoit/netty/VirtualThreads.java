package io.quoit.netty;

import java.util.concurrent.ThreadFactory;
import org.junit.jupiter.api.Assumptions;

/** Virtual threads, by their names, as these tests also run on a Java that has none. */
final class VirtualThreads {
    private VirtualThreads() {}

    /** What makes them; without it, the test that needs it is left out. */
    static ThreadFactory factory() throws Exception {
        Assumptions.assumeTrue(Runtime.version().feature() >= 21, "this Java has no virtual threads");
        Object builder = Thread.class.getMethod("ofVirtual").invoke(null);
        return (ThreadFactory) Class.forName("java.lang.Thread$Builder").getMethod("factory").invoke(builder);
    }
}
