/**
 * The common calls of spymemcached, by the same names. A program changes its imports from {@code net.spy.memcached} to
 * this package. Values have the same bytes and flags, so both clients read each other's items.
 */
package io.situ.client.spy;
