import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.common.serialization.Deserializer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.Serializer;
import org.apache.kafka.streams.CloseOptions;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.WindowedSerdes;
import org.apache.kafka.streams.processor.api.FixedKeyProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyProcessorContext;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/**
 * The cases of bench/dataframe_cases.py and bench/table_cases.py in Kafka Streams. Settings are its defaults, except those that
 * favour it: two threads; it leaves the group at its end, since a restart would wait for the session timeout, 45 s; and with
 * --low-latency records are sent at once (its default is a linger of 100 ms). The count is a processor with a RocksDB store, which
 * has a result for each record, as on the other systems; an aggregate would leave most of them out. The tables have no cache, for
 * the same reason.
 */
public final class OnKafkaStreams {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Duration WINDOW = Duration.ofSeconds(10);
    private static final Set<String> TABLES = Set.of("aggregate", "table_join");

    /** Counts the records of a key. */
    private static final class Count implements FixedKeyProcessor<byte[], JsonNode, JsonNode> {
        private FixedKeyProcessorContext<byte[], JsonNode> context;
        private KeyValueStore<byte[], Long> store;

        @Override
        public void init(FixedKeyProcessorContext<byte[], JsonNode> context) {
            this.context = context;
            store = context.getStateStore("counts");
        }

        @Override
        public void process(FixedKeyRecord<byte[], JsonNode> record) {
            Long before = store.get(record.key());
            long count = before == null ? 1 : before + 1;
            store.put(record.key(), count);
            ((ObjectNode) record.value()).put("count", count);
            context.forward(record);
        }
    }

    private static Serde<JsonNode> jsonSerde() {
        Serializer<JsonNode> serializer = (topic, value) -> {
            try {
                return JSON.writeValueAsBytes(value);
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        };
        Deserializer<JsonNode> deserializer = (topic, bytes) -> {
            try {
                return JSON.readTree(bytes);
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        };
        return Serdes.serdeFrom(serializer, deserializer);
    }

    private static JsonNode withDouble(JsonNode value) {
        return ((ObjectNode) value).put("double", value.get("value").asDouble() * 2);
    }

    private static JsonNode add(JsonNode value, JsonNode totals) {
        return JSON.createObjectNode().put("total", totals.get("total").asDouble() + value.get("value").asDouble())
            .put("records", totals.get("records").asLong() + 1);
    }

    private static KTable<byte[], JsonNode> aggregate(KStream<byte[], JsonNode> records) {
        return records.groupByKey(Grouped.with(Serdes.ByteArray(), jsonSerde())).aggregate(
            () -> (JsonNode) JSON.createObjectNode().put("total", 0.0).put("records", 0),
            (key, value, totals) -> add(value, totals), Materialized.with(Serdes.ByteArray(), jsonSerde()));
    }

    private static void build(StreamsBuilder builder, String name, String source, String target) {
        Serde<byte[]> keys = Serdes.ByteArray();
        Serde<JsonNode> values = jsonSerde();
        KStream<byte[], JsonNode> records = builder.stream(source, Consumed.with(keys, values));
        if (name.equals("count") || name.equals("group_by")) {
            builder.addStateStore(
                Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("counts"), keys, Serdes.Long()));
        }
        switch (name) {
            case "stateless" -> records.mapValues(OnKafkaStreams::withDouble)
                .filter((key, value) -> value.get("double").asDouble() >= 0).to(target, Produced.with(keys, values));
            case "seen" -> records.mapValues(value -> (JsonNode) ((ObjectNode) value).put("seen", true))
                .to(target, Produced.with(keys, values));
            case "count" -> records.processValues(Count::new, "counts").to(target, Produced.with(keys, values));
            case "group_by" -> records.selectKey((key, value) -> value.get("key").asText().getBytes())
                .repartition(Repartitioned.with(keys, values)).processValues(Count::new, "counts")
                .to(target, Produced.with(keys, values));
            case "aggregate" -> aggregate(records).toStream().to(target, Produced.with(keys, values));
            case "table_join" -> records.toTable(Materialized.with(keys, values))
                .join(aggregate(records), (row, totals) -> (JsonNode) ((ObjectNode) row).setAll((ObjectNode) totals))
                .toStream().to(target, Produced.with(keys, values));
            case "tumbling" -> records.groupByKey(Grouped.with(keys, values))
                .windowedBy(TimeWindows.ofSizeWithNoGrace(WINDOW)).count()
                .suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded())).toStream().to(target, Produced.with(WindowedSerdes.timeWindowedSerdeFrom(byte[].class, 10_000), Serdes.Long()));
            default -> throw new IllegalArgumentException(name);
        }
    }

    public static void main(String[] arguments) {
        System.out.println("imported " + System.currentTimeMillis() / 1000.0);
        List<String> options = List.of(arguments);
        Properties settings = new Properties();
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[1]);
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[4]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, options.get(options.indexOf("--state-dir") + 1));
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, options.get(options.indexOf("--threads") + 1));
        settings.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
        if (options.contains("exactly-once")) {
            settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        }
        if (TABLES.contains(arguments[0])) {
            settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        }
        if (options.contains("--low-latency")) {
            settings.put(StreamsConfig.producerPrefix("linger.ms"), "0");
        }
        StreamsBuilder builder = new StreamsBuilder();
        build(builder, arguments[0], arguments[2], arguments[3]);
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        CloseOptions leave = CloseOptions.groupMembershipOperation(CloseOptions.GroupMembershipOperation.LEAVE_GROUP);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(leave)));
        streams.start();
    }
}
