import java.util.*;
import java.util.concurrent.*;
import java.util.stream.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.admin.AlterConfigOp.OpType;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.acl.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.*;
import org.apache.kafka.common.resource.*;
import org.apache.kafka.common.serialization.StringSerializer;

/** Sends administrative requests and prints a line for each: its name, and what came of it. */
class AdminRows {
    static final Uuid UNKNOWN = new Uuid(7, 7);
    static Admin admin;

    static void row(String name, Callable<Object> call) {
        String outcome;
        try {
            outcome = String.valueOf(call.call());
        } catch (ExecutionException e) {
            outcome = e.getCause().getClass().getSimpleName();
        } catch (Exception e) {
            outcome = "thrown " + e.getClass().getSimpleName();
        }
        System.out.println("row " + name + " | " + outcome);
    }

    static NewTopic topic(String name, Map<String, String> configs) {
        return new NewTopic(name, 1, (short) 1).configs(configs);
    }

    static String create(NewTopic topic, boolean validateOnly) throws Exception {
        var result = admin.createTopics(List.of(topic), new CreateTopicsOptions().validateOnly(validateOnly));
        result.all().get();
        return result.numPartitions(topic.name()).get() + " partitions, " + result.replicationFactor(topic.name()).get();
    }

    static String create(NewTopic topic) throws Exception {
        return create(topic, false);
    }

    static ConfigResource resource(String topic) {
        return new ConfigResource(ConfigResource.Type.TOPIC, topic);
    }

    static String described(String topic, String... keys) throws Exception {
        var config = admin.describeConfigs(List.of(resource(topic))).all().get().get(resource(topic));
        return Arrays.stream(keys).map(key -> {
            var entry = config.get(key);
            return entry == null ? key + " missing" : key + "=" + entry.value() + " " + entry.source() + " " + entry.type()
                + (entry.isReadOnly() ? " read-only" : "") + (entry.isSensitive() ? " sensitive" : "");
        }).collect(Collectors.joining(", "));
    }

    static Object alter(String topic, String key, String value, OpType... types) throws Exception {
        var ops = Arrays.stream(types).map(type -> new AlterConfigOp(new ConfigEntry(key, value), type)).toList();
        admin.incrementalAlterConfigs(Map.of(resource(topic), ops)).all().get();
        return described(topic, key);
    }

    static Object partitions(String topic, NewPartitions wanted) throws Exception {
        admin.createPartitions(Map.of(topic, wanted)).all().get();
        return admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size();
    }

    static Object deleteRecords(String topic, int partition, long before) throws Exception {
        var at = new TopicPartition(topic, partition);
        return admin.deleteRecords(Map.of(at, RecordsToDelete.beforeOffset(before))).lowWatermarks().get(at).get().lowWatermark();
    }

    static Object listOffsets(String topic, int partition, OffsetSpec spec) throws Exception {
        var at = new TopicPartition(topic, partition);
        var found = admin.listOffsets(Map.of(at, spec)).partitionResult(at).get();
        return found.offset() + " at " + found.timestamp();
    }

    static Object commit(String group, String topic, long offset) throws Exception {
        admin.alterConsumerGroupOffsets(group, Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(offset))).all().get();
        var stored = admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get();
        return stored.values().stream().map(found -> found.offset() + " '" + found.metadata() + "'").toList();
    }

    static Object forget(String group, String topic, int partition) throws Exception {
        var at = new TopicPartition(topic, partition);
        admin.deleteConsumerGroupOffsets(group, Set.of(at)).partitionResult(at).get();
        return "forgotten";
    }

    static Object shown(TopicDescription topic) {
        return topic.name() + " " + topic.isInternal() + " " + topic.partitions().stream()
            .map(p -> p.partition() + " leader " + p.leader().id() + " " + p.replicas().size() + "/" + p.isr().size()).toList();
    }

    static void topics() {
        row("create a topic", () -> create(topic("a", Map.of())));
        row("create it again", () -> create(topic("a", Map.of())));
        for (String name : List.of("bad name", "", ".", "..", "x".repeat(249), "x".repeat(250), "ä"))
            row("create a topic called " + (name.length() > 9 ? name.length() + " x" : "'" + name + "'"), () -> create(topic(name, Map.of())));
        row("create with default partitions", () -> create(new NewTopic("defaults", Optional.empty(), Optional.empty()), true));
        row("create with 0 partitions", () -> create(new NewTopic("zero", 0, (short) 1)));
        row("create with 2 replicas", () -> create(new NewTopic("replicas", 1, (short) 2), true));
        row("create with 9 replicas", () -> create(new NewTopic("replicas", 1, (short) 9), true));
        row("create with 0 replicas", () -> create(new NewTopic("replicas", 1, (short) 0), true));
        row("create to validate only", () -> create(topic("validated", Map.of()), true));
        row("describe it", () -> admin.describeTopics(List.of("validated")).allTopicNames().get());
        for (var config : List.of(Map.of("no.such", "1"), Map.of("retention.ms", "soon"), Map.of("retention.ms", "-2"),
                Map.of("cleanup.policy", "bogus"), Map.of("cleanup.policy", ""), Map.of("compression.type", "gzip"),
                Map.of("compression.type", "gz"), Map.of("max.message.bytes", "-1"), Map.of("segment.bytes", "1"),
                Map.of("message.timestamp.type", "LogAppendTime"), Map.of("message.timestamp.type", "Sometime"),
                Map.of("delete.retention.ms", "-1"), Map.of("min.insync.replicas", "0"), Map.of("min.compaction.lag.ms", "-1"),
                Map.of("retention.bytes", "1"), Map.of("flush.messages", "0"), Map.of("preallocate", "maybe"),
                Map.of("unclean.leader.election.enable", "false"), Map.of("cleanup.policy", "compact,delete")))
            row("create with " + config, () -> create(topic("configured", config), true));
        row("create with a null value", () -> create(topic("null", Collections.singletonMap("retention.ms", null)), true));
        row("create assigned to broker 1", () -> create(new NewTopic("assigned", Map.of(0, List.of(1), 1, List.of(1)))));
        row("create assigned to broker 7", () -> create(new NewTopic("elsewhere", Map.of(0, List.of(7)))));
        row("create assigned from 1 on", () -> create(new NewTopic("gap", Map.of(1, List.of(1)))));
        row("create assigned twice to 1", () -> create(new NewTopic("twice", Map.of(0, List.of(1, 1)))));
        row("create assigned to nobody", () -> create(new NewTopic("nobody", Map.of(0, List.of()))));
    }

    static void configs() {
        row("describe settings", () -> described("a", "retention.ms", "cleanup.policy",
            "message.timestamp.type", "delete.retention.ms", "min.compaction.lag.ms", "retention.bytes"));
        row("describe the replicas in sync", () -> described("a", "min.insync.replicas"));
        row("describe compression", () -> described("a", "compression.type"));
        row("describe limits", () -> described("a", "max.message.bytes", "segment.bytes", "segment.ms"));
        row("describe settings of an unknown topic", () -> described("unknown"));
        row("set retention.ms", () -> alter("a", "retention.ms", "3600000", OpType.SET));
        row("set retention.ms to text", () -> alter("a", "retention.ms", "soon", OpType.SET));
        row("append to retention.ms", () -> alter("a", "retention.ms", "1", OpType.APPEND));
        row("subtract from retention.ms", () -> alter("a", "retention.ms", "1", OpType.SUBTRACT));
        row("append compact", () -> alter("a", "cleanup.policy", "compact", OpType.APPEND));
        row("append compact again", () -> alter("a", "cleanup.policy", "compact", OpType.APPEND));
        row("subtract compact", () -> alter("a", "cleanup.policy", "compact", OpType.SUBTRACT));
        row("subtract compact again", () -> alter("a", "cleanup.policy", "compact", OpType.SUBTRACT));
        row("append bogus", () -> alter("a", "cleanup.policy", "bogus", OpType.APPEND));
        row("set and delete in one request", () -> alter("a", "retention.ms", "1", OpType.SET, OpType.DELETE));
        row("delete retention.ms", () -> alter("a", "retention.ms", "", OpType.DELETE));
        row("delete what is not set", () -> alter("a", "delete.retention.ms", "", OpType.DELETE));
        row("set an unknown setting", () -> alter("a", "no.such", "1", OpType.SET));
        row("delete an unknown setting", () -> alter("a", "no.such", "", OpType.DELETE));
        row("alter an unknown topic", () -> alter("unknown", "retention.ms", "1", OpType.SET));
        row("alter a topic without a name", () -> alter("", "retention.ms", "1", OpType.SET));
    }

    static void partitions() {
        row("add partitions", () -> partitions("a", NewPartitions.increaseTo(2)));
        row("add none", () -> partitions("a", NewPartitions.increaseTo(2)));
        row("take partitions away", () -> partitions("a", NewPartitions.increaseTo(1)));
        row("add partitions to validate only", () -> admin.createPartitions(Map.of("a", NewPartitions.increaseTo(9)),
            new CreatePartitionsOptions().validateOnly(true)).all().get());
        row("add assigned partitions", () -> partitions("a", NewPartitions.increaseTo(4, List.of(List.of(1), List.of(1)))));
        row("assign too few", () -> partitions("a", NewPartitions.increaseTo(6, List.of(List.of(1)))));
        row("assign too many", () -> partitions("a", NewPartitions.increaseTo(5, List.of(List.of(1), List.of(1)))));
        row("assign to broker 7", () -> partitions("a", NewPartitions.increaseTo(5, List.of(List.of(7)))));
        row("assign to nobody", () -> partitions("a", NewPartitions.increaseTo(5, List.of(List.of()))));
        row("add partitions to an unknown topic", () -> partitions("unknown", NewPartitions.increaseTo(5)));
    }

    static void records(String address) throws Exception {
        Map<String, Object> settings = Map.of("bootstrap.servers", address, "linger.ms", 0);
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            for (long at = 0; at < 10; at++)
                producer.send(new ProducerRecord<>("a", 0, 1_700_000_000_000L + at, "k", "v" + at)).get();
            create(topic("compacted", Map.of("cleanup.policy", "compact")));
            row("produce without a key to a compacted topic", () -> producer.send(new ProducerRecord<>("compacted", null, "v")).get());
            row("produce with a key to a compacted topic", () -> producer.send(new ProducerRecord<>("compacted", "k", "v")).get().offset());
            row("produce to a negative time", () -> producer.send(new ProducerRecord<>("a", 1, 0L, "k", "v")).get().offset());
        }
        row("list earliest", () -> listOffsets("a", 0, OffsetSpec.earliest()));
        row("list latest", () -> listOffsets("a", 0, OffsetSpec.latest()));
        row("list the largest time", () -> listOffsets("a", 0, OffsetSpec.maxTimestamp()));
        row("list the largest time of none", () -> listOffsets("a", 3, OffsetSpec.maxTimestamp()));
        row("list by time 0", () -> listOffsets("a", 0, OffsetSpec.forTimestamp(0)));
        row("list by the time of the fifth", () -> listOffsets("a", 0, OffsetSpec.forTimestamp(1_700_000_000_004L)));
        row("list by a time to come", () -> listOffsets("a", 0, OffsetSpec.forTimestamp(1L << 50)));
        row("list the earliest on the disk", () -> listOffsets("a", 0, OffsetSpec.earliestLocal()));
        row("list the latest elsewhere", () -> listOffsets("a", 0, OffsetSpec.latestTiered()));
        row("delete records", () -> deleteRecords("a", 0, 5));
        row("delete fewer", () -> deleteRecords("a", 0, 3));
        row("delete beyond the end", () -> deleteRecords("a", 0, 100));
        row("list earliest now", () -> listOffsets("a", 0, OffsetSpec.earliest()));
        row("delete all records", () -> deleteRecords("a", 0, -1));
        row("delete to -2", () -> deleteRecords("a", 0, -2));
        row("delete records of a compacted topic", () -> deleteRecords("compacted", 0, 1));
        row("list latest after all are deleted", () -> listOffsets("a", 0, OffsetSpec.latest()));
        row("list the largest time after all are deleted", () -> listOffsets("a", 0, OffsetSpec.maxTimestamp()));
    }

    static void groups() {
        row("describe an unknown group", () -> admin.describeConsumerGroups(List.of("unknown")).all().get());
        row("delete an unknown group", () -> admin.deleteConsumerGroups(List.of("unknown")).all().get());
        row("positions of an unknown group", () -> admin.listConsumerGroupOffsets("unknown").partitionsToOffsetAndMetadata().get());
        row("forget a position of an unknown group", () -> forget("unknown", "a", 0));
        row("commit", () -> commit("g", "a", 7));
        row("commit for an unknown topic", () -> commit("g", "unknown", 7));
        row("describe the group", () -> {
            var group = admin.describeConsumerGroups(List.of("g")).all().get().get("g");
            return group.groupState() + " " + group.members() + " '" + group.partitionAssignor() + "' " + group.type();
        });
        row("list groups", () -> admin.listGroups().all().get().stream()
            .map(group -> group.groupId() + " " + group.type() + " " + group.protocol() + " " + group.groupState()).toList());
        row("forget a position", () -> forget("g", "a", 0));
        row("forget a position that is none", () -> forget("g", "a", 2));
        row("forget a position of an unknown topic", () -> forget("g", "unknown", 0));
        row("commit again", () -> commit("g", "a", 8));
        row("delete the group", () -> admin.deleteConsumerGroups(List.of("g")).all().get());
        row("delete it again", () -> admin.deleteConsumerGroups(List.of("g")).all().get());
        row("describe a group without a name", () -> admin.describeConsumerGroups(List.of("")).all().get());
    }

    static void transactions() {
        row("describe an unknown transactional id", () -> admin.describeTransactions(List.of("unknown")).all().get());
        row("describe a transactional id without a name", () -> admin.describeTransactions(List.of("")).all().get());
        row("list transactions", () -> admin.listTransactions().all().get());
        row("fence a producer", () -> admin.fenceProducers(List.of("fenced")).all().get());
        row("describe the fenced", () -> {
            var of = admin.describeTransactions(List.of("fenced")).all().get().get("fenced");
            return of.state() + " " + of.producerEpoch() + " " + of.topicPartitions();
        });
        row("describe producers", () -> admin.describeProducers(List.of(new TopicPartition("compacted", 0))).all().get()
            .values().stream().map(of -> of.activeProducers().size()).toList());
    }

    static void descriptions() {
        row("describe a topic", () -> shown(admin.describeTopics(List.of("a")).allTopicNames().get().get("a")));
        row("describe it by its id", () -> {
            var id = admin.describeTopics(List.of("a")).allTopicNames().get().get("a").topicId();
            return shown(admin.describeTopics(TopicCollection.ofTopicIds(List.of(id))).allTopicIds().get().get(id));
        });
        row("describe an unknown topic", () -> admin.describeTopics(List.of("unknown")).allTopicNames().get());
        row("describe a topic with a bad name", () -> admin.describeTopics(List.of("bad name")).allTopicNames().get());
        row("describe an unknown id", () -> admin.describeTopics(TopicCollection.ofTopicIds(List.of(UNKNOWN))).allTopicIds().get());
        row("describe the id 0", () -> admin.describeTopics(TopicCollection.ofTopicIds(List.of(Uuid.ZERO_UUID))).allTopicIds().get());
        row("describe the cluster", () -> {
            var cluster = admin.describeCluster();
            return cluster.nodes().get().size() + " node, controller " + cluster.controller().get().id();
        });
        row("describe the quorum", () -> admin.describeMetadataQuorum().quorumInfo().get().leaderId());
        row("describe ACLs", () -> admin.describeAcls(AclBindingFilter.ANY).values().get());
        row("create an ACL", () -> admin.createAcls(List.of(new AclBinding(
            new ResourcePattern(ResourceType.TOPIC, "a", PatternType.LITERAL),
            new AccessControlEntry("User:x", "*", AclOperation.READ, AclPermissionType.ALLOW)))).all().get());
        row("delete ACLs", () -> admin.deleteAcls(List.of(AclBindingFilter.ANY)).all().get());
        row("describe users", () -> admin.describeUserScramCredentials().all().get());
        row("describe an unknown user", () -> admin.describeUserScramCredentials(List.of("u")).description("u").get());
        row("add a user", () -> admin.alterUserScramCredentials(List.of(
            new UserScramCredentialUpsertion("u", new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), "secret"))).all().get());
        row("delete an unknown user", () -> admin.alterUserScramCredentials(List.of(
            new UserScramCredentialDeletion("unknown", ScramMechanism.SCRAM_SHA_256))).all().get());
        row("describe quotas", () -> admin.describeClientQuotas(ClientQuotaFilter.all()).entities().get());
        row("describe quotas of a wrong type", () -> admin.describeClientQuotas(
            ClientQuotaFilter.contains(List.of(ClientQuotaFilterComponent.ofEntityType("planet")))).entities().get());
        var user = new ClientQuotaEntity(Map.of(ClientQuotaEntity.USER, "u"));
        for (String key : List.of("producer_byte_rate", "request_percentage", "speed"))
            row("set quota " + key, () -> admin.alterClientQuotas(List.of(
                new ClientQuotaAlteration(user, List.of(new ClientQuotaAlteration.Op(key, 4096.0))))).all().get());
        row("list reassignments", () -> admin.listPartitionReassignments().reassignments().get());
        row("elect leaders", () -> admin.electLeaders(ElectionType.PREFERRED, Set.of(new TopicPartition("a", 0))).partitions().get());
    }

    static void deletions() {
        row("delete an unknown topic", () -> admin.deleteTopics(List.of("unknown")).all().get());
        row("delete an unknown id", () -> admin.deleteTopics(TopicCollection.ofTopicIds(List.of(UNKNOWN))).all().get());
        row("delete a topic", () -> admin.deleteTopics(List.of("a")).all().get());
        row("delete it again", () -> admin.deleteTopics(List.of("a")).all().get());
    }

    public static void main(String[] arguments) throws Exception {
        String address = "@ADDRESS@";
        admin = Admin.create(Map.of("bootstrap.servers", address, "default.api.timeout.ms", 30000, "request.timeout.ms", 20000));
        topics();
        configs();
        partitions();
        records(address);
        groups();
        transactions();
        descriptions();
        deletions();
        admin.close();
    }
}
