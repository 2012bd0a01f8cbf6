package io.quoit.netty;

import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import org.junit.jupiter.api.Test;

/** A server without descriptors for those who connect: on Netty's epoll transport first. */
class DescriptorsTest {
    /** More than the virtual machine needs. */
    private static final String LIMIT = "--nofile=256:256";

    private static String told(String transport) throws Exception {
        return Child.run(List.of(Child.tool("prlimit"), LIMIT), OutOfDescriptors.class, transport);
    }

    /** Elsewhere a server's channel is told, and a bootstrap's stops to read for a second; here its loop waits by itself. */
    @Test
    void whoCannotBeAcceptedIsAcceptedLater() throws Exception {
        String stock = told("STOCK");
        assertTrue(
                stock.contains("told: [exception IOException (Too many open files), autoRead false, "
                        + "accepted, open true, autoRead true]"),
                stock);
        String ours = told(UnderTest.ENGINE.name());
        assertTrue(ours.contains("told: [accepted, open true, autoRead true]"), ours);
    }
}
