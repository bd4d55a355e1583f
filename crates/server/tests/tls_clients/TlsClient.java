import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Scanner;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Kafka's own clients over TLS. Each line of the input is a client: HOST:PORT, the authority's file, a topic, and settings
 * NAME=VALUE, with tabs between them. It describes the cluster, sends a record, reads it back, and says so in a line.
 */
class TlsClient {
    public static void main(String[] arguments) {
        Scanner lines = new Scanner(System.in);
        while (lines.hasNextLine()) {
            String[] parts = lines.nextLine().split("\t");
            Properties settings = new Properties();
            settings.putAll(Map.of("bootstrap.servers", parts[0], "ssl.truststore.type", "PEM",
                "ssl.truststore.location", parts[1], "default.api.timeout.ms", "60000", "request.timeout.ms", "30000"));
            for (int at = 3; at < parts.length; at++) {
                String[] setting = parts[at].split("=", 2);
                settings.put(setting[0], setting[1]);
            }
            try {
                System.out.println("read back: " + exchange(settings, parts[2]));
            } catch (Exception error) {
                StringBuilder text = new StringBuilder("refused");
                for (Throwable cause = error; cause != null; cause = cause.getCause()) {
                    text.append(": ").append(cause);
                }
                System.out.println(text.toString().replace('\n', ' '));
            }
        }
    }

    static String exchange(Properties settings, String topic) throws Exception {
        try (AdminClient admin = AdminClient.create(settings)) {
            admin.describeCluster().nodes().get();
        }
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            producer.send(new ProducerRecord<>(topic, "a bolt")).get();
        }
        settings.putAll(Map.of("group.id", topic, "auto.offset.reset", "earliest"));
        try (var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic));
            while (true) {
                for (ConsumerRecord<String, String> read : consumer.poll(Duration.ofSeconds(60))) {
                    return read.value();
                }
            }
        }
    }
}
