package io.quoit.netty;

import io.quoit.netty.Abi.Capability;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;

/** What io_uring can do here, asked of the library. */
final class Doctor {
    private Doctor() {}

    /** Calls the function with the capabilities of a loop with the library's defaults. */
    private static <T> T probed(NativeLibrary library, java.util.function.LongFunction<T> function) {
        ByteBuffer out = ByteBuffer.allocateDirect(Long.BYTES).order(ByteOrder.nativeOrder());
        if (library.capabilitiesProbe(0, library.address(out)) < 0) {
            throw new IllegalStateException("quoit_capabilities_probe: " + library.errorText());
        }
        long capabilities = out.getLong(0);
        try {
            return function.apply(capabilities);
        } finally {
            library.capabilitiesFree(capabilities);
        }
    }

    static QuoitReport report() {
        NativeLoader.Outcome outcome = NativeLoader.outcome();
        NativeLibrary library = outcome.library();
        if (library == null) {
            String cause = outcome.cause().getMessage();
            return new QuoitReport(false, cause, "", "", false, cause, List.of());
        }
        return probed(library, capabilities -> new QuoitReport(
                true,
                "",
                library.version(),
                library.access(),
                library.capabilitiesUsable(capabilities) == 1,
                library.capabilitiesReason(capabilities),
                features(library, capabilities)));
    }

    private static List<QuoitReport.Feature> features(NativeLibrary library, long capabilities) {
        ByteBuffer room = ByteBuffer.allocateDirect(Capability.STRUCT_SIZE).order(ByteOrder.nativeOrder());
        room.putInt(0, Capability.STRUCT_SIZE);
        List<QuoitReport.Feature> all = new ArrayList<>();
        for (int index = 0; library.capabilitiesGet(capabilities, index, library.address(room)) == 0; index++) {
            all.add(new QuoitReport.Feature(
                    library.text(room.getLong(Capability.NAME)),
                    library.text(room.getLong(Capability.ABOUT)),
                    room.getInt(Capability.USABLE) == 1,
                    library.text(room.getLong(Capability.REASON)),
                    library.text(room.getLong(Capability.MINIMUM_KERNEL)),
                    room.getLong(Capability.BIT)));
        }
        return List.copyOf(all);
    }

    /** The bits of features, by their names. */
    static long bits(NativeLibrary library, Set<String> names) {
        List<QuoitReport.Feature> features = probed(library, capabilities -> features(library, capabilities));
        long bits = 0;
        for (String name : names) {
            bits |= features.stream()
                    .filter(feature -> feature.name().equals(name))
                    .findFirst()
                    .orElseThrow(() -> new IllegalArgumentException("\"" + name
                            + "\" is not a feature of io_uring that can be switched off; these are: "
                            + features.stream().map(QuoitReport.Feature::name).toList()))
                    .bit();
        }
        return bits;
    }
}
