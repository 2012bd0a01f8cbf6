package io.quoit.netty;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.netty.testsuite.transport.TestsuitePermutation;
import java.io.File;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.jar.JarFile;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;

/** No test of netty-testsuite's is forgotten: it is run by one of the suites, or has its reason in docs/netty.md. */
class SuiteIsCompleteTest {
    private static final String TESTS = "io/netty/testsuite/transport/";

    /** Of other protocols, and of Netty's other event loops. */
    private static final List<String> OTHERS = List.of("sctp/", "udt/", "NioEventLoopTest", "DefaultEventLoopTest");

    @Test
    void eachClassIsRunOrLeftOutForAReason() throws Exception {
        Set<Class<?>> run = new HashSet<>();
        for (Class<?> suite : List.of(
                NettyDatagramSuiteTest.class,
                NettyEndSuiteTest.class,
                NettyEventLoopSuiteTest.class,
                NettySocketSuiteTest.class,
                NettyTlsSuiteTest.class,
                NettyWaitingSuiteTest.class)) {
            Stream.concat(Stream.of(suite), Stream.of(suite.getDeclaredClasses())).forEach(test -> {
                for (Class<?> parent = test; parent != Object.class; parent = parent.getSuperclass()) {
                    run.add(parent);
                }
            });
        }
        Set<String> leftOut = new TreeSet<>();
        File jar = new File(TestsuitePermutation.class.getProtectionDomain().getCodeSource().getLocation().toURI());
        try (JarFile file = new JarFile(jar)) {
            for (String entry : file.stream().map(Object::toString).toList()) {
                if (!entry.startsWith(TESTS) || !entry.endsWith("Test.class")) {
                    continue;
                }
                if (OTHERS.stream().anyMatch(entry.substring(TESTS.length())::startsWith)) {
                    continue;
                }
                Class<?> test = Class.forName(entry.replace('/', '.').replaceFirst("\\.class$", ""));
                if (!run.contains(test)) {
                    leftOut.add(test.getSimpleName());
                }
            }
        }
        assertEquals(
                Set.of("AbstractSocketReuseFdTest", "SocketAddressesTest", "SocketSslLargeCertificateTest"), leftOut);
    }
}
