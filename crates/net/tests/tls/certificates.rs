//! Certificates: which one a client gets, and what happens when files change.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use millstream_net::{Metrics, TlsConfig};
use millstream_testkit::{Authority, Signed};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::server::{Server, client, config, load};

fn shown(stream: &TlsStream<TcpStream>) -> CertificateDer<'static> {
    stream.get_ref().1.peer_certificates().unwrap()[0].clone().into_owned()
}

fn der(signed: &Signed) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(signed.certificate.as_bytes()).unwrap()
}

#[tokio::test]
async fn a_client_gets_the_certificate_of_the_name_that_it_asks_for() {
    let authority = Authority::new("names");
    let [default, first, second] =
        [&["localhost"][..], &["a.example.org"], &["*.b.example.org"]].map(|names| authority.server(names));
    let server = Server::start_with(
        |config, dir| {
            default.write(dir.path(), "server");
            let names = dir.path().join("names");
            std::fs::create_dir(&names).unwrap();
            first.write(&names, "first");
            second.write(&names, "second");
            config.certificates_dir = names;
        },
        10,
    );
    let rows = [("localhost", &default), ("a.example.org", &first), ("x.b.example.org", &second)];
    for (name, expected) in rows {
        let (_, stream) = server.try_connect(name, client(&authority, None)).await.unwrap();
        assert_eq!(shown(&stream), der(expected), "{name}");
    }
}

#[tokio::test]
async fn a_certificate_is_replaced_under_load_and_no_connection_is_lost() {
    let server = Arc::new(Server::start());
    let (_, mut old) = server.connect().await;
    let before = shown(&old);
    let done = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let (server, done) = (server.clone(), done.clone());
            tokio::spawn(async move {
                let mut connections = 0_u32;
                while !done.load(Ordering::Relaxed) {
                    let (_, mut stream) = server.connect().await;
                    stream.write_all(b"ping").await.unwrap();
                    let mut back = [0; 4];
                    stream.read_exact(&mut back).await.unwrap();
                    connections += 1;
                }
                connections
            })
        })
        .collect();
    let new = server.authority.server(&["localhost"]);
    new.write(server.dir.path(), "server");
    server.shows("millstream_tls_reloads_total{outcome=\"replaced\"} 1").await;
    assert_eq!(shown(&server.connect().await.1), der(&new));
    done.store(true, Ordering::Relaxed);
    for client in clients {
        assert!(client.await.unwrap() > 0, "each connection was served");
    }
    // The connection from before goes on with what it had.
    old.write_all(b"still").await.unwrap();
    let mut back = [0; 5];
    old.read_exact(&mut back).await.unwrap();
    assert!(&back == b"still" && before != der(&new));
}

#[tokio::test]
async fn broken_files_change_nothing_until_they_are_mended() {
    let server = Server::start();
    let before = shown(&server.connect().await.1);
    std::fs::write(server.dir.path().join("server.crt"), "-----BEGIN CERTIFICATE-----\nhalf a fi").unwrap();
    server.shows("millstream_tls_reloads_total{outcome=\"refused\"} 1").await;
    assert_eq!(shown(&server.connect().await.1), before);
    // A key that belongs to another certificate.
    let other = server.authority.server(&["localhost"]);
    std::fs::write(server.dir.path().join("server.crt"), &other.certificate).unwrap();
    server.shows("millstream_tls_reloads_total{outcome=\"refused\"} 2").await;
    assert_eq!(shown(&server.connect().await.1), before);
    other.write(server.dir.path(), "server");
    server.shows("millstream_tls_reloads_total{outcome=\"replaced\"} 1").await;
    assert_eq!(shown(&server.connect().await.1), der(&other));
}

#[test]
fn settings_and_files_that_cannot_be_used_are_named_with_the_rule() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new("tests");
    let good = config(&dir, &authority.server(&["localhost"]));
    std::fs::write(dir.path().join("text"), "no PEM at all").unwrap();
    let (text, absent) = (dir.path().join("text"), dir.path().join("absent"));
    let [_, other_key] = authority.server(&["localhost"]).write(dir.path(), "other");
    let nameless = dir.path().join("nameless");
    std::fs::create_dir(&nameless).unwrap();
    authority.server(&[]).write(&nameless, "x");
    let old = |extension: &str| {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tls/files/version-1");
        path.with_extension(extension)
    };
    let rows: [(TlsConfig, &[&str]); 8] = [
        (TlsConfig::default(), &["tls.certificate", "name a file"]),
        (TlsConfig { certificate: absent, ..good.clone() }, &["tls.certificate", "absent", "cannot read"]),
        (TlsConfig { certificate: text.clone(), ..good.clone() }, &["tls.certificate", "text", "in PEM"]),
        (TlsConfig { key: text.clone(), ..good.clone() }, &["tls.key", "text", "a private key that is not encrypted"]),
        (TlsConfig { key: other_key, ..good.clone() }, &["server.crt", "other.key", "must belong together"]),
        (
            TlsConfig { certificate: old("crt"), key: old("key"), ..good.clone() },
            &["tls.certificate", "version-1.crt", "X.509 version 1", "-extfile"],
        ),
        (TlsConfig { client_ca: text, ..good.clone() }, &["tls.client_ca", "text", "in PEM"]),
        (TlsConfig { certificates_dir: nameless, ..good }, &["tls.certificates_dir", "x.crt", "must name a host"]),
    ];
    for (config, expected) in rows {
        let error = load(config, &Metrics::default()).unwrap_err().to_string();
        for part in expected {
            assert!(error.contains(part), "{error:?} does not say {part:?}");
        }
    }
}
