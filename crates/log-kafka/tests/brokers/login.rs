//! Brokers that ask for TLS and a login.

use std::path::Path;
use std::process::Command;

use millstream_log::{AckLevel, Log as _, TopicConfig};
use millstream_log_kafka::OnKafka;
use millstream_testkit::{Authority, RealKafka};
use millstream_types::{LoginMechanism, Record, TopicPartition};

use crate::{answer, config, topic, values};

const PASSWORD: &str = "secret of alice";

/// Text of several lines as a value in `server.properties`.
fn in_properties(pem: &str) -> String {
    pem.replace('\n', "\\n")
}

/// A broker whose listener asks for TLS and a login.
fn guarded(authority: &Authority) -> RealKafka {
    let server = authority.server(&["127.0.0.1"]);
    let users = format!(
        "org.apache.kafka.common.security.plain.PlainLoginModule required username=\"admin\" password=\"admin\" \
         user_admin=\"admin\" user_alice=\"{PASSWORD}\";"
    );
    let scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;";
    let settings = format!(
        "listener.security.protocol.map=PLAINTEXT:SASL_SSL,CONTROLLER:PLAINTEXT\n\
         inter.broker.listener.name=PLAINTEXT\n\
         sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512\n\
         sasl.mechanism.inter.broker.protocol=PLAIN\n\
         listener.name.plaintext.plain.sasl.jaas.config={users}\n\
         listener.name.plaintext.scram-sha-256.sasl.jaas.config={scram}\n\
         listener.name.plaintext.scram-sha-512.sasl.jaas.config={scram}\n\
         ssl.keystore.type=PEM\n\
         ssl.keystore.certificate.chain={}\n\
         ssl.keystore.key={}\n\
         ssl.truststore.type=PEM\n\
         ssl.truststore.certificates={}\n",
        in_properties(&server.certificate),
        in_properties(&server.key),
        in_properties(&authority.pem()),
    );
    RealKafka::with_settings(1, &settings)
}

/// Has the broker keep the password of alice for SCRAM.
fn add_scram_users(kafka: &RealKafka, authority: &Authority, dir: &Path) {
    let client = dir.join("client.properties");
    let settings = format!(
        "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nssl.truststore.type=PEM\nssl.truststore.certificates={}\n\
         sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username=\"admin\" \
         password=\"admin\";\n",
        in_properties(&authority.pem())
    );
    std::fs::write(&client, settings).unwrap();
    // One request takes one credential of a user.
    for credential in ["SCRAM-SHA-256=[", "SCRAM-SHA-512=[iterations=8192,"] {
        let mut command = Command::new(millstream_testkit::xtask());
        command.args(["kafka-tools", "kafka.admin.ConfigCommand", "--bootstrap-server", &kafka.bootstrap()]);
        command.arg("--command-config").arg(&client);
        command.args(["--alter", "--entity-type", "users", "--entity-name", "alice"]);
        let output = command.arg("--add-config").arg(format!("{credential}password={PASSWORD}]")).output().unwrap();
        let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        assert!(output.status.success(), "{said:?}");
    }
}

#[test]
fn each_way_to_log_in_over_tls_works_and_wrong_ones_are_told() {
    let (authority, dir) = (Authority::new("ca of the brokers"), tempfile::tempdir().unwrap());
    let kafka = guarded(&authority);
    add_scram_users(&kafka, &authority, dir.path());
    let authorities = dir.path().join("ca.pem");
    std::fs::write(&authorities, authority.pem()).unwrap();
    let with = |authorities: Option<&Path>, login: Option<(LoginMechanism, &str)>| {
        let mut config = config(&kafka);
        (config.kafka.tls, config.kafka.tls_authorities) = (authorities.is_some(), authorities.map(Path::to_owned));
        if let Some((mechanism, password)) = login {
            config.kafka.sasl_mechanism = mechanism;
            (config.kafka.user, config.kafka.password) = (Some("alice".to_owned()), Some(password.to_owned()));
        }
        OnKafka::open(config)
    };
    let name = topic("guarded");
    let ways = [LoginMechanism::Plain, LoginMechanism::ScramSha256, LoginMechanism::ScramSha512];
    for (number, mechanism) in ways.into_iter().enumerate() {
        let log = with(Some(&authorities), Some((mechanism, PASSWORD))).unwrap();
        log.create_topic(&name, &TopicConfig { partitions: 1, ..TopicConfig::default() }).unwrap();
        let partition = log.partition(&TopicPartition::new(name.clone(), 0)).unwrap();
        let (done, answer) = answer();
        let record = Record { value: Some(mechanism.as_str().as_bytes()), ..Record::default() };
        partition.append(&[record], AckLevel::Synced, done).unwrap();
        answer().unwrap();
        assert_eq!(values(&log, &name, 0).len(), number + 1);
        let refused = with(Some(&authorities), Some((mechanism, "wrong password"))).unwrap_err().to_string();
        assert!(refused.contains("it refuses the login") && refused.contains(&kafka.bootstrap()), "{refused}");
        assert!(!refused.contains("wrong password"), "{refused}");
    }
    let refused = with(None, Some((LoginMechanism::Plain, PASSWORD))).unwrap_err().to_string();
    assert!(refused.contains(&kafka.bootstrap()), "{refused}");
    let others = dir.path().join("other.pem");
    std::fs::write(&others, Authority::new("another ca").pem()).unwrap();
    let refused = with(Some(&others), Some((LoginMechanism::Plain, PASSWORD))).unwrap_err().to_string();
    assert!(refused.contains("no TLS") && refused.contains("certificate"), "{refused}");
    let refused = with(Some(&dir.path().join("nowhere.pem")), None).unwrap_err().to_string();
    assert!(refused.contains("nowhere.pem"), "{refused}");
}
