//! Given a flipped byte in a sealed segment, when its key is read, then an error names partition, offset and file, and
//! other keys are served.

use std::path::{Path, PathBuf};

use millstream_testkit::eventually;

use crate::{log_has_no_files, make, put, start, tag};

const VICTIM: &[u8] = b"the only value with these very bytes";

fn segments(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(segments(&path));
        } else if path.extension().is_some_and(|extension| extension == "segment") {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn place_of(path: &Path, bytes: &[u8]) -> Option<usize> {
    std::fs::read(path).unwrap().windows(bytes.len()).position(|window| window == bytes)
}

#[test]
fn given_a_flipped_byte_in_a_sealed_segment_then_its_key_has_an_error_with_the_place_and_others_are_served() {
    if log_has_no_files() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let process = start(dir.path());
    let to = process.applications;
    make(&process, "things", r#"{"partitions": 1, "cache_bytes": 0}"#);
    assert_eq!(put(to, "/kv/things/first", &[], b"the first").status, 201);
    let version = tag(&put(to, "/kv/things/victim", &[], VICTIM));
    // A segment is sealed at 64 MiB.
    let filler = vec![b'x'; 900 << 10];
    let written = |number: u64| put(to, &format!("/kv/things/filler-{number}?ack=written"), &[], &filler).status == 201;
    for number in 0..80 {
        eventually("a write is taken", || written(number));
    }
    process.stop();

    let files = segments(&dir.path().join("log"));
    let (path, at) = files.iter().find_map(|path| Some((path, place_of(path, VICTIM)?))).unwrap();
    assert!(files.iter().any(|other| other > path && other.parent() == path.parent()), "it is sealed: {files:?}");
    let mut bytes = std::fs::read(path).unwrap();
    bytes[at + 5] ^= 0x40;
    std::fs::write(path, bytes).unwrap();

    let process = start(dir.path());
    let refused = process.get("/kv/things/victim");
    assert_eq!(refused.status, 503, "{}", refused.text());
    let told = refused.text();
    for part in ["kv.things.default/0, offset ", path.to_str().unwrap(), "log check"] {
        assert!(told.contains(part), "{part} in {told}");
    }
    // The offset is where the damaged part of the file begins.
    let digits = told.split_once("offset ").unwrap().1;
    let offset: u64 = digits[..digits.find(|c: char| !c.is_ascii_digit()).unwrap()].parse().unwrap();
    assert!(offset <= version.trim_matches('"').parse().unwrap(), "{told}");
    for (key, value) in [("filler-0", &filler[..]), ("filler-79", &filler)] {
        let read = process.get(&format!("/kv/things/{key}"));
        assert!(read.status == 200 && read.body == value, "{key}: {}", read.status);
    }
    // The key can be written again.
    assert_eq!(put(process.applications, "/kv/things/victim", &[], b"restored").status, 200);
    assert_eq!(process.get("/kv/things/victim").body, b"restored");
    process.stop();
}
