//! The Redis protocol over TLS with redis-cli.

use crate::world::{World, failed, run, said, succeeded};

#[test]
fn redis_cli_stores_and_reads_over_tls() {
    let world = World::start(&[]);
    let (port, ca) = (world.port("redis-tls"), world.ca());
    let tls = ["-h", "localhost", "-p", &port, "--tls", "--cacert", &ca];
    let value = "x".repeat(300_000);
    assert_eq!(succeeded(&run("redis-cli", &[&tls[..], &["-x", "SET", "k"]].concat(), &value)), "OK\n");
    assert_eq!(succeeded(&run("redis-cli", &[&tls[..], &["GET", "k"]].concat(), "")).trim_end(), value);
    let foreign = world.foreign_ca();
    let refused =
        failed(&run("redis-cli", &["-h", "localhost", "-p", &port, "--tls", "--cacert", &foreign, "PING"], ""));
    assert!(refused.contains("certificate verify failed"), "{refused}");
    world.logs(&["TLS handshake failed", "redis", "UnknownCA"]);
    let told = said(&run("redis-cli", &["-h", "localhost", "-p", &port, "PING"], ""));
    assert!(told.contains("this port takes TLS only"), "{told}");
}
