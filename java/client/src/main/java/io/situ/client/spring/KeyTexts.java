package io.situ.client.spring;

/** Texts of keys. */
final class KeyTexts {
    private KeyTexts() {}

    /**
     * Returns the text of a key.
     *
     * @throws IllegalArgumentException if its class has no {@code toString} of its own, so that equal keys have
     *     different texts
     */
    static String of(Object key) {
        if (key instanceof String text) {
            return text;
        }
        String text = key.toString();
        if (text.equals(key.getClass().getName() + "@" + Integer.toHexString(key.hashCode()))) {
            throw new IllegalArgumentException(key.getClass() + " needs a toString of its own to be a key");
        }
        return text;
    }
}
