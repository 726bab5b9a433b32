/** A cache manager for Spring's cache abstraction. It needs {@code spring-context} 6.1 or later. */
package io.situ.client.spring;
