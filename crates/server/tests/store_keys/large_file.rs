//! A large file goes in and out by curl in little memory of the server. `MILLSTREAM_LARGE_FILE_MIB` sets its size.

use std::fs::File;
use std::io::{BufReader, BufWriter, Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use millstream_testkit::Process;

use crate::{make, start};

/// More than the server may add to its memory.
const FILE_MIB: u64 = 160;
const ADDED_MAX_MIB: u64 = 100;
const MIB: u64 = 1 << 20;

/// Writes bytes that no two blocks have in common.
fn write_file(path: &Path, bytes: u64) {
    let mut file = BufWriter::new(File::create(path).unwrap());
    let mut rng = fastrand::Rng::with_seed(7);
    let mut block = vec![0; MIB as usize];
    for _ in 0..bytes / MIB {
        rng.fill(&mut block);
        file.write_all(&block).unwrap();
    }
    file.flush().unwrap();
}

fn is_same(one: &Path, other: &Path) -> bool {
    let sizes = [one, other].map(|path| path.metadata().unwrap().len());
    let [mut one, mut other] = [one, other].map(|path| BufReader::new(File::open(path).unwrap()));
    let (mut left, mut right) = (vec![0; MIB as usize], vec![0; MIB as usize]);
    for _ in 0..sizes[0] / MIB {
        one.read_exact(&mut left).unwrap();
        other.read_exact(&mut right).unwrap();
        if left != right {
            return false;
        }
    }
    sizes[0] == sizes[1]
}

/// Runs curl to its end; returns the most memory that the server had meanwhile, and MiB/s.
fn transfer(process: &Process, mib: u64, arguments: &[&str]) -> (u64, f64) {
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--show-error", "--fail-with-body"]).args(arguments).stdout(Stdio::null());
    let began = Instant::now();
    let mut running = curl.spawn().unwrap();
    let mut most = 0;
    let status = loop {
        most = most.max(process.rss_bytes());
        if let Some(status) = running.try_wait().unwrap() {
            break status;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    };
    assert!(status.success(), "{curl:?}: {status}");
    (most, mib as f64 / began.elapsed().as_secs_f64())
}

#[test]
fn a_large_file_goes_in_and_out_by_curl_in_little_memory() {
    let mib = std::env::var("MILLSTREAM_LARGE_FILE_MIB").map_or(FILE_MIB, |mib| mib.parse().unwrap());
    assert!(mib > ADDED_MAX_MIB, "a file of {mib} MiB shows nothing; use more than {ADDED_MAX_MIB}");
    let dir = tempfile::tempdir().unwrap();
    let [data, sent, received] = ["data", "sent", "received"].map(|name| dir.path().join(name));
    std::fs::create_dir(&data).unwrap();
    write_file(&sent, mib * MIB);
    let process = start(&data);
    make(&process, "files", "{}");
    let url = format!("{}/kv/files/large", process.applications_url());
    let before = process.rss_bytes();
    let (most_in, rate_in) = transfer(&process, mib, &["-T", sent.to_str().unwrap(), &url]);
    let (most_out, rate_out) = transfer(&process, mib, &["-o", received.to_str().unwrap(), &url]);
    let [added_in, added_out] = [most_in, most_out].map(|most| most.saturating_sub(before) / MIB);
    println!(
        "{mib} MiB in at {rate_in:.0} MiB/s with {added_in} MiB added, out at {rate_out:.0} MiB/s with {added_out} MiB"
    );
    assert!(is_same(&sent, &received), "other bytes come out");
    assert!(added_in < ADDED_MAX_MIB && added_out < ADDED_MAX_MIB, "{added_in} and {added_out} MiB are added");
    process.stop();
}
