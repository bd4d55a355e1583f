//! Devices with certificates that connect to MQTTS all at once, as after a power cut.

use std::sync::Arc;
use std::time::{Duration, Instant};

use millstream_testkit::{Authority, Signed};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Barrier;
use tokio_rustls::TlsConnector;

use crate::world::{World, run, succeeded};

/// Number of devices; `MILLSTREAM_TLS_DEVICES` sets another number.
const DEVICES: usize = 200;
/// Devices that are registered in one run.
const AT_ONCE: usize = 200;
/// Beyond what all of them need together.
const PATIENCE: Duration = Duration::from_secs(120);
/// CONNECT of MQTT 3.1.1 with a clean session, no login and no keep-alive; two bytes of a client id of eight follow.
const CONNECT: [u8; 14] = [0x10, 20, 0, 4, b'M', b'Q', b'T', b'T', 4, 2, 0, 0, 0, 8];
/// PUBLISH at QoS 1 to `telemetry` with the packet id 1 and a payload of eight bytes, which follows.
const PUBLISH: [u8; 15] = [0x32, 21, 0, 9, b't', b'e', b'l', b'e', b'm', b'e', b't', b'r', b'y', 0, 1];

fn devices() -> usize {
    std::env::var("MILLSTREAM_TLS_DEVICES").map_or(DEVICES, |devices| devices.parse().unwrap())
}

/// Registers devices in one run of curl over one connection.
fn register(world: &World, numbers: std::ops::Range<usize>) {
    let address = world.server.addresses["applications"];
    let credentials =
        |number| format!(r#"[{{\"type\":\"x509-cert\",\"auth-id\":\"CN={}\",\"secrets\":[{{}}]}}]"#, name(number));
    let request = |method: &str, kind: &str, number: usize, body: &str| {
        format!(
            "url = \"http://{address}/v1/{kind}/acme/{}\"\nrequest = \"{method}\"\ndata = \"{body}\"\n\
             header = \"Content-Type: application/json\"\nfail\noutput = \"/dev/null\"\nsilent\nshow-error\n",
            name(number)
        )
    };
    let each = |number| {
        [request("POST", "devices", number, "{}"), request("PUT", "credentials", number, &credentials(number))]
    };
    let requests: Vec<String> = numbers.flat_map(each).collect();
    let file = world.file("requests");
    std::fs::write(&file, requests.join("next\n")).unwrap();
    succeeded(&run("curl", &["-K", &file], ""));
}

fn name(number: usize) -> String {
    format!("d-{number:06}")
}

fn client(world: &World, signed: &Signed) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(world.server.authority.pem().as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let chain = vec![CertificateDer::from_pem_slice(signed.certificate.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(signed.key.as_bytes()).unwrap();
    TlsConnector::from(Arc::new(builder.with_root_certificates(roots).with_client_auth_cert(chain, key).unwrap()))
}

/// Connects, logs in, sends a message and waits for its confirmation; stays until all have come as far.
async fn serve(port: u16, connector: TlsConnector, number: usize, all: Arc<Barrier>) -> std::io::Result<()> {
    let socket = TcpStream::connect(("127.0.0.1", port)).await?;
    let mut stream = connector.connect(ServerName::try_from("localhost").unwrap(), socket).await?;
    stream.write_all(&[&CONNECT[..], name(number).as_bytes()].concat()).await?;
    let mut answer = [0; 4];
    stream.read_exact(&mut answer).await?;
    assert_eq!(answer, [0x20, 2, 0, 0], "CONNACK of device {number}");
    stream.write_all(&[&PUBLISH[..], name(number).as_bytes()].concat()).await?;
    stream.read_exact(&mut answer).await?;
    assert_eq!(answer, [0x40, 2, 0, 1], "PUBACK of device {number}");
    all.wait().await;
    Ok(())
}

#[test]
fn devices_with_certificates_that_connect_all_at_once_are_all_served() {
    let devices = devices();
    // All share the time that their handshakes take on a machine that is busy with other tests.
    let world = World::start(&["--set", "tls.handshake_timeout_ms=60000"]);
    let authority = Authority::new("devices");
    world.trust("acme", &authority);
    (0..devices).step_by(AT_ONCE).for_each(|first| register(&world, first..devices.min(first + AT_ONCE)));
    let connectors: Vec<_> = (0..devices).map(|number| client(&world, &authority.client(&name(number)))).collect();
    let port = world.server.addresses["devices-mqtt-tls"].port();
    let all = Arc::new(Barrier::new(devices));
    let begin = Instant::now();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let connecting: Vec<_> = connectors
            .into_iter()
            .enumerate()
            .map(|(number, connector)| tokio::spawn(serve(port, connector, number, all.clone())))
            .collect();
        for (number, device) in connecting.into_iter().enumerate() {
            let served = tokio::time::timeout_at((begin + PATIENCE).into(), device).await;
            let served = served.unwrap_or_else(|_| panic!("device {number} is not served"));
            served.unwrap().unwrap_or_else(|error| panic!("device {number}: {error}"));
        }
    });
    eprintln!("{devices} devices are served after {:.1} s", begin.elapsed().as_secs_f64());
    let handshakes = world.metric("millstream_tls_handshakes_total{listener=\"devices-mqtt\"}");
    assert_eq!(handshakes, devices as u64, "nobody had to try again");
    let sent = world.records("telemetry.acme");
    assert!((0..devices).all(|number| sent.contains(&name(number))), "the message of each is stored");
}
