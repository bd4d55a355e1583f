import io.opentracing.noop.NoopTracerFactory;
import io.vertx.core.Vertx;
import io.vertx.core.buffer.Buffer;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import org.eclipse.hono.application.client.DownstreamMessage;
import org.eclipse.hono.application.client.amqp.AmqpMessageContext;
import org.eclipse.hono.application.client.amqp.ProtonBasedApplicationClient;
import org.eclipse.hono.client.amqp.config.ClientConfigProperties;
import org.eclipse.hono.client.amqp.connection.HonoConnection;

/** Eclipse Hono's client for applications: HOST PORT NAME SECRET. */
public class HonoTour {
    static ProtonBasedApplicationClient client;
    static final CompletableFuture<Void> done = new CompletableFuture<>();

    public static void main(String[] args) throws Exception {
        Vertx vertx = Vertx.vertx();
        ClientConfigProperties config = new ClientConfigProperties();
        config.setHost(args[0]);
        config.setPort(Integer.parseInt(args[1]));
        config.setUsername(args[2]);
        config.setPassword(args[3]);
        client = new ProtonBasedApplicationClient(HonoConnection.newConnection(vertx, config, NoopTracerFactory.create()));
        client.connect()
                .compose(connected -> client.createTelemetryConsumer("default", HonoTour::received, HonoTour::closed))
                .compose(consumer -> client.createEventConsumer("default", HonoTour::received, HonoTour::closed))
                .onSuccess(consumer -> System.out.println("ready"))
                .onFailure(HonoTour::closed);
        done.get();
        Runtime.getRuntime().halt(0);
    }

    static void received(DownstreamMessage<AmqpMessageContext> message) {
        String kind = message.getMessageContext().getRawMessage().getAddress().split("/")[0];
        Buffer payload = message.getPayload();
        String body = payload == null ? "" : payload.toString();
        System.out.println(kind + " " + message.getDeviceId() + " " + body);
        if (body.equals("go")) {
            client.sendCommand("default", "d", "on", Buffer.buffer("input"), "text/plain", "tour",
                    Duration.ofSeconds(20), null).onSuccess(response -> {
                        System.out.println("outcome accepted");
                        System.out.println("command_response " + response.getDeviceId() + " " + response.getPayload()
                                + " " + response.getStatus() + " c-1");
                        done.complete(null);
                    }).onFailure(HonoTour::closed);
        }
    }

    static void closed(Throwable why) {
        System.out.println("closed " + why);
        done.complete(null);
    }
}
