package io.situ.client.examples;

import static java.nio.charset.StandardCharsets.UTF_8;

import io.situ.client.CasResult;
import io.situ.client.Expiry;
import io.situ.client.Item;
import io.situ.client.Serializers;
import io.situ.client.SituClient;
import io.situ.client.TypedClient;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;

/** The main calls of the client. The arguments are addresses of servers, such as {@code 127.0.0.1:11211}. */
public final class Example {
    private Example() {}

    /** Runs the example. */
    public static void main(String[] servers) {
        try (SituClient client = SituClient.builder().servers(servers).timeout(Duration.ofSeconds(2)).build()) {
            int minutes = Expiry.after(Duration.ofMinutes(5));

            // Blocking calls.
            client.set("greeting", "hello".getBytes(UTF_8), minutes);
            System.out.println("greeting: " + new String(client.get("greeting"), UTF_8));
            System.out.println("by " + client.transports());

            // A change that fails if another client was faster.
            Item item = client.gets("greeting");
            CasResult result = client.cas("greeting", "hello, world".getBytes(UTF_8), item.cas(), minutes, 0);
            System.out.println("cas: " + result);

            // A counter.
            client.set("visits", "0".getBytes(UTF_8), Expiry.NEVER);
            System.out.println("visits: " + client.incr("visits", 1).getAsLong());

            // Objects.
            TypedClient<String> texts = client.typed(Serializers.STRING);
            texts.set("text", "typed", minutes);
            System.out.println("text: " + texts.get("text"));

            // Requests that do not wait for each other.
            List<CompletableFuture<Void>> stored = new ArrayList<>();
            for (int i = 0; i < 100; i++) {
                stored.add(client.async().set("page-" + i, ("page " + i).getBytes(UTF_8), minutes));
            }
            stored.forEach(CompletableFuture::join);
            System.out.println("pages: " + client.getAll(List.of("page-1", "page-99", "page-100")).keySet());

            // A value that stays off the heap.
            try (Arena arena = Arena.ofConfined()) {
                MemorySegment place = arena.allocate(1024);
                int length = client.get("greeting", place);
                System.out.println("off the heap: " + length + " bytes");
            }
        }
    }
}
