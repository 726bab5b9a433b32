package io.situ.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import java.util.zip.CRC32;
import org.junit.jupiter.api.Test;

class ContinuumTest {
    @Test
    void keysGoWhereLibmemcachedPutsThem() throws Exception {
        List<String> lines;
        try (var in = new BufferedReader(new InputStreamReader(
                ContinuumTest.class.getResourceAsStream("ketama.txt"), StandardCharsets.US_ASCII))) {
            lines = in.lines().toList();
        }
        assertTrue(lines.size() > 50);
        for (String line : lines) {
            String[] words = line.split(" ");
            List<ServerAddress> servers = Arrays.stream(words[0].split(",")).map(ServerAddress::parse).toList();
            Continuum continuum = new Continuum(servers);
            CRC32 crc = new CRC32();
            int[] places = IntStream.range(0, 20000)
                    .map(key -> continuum.server(Keys.of("key-" + key).hash())).toArray();
            for (int place : places) {
                crc.update(place);
            }
            String first = Arrays.stream(places).limit(64).mapToObj(Integer::toString).collect(Collectors.joining(","));
            assertEquals(words[2], first, words[0]);
            assertEquals(Long.parseLong(words[1]), crc.getValue(), words[0]);
        }
    }

    @Test
    void aServerThatIsOutOfServiceIsPassedOver() {
        Continuum continuum = new Continuum(
                IntStream.range(0, 3).mapToObj(i -> ServerAddress.tcp("host" + i, 11211)).toList());
        int[] moved = new int[3];
        for (int key = 0; key < 3000; key++) {
            long hash = Keys.of("key-" + key).hash();
            int own = continuum.server(hash);
            assertEquals(own, continuum.usableServer(hash, server -> true));
            assertEquals(own, continuum.usableServer(hash, server -> false));
            int without = continuum.usableServer(hash, server -> server != 1);
            assertTrue(without != 1 && (own == 1 || without == own));
            if (own == 1) {
                moved[without]++;
            }
        }
        assertTrue(moved[0] > 200 && moved[2] > 200, "both others take a part: " + Arrays.toString(moved));
    }
}
