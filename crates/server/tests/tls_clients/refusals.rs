//! Certificates that count for nothing: each client refuses the server's and says why, and the server refuses a client's and
//! says why; so does the other side, as far as it is told.

use std::path::PathBuf;

use millstream_testkit::{Authority, Signed, eventually, has_kafka_listener};

use crate::clients::{Call, Client};
use crate::java::{JavaClient, talk};
use crate::world::{World, failed, path, succeeded};

/// The fault of a server's certificate.
#[derive(Debug, Clone, Copy)]
enum Fault {
    Expired,
    ForeignAuthority,
    AnotherName,
}

/// The client, the fault, the words of the client, and the reason that the server counts: none if the client ends the
/// connection after a handshake that the server takes for good.
const REFUSALS: [(Client, Fault, &str, Option<&str>); 15] = [
    (Client::Curl, Fault::Expired, "certificate has expired", Some("server_certificate")),
    (Client::Curl, Fault::ForeignAuthority, "unable to get local issuer certificate", Some("server_certificate")),
    (Client::Curl, Fault::AnotherName, "target host name '127.0.0.1'", None),
    (Client::Mosquitto, Fault::Expired, "A TLS error occurred", Some("server_certificate")),
    (Client::Mosquitto, Fault::ForeignAuthority, "A TLS error occurred", Some("server_certificate")),
    (Client::Mosquitto, Fault::AnotherName, "A TLS error occurred", Some("protocol")),
    (Client::Paho, Fault::Expired, "certificate has expired", Some("server_certificate")),
    (Client::Paho, Fault::ForeignAuthority, "unable to get local issuer certificate", Some("server_certificate")),
    (Client::Paho, Fault::AnotherName, "certificate is not valid for '127.0.0.1'", Some("server_certificate")),
    (Client::MqttJs, Fault::Expired, "CERT_HAS_EXPIRED", Some("closed")),
    (Client::MqttJs, Fault::ForeignAuthority, "UNABLE_TO_VERIFY_LEAF_SIGNATURE", Some("closed")),
    (Client::MqttJs, Fault::AnotherName, "ERR_TLS_CERT_ALTNAME_INVALID", Some("closed")),
    (Client::Kcat, Fault::Expired, "certificate verify failed", Some("server_certificate")),
    (Client::Kcat, Fault::ForeignAuthority, "certificate verify failed", Some("server_certificate")),
    (Client::Kcat, Fault::AnotherName, "certificate verify failed", Some("server_certificate")),
];

/// A good server and one whose certificate has expired, which the same device may call.
struct Servers {
    good: World,
    expired: World,
    foreign_ca: String,
}

impl Servers {
    fn start() -> Self {
        let good = World::start(&[]);
        let authority = Authority::new("tests");
        let certificate = authority.expired(&["localhost"]);
        let expired = World::start_with(authority, &certificate, &[]);
        good.register("thermometer");
        let foreign_ca = good.foreign_ca();
        Self { good, expired, foreign_ca }
    }

    /// The server, the host name under which it is called, and the authority that the client trusts.
    fn with(&self, fault: Fault) -> (&World, &'static str, String) {
        match fault {
            Fault::Expired => (&self.expired, "localhost", self.expired.ca()),
            Fault::ForeignAuthority => (&self.good, "localhost", self.foreign_ca.clone()),
            Fault::AnotherName => (&self.good, "127.0.0.1", self.good.ca()),
        }
    }
}

/// Waits until the server counts more failed handshakes of the listener than `before`.
fn has_counted(world: &World, listener: &str, reason: &str, before: u64) {
    let what = format!("more failures of {listener} for {reason} than {before}");
    eventually(&what, || world.failed_handshakes(listener, reason) > before);
}

#[test]
fn every_client_refuses_an_expired_a_foreign_and_a_misnamed_certificate_and_both_sides_say_why() {
    let servers = Servers::start();
    let ca = servers.good.ca();
    let kcat = has_kafka_listener().then_some(Client::Kcat);
    for client in Client::DEVICES.into_iter().chain(kcat) {
        let call = Call { world: &servers.good, host: "localhost", ca: &ca, shown: None };
        succeeded(&client.send(call, &format!("by {client:?}")));
    }
    let is_served = |client: Client| client != Client::Kcat || kcat.is_some();
    for (client, fault, words, reason) in REFUSALS.into_iter().filter(|(client, ..)| is_served(*client)) {
        let (world, host, ca) = servers.with(fault);
        let listener = client.listener();
        let before = reason.map(|reason| world.failed_handshakes(listener, reason));
        let said = failed(&client.send(Call { world, host, ca: &ca, shown: None }, "never"));
        assert!(said.contains(words), "{client:?}, {fault:?}: {said}");
        if let (Some(reason), Some(before)) = (reason, before) {
            has_counted(world, listener, reason, before);
            world.logs(&["TLS handshake failed", &format!("listener=\"{listener}\""), reason]);
        }
    }
    let sent = servers.good.records("telemetry.default");
    assert!(Client::DEVICES.iter().all(|client| sent.contains(&format!("by {client:?}"))), "{sent}");
    assert!(!sent.contains("never"), "{sent}");
}

#[test]
fn javas_clients_refuse_an_expired_a_foreign_and_a_misnamed_certificate_and_both_sides_say_why() {
    if !has_kafka_listener() {
        return;
    }
    let servers = Servers::start();
    let faults = [Fault::Expired, Fault::ForeignAuthority, Fault::AnotherName];
    let called = faults.map(|fault| servers.with(fault));
    let settings = ["security.protocol=SSL"];
    let clients = called.each_ref().map(|(world, host, ca)| JavaClient { world, host, ca, settings: &settings });
    let said = talk(&clients);
    let words = ["validity check failed", "unable to find valid certification path", "No subject alternative names"];
    for (said, words) in said.iter().zip(words) {
        assert!(said.starts_with("refused") && said.contains(words), "{said}");
    }
    has_counted(&servers.expired, "kafka", "server_certificate", 0);
    has_counted(&servers.good, "kafka", "server_certificate", 1);
    servers.good.logs(&["TLS handshake failed", "kafka", "does not say why"]);
}

#[test]
fn a_certificate_whose_authority_was_removed_from_the_tenant_is_refused_whatever_the_client() {
    let world = World::start(&[]);
    let (devices, others) = (Authority::new("devices"), Authority::new("others"));
    world.trust("acme", &devices);
    // Certificates are asked for as long as any tenant has an authority.
    world.trust("beta", &others);
    world.register_subject("acme", "t-1", "CN=thermometer");
    let files = devices.client("thermometer").write(world.server.dir.path(), "device");
    let ca = world.ca();
    let send = |client: Client, message: &str| {
        client.send(Call { world: &world, host: "localhost", ca: &ca, shown: Some(&files) }, message)
    };
    for client in Client::DEVICES {
        succeeded(&send(client, &format!("by {client:?}")));
    }
    world.registry("PUT", "tenants/acme", "{}");
    let rows = [
        (Client::Curl, "no tenant trusts the authority"),
        (Client::Mosquitto, "Bad User Name or Password"),
        (Client::Paho, "Bad user name or password"),
        (Client::MqttJs, "Bad User Name or Password"),
    ];
    for (client, words) in rows {
        let said = failed(&send(client, "never"));
        assert!(said.to_lowercase().contains(&words.to_lowercase()), "{client:?}: {said}");
    }
    world.logs(&["a device's login is refused", "certificate-no-tenant"]);
    let sent = world.records("telemetry.acme");
    assert!(Client::DEVICES.iter().all(|client| sent.contains(&format!("by {client:?}"))), "{sent}");
    assert!(!sent.contains("never"), "{sent}");
}

#[test]
fn kafka_clients_are_refused_once_the_authority_of_their_certificate_is_no_longer_in_client_ca() {
    if !has_kafka_listener() {
        return;
    }
    let (clients, others) = (Authority::new("clients"), Authority::new("others"));
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("clients.crt");
    std::fs::write(&file, clients.pem()).unwrap();
    let authority = Authority::new("tests");
    let server = authority.server(&["localhost", "127.0.0.1"]);
    let world = World::start_with(authority, &server, &["--set", &format!("tls.client_ca={}", path(&file))]);
    let signed = clients.client("reader");
    let files = signed.write(dir.path(), "reader");
    let key_store = key_store(&signed, dir.path().join("reader.pem"));
    let ca = world.ca();
    let kcat = || Client::Kcat.send(Call { world: &world, host: "localhost", ca: &ca, shown: Some(&files) }, "");
    let settings = ["security.protocol=SSL", "ssl.keystore.type=PEM", &*key_store];
    let java = || talk(&[JavaClient { world: &world, host: "localhost", ca: &ca, settings: &settings }]).remove(0);
    succeeded(&kcat());
    assert_eq!(java(), "read back: a bolt");
    std::fs::write(&file, others.pem()).unwrap();
    world.logs(&["TLS files were read again"]);
    let said = failed(&kcat());
    assert!(said.contains("unknown ca"), "{said}");
    world.logs(&["TLS handshake failed", "kafka", "client_certificate", "tls.client_ca has signed it"]);
    // Java shows no certificate if the server names none of its authorities.
    let said = java();
    assert!(said.contains("certificate_required"), "{said}");
    has_counted(&world, "kafka", "no_client_certificate", 0);
    world.logs(&["TLS handshake failed", "kafka", "no_client_certificate", "tls.client_auth = required"]);
}

/// Java's setting for a file with key and certificate.
fn key_store(signed: &Signed, file: PathBuf) -> String {
    std::fs::write(&file, format!("{}{}", signed.key, signed.certificate)).unwrap();
    format!("ssl.keystore.location={}", path(&file))
}
