package io.situ.client;

import java.util.List;

/** The settings of a client: see {@link SituClient.Builder}. */
record Options(
        List<ServerAddress> servers,
        TransportChoice transport,
        long timeoutNs,
        long connectTimeoutNs,
        int connectionsMax,
        int queueCallsMax,
        long queueBytesMax,
        int ringBytes,
        boolean failover,
        byte[] login) {}
