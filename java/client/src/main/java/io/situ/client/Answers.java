package io.situ.client;

import java.util.OptionalLong;

/** The results of calls, from the answers of the server. An answer that does not fit the call is a breach. */
final class Answers {
    private Answers() {}

    private static ProtocolException unexpected(Exchange exchange) {
        return new ProtocolException("the server sent an answer to another command: " + exchange.status());
    }

    static boolean stored(Exchange exchange) throws ProtocolException {
        return switch (exchange.status()) {
            case STORED -> true;
            // append and prepend of memcached answer NOT_STORED, those of others NOT_FOUND.
            case NOT_STORED, NOT_FOUND -> false;
            default -> throw unexpected(exchange);
        };
    }

    static CasResult compared(Exchange exchange) throws ProtocolException {
        return switch (exchange.status()) {
            case STORED -> CasResult.STORED;
            case EXISTS -> CasResult.EXISTS;
            case NOT_FOUND -> CasResult.NOT_FOUND;
            default -> throw unexpected(exchange);
        };
    }

    static boolean deleted(Exchange exchange) throws ProtocolException {
        return isOrNotFound(exchange, Exchange.Status.DELETED);
    }

    static boolean touched(Exchange exchange) throws ProtocolException {
        return isOrNotFound(exchange, Exchange.Status.TOUCHED);
    }

    private static boolean isOrNotFound(Exchange exchange, Exchange.Status wanted) throws ProtocolException {
        if (exchange.status() != wanted && exchange.status() != Exchange.Status.NOT_FOUND) {
            throw unexpected(exchange);
        }
        return exchange.status() == wanted;
    }

    static OptionalLong number(Exchange exchange) throws ProtocolException {
        return switch (exchange.status()) {
            case NUMBER -> OptionalLong.of(exchange.number());
            case NOT_FOUND -> OptionalLong.empty();
            default -> throw unexpected(exchange);
        };
    }

    static Void done(Exchange exchange) throws ProtocolException {
        if (exchange.status() != Exchange.Status.OK) {
            throw unexpected(exchange);
        }
        return null;
    }

    static String version(Exchange exchange) throws ProtocolException {
        if (exchange.status() != Exchange.Status.VERSION) {
            throw unexpected(exchange);
        }
        return exchange.text();
    }

    static byte[] value(Exchange exchange) {
        return exchange.value();
    }

    static Item item(Exchange exchange) {
        return exchange.item();
    }
}
