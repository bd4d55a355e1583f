// Java's consumer with group.protocol=consumer: members come, share, leave, and static ones return.

import java.time.Duration;
import java.util.*;
import java.util.function.BooleanSupplier;
import java.util.regex.Pattern;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.errors.*;

class ConsumerProtocol {
    static final String ADDRESS = "127.0.0.1:9092";
    static final String TOPIC = "TOPIC_NAME";
    static final long PATIENCE_MS = 60_000;

    static Consumer<String, String> consumer(String group, String instance) {
        Map<String, Object> config = new HashMap<>(Map.of(
            "bootstrap.servers", ADDRESS, "group.id", group, "group.protocol", "consumer",
            "auto.offset.reset", "earliest", "enable.auto.commit", "false",
            "key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer",
            "value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer"));
        if (instance != null) config.put("group.instance.id", instance);
        return new KafkaConsumer<>(config);
    }

    static void until(String what, BooleanSupplier holds) {
        long end = System.currentTimeMillis() + PATIENCE_MS;
        while (!holds.getAsBoolean()) {
            if (System.currentTimeMillis() > end) throw new AssertionError("never came: " + what);
        }
    }

    static int poll(Consumer<String, String> consumer) {
        return consumer.poll(Duration.ofMillis(50)).count();
    }

    static void check(boolean holds, String what) {
        if (!holds) throw new AssertionError(what);
    }

    static void dynamicMembers(Admin admin) throws Exception {
        var first = consumer("dynamic", null);
        var second = consumer("dynamic", null);
        first.subscribe(List.of(TOPIC));
        int[] read = {0};
        until("all records", () -> (read[0] += poll(first)) == 40);
        check(first.assignment().size() == 4, "it is alone");
        first.commitSync();
        second.subscribe(Pattern.compile(TOPIC));
        until("equal shares", () -> {
            check(poll(first) + poll(second) == 0, "committed records are not read again");
            return first.assignment().size() == 2 && second.assignment().size() == 2;
        });
        check(Collections.disjoint(first.assignment(), second.assignment()), "nobody shares a partition");

        var described = admin.describeConsumerGroups(List.of("dynamic")).all().get().get("dynamic");
        check(described.type() == GroupType.CONSUMER && described.members().size() == 2, described.toString());
        check(described.groupState() == GroupState.STABLE, described.toString());
        var shares = described.members().stream().mapToInt(of -> of.assignment().topicPartitions().size()).toArray();
        check(Arrays.equals(shares, new int[] {2, 2}), described.toString());
        var ofType = ListGroupsOptions.forConsumerGroups().withTypes(Set.of(GroupType.CONSUMER));
        var listed = admin.listGroups(ofType).all().get();
        check(listed.stream().anyMatch(of -> of.groupId().equals("dynamic")), listed.toString());

        second.close();
        until("all partitions again", () -> poll(first) == 0 && first.assignment().size() == 4);
        first.close();
        var committed = admin.listConsumerGroupOffsets("dynamic").partitionsToOffsetAndMetadata().get();
        check(committed.values().stream().mapToLong(OffsetAndMetadata::offset).sum() == 40, committed.toString());
        admin.deleteConsumerGroups(List.of("dynamic")).all().get();
    }

    static void serverPattern() {
        var reader = consumer("pattern", null);
        reader.subscribe(new SubscriptionPattern(TOPIC.substring(0, 3) + ".*"));
        until("partitions of a pattern", () -> poll(reader) >= 0 && reader.assignment().size() == 4);
        reader.close();
    }

    static void staticMembers() {
        var one = consumer("static", "one");
        var two = consumer("static", "two");
        one.subscribe(List.of(TOPIC));
        two.subscribe(List.of(TOPIC));
        until("equal shares", () -> {
            int read = poll(one) + poll(two);
            return read >= 0 && one.assignment().size() == 2 && two.assignment().size() == 2;
        });
        var intruder = consumer("static", "one");
        intruder.subscribe(List.of(TOPIC));
        try {
            until("the refusal", () -> poll(intruder) > 0);
            throw new AssertionError("two members have one instance id");
        } catch (UnreleasedInstanceIdException refused) {
            intruder.close();
        }
        var kept = Set.copyOf(one.assignment());
        var others = Set.copyOf(two.assignment());
        one.close();
        var again = consumer("static", "one");
        again.subscribe(List.of(TOPIC));
        until("the same partitions", () -> poll(again) + poll(two) >= 0 && again.assignment().equals(kept));
        check(two.assignment().equals(others), "the other one was not disturbed");
        again.close();
        two.close();
    }

    static void otherProtocol() {
        var member = consumer("mixed", null);
        member.subscribe(List.of(TOPIC));
        until("its partitions", () -> poll(member) >= 0 && member.assignment().size() == 4);
        Map<String, Object> config = Map.of("bootstrap.servers", ADDRESS, "group.id", "mixed",
            "key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer",
            "value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        var classic = new KafkaConsumer<String, String>(config);
        classic.subscribe(List.of(TOPIC));
        try {
            until("the refusal", () -> poll(classic) > 0);
            throw new AssertionError("a group has two protocols");
        } catch (InconsistentGroupProtocolException refused) {
            classic.close();
        }
        member.close();
    }

    public static void main(String[] arguments) throws Exception {
        try (var admin = Admin.create(Map.of("bootstrap.servers", ADDRESS))) {
            admin.createTopics(List.of(new NewTopic(TOPIC, 4, (short) 1))).all().get();
            var text = "org.apache.kafka.common.serialization.StringSerializer";
            Map<String, Object> config =
                Map.of("bootstrap.servers", ADDRESS, "key.serializer", text, "value.serializer", text);
            try (var producer = new KafkaProducer<String, String>(config)) {
                for (int at = 0; at < 40; at++) producer.send(new ProducerRecord<>(TOPIC, at % 4, null, "value-" + at));
            }
            dynamicMembers(admin);
            serverPattern();
            staticMembers();
            otherProtocol();
        }
        System.out.println("ok");
    }
}
