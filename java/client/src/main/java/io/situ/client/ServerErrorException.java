package io.situ.client;

/** A server refused a call: the message is the server's answer. */
public class ServerErrorException extends SituException {
    /** Makes an exception with the answer of a server. */
    public ServerErrorException(String message) {
        super(message);
    }
}
