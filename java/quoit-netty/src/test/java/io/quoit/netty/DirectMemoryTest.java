package io.quoit.netty;

import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledIf;

/** Loops for which there is no direct memory: in a child of this process, as that is limited for all of a process. */
@EnabledIf(value = "once", disabledReason = "limits change nothing here")
class DirectMemoryTest {
    static boolean once() {
        return !UnderTest.SMALL;
    }

    /** An application that goes on without it, or tries again, has lost nothing. */
    @Test
    void aLoopThatCouldNotBeMadeLeavesNothing() throws Exception {
        String output = Child.run(
                List.of(Child.tool("env"), "JAVA_TOOL_OPTIONS=-XX:MaxDirectMemorySize=8m"),
                ShortOfDirectMemory.class,
                UnderTest.ENGINE.name());
        assertTrue(output.contains("left open: 0"), output);
        assertTrue(output.contains("then its number is 0"), output);
    }
}
