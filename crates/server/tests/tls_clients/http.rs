//! HTTPS with curl.

use millstream_testkit::{Authority, eventually};

use crate::world::{World, failed, path, run, said, succeeded};

#[test]
fn curl_is_served_in_both_versions_on_both_listeners_and_agrees_on_http_1_1() {
    let world = World::start(&[]);
    world.register("thermometer");
    for version in ["1.2", "1.3"] {
        let (url, tls) = (world.url("applications", "/healthz"), format!("--tlsv{version}"));
        let output = run("curl", &["-sSv", "--cacert", &world.ca(), &tls, "--tls-max", version, &url], "");
        succeeded(&output);
        let said = said(&output);
        assert!(said.contains(&format!("using TLSv{version}")) && said.contains("accepted http/1.1"), "{said}");
        let url = world.url("devices-http", "/telemetry");
        let login = ["-u", "thermometer@default:pw", "-H", "Content-Type: application/json", "-d", "{\"temp\": 21}"];
        let post = ["-sS", "--fail-with-body", "--cacert", &world.ca(), &tls, "--tls-max", version, &url];
        succeeded(&run("curl", &[&post[..], &login].concat(), ""));
    }
    eventually("both messages are stored", || world.records("telemetry.default").matches("temp").count() == 2);
    // A long answer: the document of the whole API.
    let document = run("curl", &["-sS", "--cacert", &world.ca(), &world.url("applications", "/openapi.json")], "");
    assert!(succeeded(&document).trim_end().ends_with('}'));
}

#[test]
fn curl_refuses_a_foreign_authority_and_another_name_and_a_plain_request_is_told_to_use_https() {
    let world = World::start(&[]);
    let url = world.url("applications", "/healthz");
    let refused = failed(&run("curl", &["-sS", "--cacert", &world.foreign_ca(), &url], ""));
    assert!(refused.contains("certificate"), "{refused}");
    world.logs(&["TLS handshake failed", "applications", "server_certificate", "UnknownCA"]);
    let (other, resolved) = (url.replace("localhost", "elsewhere"), world.port("applications-tls"));
    let resolve = format!("elsewhere:{resolved}:127.0.0.1");
    let refused = failed(&run("curl", &["-sS", "--cacert", &world.ca(), "--resolve", &resolve, &other], ""));
    assert!(refused.contains("elsewhere"), "{refused}");
    let plain = run("curl", &["-sS", "-w", " %{http_code}", &url.replace("https", "http")], "");
    let answer = succeeded(&plain);
    assert!(answer.contains("use https:// in the URL") && answer.ends_with(" 400"), "{answer}");
    world.logs(&["TLS handshake failed", "not_tls"]);
}

#[test]
fn an_expired_certificate_is_refused_until_its_file_is_replaced() {
    let authority = Authority::new("tests");
    let expired = authority.expired(&["localhost"]);
    let world = World::start_with(authority, &expired, &[]);
    world.logs(&["has expired", "server.crt"]);
    let (ca, url) = (world.ca(), world.url("applications", "/healthz"));
    let refused = failed(&run("curl", &["-sS", "--cacert", &ca, &url], ""));
    assert!(refused.contains("expired"), "{refused}");
    world.logs(&["TLS handshake failed", "it has expired", "CertificateExpired"]);
    world.server.authority.server(&["localhost"]).write(world.server.dir.path(), "server");
    world.logs(&["TLS files were read again"]);
    succeeded(&run("curl", &["-sS", "--cacert", &ca, &url], ""));
    std::fs::write(world.file("server.crt"), "-----BEGIN CERTIFICATE-----\nhalf a fi").unwrap();
    world.logs(&["ERROR", "those from before stay in force", "tls.certificate", "server.crt", "must be in PEM"]);
    succeeded(&run("curl", &["-sS", "--cacert", &ca, &url], ""));
}

#[test]
fn curl_shows_a_client_certificate_where_one_is_required() {
    let clients = Authority::new("clients");
    let dir = tempfile::tempdir().unwrap();
    let ca = dir.path().join("clients.crt");
    std::fs::write(&ca, clients.pem()).unwrap();
    let [certificate, key] = clients.client("operator").write(dir.path(), "operator");
    let [expired, expired_key] = clients.expired(&[]).write(dir.path(), "expired");
    let world = World::start(&["--set", &format!("tls.client_ca={}", path(&ca)), "--set", "logging.level=debug"]);
    let get = |more: &[&str]| {
        let (ca, url) = (world.ca(), world.url("applications", "/healthz"));
        run("curl", &[&["-sS", "--cacert", &ca, &url], more].concat(), "")
    };
    succeeded(&get(&["--cert", path(&certificate), "--key", path(&key)]));
    world.logs(&["client certificate", "CN=operator"]);
    failed(&get(&[]));
    world.logs(&["TLS handshake failed", "no_client_certificate", "tls.client_auth = required"]);
    failed(&get(&["--cert", path(&expired), "--key", path(&expired_key)]));
    world.logs(&["TLS handshake failed", "client_certificate", "expired"]);
}
