//! Devices that log in by client certificate: curl over HTTPS, mosquitto over MQTTS, paho over a WebSocket with TLS.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use millstream_testkit::{Authority, Signed, eventually, installed};

use crate::clients::beside;
use crate::world::{World, failed, path, run, said, succeeded, trusting};

/// A certificate and its key in files.
struct Files([PathBuf; 2]);

impl Files {
    fn new(world: &World, signed: &Signed, name: &str) -> Self {
        Self(signed.write(world.server.dir.path(), name))
    }
}

impl World {
    /// Status and body of a message that curl sends with this certificate, to a host name of the server.
    fn post(&self, host: &str, files: &Files, more: &[&str]) -> String {
        let port = self.port("devices-http-tls");
        let (url, resolve) = (format!("https://{host}:{port}/telemetry"), format!("{host}:{port}:127.0.0.1"));
        let [certificate, key] = &files.0;
        let ca = self.ca();
        let shown = ["--cert", path(certificate), "--key", path(key), "--cacert", &ca, "--resolve", &resolve];
        let message = ["-sS", "-w", " %{http_code}", "-H", "Content-Type: text/plain", "-d", "by-https", &url];
        succeeded(&run("curl", &[&shown[..], &message, more].concat(), ""))
    }

    fn publish_shown(&self, files: &Files, more: &[&str]) -> Output {
        let [certificate, key] = &files.0;
        let (port, ca) = (self.port("devices-mqtt-tls"), self.ca());
        let shown = ["--cert", path(certificate), "--key", path(key), "--cafile", &ca, "-h", "localhost", "-p", &port];
        run("mosquitto_pub", &[&shown[..], &["-q", "1", "-t", "telemetry"], more].concat(), "")
    }

    fn paho(&self, files: &Files, message: &str) -> Output {
        let (python, script) = (installed("mqtt/venv/bin/python"), beside("paho_tls.py"));
        let (port, ca, [certificate, key]) = (self.port("devices-http-tls"), self.ca(), &files.0);
        let (certificate, key) = (path(certificate), path(key));
        let arguments = ["-B", path(&script), "websockets", "localhost", &port, &ca, message, certificate, key];
        run(path(&python), &arguments, "")
    }
}

#[test]
fn a_certificate_of_the_tenants_authority_logs_in_over_https_mqtts_and_wss_and_others_are_refused_with_the_reason() {
    let world = World::start(&[]);
    let (devices, foreign, others) = (Authority::new("devices"), Authority::new("foreign"), Authority::new("others"));
    let files = |signed: &Signed, name: &str| Files::new(&world, signed, name);
    let good = files(&devices.client("thermometer"), "good");
    // Before a tenant has an authority, no certificate is asked for.
    assert!(world.post("localhost", &good, &[]).ends_with(" 401"));
    world.registry("POST", "tenants/acme", &trusting(&devices, "", ""));
    world.registry("POST", "tenants/beta", &trusting(&others, "", ""));
    world.register_subject("acme", "t-1", "CN=thermometer");
    assert!(world.post("localhost", &good, &[]).ends_with(" 202"));
    for version in ["311", "5"] {
        succeeded(&world.publish_shown(&good, &["-V", version, "-m", &format!("by-mqtts-{version}")]));
    }
    succeeded(&world.paho(&good, "by-wss"));
    let sent = world.records("telemetry.acme");
    for message in ["by-https", "by-mqtts-311", "by-mqtts-5", "by-wss"] {
        assert!(sent.contains(message), "{message} in {sent}");
    }
    assert!(sent.contains("t-1"), "{sent}");
    let rows = [
        (
            files(&devices.expired_client("thermometer"), "expired"),
            "certificate-expired",
            "the certificate is valid from",
        ),
        (files(&foreign.client("thermometer"), "foreign"), "certificate-no-tenant", "no tenant trusts the authority"),
        (
            files(&others.client("thermometer"), "others"),
            "certificate-unknown",
            "no device logs in with this certificate",
        ),
        (
            files(&devices.client("hygrometer"), "unknown"),
            "certificate-unknown",
            "no device logs in with this certificate",
        ),
        (files(&Authority::new("devices").client("thermometer"), "twin"), "certificate-not-signed", "has not signed"),
    ];
    for (files, reason, told) in &rows {
        let answer = world.post("localhost", files, &[]);
        assert!(answer.contains(told) && answer.ends_with(" 401"), "{reason}: {answer}");
        for version in ["311", "5"] {
            let refused = failed(&world.publish_shown(files, &["-V", version, "-m", "never"]));
            assert!(refused.to_lowercase().contains("bad user name or password"), "{reason}: {refused}");
        }
        let refused = failed(&world.paho(files, "never"));
        assert!(refused.contains("refused"), "{reason}: {refused}");
    }
    // The log keeps ten refusals a second, the metrics count all.
    world.logs(&["a device's login is refused", rows[0].1]);
    let metrics =
        succeeded(&run("curl", &["-sS", "--cacert", &world.ca(), &world.url("applications", "/metrics")], ""));
    for (_, reason, _) in &rows {
        assert!(metrics.contains(&format!("reason=\"{reason}\"")), "{reason}");
    }
    assert!(!world.records("telemetry.acme").contains("never"));
    // A password counts where no tenant trusts the certificate.
    world.register("thermometer");
    assert!(world.post("localhost", &rows[1].0, &["-u", "thermometer@default:pw"]).ends_with(" 202"));
    assert!(world.post("localhost", &rows[1].0, &["-u", "thermometer@default:wrong"]).ends_with(" 401"));
}

#[test]
fn an_authority_that_is_removed_ends_live_connections_and_lets_nobody_in() {
    let world = World::start(&[]);
    let devices = Authority::new("devices");
    world.registry("POST", "tenants/acme", &trusting(&devices, "", ""));
    world.register_subject("acme", "t-1", "CN=thermometer");
    let files = Files::new(&world, &devices.client("thermometer"), "good");
    let [certificate, key] = &files.0;
    let (port, ca) = (world.port("devices-mqtt-tls"), world.ca());
    let shown = ["--cert", path(certificate), "--key", path(key), "--cafile", &ca, "-h", "localhost", "-p", &port];
    let mut live = Command::new("mosquitto_sub");
    live.args(shown).args(["-V", "5", "-t", "private/#", "-d"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut live = live.spawn().unwrap();
    let status = || world.registry("GET", "devices/acme/t-1", "");
    eventually("the device to be connected", || status().contains("\"connected\":true"));
    world.registry("PUT", "tenants/acme", "{}");
    world.logs(&["mqtt: connection closed", "t-1", "no longer counts"]);
    eventually("the device to be gone", || status().contains("\"connected\":false"));
    // It comes back again and again, and is refused.
    let _ = live.kill();
    let _ = live.wait();
    failed(&world.publish_shown(&files, &["-V", "5", "-m", "never"]));
    assert!(world.post("localhost", &files, &[]).ends_with(" 401"));
    world.registry("PUT", "tenants/acme", &trusting(&devices, "", ""));
    assert!(world.post("localhost", &files, &[]).ends_with(" 202"));
}

#[test]
fn tenants_that_share_an_authority_are_told_apart_by_the_server_name() {
    let authority = Authority::new("tests");
    let signed = authority.server(&["localhost", "acme.localhost", "bee.localhost", "other.localhost"]);
    let world = World::start_with(authority, &signed, &[]);
    let shared = Authority::new("shared");
    world.registry("POST", "tenants/acme", &trusting(&shared, "", r#","trust-anchor-group":"g""#));
    world.registry("POST", "tenants/beta", &trusting(&shared, "", r#","trust-anchor-group":"g","alias":"bee""#));
    world.register_subject("acme", "a", "CN=thermometer");
    world.register_subject("beta", "b", "CN=thermometer");
    let files = Files::new(&world, &shared.client("thermometer"), "good");
    for (host, told) in [
        ("acme.localhost", " 202"),
        ("bee.localhost", " 202"),
        ("localhost", "several tenants trust"),
        ("other.localhost", "several tenants trust"),
    ] {
        let answer = world.post(host, &files, &[]);
        assert!(answer.contains(told), "{host}: {answer}");
    }
    for tenant in ["acme", "beta"] {
        assert_eq!(world.records(&format!("telemetry.{tenant}")).matches("by-https").count(), 1, "{tenant}");
    }
}

#[test]
fn the_nearest_authority_of_a_certificate_says_whose_device_it_is() {
    let world = World::start(&[]);
    let root = Authority::new("root");
    let between = root.authority("between");
    world.registry("POST", "tenants/acme", &trusting(&root, "", ""));
    world.registry("POST", "tenants/beta", &trusting(&between, "", ""));
    for tenant in ["acme", "beta"] {
        world.register_subject(tenant, "t", "CN=thermometer");
    }
    let below = between.client("thermometer");
    let chain = |more: &[&str]| Signed {
        certificate: [&[&*below.certificate], more].concat().concat(),
        key: below.key.clone(),
    };
    let files = |signed: &Signed, name: &str| Files::new(&world, signed, name);
    // Certificates that do not lead on, expired ones too, change nothing.
    let beside = Authority::new("beside").expired_client("thermometer").certificate;
    for (name, signed) in [
        ("whole", chain(&[&between.pem(), &root.pem()])),
        ("alone", chain(&[])),
        ("among", chain(&[&beside, &between.pem()])),
    ] {
        assert!(world.post("localhost", &files(&signed, name), &[]).ends_with(" 202"), "{name}");
    }
    assert!(world.post("localhost", &files(&root.client("thermometer"), "direct"), &[]).ends_with(" 202"));
    for (tenant, count) in [("acme", 1), ("beta", 3)] {
        assert_eq!(world.records(&format!("telemetry.{tenant}")).matches("by-https").count(), count, "{tenant}");
    }
    // The root's tenant counts again once nobody trusts what is below it, or has another key under its name.
    for trusted in ["{}".to_owned(), trusting(&Authority::new("between"), "", "")] {
        world.registry("PUT", "tenants/beta", &trusted);
        assert!(world.post("localhost", &files(&chain(&[&between.pem()]), "again"), &[]).ends_with(" 202"));
    }
    assert_eq!(world.records("telemetry.acme").matches("by-https").count(), 3);
}

#[test]
fn a_clients_certificate_of_the_first_version_is_refused_in_words() {
    let world = World::start(&[]);
    world.registry("POST", "tenants/acme", &trusting(&Authority::new("devices"), "", ""));
    let files = ["key", "csr", "crt"].map(|extension| world.server.dir.path().join(format!("old.{extension}")));
    let [key, request, certificate] = files.each_ref().map(|file| path(file));
    let openssl = |arguments: &[&str]| succeeded(&run("openssl", arguments, ""));
    openssl(&["ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", key]);
    openssl(&["req", "-new", "-key", key, "-subj", "/CN=old", "-out", request]);
    openssl(&["x509", "-req", "-in", request, "-signkey", key, "-out", certificate]);
    let (url, ca) = (world.url("devices-http", "/telemetry"), world.ca());
    failed(&run("curl", &["-sS", "--cert", certificate, "--key", key, "--cacert", &ca, "-d", "x", &url], ""));
    world.logs(&["TLS handshake failed", "X.509 version 1", "-extfile"]);
}

#[test]
fn an_unknown_device_is_registered_where_its_authority_wants_it_and_applications_are_told() {
    let world = World::start(&[]);
    let (devices, gateways) = (Authority::new("devices"), Authority::new("gateways"));
    let rules = r#","auto-provisioning-enabled":true,"auto-provisioning-device-id-template":"d-{{subject-cn}}","auth-id-template":"{{subject-cn}}""#;
    world.registry("POST", "tenants/acme", &trusting(&devices, rules, ""));
    let rules = r#","auto-provisioning-enabled":true,"auto-provision-as-gateway":true"#;
    world.registry("POST", "tenants/beta", &trusting(&gateways, rules, ""));
    let files = Files::new(&world, &devices.client("thermometer"), "device");
    for _ in 0..2 {
        assert!(world.post("localhost", &files, &[]).ends_with(" 202"));
    }
    let registered = world.registry("GET", "devices/acme/d-thermometer", "");
    for member in ["\"auto-provisioned\":true", "\"auto-provisioning-notification-sent\":true"] {
        assert!(registered.contains(member), "{registered}");
    }
    assert!(world.registry("GET", "credentials/acme/d-thermometer", "").contains("\"auth-id\":\"thermometer\""));
    // Its next certificate logs in, too: the credential has no dates.
    let credentials = world.registry("GET", "credentials/acme/d-thermometer", "");
    assert!(!credentials.contains("not-before") && !credentials.contains("not-after"), "{credentials}");
    let renewed = Files::new(&world, &devices.client("thermometer"), "renewed");
    assert!(world.post("localhost", &renewed, &[]).ends_with(" 202"));
    let events = world.records("event.acme");
    assert_eq!(events.matches("hono_registration_status").count(), 1, "{events}");
    // A gateway, which may register others at once.
    let files = Files::new(&world, &gateways.client("hub"), "gateway");
    succeeded(&world.publish_shown(&files, &["-V", "5", "-m", "its own"]));
    let found = world.registry("GET", "devices/beta", "");
    assert!(found.contains("\"authorities\":[\"auto-provisioning-enabled\"]"), "{found}");
    let [certificate, key] = &files.0;
    let (port, ca) = (world.port("devices-mqtt-tls"), world.ca());
    let shown = ["--cert", path(certificate), "--key", path(key), "--cafile", &ca, "-h", "localhost", "-p", &port];
    let message = ["-q", "1", "-t", "telemetry//lamp", "-m", "of the lamp"];
    succeeded(&run("mosquitto_pub", &[&shown[..], &message].concat(), ""));
    assert!(world.registry("GET", "devices/beta/lamp", "").contains("\"auto-provisioned\":true"));
    assert_eq!(world.records("event.beta").matches("hono_registration_status").count(), 2);
}

#[test]
fn with_client_ca_a_certificate_of_either_kind_is_taken_and_no_other() {
    let (operators, devices, foreign) =
        (Authority::new("operators"), Authority::new("devices"), Authority::new("foreign"));
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("operators.crt");
    std::fs::write(&file, operators.pem()).unwrap();
    let world = World::start(&["--set", &format!("tls.client_ca={}", path(&file))]);
    let files = |signed: &Signed, name: &str| Files::new(&world, signed, name);
    let operator = files(&operators.client("operator"), "operator");
    let registry = |method: &str, at: &str, body: &str| {
        let url = world.url("applications", &format!("/v1/{at}"));
        let (ca, [certificate, key]) = (world.ca(), &operator.0);
        let shown = ["-sS", "--fail-with-body", "--cacert", &ca, "--cert", path(certificate), "--key", path(key)];
        let request = ["-X", method, "-d", body, "-H", "Content-Type: application/json", &url];
        succeeded(&run("curl", &[&shown[..], &request].concat(), ""));
    };
    registry("POST", "tenants/acme", &trusting(&devices, "", ""));
    registry("POST", "devices/acme/t-1", "{}");
    let credentials = r#"[{"type":"x509-cert","auth-id":"CN=thermometer","secrets":[{}]}]"#;
    registry("PUT", "credentials/acme/t-1", credentials);
    let device = files(&devices.client("thermometer"), "device");
    assert!(world.post("localhost", &device, &[]).ends_with(" 202"));
    // The certificate of an operator is admitted by TLS and is no device's login.
    assert!(world.post("localhost", &operator, &[]).ends_with(" 401"));
    let foreign = files(&foreign.client("thermometer"), "foreign");
    let (ca, [certificate, key]) = (world.ca(), &foreign.0);
    let shown = ["-sS", "--cacert", &ca, "--cert", path(certificate), "--key", path(key)];
    let url = world.url("devices-http", "/telemetry");
    failed(&run("curl", &[&shown[..], &["-d", "x", &url]].concat(), ""));
    world.logs(&["TLS handshake failed", "devices-http", "client_certificate"]);
    // That of a device opens nothing else.
    let [certificate, key] = &device.0;
    let shown = ["-sS", "--cacert", &ca, "--cert", path(certificate), "--key", path(key)];
    let output = run("curl", &[&shown[..], &[&world.url("applications", "/healthz")]].concat(), "");
    assert!(!output.status.success(), "{}", said(&output));
}
