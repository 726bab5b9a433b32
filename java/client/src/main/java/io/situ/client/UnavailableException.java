package io.situ.client;

/**
 * A server could not be reached, or its connection ended during a call. In the latter case the server may have executed
 * the call.
 */
public class UnavailableException extends SituException {
    /** Makes an exception with a message and a cause, which may be null. */
    public UnavailableException(String message, Throwable cause) {
        super(message, cause);
    }
}
