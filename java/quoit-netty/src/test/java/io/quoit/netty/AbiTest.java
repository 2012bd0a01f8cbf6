package io.quoit.netty;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.reflect.Field;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.Test;

/** {@link Abi} says what quoit-layout.txt says, and that is the repository's. */
class AbiTest {
    private static Map<String, Long> golden() throws Exception {
        Map<String, Long> values = new HashMap<>();
        for (String line : NativeLoader.goldenLayout()) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "struct" -> values.put(words[1], Long.parseLong(words[2]));
                case "field" -> values.put(words[1] + "." + words[2], Long.parseLong(words[3]));
                case "constant" -> values.put(words[1], Long.parseLong(words[2]));
                default -> throw new AssertionError(line);
            }
        }
        return values;
    }

    private static String snake(String name) {
        return name.replaceAll("(?<=[a-z])(?=[A-Z])", "_").toLowerCase(Locale.ROOT);
    }

    @Test
    void everyConstantIsTheHeaders() throws Exception {
        Map<String, Long> golden = golden();
        int checked = 0;
        for (Field field : Abi.class.getDeclaredFields()) {
            if (!field.getName().equals("VERSION")) {
                Long expected = golden.get("QUOIT_" + field.getName());
                assertEquals(expected, Integer.toUnsignedLong(field.getInt(null)), field.getName());
                checked++;
            }
        }
        for (Class<?> structure : Abi.class.getDeclaredClasses()) {
            String name = "quoit_" + snake(structure.getSimpleName());
            for (Field field : structure.getDeclaredFields()) {
                String member = field.getName().toLowerCase(Locale.ROOT);
                boolean size = member.equals("size") || member.equals("struct_size");
                Long expected = golden.get(size ? name : name + "." + member);
                assertEquals(expected, (long) field.getInt(null), name + "." + member);
                checked++;
            }
        }
        assertTrue(checked > 100, "only " + checked + " constants were found");
        assertEquals(
                golden.get("QUOIT_ABI_MAJOR") << 16 | golden.get("QUOIT_ABI_MINOR"),
                Abi.VERSION,
                "the version that the package asks for is that of its layout");
    }

    @Test
    void theGoldenLayoutIsTheRepositorys() throws Exception {
        Path original = Path.of("../../crates/quoit-capi/include/quoit-layout.txt");
        Assumptions.assumeTrue(Files.exists(original), "not in a clone of the repository");
        assertEquals(
                Files.readAllLines(original).stream().filter(line -> !line.isBlank()).toList(),
                NativeLoader.goldenLayout(),
                "copy it from crates/quoit-capi/include");
    }

    @Test
    void aLibraryOfAnotherLayoutIsFound() throws Exception {
        List<String> golden = NativeLoader.goldenLayout();
        String library = String.join("\n", golden);
        assertNull(NativeLoader.lacking(library, golden));
        // Structures that say their size may have grown.
        assertNull(NativeLoader.lacking(altered(library, "struct quoit_config \\d+ 8", "struct quoit_config 999 8"), golden));
        assertNull(NativeLoader.lacking(altered(library, "QUOIT_ABI_MINOR \\d+", "QUOIT_ABI_MINOR 99"), golden));
        assertEquals(
                "field quoit_command target 8 8",
                NativeLoader.lacking(
                        altered(library, "field quoit_command target 8 8", "field quoit_command target 16 8"), golden));
    }

    /** The layout with a line changed that is surely there. */
    private static String altered(String layout, String line, String instead) {
        String altered = layout.replaceFirst(line, instead);
        assertNotEquals(layout, altered, line + " is not in the layout");
        return altered;
    }
}
