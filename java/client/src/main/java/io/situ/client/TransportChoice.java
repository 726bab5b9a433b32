package io.situ.client;

/** The rule by which a client chooses the transport of a connection to a Unix socket. */
public enum TransportChoice {
    /** Shared memory if the server offers it, and the socket otherwise. There is no RDMA. */
    AUTO,
    /** The socket. */
    SOCKET,
    /** Shared memory. Connections fail if the server does not offer it. */
    SHARED_MEMORY
}
