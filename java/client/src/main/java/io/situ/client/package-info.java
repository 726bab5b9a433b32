/**
 * A client for Situ and memcached.
 *
 * <p>{@link io.situ.client.SituClient} has the blocking calls, {@link io.situ.client.AsyncSituClient} the same calls
 * with futures, and {@link io.situ.client.TypedClient} both with a {@link io.situ.client.Serializer} for values. Keys
 * have 1 to 250 bytes in UTF-8, without spaces and control characters. Expiry times are memcached's: see
 * {@link io.situ.client.Expiry}.
 *
 * <p>How the parts work together:
 * <ol>
 * <li>A call chooses a server by the key: {@code Continuum} is libmemcached's consistent hashing.
 * <li>A blocking call borrows a {@code Connection} from the server's pool for the call, writes the request, and reads
 *     the answer in its own thread. So a call over shared memory switches no thread.
 * <li>An asynchronous call enters the server's {@code Pipeline}. One thread for each server writes requests without
 *     waiting for answers, reads the answers, and completes the futures.
 * <li>Both describe a request and its answer with an {@code Exchange}, which encodes and decodes the text protocol.
 * <li>A {@code Transport} moves the bytes: {@code SocketTransport} or {@code SharedMemoryTransport}.
 * </ol>
 *
 * <p><b>Failure.</b> A connection that fails, that answers late or that answers against the protocol is closed. The
 * next call opens another one. A server that refuses connections is out of service for a time that doubles up to ten
 * seconds; meanwhile its keys go to the next server on the continuum, unless that is switched off.
 */
package io.situ.client;
