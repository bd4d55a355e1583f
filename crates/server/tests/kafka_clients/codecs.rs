//! Whatever compression a client chooses, every other reads it, and so does Millstream.

use crate::broker::Broker;

/// Kafka's.
pub(crate) const CODECS: [&str; 5] = ["none", "gzip", "snappy", "lz4", "zstd"];

#[test]
fn every_client_reads_records_that_another_has_compressed() {
    let broker = Broker::start();
    let topic = broker.topic("codecs");
    let common = ["--bootstrap-server", &*broker.address, "--topic", &*topic];
    broker.java("TopicCommand", &[&common[..], &["--create", "--partitions", "1"]].concat(), "");
    let mut sent = Vec::new();
    for codec in CODECS {
        let lines = |by: &str| (0..100).map(|at| format!("{by} {codec} {at}\n")).collect::<String>();
        let by_kcat = lines("kcat");
        broker.kcat(&["-P", "-t", &topic, "-p", "0", "-z", codec], &by_kcat);
        let by_java = lines("java");
        let compression = format!("compression.type={codec}");
        broker.java("ConsoleProducer", &[&common[..], &["--producer-property", &compression]].concat(), &by_java);
        sent.extend([by_kcat, by_java]);
    }
    let sent = sent.concat();
    let count = sent.lines().count().to_string();
    assert_eq!(broker.kcat(&["-C", "-t", &topic, "-p", "0", "-o", "beginning", "-e"], ""), sent);
    let all = ["--partition", "0", "--offset", "earliest", "--max-messages", &count, "--timeout-ms", "60000"];
    assert_eq!(broker.java("consumer.ConsoleConsumer", &[&common[..], &all].concat(), ""), sent);
    let Some(process) = broker.process() else { return };
    let page = process.get_json(&format!("/api/streams/{topic}?from=earliest&limit=1000"));
    let values = page["records"].as_array().unwrap().iter().map(|record| record["value_text"].as_str().unwrap());
    assert_eq!(values.collect::<Vec<_>>(), sent.lines().collect::<Vec<_>>());
}
