package io.situ.kafka.streams;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.ToLongFunction;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.metrics.Gauge;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.streams.processor.StateStoreContext;
import org.apache.kafka.streams.processor.internals.metrics.StreamsMetricsImpl;

/** The figures of a store and partition in the registry of Kafka's metrics, as long as it is open. */
final class StateMetrics {
    private static final String GROUP = "stream-state-metrics";

    private final Metrics registry;
    private final List<MetricName> names = new ArrayList<>();

    StateMetrics(String store, StateStoreContext context, PartitionState state) {
        registry = context.metrics() instanceof StreamsMetricsImpl metrics ? metrics.metricsRegistry() : null;
        if (registry == null) {
            return;
        }
        Map<String, String> tags = new LinkedHashMap<>();
        tags.put("thread-id", Thread.currentThread().getName());
        tags.put("task-id", context.taskId().toString());
        tags.put("situ-state-id", store);
        add("situ-uncommitted-bytes", "The heap of the writes since the last commit", tags, PartitionState::uncommittedBytes, state);
        add("situ-memtable-bytes", "The memory of memtables", tags, of -> of.property("memtable_bytes"), state);
        add("situ-table-bytes", "The size of the tables on the disk", tags, of -> of.property("table_bytes"), state);
        add("situ-keys", "The approximate number of keys", tags, of -> of.property("approximate_keys"), state);
        add("situ-shared-cache-bytes", "The cache that all stores share", tags, of -> of.sharedProperty("cache_bytes"), state);
        add("situ-shared-memtable-bytes", "The memtables of all stores", tags, of -> of.sharedProperty("memtable_bytes"), state);
    }

    private void add(String metric, String what, Map<String, String> tags, ToLongFunction<PartitionState> figure, PartitionState state) {
        MetricName name = registry.metricName(metric, GROUP, what, tags);
        // A task that becomes active on the thread where it was a standby has them already.
        registry.removeMetric(name);
        registry.addMetric(name, (Gauge<Long>) (config, now) -> state.isOpen() ? figure.applyAsLong(state) : 0);
        names.add(name);
    }

    void remove() {
        if (registry != null) {
            names.forEach(registry::removeMetric);
        }
    }
}
