//! Every kind of work: who may start it, and that the server ends while it runs.

use std::collections::BTreeSet;

use millstream_testkit::ask;

use crate::door::DOORS;
use crate::work::{DOORS_WITHOUT_KIND, Ground, KINDS, without};

#[test]
fn every_door_by_which_work_can_be_started_has_a_kind_with_a_row() {
    let dir = tempfile::tempdir().unwrap();
    let ground = Ground::start(dir.path());
    let mut doors = BTreeSet::new();
    for to in [ground.process.applications, ground.process.devices] {
        let document = ask(to, "GET", "/openapi.json", &[], b"").json();
        let operations = document["paths"].as_object().unwrap().values().flat_map(|path| path.as_object().unwrap());
        doors.extend(operations.filter_map(|(_, operation)| operation["tags"][0].as_str().map(str::to_owned)));
    }
    let of_http = ["applications", "devices-http"];
    doors.extend(DOORS.iter().map(|door| door.listener.to_owned()).filter(|name| !of_http.contains(&name.as_str())));
    let rows = KINDS.iter().map(|kind| kind.door).chain(DOORS_WITHOUT_KIND);
    assert_eq!(rows.map(str::to_owned).collect::<BTreeSet<_>>(), doors, "rows and doors");
    ground.process.stop();
}

#[test]
fn every_kind_of_work_is_refused_without_its_role_and_none_keeps_the_server_from_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let ground = Ground::start(dir.path());
    let mut running = Vec::new();
    for kind in &KINDS {
        let stranger = kind.role.map_or_else(|| "nobody".to_owned(), without);
        let refused = (kind.start)(&ground, &stranger);
        assert!(refused.is_err(), "{} starts without the role {:?}", kind.name, kind.role);
        running.push((kind.start)(&ground, "all").unwrap_or_else(|why| panic!("{}: {why}", kind.name)));
    }
    // An orderly end, with all of it running and nobody who lets go.
    ground.process.stop();
    drop(running);
}

#[test]
fn a_tenant_that_has_all_that_it_may_have_of_a_kind_leaves_others_theirs() {
    let dir = tempfile::tempdir().unwrap();
    let ground = Ground::start(dir.path());
    // Kept queries before others, among which they count.
    let limited = KINDS.iter().rev().filter_map(|kind| Some((kind, kind.share.most()?)));
    let mut running = Vec::new();
    for (kind, most) in limited {
        let before = running.len();
        running.extend((0..=most).map_while(|_| (kind.start)(&ground, "all").ok()));
        assert_eq!(running.len() - before, most, "{} of one tenant", kind.name);
        let other = (kind.start)(&ground, "other");
        running.push(other.unwrap_or_else(|why| panic!("{} of another tenant: {why}", kind.name)));
    }
    ground.process.stop();
}
