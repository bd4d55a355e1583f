//! Backups that are cut off, damaged or refused: what was complete stays so, and nothing is half restored.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};

use millstream_testkit::{Process, ask, eventually, millstream};
use serde_json::{Value, json};

use crate::backup::{
    Places, append, command, create_topic, damage, done, files, of_directory, received, records, refused, restore,
};
use crate::tokens::{call, every_role, make};

/// Appends records of 100,000 bytes that differ.
fn fill(process: &Process, topic: &str, count: u64) {
    let value = |number: u64| {
        format!(
            "{number} {}",
            (0..100_000).map(|at| char::from(b'a' + ((at * 7 + number) % 26) as u8)).collect::<String>()
        )
    };
    for number in 0..count {
        append(process, topic, "k", &value(number));
    }
}

/// A server with 6 MB, and a backup of its first records.
fn started(places: &Places) -> Process {
    let process = Process::start(&places.data);
    create_topic(&process, "large", &json!({"partitions": 1, "segment_bytes": 1 << 20}));
    fill(&process, "large", 5);
    done(command(&process, "", &places.backups));
    fill(&process, "large", 60);
    process
}

/// A backup that takes some seconds and has begun to receive.
fn slow_backup(process: &Process, places: &Places) -> Child {
    let mut slow = command(process, "", &places.backups);
    let mut child = slow.args(["--rate", "1"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains(" has begun: "), "{line}");
    let shared = places.backups.join("files");
    let size = || files(&shared).iter().map(|path| path.metadata().unwrap().len()).sum::<u64>();
    let before = size();
    eventually("bytes are received", || size() > before + 500_000);
    child
}

fn moments(backups: &Path) -> Vec<String> {
    let listed = done(of_directory("list", backups, &[]));
    listed.lines().skip(1).map(|line| line.split(' ').next().unwrap().to_owned()).collect()
}

#[test]
fn a_server_killed_during_a_backup_leaves_the_last_one_whole() {
    if crate::log_has_no_files() {
        return;
    }
    let places = Places::new();
    let process = started(&places);
    let child = slow_backup(&process, &places);
    process.kill();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("receiving log/topics/"), "{said}");
    assert_eq!(moments(&places.backups).len(), 1);
    done(of_directory("verify", &places.backups, &[]));
    done(restore(&places.backups, &places.restored, &[]));
    let restored = Process::start(&places.restored);
    assert_eq!(records(&restored, "", "large").len(), 5);
    restored.stop();

    // The server starts again, and the next backup into the same directory is complete.
    let process = Process::start(&places.data);
    done(command(&process, "", &places.backups));
    let all = records(&process, "", "large");
    process.stop();
    done(of_directory("verify", &places.backups, &[]));
    let again = places.restored.with_file_name("again");
    done(restore(&places.backups, &again, &[]));
    let restored = Process::start(&again);
    assert_eq!(records(&restored, "", "large"), all);
    restored.stop();
}

#[test]
fn a_backup_that_is_killed_goes_on_where_it_was_with_the_next_one() {
    if crate::log_has_no_files() {
        return;
    }
    let places = Places::new();
    let process = started(&places);
    let mut child = slow_backup(&process, &places);
    let also = refused(command(&process, "", &places.backups));
    assert!(also.contains("is in use by another 'millstream backup' or 'restore'"), "{also}");
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(moments(&places.backups).len(), 1);
    done(of_directory("verify", &places.backups, &[]));
    let rest = received(&done(command(&process, "", &places.backups)));
    assert!((500_000..5_700_000).contains(&rest), "{rest} bytes of 6 MB");
    assert_eq!(moments(&places.backups).len(), 2);
    done(of_directory("verify", &places.backups, &[]));
    process.stop();
}

#[test]
fn a_changed_byte_is_told_with_its_file_and_what_it_holds_and_nothing_is_restored() {
    if crate::log_has_no_files() {
        return;
    }
    let places = Places::new();
    let process = started(&places);
    let entity = json!({"id": "room1", "type": "Room", "temperature": {"value": 1}});
    let created = call(process.applications, "", "POST", "/v2/entities", &entity);
    assert_eq!(created.status, 201, "{}", created.text());
    done(command(&process, "", &places.backups));
    let name = moments(&places.backups).pop().unwrap();
    let large = |path: &&std::path::PathBuf| path.metadata().unwrap().len() > 900_000;
    let found = files(&places.backups);
    let segment = found.iter().find(large).unwrap();
    let own = places.backups.join("moments").join(&name);
    for (path, at, told) in [
        (segment.clone(), 200_000, "of topic 'large', partition 0"),
        (own.join("log/meta"), 100, "it holds the list of topics and positions"),
        (own.join("log/journal/00000001.journal"), 100, "it holds the newest records of all topics"),
        (own.join("manifest"), 400, "the list of all files of backup"),
    ] {
        damage(&path, at);
        let said = refused(of_directory("verify", &places.backups, &["--at", &name]));
        assert!(said.contains(path.to_str().unwrap()) && said.contains(told), "{said}");
        let said = refused(restore(&places.backups, &places.restored, &[]));
        assert!(said.contains("nothing is restored") && said.contains(told), "{said}");
        assert!(!places.restored.exists());
        damage(&path, at);
    }
    let cut = std::fs::OpenOptions::new().write(true).open(segment).unwrap();
    let whole = std::fs::read(segment).unwrap();
    cut.set_len(whole.len() as u64 / 2).unwrap();
    let said = refused(of_directory("verify", &places.backups, &[]));
    assert!(said.contains("it is shorter than was synced") || said.contains("cannot be read"), "{said}");
    // The next backup heals what the server still has.
    done(command(&process, "", &places.backups));
    done(of_directory("verify", &places.backups, &[]));
    process.stop();
}

#[test]
fn a_damaged_server_is_not_backed_up_and_says_where_the_damage_is() {
    if crate::log_has_no_files() {
        return;
    }
    let places = Places::new();
    let process = started(&places);
    let found = files(&places.data.join("log/topics"));
    let segment = found.iter().rfind(|path| path.metadata().unwrap().len() > 900_000).unwrap();
    damage(segment, 300_000);
    let said = refused(command(&process, "", &places.backups));
    assert!(said.contains("the server's file log/topics/") && said.contains("of topic 'large', partition 0"), "{said}");
    assert_eq!(moments(&places.backups).len(), 1);
    done(of_directory("verify", &places.backups, &[]));
    damage(segment, 300_000);
    done(command(&process, "", &places.backups));
    done(of_directory("verify", &places.backups, &[]));
    process.stop();
}

#[test]
fn only_an_administrator_of_every_tenant_takes_a_backup() {
    if crate::log_has_no_files() {
        return;
    }
    let places = Places::new();
    let process = Process::start(&places.data);
    let root = make(&process, "", &every_role("root", "*"));
    let of_tenant = make(&process, &root, &every_role("acme", "acme"));
    let reader = make(&process, &root, &json!({"name": "reader", "tenant": "*", "roles": ["reader", "writer"]}));
    for (token, tenant, told) in [
        ("", "default", "token"),
        (&of_tenant, "acme", "this route concerns every tenant"),
        (&reader, "default", "for callers with role 'admin'"),
    ] {
        let mut backup = command(&process, token, &places.backups);
        backup.args(["--tenant", tenant]);
        let said = refused(backup);
        assert!(said.contains(told), "{said}");
    }
    let begun = call(process.applications, &root, "POST", "/api/backups", &Value::Null);
    assert_eq!(begun.status, 201, "{}", begun.text());
    let id = begun.json()["backup"].as_str().unwrap().to_owned();
    let asked = |token: &str, path: &str| call(process.applications, token, "GET", path, &Value::Null);
    let path = format!("/api/backups/{id}");
    for (range, told) in [
        ("0:0-0", "from below to"),
        ("0:5-999999999", "the file has"),
        ("99999:0-1", "there are"),
        ("a:b", "is not of that form"),
        ("", "0 ranges are asked for"),
    ] {
        let refusal = asked(&root, &format!("{path}/bytes?ranges={range}"));
        assert_eq!(refusal.status, 400, "{range}");
        assert!(refusal.text().contains(told), "{range}: {}", refusal.text());
    }
    let bytes = asked(&root, &format!("{path}/bytes?ranges=0:0-8,0:0-4"));
    assert_eq!(bytes.body, b"MSTRMETAMSTR");
    assert_eq!(asked(&of_tenant, &format!("{path}/bytes?ranges=0:0-8")).status, 403);
    assert_eq!(call(process.applications, &root, "DELETE", &path, &Value::Null).status, 204);
    assert_eq!(asked(&root, &path).status, 404);
    // What a backup says and lists has no secrets.
    let said = done(command(&process, &root, &places.backups));
    let manifest = files(&places.backups).into_iter().find(|path| path.ends_with("manifest")).unwrap();
    let manifest = std::fs::read_to_string(manifest).unwrap();
    for secret in [&root, &of_tenant, &reader] {
        assert!(!said.contains(secret.as_str()) && !manifest.contains(secret.as_str()));
    }
    process.stop();
}

#[test]
fn directories_that_do_not_fit_are_refused_and_old_backups_are_removed() {
    if crate::log_has_no_files() {
        return;
    }
    let places = Places::new();
    let process = Process::start(&places.data);
    create_topic(&process, "orders", &json!({"partitions": 1, "segment_bytes": 65536, "retention_bytes": 200_000}));
    for _ in 0..3 {
        fill(&process, "orders", 3);
        done(command(&process, "", &places.backups));
    }
    let said = done({
        let mut last = command(&process, "", &places.backups);
        last.args(["--keep", "2"]);
        last
    });
    assert_eq!(said.matches(" is removed").count(), 2, "{said}");
    let kept = moments(&places.backups);
    assert_eq!(kept.len(), 2);
    done(of_directory("verify", &places.backups, &[]));

    let no_backups = refused(of_directory("list", &places.data, &[]));
    assert!(no_backups.contains("there are no backups in"), "{no_backups}");
    let foreign = refused(command(&process, "", &places.data));
    assert!(foreign.contains("has other files than backups"), "{foreign}");
    let not_empty = refused(restore(&places.backups, &places.data, &[]));
    assert!(not_empty.contains("is not empty"), "{not_empty}");
    let unknown = refused(restore(&places.backups, &places.restored, &["--at", "yesterday"]));
    assert!(unknown.contains("there is no backup 'yesterday'"), "{unknown}");
    let all = records(&process, "", "orders");
    process.stop();

    // A restore that was cut off keeps a server from starting with nothing, and is begun again.
    std::fs::create_dir_all(places.restored.join(".restoring/log")).unwrap();
    let mut serve = millstream_testkit::millstream();
    serve.args(["serve", "--data-dir"]).arg(&places.restored);
    let said = refused(serve);
    assert!(said.contains("a restore into") && said.contains("was cut off"), "{said}");
    done(restore(&places.backups, &places.restored, &["--at", &kept[1]]));
    let restored = Process::start(&places.restored);
    assert_eq!(records(&restored, "", "orders"), all);

    // A restored server is another log: its backups go to a directory of their own.
    let other = refused(command(&restored, "", &places.backups));
    assert!(other.contains("is for backups of another log"), "{other}");
    let own = places.restored.with_file_name("own");
    assert!(received(&done(command(&restored, "", &own))) > 0);
    assert_eq!(ask(restored.applications, "GET", "/healthz", &[], b"").status, 200);
    restored.stop();
}

/// A damaged file of history concerns the reads that need it and backups alone, until a repair takes it out.
#[test]
fn a_damaged_file_of_history_is_told_refused_by_a_backup_and_taken_out_by_a_repair() {
    if crate::log_has_no_files() {
        return;
    }
    let places = Places::new();
    let process = Process::start(&places.data);
    let room = json!({"id": "room1", "type": "Room", "temperature": {"value": 21.5}});
    assert_eq!(call(process.applications, "", "POST", "/v2/entities", &room).status, 201);
    let path = "/ngsi-ld/v1/temporal/entities/room1";
    assert_eq!(call(process.applications, "", "GET", path, &Value::Null).status, 200);
    process.stop();
    let [file] = &files(&places.data.join("history"))[..] else { panic!("one file") };
    damage(file, 50);

    let process = Process::start(&places.data);
    let told = refused(command(&process, "", &places.backups));
    assert!(told.contains("file history/tenant=") && told.contains("is damaged: its checksums"), "{told}");
    let read = call(process.applications, "", "GET", path, &Value::Null);
    assert!(read.status == 500 && read.text().contains("does not match its checksum"), "{}", read.text());
    let ready = call(process.applications, "", "GET", "/readyz", &Value::Null);
    let is_told = ready.text().starts_with("ready\ndegraded: history: ") && ready.text().contains("log repair");
    assert!(ready.status == 200 && is_told, "{}", ready.text());
    process.stop();

    let mut repair = millstream();
    repair.args(["log", "repair", "--yes", "--data-dir"]).arg(&places.data);
    let told = done(repair);
    assert!(told.contains("loses 1 points of the type Room of the tenant default"), "{told}");
    let process = Process::start(&places.data);
    assert_eq!(call(process.applications, "", "GET", "/readyz", &Value::Null).text(), "ready\n");
    assert_eq!(call(process.applications, "", "GET", path, &Value::Null).status, 404);
    done(command(&process, "", &places.backups));
    done(of_directory("verify", &places.backups, &[]));
    process.stop();
}
