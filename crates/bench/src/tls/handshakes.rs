//! Full handshakes, one connection at a time, by `openssl s_time`.

use std::net::SocketAddr;
use std::process::Command;

use anyhow::{Context as _, ensure};
use millstream_load::report::{BenchCase, Peer};
use serde_json::json;

use super::certificate::{CertificateFiles, CertificateKind};
use super::{TlsBench, nginx};
use crate::findings::{Findings, at_least};
use crate::process;
use crate::server_process::ServerProcess;

/// Least handshakes per core, of those of nginx.
const OF_NGINX_AIM: f64 = 0.7;
/// Name and option of each version.
const VERSIONS: [(&str, &str); 2] = [("TLS 1.3", "-tls1_3"), ("TLS 1.2", "-tls1_2")];

/// Handshakes of one server, with the time and CPU time that they took.
#[derive(Debug, Clone, Copy, Default)]
struct HandshakeCount {
    connections: f64,
    took_s: f64,
    cpu_s: f64,
}

impl HandshakeCount {
    fn add(&mut self, other: Self) {
        self.connections += other.connections;
        self.took_s += other.took_s;
        self.cpu_s += other.cpu_s;
    }

    fn per_core_per_s(&self) -> Option<f64> {
        (self.cpu_s > 0.0).then(|| self.connections / self.cpu_s)
    }

    fn cpu_s_per_million(&self) -> Option<f64> {
        (self.connections > 0.0).then(|| self.cpu_s / self.connections * 1e6)
    }
}

pub(super) fn measure(bench: &TlsBench<'_>, findings: &mut Findings) -> anyhow::Result<()> {
    for kind in [CertificateKind::EcdsaP256, CertificateKind::Rsa2048] {
        let files = CertificateFiles::self_signed(bench.dir, kind)?;
        let dir = bench.dir.join(format!("{kind:?}"));
        std::fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let ours = ServerProcess::start_with_tls(&dir, &bench.cores, &files.certificate, &files.key)?;
        let url = ours.devices_tls_url.trim_start_matches("https://");
        let our_address = url.parse().with_context(|| format!("{url} is no address"))?;
        let (peer, peer_address) = nginx::start(&dir.join("nginx"), &bench.cores, &files)?;
        for (version, option) in VERSIONS {
            let (mut our_count, mut peer_count) = (HandshakeCount::default(), HandshakeCount::default());
            for round in 0..bench.plan.rounds {
                eprintln!("handshakes, {version}, {}, round {} of {}", kind.name(), round + 1, bench.plan.rounds);
                our_count.add(run(bench, ours.pid(), our_address, option)?);
                peer_count.add(run(bench, peer.pid(), peer_address, option)?);
            }
            let name = format!("handshakes, {version}, {}", kind.name());
            if let (Some(ours), Some(theirs)) = (our_count.per_core_per_s(), peer_count.per_core_per_s()) {
                findings.aim(at_least(&format!("{name}, per core, of nginx"), ours / theirs, OF_NGINX_AIM));
            }
            findings.cases.push(case(bench, name, &our_count, &peer.name, &peer_count, ours.rss_mib()?));
        }
    }
    Ok(())
}

fn case(
    bench: &TlsBench<'_>,
    name: String,
    ours: &HandshakeCount,
    peer: &str,
    theirs: &HandshakeCount,
    rss_mib: f64,
) -> BenchCase {
    let mut conditions = bench.machine.conditions();
    conditions.insert("generator".to_owned(), json!("openssl s_time -new, one connection at a time"));
    conditions.insert("connections".to_owned(), json!(ours.connections));
    conditions.insert("cores_of".to_owned(), json!(bench.cores.to_string()));
    conditions.insert("rounds".to_owned(), json!(bench.plan.rounds));
    let (our_rate, peer_rate) = (ours.connections / ours.took_s, theirs.connections / theirs.took_s);
    BenchCase {
        suite: "tls".to_owned(),
        case: name,
        conditions,
        rate_per_s: our_rate,
        per_core_per_s: ours.per_core_per_s(),
        latency_ms: None,
        errors: 0,
        rss_mib: Some(rss_mib),
        cpu_s_per_million: ours.cpu_s_per_million(),
        peer: Some(Peer {
            name: peer.to_owned(),
            rate_per_s: peer_rate,
            cpu_s_per_million: theirs.cpu_s_per_million(),
            ..Peer::default()
        }),
        ratio: Some(our_rate / peer_rate),
        generator_bottleneck: false,
    }
}

fn run(bench: &TlsBench<'_>, pid: u32, address: SocketAddr, version: &str) -> anyhow::Result<HandshakeCount> {
    process::rest(pid)?;
    let before_s = process::cpu_s(pid)?;
    let time = bench.plan.time.as_secs().to_string();
    let mut command = Command::new("openssl");
    command.args(["s_time", "-new", version, "-time", &time, "-connect", &address.to_string()]);
    let output = command.output().context("cannot run openssl")?;
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "{command:?}: {said}{}", String::from_utf8_lossy(&output.stderr));
    let (connections, took_s) = read(&said).with_context(|| format!("{command:?} tells no connections: {said}"))?;
    ensure!(connections > 0.0, "{command:?} has made no connection");
    process::rest(pid)?;
    Ok(HandshakeCount { connections, took_s, cpu_s: process::cpu_s(pid)? - before_s })
}

/// Reads the connections and seconds of real time from the output of `openssl s_time`.
fn read(said: &str) -> Option<(f64, f64)> {
    let line = said.lines().find(|line| line.contains(" real seconds"))?;
    let mut words = line.split_ascii_whitespace();
    let connections = words.next()?.parse().ok()?;
    let took_s = words.nth(2)?.parse().ok()?;
    Some((connections, took_s))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_s_time_is_read() {
        let said = "Collecting connection statistics for 1 seconds\n***\n\n1234 connections in 0.52s; 2373.08 connections/user \
                    sec, bytes read 0\n1234 connections in 2 real seconds, 0 bytes read per connection\n";
        assert_eq!(read(said), Some((1234.0, 2.0)));
        assert_eq!(read("no such thing"), None);
    }
}
