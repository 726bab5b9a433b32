package io.situ.client.spy;

import java.net.InetSocketAddress;
import java.util.Arrays;
import java.util.List;

/** Addresses in texts. */
public final class AddrUtil {
    private AddrUtil() {}

    /**
     * Returns the addresses of a list {@code host:port host:port}, with spaces or commas.
     *
     * @throws IllegalArgumentException if there is none, or one has no port
     */
    public static List<InetSocketAddress> getAddresses(String list) {
        List<InetSocketAddress> addresses = Arrays.stream(list.trim().split("[\\s,]+")).map(text -> {
            int colon = text.lastIndexOf(':');
            if (colon < 1) {
                throw new IllegalArgumentException("an address is host:port: " + text);
            }
            return InetSocketAddress.createUnresolved(
                    text.substring(0, colon), Integer.parseInt(text.substring(colon + 1)));
        }).toList();
        return addresses;
    }
}
