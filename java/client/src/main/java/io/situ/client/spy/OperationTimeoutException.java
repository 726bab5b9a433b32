package io.situ.client.spy;

/** A call that waits took longer than the deadline. */
public class OperationTimeoutException extends RuntimeException {
    private static final long serialVersionUID = 1;

    /** Makes an exception with a cause. */
    public OperationTimeoutException(Throwable cause) {
        super(cause.getMessage(), cause);
    }
}
