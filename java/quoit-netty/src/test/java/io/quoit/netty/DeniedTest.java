package io.quoit.netty;

import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledIf;

/** io_uring denied, and locked memory or address space exhausted: in children of this process, for all of it lasts as long as a process. */
@EnabledIf(value = "onceForBothEngines", disabledReason = "it is run once: on io_uring, by a JDK 25")
class DeniedTest {
    /** What denies it is written for the JDK that the tests are built with. */
    static boolean onceForBothEngines() {
        return Runtime.version().feature() >= 25 && UnderTest.ENGINE == QuoitEngine.URING && !UnderTest.SMALL && Quoit.doctor().uringUsable();
    }

    /** Runs {@link Denied} under the commands that come before it; returns what it printed. */
    private static String run(String mode, String... before) throws Exception {
        return Child.run(List.of(before), "io.quoit.netty.Denied", mode);
    }

    @Test
    void aSeccompFilterIsNamedAndTheLoopsFallBack() throws Exception {
        String output = run("seccomp");
        assertTrue(output.contains("passed"), output);
    }

    /** The event loop group is not made and says why; nothing is lost, and the process goes on. */
    @Test
    void aLoopForWhichThereIsNoAddressSpaceIsNotMade() throws Exception {
        String output = run("memory");
        assertTrue(output.contains("passed"), output);
    }

    /** Without the capability to lock what one likes; root's is dropped, others have none. */
    @Test
    void loopsPastTheLimitOfLockedMemoryFallBack() throws Exception {
        List<String> before = new ArrayList<>();
        if (System.getProperty("user.name").equals("root")) {
            before.addAll(List.of(Child.tool("setpriv"), "--bounding-set=-ipc_lock", "--inh-caps=-ipc_lock"));
        }
        before.addAll(List.of(Child.tool("prlimit"), "--memlock=524288:524288"));
        String output = run("memlock", before.toArray(new String[0]));
        Assumptions.assumeFalse(output.contains("not counted"), output);
        assertTrue(output.contains("passed"), output);
    }
}
