//! Logins and roles with clients that are not ours.

use crate::broker::Broker;

const SECRET: &str = "correct-horse-battery";

/// A broker that knows a reader, a writer and an admin, and a user of another tenant who may do everything.
fn guarded() -> Option<Broker> {
    let token = |name: &str, tenant: &str, roles: &str| {
        format!(
            "[[applications.tokens]]\nname = \"{name}\"\ntoken = \"{SECRET}-{name}\"\ntenant = \"{tenant}\"\nroles = [{roles}]\n"
        )
    };
    let tokens = [
        token("reader", "default", "\"reader\""),
        token("writer", "default", "\"writer\""),
        token("admin", "default", "\"admin\""),
        token("acme", "acme", "\"reader\", \"writer\", \"admin\""),
    ];
    Broker::configured(&tokens.concat())
}

#[test]
fn librdkafka_logs_in_and_has_the_permissions_of_its_role() {
    let Some(broker) = guarded() else { return };
    broker.script("confluent.py", &["roles", SECRET]);
}

#[test]
fn kafka_python_logs_in_and_has_the_permissions_of_its_role() {
    let Some(broker) = guarded() else { return };
    broker.script("pure_python.py", &["roles", SECRET]);
}

#[test]
fn javas_topic_command_logs_in_and_has_the_permissions_of_its_role() {
    let Some(broker) = guarded() else { return };
    let dir = tempfile::tempdir().unwrap();
    let settings = |user: &str, secret: &str| {
        let file = dir.path().join(format!("{user}.properties"));
        let module = "org.apache.kafka.common.security.plain.PlainLoginModule";
        let login = format!("{module} required username=\"{user}\" password=\"{secret}\";");
        let text =
            format!("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={login}\nretries=0\n");
        std::fs::write(&file, text).unwrap();
        file.to_str().unwrap().to_owned()
    };
    let (admin, reader) =
        (settings("admin", &format!("{SECRET}-admin")), settings("reader", &format!("{SECRET}-reader")));
    let wrong = settings("wrong", SECRET);
    let create = |settings: &str| {
        ["--bootstrap-server", &broker.address, "--command-config", settings, "--create", "--topic", "guarded"]
            .map(str::to_owned)
    };
    let run = |settings: &str| broker.try_java("TopicCommand", &create(settings).each_ref().map(String::as_str));
    assert!(run(&reader).unwrap_err().contains("TopicAuthorizationException"));
    assert!(run(&wrong).unwrap_err().contains("SaslAuthenticationException"));
    run(&admin).unwrap();
    let list = ["--bootstrap-server", &*broker.address, "--command-config", &*reader, "--list"];
    let listed = broker.java("TopicCommand", &list, "");
    assert!(listed.lines().any(|topic| topic == "guarded"), "{listed}");
}
