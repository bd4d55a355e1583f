import org.apache.flink.api.common.restartstrategy.RestartStrategies;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.api.common.state.CheckpointListener;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.runtime.state.FunctionInitializationContext;
import org.apache.flink.runtime.state.FunctionSnapshotContext;
import org.apache.flink.streaming.api.checkpoint.CheckpointedFunction;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.source.SourceFunction;

/** Writes ascending numbers exactly once, until so many checkpoints are complete; fails once in between. */
public class CountedCheckpoints {
    static final int SUBTASKS = 2;

    static class Numbers implements SourceFunction<String>, CheckpointedFunction, CheckpointListener {
        // All subtasks run in this process, and it fails once in its life.
        static volatile boolean hasFailed;
        static volatile int completed;

        final int checkpoints;
        long next;
        volatile boolean isCancelled;
        transient ListState<Long> state;

        Numbers(int checkpoints) {
            this.checkpoints = checkpoints;
        }

        @Override
        public void run(SourceContext<String> context) throws Exception {
            while (!isCancelled && completed < checkpoints) {
                if (!hasFailed && completed >= checkpoints / 2) {
                    hasFailed = true;
                    throw new IllegalStateException("once");
                }
                synchronized (context.getCheckpointLock()) {
                    context.collect(Long.toString(next++));
                }
                Thread.sleep(2);
            }
        }

        @Override
        public void cancel() {
            isCancelled = true;
        }

        @Override
        public void initializeState(FunctionInitializationContext context) throws Exception {
            state = context.getOperatorStateStore().getListState(new ListStateDescriptor<>("next", Long.class));
            for (Long stored : state.get()) next = stored;
        }

        @Override
        public void snapshotState(FunctionSnapshotContext context) throws Exception {
            state.update(java.util.List.of(next));
        }

        @Override
        public void notifyCheckpointComplete(long id) {
            completed++;
        }
    }

    public static void main(String[] arguments) throws Exception {
        String address = arguments[0], topic = arguments[1];
        int checkpoints = Integer.parseInt(arguments[2]);
        var environment = StreamExecutionEnvironment.createLocalEnvironment(SUBTASKS);
        environment.enableCheckpointing(50);
        environment.setRestartStrategy(RestartStrategies.fixedDelayRestart(3, 100));
        var values = KafkaRecordSerializationSchema.<String>builder()
            .setTopic(topic).setValueSerializationSchema(new SimpleStringSchema()).build();
        var sink = KafkaSink.<String>builder()
            .setBootstrapServers(address)
            .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
            .setTransactionalIdPrefix("flink")
            .setProperty("transaction.timeout.ms", "600000")
            .setRecordSerializer(values)
            .build();
        environment.addSource(new Numbers(checkpoints)).setParallelism(1).rebalance().sinkTo(sink);
        environment.execute();
        System.out.println("completed " + (Numbers.completed >= checkpoints) + " failed " + Numbers.hasFailed);
    }
}
