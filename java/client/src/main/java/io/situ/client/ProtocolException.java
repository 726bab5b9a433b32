package io.situ.client;

import java.io.IOException;

/** An answer that the protocol does not allow. The connection cannot be used any more. */
final class ProtocolException extends IOException {
    private static final long serialVersionUID = 1;

    ProtocolException(String message) {
        super(message);
    }
}
