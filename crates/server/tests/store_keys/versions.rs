//! No version of a key, and so no entity tag, is ever given again.

use std::collections::HashSet;
use std::path::Path;

use millstream_testkit::{Process, ask, millstream};

use crate::{log_has_no_files, make, put, start, tag};

const WRITES: usize = 20;

/// Writes the same keys several times, and adds the tags that the server gives to `seen`, with the bucket.
fn write(process: &Process, bucket: &str, seen: &mut HashSet<String>) {
    for number in 0..WRITES {
        let path = format!("/kv/{bucket}/key-{}", number % 3);
        let tag = tag(&put(process.applications, &path, &[], format!("value {number}").as_bytes()));
        assert!(seen.insert(format!("{bucket} {tag}")), "{bucket}: {tag} was given before");
    }
}

fn restore(process: &Process, backups: &Path, data_dir: &Path) {
    let mut backup = millstream();
    backup.arg("backup").arg("--to").arg(backups).env("MILLSTREAM_SERVER", process.applications_url());
    let mut restore = millstream();
    restore.arg("restore").arg("--from").arg(backups).arg("--data-dir").arg(data_dir);
    for mut command in [backup, restore] {
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }
}

#[test]
fn a_tag_never_comes_back_with_another_bucket_a_restart_or_a_restore() {
    let dir = tempfile::tempdir().unwrap();
    let (data, backups, restored) = (dir.path().join("data"), dir.path().join("backups"), dir.path().join("restored"));
    std::fs::create_dir(&data).unwrap();
    let mut seen = HashSet::new();
    let buckets = [("durable", r#"{"partitions": 1}"#), ("cache", r#"{"kind": "cache"}"#)];
    let mut process = start(&data);
    for (bucket, settings) in buckets {
        for _ in 0..2 {
            make(&process, bucket, settings);
            write(&process, bucket, &mut seen);
            assert_eq!(ask(process.applications, "DELETE", &format!("/buckets/{bucket}"), &[], b"").status, 204);
        }
        make(&process, bucket, settings);
    }
    for kills in [false, true] {
        seen.clear();
        for (bucket, _) in buckets {
            write(&process, bucket, &mut seen);
        }
        if kills {
            process.kill()
        } else {
            process.stop()
        }
        process = start(&data);
        for (bucket, _) in buckets {
            write(&process, bucket, &mut seen);
        }
    }

    if log_has_no_files() {
        return process.stop();
    }
    // What is written behind a backup is not in it. A kill makes the original skip offsets, too.
    restore(&process, &backups, &restored);
    let mut seen = HashSet::new();
    write(&process, "durable", &mut seen);
    process.kill();
    let process = start(&data);
    write(&process, "durable", &mut seen);
    process.stop();
    let process = start(&restored);
    write(&process, "durable", &mut seen);
    process.stop();
}
