package io.quoit.netty;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertSame;

import io.netty.buffer.ByteBufUtil;
import io.netty.buffer.UnpooledByteBufAllocator;
import io.netty.util.ResourceLeakDetector;
import java.lang.ref.ReferenceQueue;
import java.lang.ref.WeakReference;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.extension.AfterAllCallback;
import org.junit.jupiter.api.extension.BeforeAllCallback;
import org.junit.jupiter.api.extension.ExtensionContext;

/**
 * Fails a test class in which Netty's leak detector finds a buffer that nobody released; what it finds is only logged
 * otherwise. Registered for all test classes.
 */
public final class Leaks implements BeforeAllCallback, AfterAllCallback {
    private static final BlockingQueue<String> FOUND = new LinkedBlockingQueue<>();

    /** What the detector has found since it was asked last. */
    static List<String> find() {
        // What the first collection finds has reached its queues when the second's has.
        collect();
        collect();
        // It looks for leaks when it is given a buffer to watch.
        UnpooledByteBufAllocator.DEFAULT.directBuffer(1).release();
        List<String> found = new ArrayList<>();
        FOUND.drainTo(found);
        return found;
    }

    /** Collects, and waits until the queues of references were given what was found. */
    private static void collect() {
        ReferenceQueue<Object> queue = new ReferenceQueue<>();
        WeakReference<Object> garbage = new WeakReference<>(new Object(), queue);
        System.gc();
        try {
            assertSame(garbage, queue.remove(TimeUnit.SECONDS.toMillis(Peers.PATIENCE_SECONDS)), "nothing was collected");
        } catch (InterruptedException interrupted) {
            throw new IllegalStateException(interrupted);
        }
    }

    @Override
    public void beforeAll(ExtensionContext context) {
        ByteBufUtil.setLeakListener((type, records) -> FOUND.add(type + records));
    }

    @Override
    public void afterAll(ExtensionContext context) {
        // Once for a class and all that are nested in it. The base line's leaks are Netty's own.
        boolean nested = context.getRequiredTestClass().isMemberClass();
        if (!nested && UnderTest.STOCK == null && ResourceLeakDetector.isEnabled()) {
            assertEquals(List.of(), find(), "leaks");
        }
    }
}
