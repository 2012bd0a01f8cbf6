package io.quoit.netty;

import java.lang.management.ManagementFactory;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.Function;
import javax.management.InstanceAlreadyExistsException;
import javax.management.InstanceNotFoundException;
import javax.management.JMException;
import javax.management.MBeanServer;
import javax.management.ObjectName;
import javax.management.StandardMBean;

/**
 * The loops' figures by JMX, for whoever asks for it: nothing is registered otherwise, and {@code java.management} is not
 * needed. Any thread.
 */
public final class QuoitJmx {
    private static final String NAME = "io.quoit:type=Loops";

    private QuoitJmx() {}

    /**
     * Registers a {@link QuoitLoopsMXBean} with the platform's MBean server, as {@code io.quoit:type=Loops}. Does nothing if
     * there is one.
     *
     * @return its name
     * @throws IllegalStateException if the server refuses it
     */
    public static ObjectName register() {
        try {
            ObjectName name = new ObjectName(NAME);
            StandardMBean bean = new StandardMBean(new Loops(), QuoitLoopsMXBean.class, true);
            try {
                server().registerMBean(bean, name);
            } catch (InstanceAlreadyExistsException already) {
                return name;
            }
            return name;
        } catch (JMException failure) {
            throw new IllegalStateException("the figures of Quoit's loops cannot be registered as " + NAME, failure);
        }
    }

    /**
     * Takes the bean away again. Does nothing if there is none.
     *
     * @throws IllegalStateException if the server refuses that
     */
    public static void unregister() {
        try {
            server().unregisterMBean(new ObjectName(NAME));
        } catch (InstanceNotFoundException already) {
            return;
        } catch (JMException failure) {
            throw new IllegalStateException(NAME + " cannot be unregistered", failure);
        }
    }

    private static MBeanServer server() {
        return ManagementFactory.getPlatformMBeanServer();
    }

    private static final class Loops implements QuoitLoopsMXBean {
        private static <T> Map<Integer, T> each(Function<QuoitLoopSnapshot, T> of) {
            Map<Integer, T> all = new TreeMap<>();
            for (QuoitLoopSnapshot loop : Quoit.loops()) {
                all.put(loop.loop(), of.apply(loop));
            }
            return all;
        }

        @Override
        public Map<Integer, String> getEngines() {
            return each(loop -> loop.engine() + ": " + loop.engineReason());
        }

        @Override
        public Map<Integer, Map<String, Long>> getFigures() {
            return each(loop -> {
                Map<String, Long> figures = new TreeMap<>();
                loop.metrics().forEach(metric -> figures.put(metric.name(), metric.value()));
                return figures;
            });
        }

        @Override
        public Map<Integer, Map<String, List<Long>>> getHistograms() {
            return each(loop -> {
                Map<String, List<Long>> shapes = new TreeMap<>();
                loop.histograms().forEach(histogram -> shapes.put(histogram.name(), histogram.counts()));
                return shapes;
            });
        }
    }
}
