/**
 * A provider of JCache (JSR 107). It needs {@code javax.cache:cache-api} 1.1.
 *
 * <p>Caches are on the servers of a client. So they are not closed or destroyed with the process, and other processes
 * see them. The following parts of JCache are not there, and throw {@link java.lang.UnsupportedOperationException}:
 * iterators, listeners, read-through, write-through, statistics and management.
 */
package io.situ.client.jcache;
