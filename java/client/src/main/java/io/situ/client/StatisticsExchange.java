package io.situ.client;

import java.util.LinkedHashMap;
import java.util.Map;

/** A {@code stats} command and its answer. */
final class StatisticsExchange extends Exchange {
    private final Map<String, String> values = new LinkedHashMap<>();

    StatisticsExchange(String topic) {
        super(32);
        if (!topic.chars().allMatch(c -> c > ' ' && c < 0x7f || c == ' ')) {
            throw new IllegalArgumentException("not a topic of statistics: " + topic);
        }
        statistics(topic.isEmpty() ? "stats" : "stats " + topic);
    }

    @Override
    void restart() {
        super.restart();
        if (values != null) {
            values.clear();
        }
    }

    @Override
    void statisticLine(String line) {
        int space = line.indexOf(' ');
        values.put(space < 0 ? line : line.substring(0, space), space < 0 ? "" : line.substring(space + 1));
    }

    Map<String, String> values() {
        return values;
    }
}
