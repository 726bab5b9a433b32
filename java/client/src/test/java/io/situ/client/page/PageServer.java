package io.situ.client.page;

import io.situ.client.ServerAddress;
import io.situ.client.SituClient;
import io.situ.client.TransportChoice;
import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import net.spy.memcached.AddrUtil;
import net.spy.memcached.ConnectionFactoryBuilder;
import net.spy.memcached.MemcachedClient;
import org.apache.catalina.Context;
import org.apache.catalina.startup.Tomcat;

/**
 * The web server of the page test: Tomcat with a servlet for each cache, in front of one database.
 *
 * <p>{@code PageServer JDBC_URL NAME=KIND:ADDRESS...} prints its port and ends with its standard input. Tomcat's files go
 * into the working directory. The kind is
 * {@code none}, {@code situ} or {@code spymemcached}; a path is an address of shared memory. {@code /NAME/one} makes a page from {@link #QUERIES} queries, one
 * after the other. {@code /NAME/many} asks for all values of the page at once.
 *
 * <p>Requests take the pages in turn, and {@code ?page=N} chooses one. A query looks into the cache, then into the
 * database, and puts what it has found there into the cache. {@code ?queries} returns the number of values that came from
 * the database.
 */
public final class PageServer {
    static final int PAGES = 1000;
    static final int QUERIES = 200;

    /** The timeout of both clients: a page that waits is slow, and does not fail. */
    private static final Duration PATIENCE = Duration.ofSeconds(20);

    private PageServer() {}

    /** A cache by one of its clients. */
    private interface Cache {
        byte[] get(String key) throws Exception;

        Map<String, byte[]> getAll(List<String> keys) throws Exception;

        void set(String key, byte[] value) throws Exception;
    }

    private static Cache cache(String kind, String address) throws IOException {
        return switch (kind) {
            case "none" -> new Cache() {
                @Override
                public byte[] get(String key) {
                    return null;
                }

                @Override
                public Map<String, byte[]> getAll(List<String> keys) {
                    return Map.of();
                }

                @Override
                public void set(String key, byte[] value) {}
            };
            case "situ" -> new Cache() {
                private final SituClient client = SituClient.builder().servers(address)
                        .transport(ServerAddress.parse(address).isUnix()
                                ? TransportChoice.SHARED_MEMORY
                                : TransportChoice.SOCKET)
                        .timeout(PATIENCE).connectTimeout(PATIENCE).build();

                @Override
                public byte[] get(String key) {
                    return client.get(key);
                }

                @Override
                public Map<String, byte[]> getAll(List<String> keys) {
                    return client.getAll(keys);
                }

                @Override
                public void set(String key, byte[] value) {
                    client.set(key, value, 0);
                }
            };
            case "spymemcached" -> new Cache() {
                private final MemcachedClient client = new MemcachedClient(
                        new ConnectionFactoryBuilder().setOpTimeout(PATIENCE.toMillis()).build(),
                        AddrUtil.getAddresses(address));

                @Override
                public byte[] get(String key) {
                    return (byte[]) client.get(key);
                }

                @Override
                public Map<String, byte[]> getAll(List<String> keys) {
                    Map<String, byte[]> values = new HashMap<>();
                    client.getBulk(keys).forEach((key, value) -> values.put(key, (byte[]) value));
                    return values;
                }

                @Override
                public void set(String key, byte[] value) throws Exception {
                    client.set(key, 0, value).get();
                }
            };
            default -> throw new IllegalArgumentException("no kind of cache: " + kind);
        };
    }

    /** A thread's connection to the database. */
    private record Database(Connection connection, PreparedStatement one) {
        static Database open(String url) {
            try {
                Connection connection = DriverManager.getConnection(url);
                return new Database(connection, connection.prepareStatement("SELECT value FROM item WHERE id = ?"));
            } catch (SQLException failed) {
                throw new IllegalStateException("cannot connect to the database", failed);
            }
        }

        byte[] get(int id) throws SQLException {
            one.setInt(1, id);
            try (ResultSet found = one.executeQuery()) {
                if (!found.next()) {
                    throw new SQLException("the database lacks item " + id);
                }
                return found.getBytes(1);
            }
        }

        Map<Integer, byte[]> getAll(List<Integer> ids) throws SQLException {
            List<String> words = ids.stream().map(String::valueOf).toList();
            Map<Integer, byte[]> values = new HashMap<>();
            try (Statement statement = connection.createStatement();
                    ResultSet found = statement.executeQuery(
                            "SELECT id, value FROM item WHERE id IN (" + String.join(",", words) + ")")) {
                while (found.next()) {
                    values.put(found.getInt(1), found.getBytes(2));
                }
            }
            if (values.size() != ids.size()) {
                throw new SQLException("the database has " + values.size() + " of " + ids.size() + " items");
            }
            return values;
        }
    }

    /** The pages over one cache. */
    private static final class Pages extends HttpServlet {
        private static final long serialVersionUID = 1;

        private final transient Cache cache;
        private final String prefix;
        private final boolean isMany;
        private final transient ThreadLocal<Database> database;
        private final AtomicInteger turn = new AtomicInteger();
        private final AtomicLong queries = new AtomicLong();

        Pages(Cache cache, String prefix, boolean isMany, ThreadLocal<Database> database) {
            this.cache = cache;
            this.prefix = prefix;
            this.isMany = isMany;
            this.database = database;
        }

        @Override
        protected void doGet(HttpServletRequest request, HttpServletResponse response) throws IOException {
            if (request.getParameter("queries") != null) {
                response.getOutputStream().print(queries.get());
                return;
            }
            String chosen = request.getParameter("page");
            int page = chosen == null ? turn.getAndIncrement() % PAGES : Integer.parseInt(chosen);
            StringBuilder text = new StringBuilder("<!DOCTYPE html><title>Page</title><ul>\n");
            try {
                for (byte[] value : isMany ? many(page) : oneByOne(page)) {
                    text.append("<li>").append(new String(value, StandardCharsets.US_ASCII)).append("</li>\n");
                }
            } catch (Exception failed) {
                throw new IOException("page " + page, failed);
            }
            byte[] body = text.append("</ul>\n").toString().getBytes(StandardCharsets.US_ASCII);
            response.setContentType("text/html");
            response.setContentLength(body.length);
            response.getOutputStream().write(body);
        }

        private List<byte[]> oneByOne(int page) throws Exception {
            List<byte[]> values = new ArrayList<>(QUERIES);
            for (int id = page * QUERIES; id < (page + 1) * QUERIES; id++) {
                String key = prefix + id;
                byte[] value = cache.get(key);
                if (value == null) {
                    queries.incrementAndGet();
                    value = database.get().get(id);
                    cache.set(key, value);
                }
                values.add(value);
            }
            return values;
        }

        private List<byte[]> many(int page) throws Exception {
            List<String> keys = new ArrayList<>(QUERIES);
            for (int id = page * QUERIES; id < (page + 1) * QUERIES; id++) {
                keys.add(prefix + id);
            }
            Map<String, byte[]> cached = cache.getAll(keys);
            List<byte[]> values = new ArrayList<>(QUERIES);
            List<Integer> missing = new ArrayList<>();
            for (int i = 0; i < QUERIES; i++) {
                byte[] value = cached.get(keys.get(i));
                values.add(value);
                if (value == null) {
                    missing.add(page * QUERIES + i);
                }
            }
            if (!missing.isEmpty()) {
                queries.addAndGet(missing.size());
                Map<Integer, byte[]> found = database.get().getAll(missing);
                for (int id : missing) {
                    values.set(id - page * QUERIES, found.get(id));
                    cache.set(prefix + id, found.get(id));
                }
            }
            return values;
        }
    }

    /** Runs the web server. */
    public static void main(String[] arguments) throws Exception {
        ThreadLocal<Database> database = ThreadLocal.withInitial(() -> Database.open(arguments[0]));
        Tomcat tomcat = new Tomcat();
        tomcat.setBaseDir(".");
        tomcat.setHostname("127.0.0.1");
        tomcat.setPort(0);
        tomcat.getConnector().setProperty("address", "127.0.0.1");
        Context context = tomcat.addContext("", null);
        for (int i = 1; i < arguments.length; i++) {
            String[] words = arguments[i].split("[=:]", 3);
            Cache cache = cache(words[1], words[2]);
            for (String way : List.of("one", "many")) {
                String path = words[0] + "/" + way;
                Tomcat.addServlet(context, path, new Pages(cache, words[0] + "/", way.equals("many"), database));
                context.addServletMappingDecoded("/" + path, path);
            }
        }
        tomcat.start();
        System.out.println(tomcat.getConnector().getLocalPort());
        while (System.in.read() >= 0) {
            // The end of the input ends the server.
        }
        tomcat.stop();
        System.exit(0);
    }
}
