//! Mutated bodies, queries and geometries: each is parsed or refused, nothing panics, and memory stays within bounds.
//! Valid mutants seed further ones, so that the parts of every form are reached.

use std::panic::{AssertUnwindSafe, catch_unwind};

use fastrand::Rng;
use serde_json::{Map, Value};

use crate::entities::batch_update;
use crate::model::datetime;
use crate::model::geometry;
use crate::model::request_body::{self, BodyForm, BodyOptions, TextRule};
use crate::query::{Criteria, Expression, Order, Rules};
use crate::requests::op_query::OpQuery;
use crate::subscriptions::compile_any;

/// Valid texts that are kept as seeds.
const KEPT_MAX: usize = 2_000;
const TEXT_MAX_BYTES: usize = 1 << 10;
/// Memory growth that an unchecked length would cause at once; other tests of the process cause some of it.
const GROWTH_MAX_BYTES: u64 = 1 << 30;

fn mutations() -> usize {
    std::env::var("MILLSTREAM_MUTATIONS").map_or(200_000, |mutations| mutations.parse().unwrap())
}

/// Parses a text; returns whether it is valid.
type Reader = fn(&[u8]) -> bool;

/// All parsers of client input, each with a valid text.
const READERS: [(&str, Reader, &str); 16] = [
    (
        "entity",
        |body| request_body::entity(body, BodyOptions::NORMALIZED).is_ok(),
        r#"{"id":"a","type":"T","t":{"value":21.5,"type":"Number","metadata":{"u":{"value":"C","type":"Text"}}},"when":{"type":"DateTime","value":"2020-01-01T00:00:00.5+02:00"},"dateExpires":{"value":"2050-01-01","type":"DateTime"}}"#,
    ),
    (
        "keyValues",
        |body| request_body::entity(body, BodyOptions { form: BodyForm::KeyValues, override_metadata: true }).is_ok(),
        r#"{"id":"a","n":{"$inc":1},"l":[1,null,{"b":true}],"s":{"$push":{"$each":[1,2],"$position":0}},"o":{"$set":{"a":1},"$unset":{"b":1}}}"#,
    ),
    (
        "attributes",
        |body| request_body::attributes(body, BodyOptions::NORMALIZED).is_ok(),
        r#"{"location":{"type":"geo:json","value":{"type":"Polygon","coordinates":[[[0,0],[0,1],[1,1],[0,0]]]}},"p":{"type":"geo:point","value":"40.1, -3.5"}}"#,
    ),
    (
        "attribute",
        |body| request_body::attribute("a", body, BodyOptions::NORMALIZED).is_ok(),
        r#"{"value":{"$addToSet":"x"},"metadata":{}}"#,
    ),
    ("json value", |body| request_body::json_value("a", body, TextRule::Checked).is_ok(), r#"{"a":[1,2,{"b":"c"}]}"#),
    ("text value", |body| request_body::text_value("a", body, TextRule::Checked).is_ok(), "\"x\""),
    (
        "op/update",
        |body| batch_update::read(body, BodyOptions::NORMALIZED).is_ok(),
        r#"{"actionType":"append","entities":[{"id":"a","type":"T","t":{"value":1}},{"id":"b","t":{"value":"x"}}]}"#,
    ),
    (
        "context_update record",
        |body| batch_update::read_record(body, BodyForm::Either).is_ok(),
        r#"{"id":"a","type":"T","t":{"value":21.5,"type":"Number"},"n":{"$inc":1},"l":[1,"x"]}"#,
    ),
    (
        "op/notify",
        |body| batch_update::read_notification(body).is_ok(),
        r#"{"subscriptionId":"5f3e1b7c9d8a4e2f6b1c0a9d","data":[{"id":"a","type":"T","t":{"value":1,"type":"Number","metadata":{}}}]}"#,
    ),
    (
        "op/query",
        |body| OpQuery::read(body).is_ok(),
        r#"{"entities":[{"idPattern":"^R.*1$","type":"Room"},{"id":"a","typePattern":"T"}],"attrs":["t"],"metadata":["*"],"expression":{"q":"t>1","mq":"t.u==C","georel":"near;maxDistance:10","geometry":"point","coords":"1,2"}}"#,
    ),
    (
        "subscription",
        |body| compiled(body),
        r#"{"description":"d","subject":{"entities":[{"idPattern":".*","type":"Room"}],"condition":{"attrs":["t"],"expression":{"q":"t>40"},"alterationTypes":["entityChange"]}},"notification":{"httpCustom":{"url":"http://127.0.0.1:1/${id}","headers":{"a":"${t}"},"qs":{"b":"c"},"method":"PUT","json":{"x":"${t}"}},"attrs":["t"],"metadata":["previousValue"],"attrsFormat":"normalized"},"expires":"2050-01-01T00:00:00Z","throttling":5}"#,
    ),
    (
        "q",
        |text| text_of(text, |text| Expression::of_q(text, Rules::Sent).is_ok()),
        "t>20;!a;b==x,y;'a.b'.c!=1..5;d~=^k.*;e==2020-01-01..2021-01-01;f=='20';g:true",
    ),
    (
        "mq",
        |text| text_of(text, |text| Expression::of_mq(text, Rules::Sent).is_ok()),
        "t.u==C;t.acc<=1.5;!t.x;a.b.c!=null",
    ),
    ("orderBy", |text| text_of(text, |text| Order::read(text, true).is_ok()), "!t,a,dateCreated,geo:distance"),
    ("geo query", |text| text_of(text, geo), "near;maxDistance:1000;minDistance:1 point 40.4,-3.7"),
    (
        "geometry and date",
        |text| text_of(text, located),
        r#"{"type":"MultiPolygon","coordinates":[[[[0,0],[0,10],[10,10],[0,0]]]]}"#,
    ),
];

fn text_of(text: &[u8], read: impl Fn(&str) -> bool) -> bool {
    std::str::from_utf8(text).is_ok_and(read)
}

/// A geo query: relation, geometry and coordinates, separated by blanks.
fn geo(text: &str) -> bool {
    let parts: Vec<&str> = text.splitn(3, ' ').collect();
    let names = ["georel", "geometry", "coords"];
    let given = |name: &str| parts.get(names.iter().position(|known| *known == name)?).copied();
    Criteria::read(Rules::Sent, given).is_ok()
}

fn located(text: &str) -> bool {
    let is_date = datetime::parse(text).is_some();
    let value = serde_json::from_str(text).unwrap_or_else(|_| Value::from(text));
    let kinds = ["geo:json", "geo:point", "geo:line", "geo:box", "geo:polygon"];
    // Tries all kinds, whether the first is valid or not.
    kinds.into_iter().filter(|kind| geometry::read(kind, &value).is_ok()).count() > 0 || is_date
}

fn compiled(body: &[u8]) -> bool {
    serde_json::from_slice::<Map<String, Value>>(body).is_ok_and(|document| compile_any(document).is_ok())
}

/// Peak virtual memory of this process.
fn asked_for_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmPeak:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

/// Fragments that some parser gives a meaning.
const PIECES: [&str; 24] = [
    "{",
    "}",
    "[",
    "]",
    "\"",
    "\\",
    ":",
    ",",
    "$inc",
    "$each",
    "geo:json",
    "1e999",
    "-0",
    "9223372036854775808",
    "null",
    "\\ud800",
    "..",
    ";",
    "~=(a|b)*",
    "!",
    "'",
    "9999-12-31T23:59:59-01:00",
    "maxDistance:1e400",
    "\u{e9}\u{1f600}",
];

fn mutate(dice: &mut Rng, text: &mut Vec<u8>, other: &[u8]) {
    let at = dice.usize(0..=text.len());
    match dice.u8(0..7) {
        0 if at < text.len() => text[at] ^= 1 << dice.u8(0..8),
        1 => text.truncate(at),
        2 => text.extend_from_slice(&other[other.len().min(at)..]),
        3 => drop(text.splice(at..at, dice.choice(PIECES).unwrap().bytes())),
        4 => drop(text.drain(at..(at + dice.usize(0..8)).min(text.len()))),
        5 if at < text.len() => {
            let end = (at + dice.usize(1..40)).min(text.len());
            let again = text[at..end].repeat(dice.usize(1..4));
            drop(text.splice(at..at, again));
        }
        _ => text.insert(at, dice.u8(..)),
    }
    text.truncate(TEXT_MAX_BYTES);
}

#[test]
fn malformed_bodies_queries_and_geometries_are_read_or_refused_without_panic() {
    let mut dice = Rng::with_seed(5);
    let mut kept: Vec<Vec<Vec<u8>>> = Vec::new();
    for (name, reader, text) in READERS {
        assert!(reader(text.as_bytes()), "{name} is read as it is written");
        kept.push(vec![text.as_bytes().to_vec()]);
    }
    let before_bytes = asked_for_bytes();
    let mut read = [0_usize; READERS.len()];
    for _ in 0..mutations() {
        let which = dice.usize(0..READERS.len());
        let other = kept[dice.usize(0..READERS.len())].first().unwrap().clone();
        let mut text = dice.choice(&kept[which]).unwrap().clone();
        (0..=dice.usize(0..4)).for_each(|_| mutate(&mut dice, &mut text, &other));
        let (name, reader, _) = READERS[which];
        let outcome = catch_unwind(AssertUnwindSafe(|| reader(&text)));
        let is_read = outcome.unwrap_or_else(|_| panic!("{name}: {:?}", String::from_utf8_lossy(&text)));
        read[which] += usize::from(is_read);
        if is_read && kept[which].len() < KEPT_MAX {
            kept[which].push(text);
        }
    }
    for ((name, ..), read) in READERS.iter().zip(read) {
        println!("{name}: {read} read");
        assert!(read > 0, "some of {name} are read");
    }
    let grown = asked_for_bytes().saturating_sub(before_bytes);
    assert!(grown < GROWTH_MAX_BYTES, "{grown} bytes more were asked for");
}
