//! Kafka's own Java clients over TLS.

use std::io::Write as _;
use std::process::Stdio;

use millstream_testkit::Authority;

use crate::clients::java;
use crate::world::World;

/// One client: the settings beside address and authority.
pub(crate) struct JavaClient<'a> {
    pub(crate) world: &'a World,
    pub(crate) host: &'a str,
    pub(crate) ca: &'a str,
    pub(crate) settings: &'a [&'a str],
}

/// Runs the clients one after the other in one process: what each of them says.
pub(crate) fn talk(clients: &[JavaClient<'_>]) -> Vec<String> {
    let mut input = String::new();
    for JavaClient { world, host, ca, settings } in clients {
        let port = world.port("kafka-tls");
        input += &format!("{host}:{port}\t{ca}\treadings\t{}\n", settings.join("\t"));
    }
    let mut child = java().stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}");
    // Kafka's own log goes to the same output.
    let lines = said.lines().filter(|line| line.starts_with("read back: ") || line.starts_with("refused"));
    let lines: Vec<String> = lines.map(str::to_owned).collect();
    assert_eq!(lines.len(), clients.len(), "{said}");
    lines
}

#[test]
#[ignore = "takes long"]
fn javas_clients_produce_and_consume_over_sasl_ssl_with_scram_and_hear_of_a_wrong_password() {
    let token = "change-me-0123456789";
    let config = tempfile::tempdir().unwrap();
    let file = config.path().join("millstream.toml");
    let roles = "roles = [\"reader\", \"writer\", \"admin\"]";
    std::fs::write(&file, format!("[[applications.tokens]]\nname = \"shop\"\ntoken = \"{token}\"\n{roles}\n")).unwrap();
    let authority = Authority::new("tests");
    // Java names no server for a host name without a dot; it is led to the address then.
    let signed = authority.server(&["localhost", "127.0.0.1"]);
    let world = World::start_with(authority, &signed, &["--config", file.to_str().unwrap()]);
    let ca = world.ca();
    let login = |password: &str| {
        let module = "org.apache.kafka.common.security.scram.ScramLoginModule";
        format!("sasl.jaas.config={module} required username=\"shop\" password=\"{password}\";")
    };
    let (right, wrong) = (login(token), login("wrong-0123456789-wrong"));
    let protocol = ["security.protocol=SASL_SSL", "sasl.mechanism=SCRAM-SHA-512"];
    let settings = [&right, &wrong].map(|login| [protocol[0], protocol[1], login]);
    let clients =
        settings.each_ref().map(|settings| JavaClient { world: &world, host: "localhost", ca: &ca, settings });
    let said = talk(&clients);
    assert_eq!(said[0], "read back: a bolt");
    assert!(said[1].contains("SaslAuthenticationException"), "{}", said[1]);
}
