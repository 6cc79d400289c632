// Answers with some work that leaves garbage.
import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.TreeMap;

public class Server {
    public static void main(String[] args) throws Exception {
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", 47210), 0);
        server.createContext("/file", exchange -> {
            TreeMap<String, Integer> words = new TreeMap<>();
            for (int i = 0; i < 300; i++) {
                words.merge(Integer.toString(i * 7919 % 101), i, Integer::sum);
            }
            byte[] answer = words.toString().getBytes(StandardCharsets.UTF_8);
            exchange.sendResponseHeaders(200, answer.length);
            exchange.getResponseBody().write(answer);
            exchange.close();
        });
        server.start();
    }
}
