package io.quoit.netty;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.MethodSource;

/** Both ways of calling native code do the same, call by call, where this Java has both. */
class NativeLibraryTest {
    private static final int EBADF = 9;
    private static final int EAFNOSUPPORT = 97;
    private static final int AF_UNIX = 1;
    private static final int SOCK_STREAM = 1;

    /** The one that the tests run on, and the other if there is one. */
    static List<NativeLibrary> libraries() throws Exception {
        List<NativeLibrary> all = new ArrayList<>(List.of(NativeLoader.library()));
        if (!all.get(0).access().equals(NativeLibrary.JNI)) {
            all.add(NativeLoader.jni());
        }
        return all;
    }

    private static ByteBuffer room(int bytes) {
        return ByteBuffer.allocateDirect(bytes).order(ByteOrder.nativeOrder());
    }

    @Test
    void theOneThatWasAskedForIsUsed() {
        String asked = System.getProperty(NativeLoader.ACCESS_PROPERTY, "");
        String expected = !asked.isEmpty() ? asked : Runtime.version().feature() >= 22 ? "ffm" : "jni";
        assertEquals(expected, NativeLoader.library().access());
        assertEquals(expected, Quoit.doctor().access());
        assertTrue(Quoit.doctor().toString().contains("called by " + expected), Quoit.doctor().toString());
    }

    @ParameterizedTest
    @CsvSource({"'', 17, jni", "'', 21, jni", "'', 22, ffm", ", 25, ffm", "jni, 25, jni", "ffm, 22, ffm", "jni, 17, jni"})
    void theWayDependsOnTheJavaAndOnTheProperty(String asked, int java, String expected) {
        assertEquals(expected, NativeLoader.access(asked, java));
    }

    @ParameterizedTest
    @CsvSource({"ffm, 21, needs Java 22", "panama, 25, 'ffm, jni or nothing'"})
    void aWayThatThereIsNotIsExplained(String asked, int java, String words) {
        String message = assertThrows(UnsupportedOperationException.class, () -> NativeLoader.access(asked, java))
                .getMessage();
        assertTrue(message.contains(NativeLoader.ACCESS_PROPERTY) && message.contains(words), message);
    }

    /** What is there and never declared would be forgotten. */
    @Test
    void theFunctionsOfJniAreThoseThatAreDeclared() throws Exception {
        libraries();
        assertEquals(JniLibrary.declared(), JniLibrary.signatures());
    }

    @Test
    void aFunctionThatIsMissingOrHasOtherTypesIsNamed() {
        Set<String> there = new HashSet<>(JniLibrary.declared());
        assertNull(JniLibrary.lacking(there));
        there.remove("turn(JJJJJJ)I");
        there.add("turn(JJJJJ)I");
        assertEquals("turn(JJJJJJ)I", JniLibrary.lacking(there));
    }

    @ParameterizedTest
    @MethodSource("libraries")
    void memoryIsReadAndWritten(NativeLibrary library) {
        ByteBuffer memory = room(64);
        memory.putLong(3, 0x0123_4567_89AB_CDEFL).putInt(13, -7);
        long address = library.address(memory);
        assertEquals(0x0123_4567_89AB_CDEFL, library.longAt(address + 3));
        assertEquals(-7, library.intAt(address + 13));
        assertEquals(address, library.address(memory.position(5)), "the first byte's, whatever the position");
        ByteBuffer view = library.view(address + 13, 4);
        assertEquals(ByteOrder.nativeOrder(), view.order());
        assertEquals(4, view.capacity());
        assertTrue(view.isDirect());
        assertEquals(-7, view.getInt(0));
        assertEquals(address + 13, library.address(view));
        library.copy(address + 3, address + 40, 8);
        assertEquals(0x0123_4567_89AB_CDEFL, memory.getLong(40));
        library.copy(address + 3, address + 50, 0);
        assertEquals(0, memory.getLong(50));
        ByteBuffer text = room(16).put("käse\0more".getBytes(StandardCharsets.UTF_8));
        assertEquals("käse", library.text(library.address(text)));
        assertEquals("", library.text(0));
    }

    /** Which Java uses where Netty has no Unsafe. */
    @Test
    void memoryIsReadAndWrittenByCallsToo() throws Exception {
        libraries();
        ByteBuffer memory = room(32).putLong(1, 0x0123_4567_89AB_CDEFL);
        long address = JniCalls.address(memory);
        assertEquals(NativeLoader.library().address(memory), address);
        assertEquals(0x0123_4567_89AB_CDEFL, JniCalls.longAt(address + 1));
        assertEquals(memory.getInt(1), JniCalls.intAt(address + 1));
        JniCalls.copy(address + 1, address + 20, 8);
        assertEquals(0x0123_4567_89AB_CDEFL, memory.getLong(20));
        assertEquals(0, JniCalls.address(ByteBuffer.allocate(1)), "it has no address");
    }

    @ParameterizedTest
    @MethodSource("libraries")
    void theLibraryAnswers(NativeLibrary library) throws Exception {
        assertTrue(library.version().matches("\\d+\\.\\d+\\.\\d+.*"), library.version());
        assertNull(NativeLoader.lacking(library.layout(), NativeLoader.goldenLayout()));
        assertEquals(0, library.abiCheck(Abi.VERSION));
        assertTrue(library.abiCheck(Abi.VERSION + (1 << 16)) < 0);
        assertTrue(library.errorText().contains("version"), library.errorText());
    }

    @ParameterizedTest
    @MethodSource("libraries")
    void anErrorOfTheCLibraryIsItsNumberBelowZero(NativeLibrary library) {
        ByteBuffer value = room(4);
        ByteBuffer length = room(4).putInt(0, 4);
        assertEquals(-EBADF, library.close(-1));
        assertEquals(-EBADF, library.shutdown(-1, 1));
        assertEquals(-EBADF, library.duplicate(-1));
        assertEquals(-EBADF, library.listenOn(-1, 1));
        assertEquals(-EBADF, library.bind(-1, library.address(value), 4));
        assertEquals(-EBADF, library.connect(-1, library.address(value), 4));
        assertEquals(-EBADF, library.setOption(-1, 1, 2, library.address(value), 4));
        assertEquals(-EBADF, library.getOption(-1, 1, 2, library.address(value), library.address(length)));
        assertEquals(-EBADF, library.socketName(-1, library.address(value), library.address(length)));
        assertEquals(-EBADF, library.peerName(-1, library.address(value), library.address(length)));
        assertEquals(-EAFNOSUPPORT, library.socket(9999, SOCK_STREAM));
        int socket = library.socket(AF_UNIX, SOCK_STREAM);
        assertTrue(socket >= 0);
        int other = library.duplicate(socket);
        assertTrue(other >= 0 && other != socket);
        assertEquals(0, library.close(socket));
        assertEquals(0, library.close(other));
    }

    @ParameterizedTest
    @MethodSource("libraries")
    void aThreadOfThePlatformIsNotVirtual(NativeLibrary library) {
        assertFalse(library.isVirtual(Thread.currentThread()));
    }

    @ParameterizedTest
    @MethodSource("libraries")
    void aVirtualThreadIs(NativeLibrary library) throws Exception {
        assertTrue(library.isVirtual(VirtualThreads.factory().newThread(() -> {})));
    }
}
