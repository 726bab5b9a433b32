package io.situ.client;

/** The base of all exceptions of the client. */
public class SituException extends RuntimeException {
    /** Makes an exception with a message. */
    public SituException(String message) {
        super(message);
    }

    /** Makes an exception with a message and a cause. */
    public SituException(String message, Throwable cause) {
        super(message, cause);
    }
}
