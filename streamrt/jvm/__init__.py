"""Java and the Java libraries that Spark's Kafka connector and the embedded broker need."""
