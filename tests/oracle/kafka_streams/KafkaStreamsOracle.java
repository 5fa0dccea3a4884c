import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.LongNode;
import com.fasterxml.jackson.databind.node.NullNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.function.Function;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.TestInputTopic;
import org.apache.kafka.streams.TestOutputTopic;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KGroupedTable;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Reducer;
import org.apache.kafka.streams.kstream.ValueJoiner;
import org.apache.kafka.streams.state.BuiltInDslStoreSuppliers;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.test.TestRecord;

/**
 * The side of Kafka Streams: reads cases from standard input, one as JSON on each line, and writes what its TopologyTestDriver
 * puts out at each step. `__init__.py` describes cases. What an aggregate computes is code of users in Kafka Streams, and is
 * written here as StreamRT's aggregators compute it: nulls count for nothing, and a group without rows is deleted.
 */
public final class KafkaStreamsOracle {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Serde<String> KEYS = Serdes.String();
    private static final Serde<JsonNode> ROWS = new Rows();
    private static final ValueJoiner<JsonNode, JsonNode, JsonNode> MERGE = (left, right) -> {
        ObjectNode merged = JSON.createObjectNode();
        for (JsonNode side : new JsonNode[] {left, right}) {
            if (side != null) {
                merged.setAll((ObjectNode) side);
            }
        }
        return merged;
    };
    private static final Duration HISTORY = Duration.ofDays(1);

    private final StreamsBuilder builder = new StreamsBuilder();
    private final Map<String, KTable<String, JsonNode>> tables = new HashMap<>();

    /** Rows as JSON. A class, because the other side of a foreign key takes the default of the settings. */
    public static final class Rows extends Serdes.WrapperSerde<JsonNode> {
        public Rows() {
            super(
                (topic, row) -> checked(() -> row == null ? null : JSON.writeValueAsBytes(row)),
                (topic, bytes) -> checked(() -> bytes == null ? null : JSON.readTree(bytes)));
        }
    }

    private interface Action<T> {
        T run() throws IOException;
    }

    private static <T> T checked(Action<T> action) {
        try {
            return action.run();
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    // -- Plans ---------------------------------------------------------------------------------------------------------------

    private KStream<String, JsonNode> output(JsonNode plan) {
        return switch (plan.get(0).asText()) {
            case "stream" -> builder.stream(plan.get(1).asText(), Consumed.with(KEYS, ROWS));
            case "lookup" -> {
                KStream<String, JsonNode> stream = output(plan.get(1));
                KTable<String, JsonNode> table = table(plan.get(2));
                yield plan.get(3).asText().equals("inner") ? stream.join(table, MERGE) : stream.leftJoin(table, MERGE);
            }
            default -> table(plan).toStream();
        };
    }

    private KTable<String, JsonNode> table(JsonNode plan) {
        return switch (plan.get(0).asText()) {
            case "table" -> tables.computeIfAbsent(
                plan.get(1).asText(), topic -> builder.table(topic, Consumed.with(KEYS, ROWS)));
            case "versioned" -> tables.computeIfAbsent(
                plan.get(1).asText(),
                topic -> builder.table(
                    topic,
                    Consumed.with(KEYS, ROWS),
                    Materialized.as(Stores.persistentVersionedKeyValueStore(topic, HISTORY))));
            case "filter" -> {
                String column = plan.get(2).asText();
                long least = plan.get(3).asLong();
                yield table(plan.get(1)).filter((key, row) -> number(row, column) != null && number(row, column) >= least);
            }
            case "map" -> table(plan.get(1)).mapValues(row -> {
                Long number = number(row, plan.get(2).asText());
                JsonNode sum = number == null ? NullNode.instance : LongNode.valueOf(number + plan.get(3).asLong());
                return ((ObjectNode) row.deepCopy()).set(plan.get(4).asText(), sum);
            });
            case "join" -> {
                KTable<String, JsonNode> left = table(plan.get(1));
                KTable<String, JsonNode> right = table(plan.get(2));
                yield switch (plan.get(3).asText()) {
                    case "inner" -> left.join(right, MERGE);
                    case "left" -> left.leftJoin(right, MERGE);
                    case "right" -> right.leftJoin(left, (one, other) -> MERGE.apply(other, one));
                    default -> left.outerJoin(right, MERGE);
                };
            }
            case "foreign" -> {
                KTable<String, JsonNode> left = table(plan.get(1));
                KTable<String, JsonNode> right = table(plan.get(2));
                Function<JsonNode, String> key = row -> text(row, plan.get(3).asText());
                yield plan.get(4).asText().equals("inner")
                    ? left.join(right, key, MERGE)
                    : left.leftJoin(right, key, MERGE);
            }
            case "group" -> aggregate(
                table(plan.get(1)).groupBy(
                    (key, row) -> KeyValue.pair(text(row, plan.get(2).asText()), row), Grouped.with(KEYS, ROWS)),
                plan.get(3));
            case "aggregate" -> {
                KStream<String, JsonNode> stream = output(plan.get(1));
                String column = plan.get(2).asText(null);
                yield aggregate(
                    column == null
                        ? stream.groupByKey(Grouped.with(KEYS, ROWS))
                        : stream.groupBy((key, row) -> text(row, column), Grouped.with(KEYS, ROWS)),
                    plan.get(3));
            }
            case "reduce" -> {
                String column = plan.get(3).asText();
                String name = plan.get(4).asText();
                yield output(plan.get(1))
                    .filter((key, row) -> row.hasNonNull(column))
                    .mapValues(row -> (JsonNode) JSON.createObjectNode().set(name, row.get(column)))
                    .groupByKey(Grouped.with(KEYS, ROWS))
                    .reduce(reducer(plan.get(2).asText(), name), stored());
            }
            default -> throw new IllegalArgumentException(plan.toString());
        };
    }

    private static Long number(JsonNode row, String column) {
        return row.hasNonNull(column) ? row.get(column).asLong() : null;
    }

    private static String text(JsonNode row, String column) {
        return row.hasNonNull(column) ? row.get(column).asText() : null;
    }

    private static <V> Materialized<String, V, KeyValueStore<Bytes, byte[]>> stored(Serde<V> values) {
        return Materialized.with(KEYS, values);
    }

    private static Materialized<String, JsonNode, KeyValueStore<Bytes, byte[]>> stored() {
        return stored(ROWS);
    }

    // -- Aggregates: [name, "rows" | "count" | "sum" | "min" | "max" | "list", column] ------------------------------------------------

    private static KTable<String, JsonNode> aggregate(KGroupedTable<String, JsonNode> grouped, JsonNode wanted) {
        if (isCount(wanted)) {
            return grouped.count(stored(Serdes.Long())).mapValues(count -> counted(count, wanted));
        }
        return grouped.aggregate(
            KafkaStreamsOracle::noRows,
            (key, row, rows) -> added(rows, row),
            (key, row, rows) -> removed(rows, row),
            stored()).mapValues(rows -> results(rows, wanted));
    }

    private static KTable<String, JsonNode> aggregate(KGroupedStream<String, JsonNode> grouped, JsonNode wanted) {
        if (isCount(wanted)) {
            return grouped.count(stored(Serdes.Long())).mapValues(count -> counted(count, wanted));
        }
        return grouped.aggregate(KafkaStreamsOracle::noRows, (key, row, rows) -> added(rows, row), stored())
            .mapValues(rows -> results(rows, wanted));
    }

    private static boolean isCount(JsonNode wanted) {
        return wanted.size() == 1 && wanted.get(0).get(1).asText().equals("rows");
    }

    private static JsonNode counted(Long count, JsonNode wanted) {
        return JSON.createObjectNode().put(wanted.get(0).get(0).asText(), count);
    }

    private static JsonNode noRows() {
        return JSON.createArrayNode();
    }

    private static JsonNode added(JsonNode rows, JsonNode row) {
        return ((ArrayNode) rows.deepCopy()).add(row);
    }

    private static JsonNode removed(JsonNode rows, JsonNode row) {
        ArrayNode left = rows.deepCopy();
        for (int place = 0; place < left.size(); place++) {
            if (left.get(place).equals(row)) {
                left.remove(place);
                return left.isEmpty() ? null : left;
            }
        }
        throw new IllegalStateException(row + " is not in " + rows);
    }

    private static JsonNode results(JsonNode rows, JsonNode wanted) {
        ObjectNode results = JSON.createObjectNode();
        for (JsonNode one : wanted) {
            List<Long> numbers = new ArrayList<>();
            String column = one.get(2).asText();
            rows.forEach(row -> {
                if (row.hasNonNull(column)) {
                    numbers.add(row.get(column).asLong());
                }
            });
            results.set(one.get(0).asText(), result(one.get(1).asText(), rows.size(), numbers));
        }
        return results;
    }

    private static JsonNode result(String function, int rows, List<Long> numbers) {
        return JSON.valueToTree(switch (function) {
            case "rows" -> rows;
            case "count" -> numbers.size();
            case "sum" -> numbers.stream().mapToLong(Long::longValue).sum();
            case "min" -> numbers.stream().min(Long::compare).orElse(null);
            case "max" -> numbers.stream().max(Long::compare).orElse(null);
            case "list" -> numbers;
            default -> throw new IllegalArgumentException(function);
        });
    }

    private static Reducer<JsonNode> reducer(String function, String name) {
        return (one, other) -> {
            long former = one.get(name).asLong();
            long latter = other.get(name).asLong();
            return JSON.createObjectNode().put(name, switch (function) {
                case "sum" -> former + latter;
                case "min" -> Math.min(former, latter);
                case "max" -> Math.max(former, latter);
                default -> latter;
            });
        };
    }

    // -- Cases ---------------------------------------------------------------------------------------------------------------

    private ArrayNode run(JsonNode test) throws IOException {
        output(test.get("plan")).to("output", Produced.with(KEYS, ROWS));
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, "oracle");
        settings.put(StreamsConfig.STATE_DIR_CONFIG, Files.createTempDirectory("oracle").toString());
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        settings.put(
            StreamsConfig.DSL_STORE_SUPPLIERS_CLASS_CONFIG, BuiltInDslStoreSuppliers.InMemoryDslStoreSuppliers.class);
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, KEYS.getClass());
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Rows.class);
        ArrayNode answers = JSON.createArrayNode();
        try (TopologyTestDriver driver = new TopologyTestDriver(builder.build(), settings)) {
            Map<String, TestInputTopic<String, JsonNode>> inputs = new HashMap<>();
            TestOutputTopic<String, JsonNode> results =
                driver.createOutputTopic("output", KEYS.deserializer(), ROWS.deserializer());
            for (JsonNode step : test.get("steps")) {
                inputs.computeIfAbsent(
                    step.get(0).asText(), topic -> driver.createInputTopic(topic, KEYS.serializer(), ROWS.serializer()))
                    .pipeInput(step.get(1).asText(), step.get(2).isNull() ? null : step.get(2), step.get(3).asLong());
                ArrayNode answer = answers.addArray();
                for (TestRecord<String, JsonNode> record : results.readRecordsToList()) {
                    answer.addArray().add(record.key()).add(record.value()).add(record.timestamp());
                }
            }
        }
        return answers;
    }

    public static void main(String[] arguments) throws IOException {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonNode answer;
            try {
                answer = new KafkaStreamsOracle().run(JSON.readTree(line));
            } catch (RuntimeException error) {
                error.printStackTrace();
                answer = JSON.createObjectNode().put("error", error.toString());
            }
            System.out.println(JSON.writeValueAsString(answer));
        }
    }
}
