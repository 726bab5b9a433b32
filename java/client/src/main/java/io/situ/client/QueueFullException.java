package io.situ.client;

/** An asynchronous call found the queue of its server full. The call was not sent. */
public class QueueFullException extends SituException {
    /** Makes an exception with a message. */
    public QueueFullException(String message) {
        super(message);
    }
}
