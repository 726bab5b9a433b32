package io.situ.client;

import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.net.UnixDomainSocketAddress;
import java.util.Objects;

/** The address of a server: a host and a port, or the path of a Unix socket. */
public final class ServerAddress {
    /** The port of memcached. */
    public static final int DEFAULT_PORT = 11211;

    private final String host;
    private final int port;

    private ServerAddress(String host, int port) {
        this.host = host;
        this.port = port;
    }

    /**
     * Returns the address of a host and a port.
     *
     * @throws IllegalArgumentException if the host is empty, or the port is not from 1 to 65535
     */
    public static ServerAddress tcp(String host, int port) {
        if (host.isEmpty() || port < 1 || port > 65535) {
            throw new IllegalArgumentException("not a host and a port: " + host + ":" + port);
        }
        return new ServerAddress(host, port);
    }

    /**
     * Returns the address of a Unix socket.
     *
     * @throws IllegalArgumentException if the path is not absolute, or longer than 107 bytes
     */
    public static ServerAddress unix(String path) {
        int bytes = path.getBytes(java.nio.charset.StandardCharsets.UTF_8).length;
        if (!path.startsWith("/") || bytes > 107 || path.indexOf('\0') >= 0) {
            throw new IllegalArgumentException("not an absolute path of at most 107 bytes: " + path);
        }
        return new ServerAddress(path, 0);
    }

    /**
     * Parses {@code host}, {@code host:port}, {@code [::1]:port}, {@code /path} or {@code unix:/path}. The default port
     * is 11211.
     *
     * @throws IllegalArgumentException if the text is none of these
     */
    public static ServerAddress parse(String text) {
        if (text.startsWith("unix:")) {
            return unix(text.substring(5));
        }
        if (text.startsWith("/")) {
            return unix(text);
        }
        int colon = text.lastIndexOf(':');
        boolean bracketed = text.startsWith("[");
        if (bracketed ? text.endsWith("]") : colon < 0) {
            return tcp(bracketed ? text.substring(1, text.length() - 1) : text, DEFAULT_PORT);
        }
        String host = text.substring(0, Math.max(colon, 0));
        if (bracketed && host.endsWith("]")) {
            host = host.substring(1, host.length() - 1);
        } else if (host.indexOf(':') >= 0) {
            throw new IllegalArgumentException("write an IPv6 address as [address]:port: " + text);
        }
        try {
            return tcp(host, Integer.parseInt(text.substring(colon + 1)));
        } catch (NumberFormatException notANumber) {
            throw new IllegalArgumentException("not a host and a port: " + text);
        }
    }

    /** Returns true if this is the path of a Unix socket. */
    public boolean isUnix() {
        return port == 0;
    }

    /** Returns the host, or the path of a Unix socket. */
    public String host() {
        return host;
    }

    /** Returns the port, or 0 for a Unix socket. */
    public int port() {
        return port;
    }

    SocketAddress resolve() {
        return isUnix() ? UnixDomainSocketAddress.of(host) : new InetSocketAddress(host, port);
    }

    /** Returns the name that libmemcached's continuum hashes. The default port is left out. */
    String continuumName() {
        return port == DEFAULT_PORT ? host : host + ":" + port;
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof ServerAddress address && address.port == port && address.host.equals(host);
    }

    @Override
    public int hashCode() {
        return Objects.hash(host, port);
    }

    /** Returns a text that {@link #parse} accepts. */
    @Override
    public String toString() {
        if (isUnix()) {
            return "unix:" + host;
        }
        return (host.indexOf(':') >= 0 ? "[" + host + "]" : host) + ":" + port;
    }
}
