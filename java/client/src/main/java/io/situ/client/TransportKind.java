package io.situ.client;

/** The transport that a connection uses. */
public enum TransportKind {
    /** A TCP socket. */
    TCP,
    /** A Unix socket. */
    UNIX_SOCKET,
    /** Memory that the client and the server map. */
    SHARED_MEMORY
}
