package io.situ.client;

/** A call took longer than its deadline. The server may have executed it all the same. */
public class DeadlineException extends SituException {
    /** Makes an exception with a message. */
    public DeadlineException(String message) {
        super(message);
    }
}
