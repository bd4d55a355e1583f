//! The console over HTTPS in Chromium, which trusts the authorities in the data base of its home directory and no others.

use std::path::Path;

use crate::clients::beside;
use crate::world::{World, failed, path, run, succeeded};

/// A home directory whose browser trusts this authority.
fn home(ca: &str) -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    let store = home.path().join(".pki/nssdb");
    std::fs::create_dir_all(&store).unwrap();
    let store = format!("sql:{}", path(&store));
    succeeded(&run("certutil", &["-N", "-d", &store, "--empty-password"], ""));
    succeeded(&run("certutil", &["-A", "-d", &store, "-n", "tests", "-t", "C,,", "-i", ca], ""));
    home
}

#[test]
fn chromium_opens_the_console_where_its_authority_is_trusted_and_nowhere_else() {
    let world = World::start(&[]);
    let console = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../console");
    assert!(console.join("node_modules/playwright-core").exists(), "run scripts/build-console, and build again");
    let script = beside("chromium.mjs");
    let (trusting, other) = (home(&world.ca()), home(&world.foreign_ca()));
    let open =
        |home: &tempfile::TempDir, url: &str| run("node", &[path(&script), path(&console), path(home.path()), url], "");
    let url = world.url("applications", "/");
    let said = succeeded(&open(&trusting, &url));
    assert!(said.contains("live over TLS 1.3"), "{said}");
    let said = failed(&open(&other, &url));
    assert!(said.contains("ERR_CERT_AUTHORITY_INVALID"), "{said}");
    world.logs(&["TLS handshake failed", "applications", "server_certificate"]);
    let said = failed(&open(&trusting, &url.replace("localhost", "127.0.0.1")));
    assert!(said.contains("ERR_CERT_COMMON_NAME_INVALID"), "{said}");
}
