//! Kafka's own command-line classes.

use crate::broker::Broker;

#[test]
#[ignore = "takes long"]
fn javas_performance_and_console_classes_use_transactions() {
    let broker = Broker::start();
    let topic = broker.topic("transactional");
    let bootstrap = format!("bootstrap.servers={}", broker.address);
    let count = ["--topic", &*topic, "--num-records", "20000", "--record-size", "100", "--throughput", "-1"];
    let transactional = ["--transactional-id", &*topic, "--transaction-duration-ms", "100"];
    let arguments = [&count[..], &transactional, &["--producer-props", &bootstrap]].concat();
    let sent = broker.java("ProducerPerformance", &arguments, "");
    assert!(sent.contains("20000 records sent"), "{sent}");
    let all = ["--bootstrap-server", &*broker.address, "--topic", &*topic, "--from-beginning"];
    let committed = ["--isolation-level", "read_committed", "--max-messages", "20000", "--timeout-ms", "60000"];
    let read = broker.java("consumer.ConsoleConsumer", &[&all[..], &committed].concat(), "");
    assert_eq!(read.lines().count(), 20_000);
}

#[test]
#[ignore = "takes long"]
fn javas_topic_command_and_console_clients_run() {
    let broker = Broker::start();
    let topic = broker.topic("console");
    let common = ["--bootstrap-server", &*broker.address, "--topic", &*topic];
    broker.java("TopicCommand", &[&common[..], &["--create", "--partitions", "1"]].concat(), "");
    let lines: Vec<String> = (0..500).map(|at| format!("key-{}:value-{at}", at % 7)).collect();
    let sent = lines.join("\n") + "\n";
    let keyed = ["--property", "parse.key=true", "--property", "key.separator=:"];
    broker.java("ConsoleProducer", &[&common[..], &keyed].concat(), &sent);
    let printed = ["--property", "print.key=true", "--property", "key.separator=:"];
    let all = ["--partition", "0", "--offset", "earliest", "--max-messages", "500", "--timeout-ms", "60000"];
    assert_eq!(broker.java("consumer.ConsoleConsumer", &[&common[..], &printed, &all].concat(), ""), sent);
    let in_a_group = ["--group", "console", "--from-beginning", "--max-messages", "500", "--timeout-ms", "60000"];
    assert_eq!(broker.java("consumer.ConsoleConsumer", &[&common[..], &printed, &in_a_group].concat(), ""), sent);
}

#[test]
#[ignore = "takes long"]
fn javas_performance_classes_run() {
    let broker = Broker::start();
    let topic = broker.topic("performance");
    let bootstrap = format!("bootstrap.servers={}", broker.address);
    let count = ["--topic", &*topic, "--num-records", "20000", "--record-size", "100", "--throughput", "-1"];
    for acks in ["acks=1", "acks=all"] {
        let sent =
            broker.java("ProducerPerformance", &[&count[..], &["--producer-props", &bootstrap, acks]].concat(), "");
        assert!(sent.contains("20000 records sent"), "{sent}");
    }
    let count = ["--bootstrap-server", &*broker.address, "--topic", &*topic, "--messages", "20000"];
    let read = broker.java("ConsumerPerformance", &[&count[..], &["--timeout", "60000"]].concat(), "");
    let figures = read.lines().last().unwrap();
    let records: u64 = figures.split(", ").nth(4).unwrap().parse().unwrap();
    assert!(records >= 20_000, "{read}");
}

/// The words of each line.
fn rows(printed: &str) -> Vec<Vec<&str>> {
    printed.lines().map(|line| line.split_whitespace().collect()).collect()
}

#[test]
#[ignore = "takes long"]
fn javas_config_command_alters_and_describes_a_topic() {
    let broker = Broker::start();
    let topic = broker.topic("configs");
    broker.kcat(&["-P", "-t", &topic, "-p", "0"], "a\n");
    let entity = ["--bootstrap-server", &*broker.address, "--entity-type", "topics", "--entity-name", &*topic];
    let run = |arguments: &[&str]| broker.java("kafka.admin.ConfigCommand", &[&entity[..], arguments].concat(), "");
    let described = || run(&["--describe"]);
    run(&["--alter", "--add-config", "retention.ms=3600000,compression.type=gzip"]);
    let altered = described();
    assert!(altered.contains("retention.ms=3600000") && altered.contains("compression.type=gzip"), "{altered}");
    run(&["--alter", "--delete-config", "retention.ms"]);
    let deleted = described();
    assert!(!deleted.contains("retention.ms=3600000") && deleted.contains("compression.type=gzip"), "{deleted}");
    let arguments = [&entity[..], &["--alter", "--add-config", "retention.ms=soon"]].concat();
    let refused = broker.try_java("kafka.admin.ConfigCommand", &arguments).unwrap_err();
    assert!(refused.contains("retention.ms") && refused.contains("soon"), "{refused}");
}

#[test]
#[ignore = "takes long"]
fn javas_group_command_describes_resets_and_deletes_a_group() {
    let broker = Broker::start();
    let (topic, group) = (broker.topic("grouped"), broker.topic("readers"));
    for (partition, records) in [("0", "a\nb\nc\n"), ("1", "d\ne\n")] {
        broker.kcat(&["-P", "-t", &topic, "-p", partition], records);
    }
    broker.script("confluent.py", &["commit", &topic, &group, "1", "2"]);
    let command = "consumer.group.ConsumerGroupCommand";
    let run =
        |arguments: &[&str]| broker.java(command, &[&["--bootstrap-server", &*broker.address], arguments].concat(), "");
    let of_group = |arguments: &[&str]| run(&[&["--group", &*group], arguments].concat());
    assert!(run(&["--list"]).lines().any(|listed| listed == group));
    // Group, topic, partition, position, end, lag.
    let positions = |expected: [[&str; 4]; 2]| {
        let described = of_group(&["--describe"]);
        let shown = rows(&described);
        for [partition, position, end, lag] in expected {
            let row = [&*group, &*topic, partition, position, end, lag];
            assert!(shown.iter().any(|shown| shown.starts_with(&row)), "{row:?} in {described}");
        }
    };
    positions([["0", "1", "3", "2"], ["1", "2", "2", "0"]]);
    assert!(of_group(&["--describe", "--state"]).contains("Empty"));
    let reset = |to: &[&str]| of_group(&[&["--topic", &*topic, "--reset-offsets", "--execute"], to].concat());
    reset(&["--to-earliest"]);
    positions([["0", "0", "3", "3"], ["1", "0", "2", "2"]]);
    reset(&["--to-latest"]);
    positions([["0", "3", "3", "0"], ["1", "2", "2", "0"]]);
    reset(&["--to-datetime", "2020-01-01T00:00:00.000"]);
    positions([["0", "0", "3", "3"], ["1", "0", "2", "2"]]);
    of_group(&["--topic", &format!("{topic}:0"), "--delete-offsets"]);
    let left = of_group(&["--describe"]);
    assert!(rows(&left).iter().any(|row| row.starts_with(&[&*group, &*topic, "1", "0"])), "{left}");
    assert!(!rows(&left).iter().any(|row| row.starts_with(&[&*group, &*topic, "0", "0"])), "{left}");
    of_group(&["--delete"]);
    assert!(!run(&["--list"]).lines().any(|listed| listed == group));
}

#[test]
#[ignore = "takes long"]
fn javas_commands_delete_records_and_find_offsets() {
    let broker = Broker::start();
    let topic = broker.topic("deleted");
    broker.kcat(&["-P", "-t", &topic, "-p", "0"], "a\nb\nc\nd\ne\n");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("offsets.json");
    let offsets = format!(r#"{{"partitions":[{{"topic":"{topic}","partition":0,"offset":3}}],"version":1}}"#);
    std::fs::write(&file, offsets).unwrap();
    let common = ["--bootstrap-server", &*broker.address];
    let arguments = [&common[..], &["--offset-json-file", file.to_str().unwrap()]].concat();
    let deleted = broker.java("DeleteRecordsCommand", &arguments, "");
    assert!(deleted.contains("low_watermark: 3"), "{deleted}");
    assert_eq!(broker.kcat(&["-C", "-t", &topic, "-p", "0", "-o", "beginning", "-e"], ""), "d\ne\n");
    let of = format!("{topic}:0");
    let found = |time: &str| {
        let arguments = [&common[..], &["--topic-partitions", &*of, "--time", time]].concat();
        broker.java("GetOffsetShell", &arguments, "").trim().to_owned()
    };
    // The first, the end, the first that lies on this broker, the last that lies elsewhere.
    for (time, offset) in [("-2", "3"), ("-1", "5"), ("-4", "3")] {
        assert_eq!(found(time), format!("{of}:{offset}"), "{time}");
    }
    assert_eq!(found("-5"), "");
    // That of the latest time: kcat may have sent both in one millisecond.
    let latest = found("-3");
    assert!([3, 4].iter().any(|offset| latest == format!("{of}:{offset}")), "{latest}");
}

#[test]
#[ignore = "takes long"]
fn javas_transactions_command_lists_and_describes() {
    let broker = Broker::start();
    let id = broker.topic("described");
    let run = |arguments: &[&str]| {
        broker.java("TransactionsCommand", &[&["--bootstrap-server", &*broker.address], arguments].concat(), "")
    };
    let state_of = |printed: &str| {
        let listed = rows(printed).into_iter().find(|row| row.first() == Some(&&*id)).unwrap();
        listed.last().copied().unwrap().to_owned()
    };
    broker.script_around("transactions.py", &["restart", &id, "commit"], 1, || {
        assert_eq!(state_of(&run(&["list"])), "Ongoing");
        let described = run(&["describe", "--transactional-id", &id]);
        assert!(described.contains("Ongoing") && described.contains(&format!("{id}-")), "{described}");
        let open = |partition: &str| {
            let producers = run(&["describe-producers", "--topic", &id, "--partition", partition]);
            rows(&producers).iter().skip(1).any(|row| row.last() != Some(&"None"))
        };
        assert!(["0", "1", "2", "3"].into_iter().any(open), "the open transaction has a record in a partition");
    });
    assert_eq!(state_of(&run(&["list"])), "CompleteCommit");
    let hanging = run(&["find-hanging", "--broker-id", "1"]);
    assert!(!hanging.contains(&*id), "{hanging}");
}

#[test]
#[ignore = "takes long"]
fn javas_log_dirs_command_tells_the_size_of_partitions() {
    let broker = Broker::start();
    let topic = broker.topic("sized");
    let records = format!("{}\n", "x".repeat(1000)).repeat(100);
    broker.kcat(&["-P", "-t", &topic, "-p", "0"], &records);
    let arguments = ["--bootstrap-server", &*broker.address, "--describe", "--topic-list", &*topic];
    millstream_testkit::eventually("the records to be in a segment", || {
        let described = broker.java("LogDirsCommand", &arguments, "");
        let json: serde_json::Value = serde_json::from_str(described.lines().last().unwrap()).unwrap();
        let partitions = json["brokers"][0]["logDirs"][0]["partitions"].as_array().unwrap();
        let first = partitions.iter().find(|of| of["partition"] == format!("{topic}-0")).unwrap();
        first["size"].as_u64().unwrap() > 100_000
    });
}

#[test]
fn javas_consumer_speaks_the_consumer_protocol() {
    // Kafka's brokers also take classic members into such a group: no other broker is asked.
    let settings = "[kafka]\ngroup_consumer_heartbeat_interval_ms = 200\n";
    let Some(broker) = Broker::configured(settings) else { return };
    let program = include_str!("ConsumerProtocol.java").replace("127.0.0.1:9092", &broker.address);
    let program = program.replace("TOPIC_NAME", &broker.topic("protocol"));
    let said = broker.java_source("ConsumerProtocol.java", &program);
    assert!(said.trim_end().ends_with("ok"), "{said}");
}

#[test]
fn javas_producer_has_an_epoch_for_each_transaction() {
    let broker = Broker::start();
    let program = include_str!("TransactionsVersion2.java").replace("127.0.0.1:9092", &broker.address);
    let program = program.replace("TOPIC_NAME", &broker.topic("version-2"));
    let said = broker.java_source("TransactionsVersion2.java", &program);
    assert!(said.trim_end().ends_with("ok"), "{said}");
}

#[test]
#[ignore = "takes long"]
fn javas_config_command_shows_users_and_rates_and_is_told_how_they_are_altered() {
    let secret = "correct-horse-battery";
    let settings = format!(
        "[quota]\nclient_produce_bytes_per_second = 20000\n[[applications.tokens]]\nname = \"admin\"\ntoken = \"{secret}\"\nroles = [\"admin\"]\n"
    );
    let Some(broker) = Broker::configured(&settings) else { return };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("admin.properties");
    let module = "org.apache.kafka.common.security.plain.PlainLoginModule";
    let login = format!("{module} required username=\"admin\" password=\"{secret}\";");
    let text = format!("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={login}\n");
    std::fs::write(&file, text).unwrap();
    let common = ["--bootstrap-server", &*broker.address, "--command-config", file.to_str().unwrap()];
    let run = |arguments: &[&str]| {
        let users = ["--entity-type", "users"];
        broker.try_java("kafka.admin.ConfigCommand", &[&common[..], &users, arguments].concat())
    };
    let described = run(&["--describe"]).unwrap();
    let scram = "SCRAM credential configs for user-principal 'admin' are SCRAM-SHA-256=iterations=4096, SCRAM-SHA-512=iterations=4096";
    assert!(described.contains(scram) && described.contains("producer_byte_rate=20000.0"), "{described}");
    let password = ["--alter", "--entity-name", "new", "--add-config", "SCRAM-SHA-256=[iterations=8192,password=x]"];
    let refused = run(&password).unwrap_err();
    assert!(refused.contains("UnacceptableCredential") && refused.contains("millstream token create new"), "{refused}");
    let rate = ["--alter", "--entity-name", "admin", "--add-config", "producer_byte_rate=4096"];
    let refused = run(&rate).unwrap_err();
    assert!(refused.contains("PolicyViolation") && refused.contains("quota.client_produce"), "{refused}");
}
