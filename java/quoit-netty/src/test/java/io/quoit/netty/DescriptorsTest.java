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

    /** The server's channel is told, and a bootstrap's stops to read for a second. */
    @Test
    void whoCannotBeAcceptedIsAcceptedLater() throws Exception {
        for (String transport : List.of("STOCK", UnderTest.ENGINE.name())) {
            String told = told(transport);
            assertTrue(
                    told.contains("told: [exception IOException (Too many open files), autoRead false, "
                            + "accepted, open true, autoRead true]"),
                    told);
        }
    }
}
