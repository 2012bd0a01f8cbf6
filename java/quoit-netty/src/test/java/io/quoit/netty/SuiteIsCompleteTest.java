package io.quoit.netty;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;

import io.netty.testsuite.transport.TestsuitePermutation;
import java.io.File;
import java.lang.reflect.AnnotatedElement;
import java.lang.reflect.Method;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.jar.JarFile;
import java.util.stream.Stream;
import org.junit.jupiter.api.Disabled;
import org.junit.jupiter.api.RepeatedTest;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestFactory;
import org.junit.jupiter.api.TestTemplate;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.platform.commons.support.ReflectionSupport;

/**
 * No test of netty-testsuite's is forgotten: each method is run by one of the suites, or has its reason there or in
 * docs/netty.md.
 */
class SuiteIsCompleteTest {
    private static final String TESTS = "io/netty/testsuite/transport/";

    /** How many {@code make java} runs on each engine; another number with another Netty. */
    private static final int METHODS = 118;

    /** How many {@code make java-suite} runs beside those. */
    private static final int SLOW_METHODS = 12;

    /** Of other protocols, and of Netty's other event loops. */
    private static final List<String> OTHERS = List.of("sctp/", "udt/", "NioEventLoopTest", "DefaultEventLoopTest");

    private static List<Class<?>> suites() {
        return Stream.of(
                        NettyDatagramSuiteTest.class,
                        NettyEndSuiteTest.class,
                        NettyEventLoopSuiteTest.class,
                        NettySocketSuiteTest.class,
                        NettyTlsSuiteTest.class,
                        NettyWaitingSuiteTest.class)
                .<Class<?>>flatMap(suite -> Stream.concat(Stream.of(suite), Stream.of(suite.getDeclaredClasses())))
                .toList();
    }

    /** What it stands for in the lists: several with one parent of ours run the same methods. */
    private static Class<?> named(Class<?> suite) {
        Class<?> parent = suite.getSuperclass();
        return parent.getPackage() == SuiteIsCompleteTest.class.getPackage() ? parent : suite;
    }

    private static boolean isTest(Method method) {
        return Stream.of(Test.class, ParameterizedTest.class, RepeatedTest.class, TestFactory.class, TestTemplate.class)
                .anyMatch(method::isAnnotationPresent);
    }

    /** Whether only {@code make java-suite} runs it; there is no other tag. */
    private static boolean isSlow(AnnotatedElement element) {
        boolean slow = element instanceof Class<?> suite
                && suite.getEnclosingClass() != null
                && isSlow(suite.getEnclosingClass());
        for (Tag tag : element.getAnnotationsByType(Tag.class)) {
            assertEquals("slow", tag.value(), element.toString());
            slow = true;
        }
        return slow;
    }

    @Test
    void eachMethodIsRunOrLeftOutForAReason() throws Exception {
        Set<String> run = new HashSet<>();
        Set<String> slow = new HashSet<>();
        Set<String> slowSuites = new TreeSet<>();
        Set<String> leftOut = new TreeSet<>();
        for (Class<?> suite : suites()) {
            assertFalse(suite.isAnnotationPresent(Disabled.class), suite.getName());
            String name = named(suite).getSimpleName();
            for (Class<?> parent = suite; parent != Object.class; parent = parent.getSuperclass()) {
                for (Method method : parent.getDeclaredMethods()) {
                    if (!isTest(method)) {
                        continue;
                    }
                    // What the suite makes of it: its own, if it has one.
                    Method own = ReflectionSupport.findMethod(suite, method.getName(), method.getParameterTypes())
                            .orElseThrow();
                    Disabled disabled = own.getAnnotation(Disabled.class);
                    if (isTest(own) && disabled == null) {
                        // A method that a suite has in place of Netty's is one.
                        boolean isSlow = isSlow(suite) || isSlow(own);
                        (isSlow ? slow : run).add(name + "." + own.getName() + List.of(own.getParameterTypes()));
                        if (isSlow) {
                            slowSuites.add(name);
                        }
                    } else {
                        String reason = disabled == null ? "none" : disabled.value();
                        leftOut.add(name + "." + method.getName() + ": " + reason);
                    }
                }
            }
        }
        assertEquals(
                Set.of(
                        "HalfClosed.testAutoCloseFalseDoesShutdownOutput: "
                                + "the handler blocks its event loop between flush and send",
                        // By Netty itself.
                        "ServerSocketSuspend.testSuspendAndResumeAccept: Need to investigate why it fails on osx",
                        "ShutdownOutputBySelf.testWriteAfterShutdownOutputNoWritabilityChange: ",
                        "NettyEventLoopSuiteTest.testAutoScalingEventLoopGroupCanScaleDownAndBeUsed: "
                                + "isChangingThreadSupported is false",
                        "NettyEventLoopSuiteTest.testSubmittingTaskWakesUpSuspendedExecutor: "
                                + "isChangingThreadSupported is false"),
                leftOut);
        assertEquals(Set.of("ExceptionHandling", "ReadPending", "SslEcho", "TrafficShapingHandler"), slowSuites);
        assertEquals(METHODS, run.size());
        assertEquals(SLOW_METHODS, slow.size());
    }

    @Test
    void eachClassIsRunOrLeftOutForAReason() throws Exception {
        Set<Class<?>> run = new HashSet<>();
        for (Class<?> test : suites()) {
            for (Class<?> parent = test; parent != Object.class; parent = parent.getSuperclass()) {
                run.add(parent);
            }
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
