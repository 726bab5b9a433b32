package io.situ.client;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** A retrieval of several keys from one server. */
final class MultiGetExchange extends Exchange {
    /**
     * The keys of one request. With this many, a request is shorter than any server's limit for a line, and the answers
     * of one request do not hold up other calls for long.
     */
    static final int KEYS_MAX = 64;

    private final List<String> keys;
    private final Map<String, Item> items = new HashMap<>();
    private String key;

    MultiGetExchange(List<String> keys, boolean withCas) {
        super(64 * keys.size() + 16);
        this.keys = keys;
        retrieveSeveral(withCas ? GETS : GET);
        for (String wanted : keys) {
            addKey(Keys.of(wanted));
        }
        endKeys();
    }

    @Override
    void restart() {
        super.restart();
        if (items != null) {
            items.clear();
        }
    }

    @Override
    void valueBegins(byte[] bytes, int keyStart, int keyEnd) throws IOException {
        key = new String(bytes, keyStart, keyEnd - keyStart, StandardCharsets.UTF_8);
        if (!keys.contains(key)) {
            throw new ProtocolException("the server sent the value of another key");
        }
    }

    @Override
    void valueEnds() {
        items.put(key, lastItem());
    }

    List<String> keys() {
        return keys;
    }

    Map<String, Item> items() {
        return items;
    }
}
