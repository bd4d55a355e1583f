// Java's transactional producer with version 2 of transactions (KIP-890): every transaction has an epoch of its own.

import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.errors.*;

class TransactionsVersion2 {
    static final String ADDRESS = "127.0.0.1:9092";
    static final String TOPIC = "TOPIC_NAME";
    static final String ID = TOPIC + "-id";
    static final long PATIENCE_MS = 60_000;

    static KafkaProducer<String, String> producer() {
        var text = "org.apache.kafka.common.serialization.StringSerializer";
        Map<String, Object> config = Map.of("bootstrap.servers", ADDRESS, "transactional.id", ID,
            "linger.ms", "0", "key.serializer", text, "value.serializer", text);
        var producer = new KafkaProducer<String, String>(config);
        producer.initTransactions();
        return producer;
    }

    static KafkaConsumer<String, String> consumer(String group) {
        var text = "org.apache.kafka.common.serialization.StringDeserializer";
        return new KafkaConsumer<>(Map.of("bootstrap.servers", ADDRESS, "group.id", group, "group.protocol", "consumer",
            "auto.offset.reset", "earliest", "enable.auto.commit", "false", "isolation.level", "read_committed",
            "key.deserializer", text, "value.deserializer", text));
    }

    static void check(boolean holds, String what) {
        if (!holds) throw new AssertionError(what);
    }

    static int epoch(Admin admin) throws Exception {
        return admin.describeTransactions(List.of(ID)).all().get().get(ID).producerEpoch();
    }

    static void send(Producer<String, String> producer, String value) {
        for (int at = 0; at < 200; at++) producer.send(new ProducerRecord<>(TOPIC, at % 4, null, value));
    }

    static Map<String, Integer> read(String group, int records) {
        Map<String, Integer> counts = new TreeMap<>();
        try (var reader = consumer(group)) {
            reader.subscribe(List.of(TOPIC));
            long end = System.currentTimeMillis() + PATIENCE_MS;
            for (int read = 0; read < records; ) {
                check(System.currentTimeMillis() < end, "only " + counts);
                for (var record : reader.poll(Duration.ofMillis(100))) {
                    counts.merge(record.value(), 1, Integer::sum);
                    read++;
                }
            }
        }
        return counts;
    }

    public static void main(String[] arguments) throws Exception {
        try (var admin = Admin.create(Map.of("bootstrap.servers", ADDRESS))) {
            admin.createTopics(List.of(new NewTopic(TOPIC, 4, (short) 1))).all().get();
            var features = admin.describeFeatures().featureMetadata().get().finalizedFeatures();
            check(features.get("transaction.version").maxVersionLevel() == 2, features.toString());
            var producer = producer();
            int first = epoch(admin);
            for (int round = 0; round < 5; round++) {
                producer.beginTransaction();
                send(producer, round % 2 == 0 ? "kept" : "aborted");
                if (round % 2 == 0) producer.commitTransaction(); else producer.abortTransaction();
                check(epoch(admin) == first + round + 1, "transaction " + round + " has an epoch of its own");
            }
            // What comes from a group goes on with the commit.
            try (var reader = consumer("transformed")) {
                reader.subscribe(List.of(TOPIC));
                ConsumerRecords<String, String> records = ConsumerRecords.empty();
                for (long end = System.currentTimeMillis() + PATIENCE_MS; records.isEmpty(); ) {
                    check(System.currentTimeMillis() < end, "nothing to transform");
                    records = reader.poll(Duration.ofMillis(100));
                }
                producer.beginTransaction();
                producer.sendOffsetsToTransaction(records.nextOffsets(), reader.groupMetadata());
                producer.commitTransaction();
                var committed = admin.listConsumerGroupOffsets("transformed").partitionsToOffsetAndMetadata().get();
                check(committed.keySet().containsAll(records.partitions()), committed.toString());
            }
            producer.beginTransaction();
            send(producer, "left open");
            producer.flush();
            var successor = producer();
            try {
                producer.commitTransaction();
                throw new AssertionError("a producer that was taken over has committed");
            } catch (ProducerFencedException | InvalidProducerEpochException fenced) {
                producer.close(Duration.ZERO);
            }
            successor.beginTransaction();
            send(successor, "successor");
            successor.commitTransaction();
            successor.close();
            check(read("reader", 800).equals(Map.of("kept", 600, "successor", 200)), "committed records only");
        }
        System.out.println("ok");
    }
}
