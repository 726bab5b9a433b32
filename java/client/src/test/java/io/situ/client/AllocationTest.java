package io.situ.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.management.ManagementFactory;
import java.time.Duration;
import java.util.List;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** The calls that promise to allocate nothing. */
class AllocationTest {
    private static final com.sun.management.ThreadMXBean THREADS =
            (com.sun.management.ThreadMXBean) ManagementFactory.getThreadMXBean();
    private static final int ROUNDS = 2000;

    /** The bytes that one call may allocate on average: measuring itself, and code that is compiled meanwhile. */
    private static final double BYTES_PER_CALL_MAX = 1;

    /** Returns the least that a round of calls allocated for each: the compiler may still be at work in others. */
    private static double bytesPerCall(Runnable call) {
        double least = Double.MAX_VALUE;
        for (int round = 0; round < 60 && least > BYTES_PER_CALL_MAX; round++) {
            long before = THREADS.getCurrentThreadAllocatedBytes();
            for (int i = 0; i < ROUNDS; i++) {
                call.run();
            }
            least = Math.min(least, (double) (THREADS.getCurrentThreadAllocatedBytes() - before) / ROUNDS);
        }
        return least;
    }

    @ParameterizedTest
    @EnumSource(TransportKind.class)
    void aHitIntoMemoryOfTheCallerAllocatesNothing(TransportKind kind) throws Exception {
        boolean tcp = kind == TransportKind.TCP;
        try (TestServer server = TestServer.memcached(!tcp); Arena arena = Arena.ofShared();
                RingBridge bridge = tcp ? null
                        : new RingBridge(server.address(), RingBridge.Way.GOOD, 65536, 50_000);
                SituClient client = SituClient.builder().timeout(Duration.ofSeconds(10))
                        .servers(List.of(kind == TransportKind.SHARED_MEMORY ? bridge.address() : server.address()))
                        .build()) {
            byte[] key = "key".getBytes();
            byte[] value = new byte[100];
            client.set(key, value, 0, 0);
            assertEquals(kind, client.transports().values().iterator().next());
            byte[] array = new byte[200];
            MemorySegment segment = arena.allocate(200);
            check(kind + " get into an array", () -> assertEquals(100, client.get(key, array)));
            check(kind + " get by text", () -> assertEquals(100, client.get("key", array)));
            check(kind + " set of an array", () -> client.set(key, value, 0, 0));
            if (kind == TransportKind.SHARED_MEMORY) {
                check(kind + " get into a segment", () -> assertEquals(100, client.get(key, segment)));
                check(kind + " set of a segment", () -> client.set(key, segment, 0, 0));
            }
        }
    }

    private static void check(String what, Runnable call) {
        double bytes = bytesPerCall(call);
        assertTrue(bytes <= BYTES_PER_CALL_MAX, what + " allocates " + bytes + " bytes");
    }
}
