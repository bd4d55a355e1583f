//! Rows of the reference that no other table has: each names its section and what it says, and is played in a tenant of
//! its own.

use serde_json::Value;

use crate::refusals::{ask, check};
use crate::world::{Answer, Served, World};

/// The expected result of a step.
#[derive(Debug)]
pub(crate) enum Then {
    /// This status.
    Is(u16),
    /// 200 and this JSON, whatever the order of members.
    Shows(&'static str),
    /// 200 and this text.
    Says(&'static str),
    /// This header.
    Has(&'static str, &'static str),
    /// Status, name, and what the description has.
    Refuses(u16, &'static str, &'static str),
}
use Then::{Has, Is, Refuses, Says, Shows};

/// Head (method, target, headers), body (none if empty), what comes.
pub(crate) type Step = (&'static str, &'static str, Then);

pub(crate) const CREATE: &str = "POST /v2/entities";
pub(crate) const SHORT: &str = "POST /v2/entities?options=keyValues";
/// The body of a query for all entities.
pub(crate) const ALL: &str = r#"{"entities":[{"idPattern":".*"}]}"#;
const ATTRIBUTES: &str = "GET /v2/entities/e/attrs";

fn model() -> Vec<(&'static str, Vec<Step>)> {
    vec![
        (
            "§2 types left out, by kind of value; value and metadata left out",
            vec![
                (
                    CREATE,
                    r#"{"id":"e","s":{"value":"x"},"n":{"value":1},"b":{"value":false},"o":{"value":{}},"l":{"value":[]},
                        "z":{"value":null},"empty":{}}"#,
                    Is(201),
                ),
                (
                    ATTRIBUTES,
                    "",
                    Shows(
                        r#"{"s":{"type":"Text","value":"x","metadata":{}},"n":{"type":"Number","value":1,"metadata":{}},
                        "b":{"type":"Boolean","value":false,"metadata":{}},
                        "o":{"type":"StructuredValue","value":{},"metadata":{}},
                        "l":{"type":"StructuredValue","value":[],"metadata":{}},
                        "z":{"type":"None","value":null,"metadata":{}},"empty":{"type":"None","value":null,"metadata":{}}}"#,
                    ),
                ),
                ("GET /v2/entities/e?attrs=id", "", Shows(r#"{"id":"e","type":"Thing"}"#)),
            ],
        ),
        (
            "§2 the same defaults for metadata; a metadata item may be any JSON",
            vec![
                (
                    CREATE,
                    r#"{"id":"e","a":{"value":1,"metadata":{"s":{"value":"x"},"o":{"value":{"k":[1]}},"z":{},"t":{"value":1,"type":"T"}}}}"#,
                    Is(201),
                ),
                (
                    "GET /v2/entities/e/attrs/a",
                    "",
                    Shows(
                        r#"{"type":"Number","value":1,"metadata":{"s":{"type":"Text","value":"x"},
                        "o":{"type":"StructuredValue","value":{"k":[1]}},"z":{"type":"None","value":null},"t":{"type":"T","value":1}}}"#,
                    ),
                ),
            ],
        ),
        (
            "§2 one id with two types is two entities; §3.1 type makes every route unambiguous, 409 without",
            vec![
                (SHORT, r#"{"id":"e","type":"A","v":[1]}"#, Is(201)),
                (SHORT, r#"{"id":"e","type":"B","v":[2]}"#, Is(201)),
                ("GET /v2/entities/e/attrs/v/value", "", Refuses(409, "TooManyResults", "'e'")),
                ("PUT /v2/entities/e/attrs/v/value", "[3]", Refuses(409, "TooManyResults", "'e'")),
                ("GET /v2/entities/e?type=A&options=keyValues", "", Shows(r#"{"id":"e","type":"A","v":[1]}"#)),
                ("GET /v2/entities/e/attrs?type=B&options=keyValues", "", Shows(r#"{"v":[2]}"#)),
                ("GET /v2/entities/e/attrs/v/value?type=B", "", Says("[2]")),
                ("PUT /v2/entities/e/attrs/v/value?type=B", "[3]", Is(204)),
                ("PUT /v2/entities/e/attrs/v?type=A", r#"{"value":[4]}"#, Is(204)),
                ("POST /v2/entities/e/attrs?type=A&options=keyValues", r#"{"w":1}"#, Is(204)),
                ("PATCH /v2/entities/e/attrs?type=A&options=keyValues", r#"{"w":2}"#, Is(204)),
                ("GET /v2/entities/e?type=A&options=keyValues", "", Shows(r#"{"id":"e","type":"A","v":[4],"w":2}"#)),
                ("DELETE /v2/entities/e/attrs/w?type=A", "", Is(204)),
                ("PUT /v2/entities/e/attrs?type=B&options=keyValues", r#"{"x":1}"#, Is(204)),
                ("DELETE /v2/entities/e?type=A", "", Is(204)),
                ("GET /v2/entities/e?options=keyValues", "", Shows(r#"{"id":"e","type":"B","x":1}"#)),
            ],
        ),
        (
            "§2 representations: values follow attrs, unique has no repeats, keyValues is read where it is named",
            vec![
                (SHORT, r#"{"id":"e","a":1,"b":1,"c":[2]}"#, Is(201)),
                ("GET /v2/entities/e?options=values&attrs=c,a", "", Says("[[2],1]")),
                ("GET /v2/entities/e/attrs?options=unique", "", Says("[1,[2]]")),
                ("GET /v2/entities?options=unique&attrs=b,a", "", Says("[[1]]")),
                ("PATCH /v2/entities/e/attrs", r#"{"a":2}"#, Refuses(400, "BadRequest", "keyValues")),
                ("PUT /v2/entities/e/attrs?options=keyValues", r#"{"a":2}"#, Is(204)),
                ("POST /v2/op/query?options=values", ALL, Says("[[2]]")),
            ],
        ),
    ]
}

fn routes() -> Vec<(&'static str, Vec<Step>)> {
    vec![
        (
            "§3.1 id and type have no place in a body of attributes",
            vec![
                (SHORT, r#"{"id":"e","a":1}"#, Is(201)),
                ("POST /v2/entities/e/attrs?options=keyValues", r#"{"id":"x"}"#, Refuses(400, "BadRequest", "'id'")),
                (
                    "PATCH /v2/entities/e/attrs?options=keyValues",
                    r#"{"type":"x"}"#,
                    Refuses(400, "BadRequest", "'type'"),
                ),
                (
                    "PUT /v2/entities/e/attrs?options=keyValues",
                    r#"{"a":2,"id":"x"}"#,
                    Refuses(400, "BadRequest", "'id'"),
                ),
                ("GET /v2/entities/e/attrs/a/value", "", Says("1")),
            ],
        ),
        (
            "§3.1 upsert merges as POST attrs does: metadata stay",
            vec![
                (CREATE, r#"{"id":"e","a":{"value":1,"metadata":{"m":{"value":1}}}}"#, Is(201)),
                (
                    "POST /v2/entities?options=upsert,keyValues",
                    r#"{"id":"e","a":2}"#,
                    Has("location", "/v2/entities/e?type=Thing"),
                ),
                (
                    "GET /v2/entities/e/attrs/a",
                    "",
                    Shows(r#"{"type":"Number","value":2,"metadata":{"m":{"type":"Number","value":1}}}"#),
                ),
            ],
        ),
        (
            "§3.2 op/query: attrs, metadata, expression, and limit, offset and orderBy in the URL",
            vec![
                (SHORT, r#"{"id":"a","n":3}"#, Is(201)),
                (CREATE, r#"{"id":"b","n":{"value":2,"metadata":{"m":{"value":1},"o":{"value":1}}}}"#, Is(201)),
                (SHORT, r#"{"id":"c","n":1}"#, Is(201)),
                ("POST /v2/op/query?orderBy=n&limit=2&offset=1&options=values", ALL, Says("[[2],[3]]")),
                ("POST /v2/op/query?limit=0&options=count", ALL, Has("fiware-total-count", "3")),
                (
                    "POST /v2/op/query",
                    r#"{"entities":[{"idPattern":".*"}],"attrs":["n"],"metadata":["o"],"expression":{"mq":"n.m"}}"#,
                    Shows(
                        r#"[{"id":"b","type":"Thing","n":{"type":"Number","value":2,"metadata":{"o":{"type":"Number","value":1}}}}]"#,
                    ),
                ),
                ("POST /v2/op/query", r#"{"entities":[{"idPattern":".*","type":"None"}]}"#, Shows("[]")),
            ],
        ),
        (
            "§3.2 deprecated spellings of action types; every failure of a batch stands in one description",
            vec![
                (
                    "POST /v2/op/update?options=keyValues",
                    r#"{"actionType":"APPEND_STRICT","entities":[{"id":"e","a":1,"b":1}]}"#,
                    Is(204),
                ),
                (
                    "POST /v2/op/update?options=keyValues",
                    r#"{"actionType":"UPDATE","entities":[{"id":"e","a":2}]}"#,
                    Is(204),
                ),
                (
                    "POST /v2/op/update?options=keyValues",
                    r#"{"actionType":"DELETE","entities":[{"id":"e","b":0}]}"#,
                    Is(204),
                ),
                ("GET /v2/entities/e/attrs?options=keyValues", "", Says(r#"{"a":2}"#)),
                (
                    "POST /v2/op/update?options=keyValues",
                    r#"{"actionType":"REPLACE","entities":[{"id":"e","c":3}]}"#,
                    Is(204),
                ),
                ("GET /v2/entities/e/attrs?options=keyValues", "", Says(r#"{"c":3}"#)),
                (
                    "POST /v2/op/update?options=keyValues",
                    r#"{"actionType":"update","entities":[{"id":"none","type":"T","a":1},{"id":"e","c":4},{"id":"e","x":1}]}"#,
                    Refuses(422, "PartialUpdate", "none/T"),
                ),
                (
                    "POST /v2/op/update?options=keyValues",
                    r#"{"actionType":"update","entities":[{"id":"none","type":"T","a":1},{"id":"e","x":1,"y":1}]}"#,
                    Refuses(422, "Unprocessable", "attributes x, y"),
                ),
                ("GET /v2/entities/e/attrs?options=keyValues", "", Says(r#"{"c":4}"#)),
            ],
        ),
        (
            "§3.2 registrations cannot be patched, and Allow says so",
            vec![
                ("PATCH /v2/registrations/x", "{}", Refuses(405, "MethodNotAllowed", "PATCH")),
                ("PATCH /v2/registrations/x", "{}", Has("allow", "DELETE, GET, HEAD, OPTIONS")),
                ("POST /v2/op/query", "", Refuses(411, "ContentLengthRequired", "none")),
            ],
        ),
        (
            "§3.2 OPTIONS lists the verbs; paths distinguish capitals; an unknown path is 400, an unknown verb 405",
            vec![
                ("OPTIONS /v2/entities/e/attrs", "", Is(204)),
                ("OPTIONS /v2/entities/e/attrs", "", Has("allow", "GET, HEAD, OPTIONS, PATCH, POST, PUT")),
                ("OPTIONS /v2/subscriptions/x", "", Has("allow", "DELETE, GET, HEAD, OPTIONS, PATCH")),
                ("GET /v2/Entities", "", Refuses(400, "BadRequest", "/v2/Entities")),
                ("GET /v2/entities/e/attrs/a/values", "", Refuses(400, "BadRequest", "/values")),
                ("PUT /v2/types", "{}", Refuses(405, "MethodNotAllowed", "PUT")),
                ("PUT /v2/types", "{}", Has("allow", "GET, HEAD, OPTIONS")),
            ],
        ),
        (
            "§5 Date on every answer; a correlator of the client's, or a new one; Accept",
            vec![
                ("GET /v2/entities", "", Has("date", "")),
                ("GET /v2/entities\nfiware-correlator: mine", "", Has("fiware-correlator", "mine")),
                ("GET /v2/types\naccept: text/plain", "", Refuses(406, "NotAcceptable", "text/plain")),
                ("GET /v2/subscriptions\naccept: text/html", "", Refuses(406, "NotAcceptable", "text/html")),
                (
                    "POST /v2/op/update\ncontent-type: text/plain",
                    "{}",
                    Refuses(415, "UnsupportedMediaType", "text/plain"),
                ),
                ("PUT /v2/entities/e/attrs/a/value", "", Refuses(411, "ContentLengthRequired", "none")),
            ],
        ),
        (
            "§6 404, 409 and 413 come before 422",
            vec![
                (SHORT, r#"{"id":"two","type":"A","a":1}"#, Is(201)),
                (SHORT, r#"{"id":"two","type":"B","a":1}"#, Is(201)),
                ("PATCH /v2/entities/two/attrs?options=keyValues", r#"{"x":1}"#, Refuses(409, "TooManyResults", "two")),
                (
                    "POST /v2/entities/none/attrs?options=append,keyValues",
                    r#"{"a":1}"#,
                    Refuses(404, "NotFound", "none"),
                ),
                (CREATE, r#"{"id":"e","a":{"type":"geo:point","value":"1,1"}}"#, Is(201)),
                (
                    "POST /v2/entities/e/attrs?options=append",
                    r#"{"a":{"value":1},"b":{"type":"geo:point","value":"2,2"}}"#,
                    Refuses(413, "NoResourcesAvailable", "b"),
                ),
                ("GET /v2/entities/e?options=values", "", Says(r#"["1,1"]"#)),
            ],
        ),
    ]
}

fn values() -> Vec<(&'static str, Vec<Step>)> {
    vec![
        (
            "§7 a value that is TextUnrestricted stays so when the value alone is set",
            vec![
                (
                    CREATE,
                    r#"{"id":"e","u":{"type":"TextUnrestricted","value":"a"},"m":{"value":"a","metadata":{"TextUnrestricted":{"value":true}}},"t":{"value":"a"}}"#,
                    Is(201),
                ),
                ("PUT /v2/entities/e/attrs/u/value\ncontent-type: text/plain", "\"f(x)=<y>\"", Is(204)),
                ("PUT /v2/entities/e/attrs/m/value", r#"["f(x)"]"#, Is(204)),
                (
                    "PUT /v2/entities/e/attrs/t/value\ncontent-type: text/plain",
                    "\"f(x)\"",
                    Refuses(400, "BadRequest", "f(x)"),
                ),
                ("GET /v2/entities/e?options=values", "", Says(r#"["f(x)=<y>",["f(x)"],"a"]"#)),
            ],
        ),
        (
            "§7 names: built-ins' are accepted, reserved ones are not; nothing stands twice in an answer",
            vec![
                (SHORT, r#"{"id":"e","dateCreated":"mine","servicePath":"too"}"#, Is(201)),
                (
                    "GET /v2/entities/e?options=keyValues",
                    "",
                    Says(r#"{"id":"e","type":"Thing","dateCreated":"mine","servicePath":"too"}"#),
                ),
                (
                    "GET /v2/entities/e?options=keyValues&attrs=servicePath,*",
                    "",
                    Says(r#"{"id":"e","type":"Thing","servicePath":"too","dateCreated":"mine"}"#),
                ),
                ("GET /v2/entities?q=servicePath==too", "", Shows("[]")),
                ("GET /v2/entities?q=servicePath==/&options=values", "", Says(r#"[["mine","too"]]"#)),
                (SHORT, r#"{"id":"x","geo:distance":1}"#, Refuses(400, "BadRequest", "geo:distance")),
                (SHORT, r#"{"id":"twice","a":1,"a":2}"#, Refuses(400, "BadRequest", "member 'a' is given twice")),
            ],
        ),
        (
            "§8 built-ins: only where they are named, then alone; never in a path; alterationType is not for reads",
            vec![
                (SHORT, r#"{"id":"e","a":1}"#, Is(201)),
                (
                    "GET /v2/entities/e?options=keyValues&attrs=servicePath",
                    "",
                    Says(r#"{"id":"e","type":"Thing","servicePath":"/"}"#),
                ),
                (
                    "GET /v2/entities/e?options=keyValues&attrs=*,servicePath",
                    "",
                    Says(r#"{"id":"e","type":"Thing","a":1,"servicePath":"/"}"#),
                ),
                ("GET /v2/entities/e?options=keyValues&attrs=alterationType", "", Says(r#"{"id":"e","type":"Thing"}"#)),
                ("GET /v2/entities/e/attrs/dateCreated", "", Refuses(404, "NotFound", "dateCreated")),
                ("GET /v2/entities/e/attrs/servicePath/value", "", Refuses(404, "NotFound", "servicePath")),
                (
                    "GET /v2/entities?q=dateModified%3E2000-01-01&orderBy=!dateModified,servicePath,dateExpires&options=values",
                    "",
                    Says("[[1]]"),
                ),
                (
                    "GET /v2/entities/e/attrs/a?metadata=previousValue,actionType",
                    "",
                    Shows(r#"{"type":"Number","value":1,"metadata":{}}"#),
                ),
            ],
        ),
        (
            "§8 metadata with a built-in's name is the user's where it is shown, the built-in where it is filtered by",
            vec![
                (CREATE, r#"{"id":"e","a":{"value":1,"metadata":{"dateCreated":{"value":"mine"}}}}"#, Is(201)),
                (
                    "GET /v2/entities/e/attrs/a?metadata=dateCreated",
                    "",
                    Shows(r#"{"type":"Number","value":1,"metadata":{"dateCreated":{"type":"Text","value":"mine"}}}"#),
                ),
                ("GET /v2/entities?mq=a.dateCreated==mine", "", Shows("[]")),
                ("GET /v2/entities?mq=a.dateCreated%3E2000-01-01&options=values", "", Says("[[1]]")),
            ],
        ),
        (
            "§9 numbers are shown without needless decimals, and read back as the same double",
            vec![
                (
                    SHORT,
                    r#"{"id":"e","a":[1.0,-0.5e1,0.30000000000000004,1234567.891,1e3,100000000000,2.5e-7]}"#,
                    Is(201),
                ),
                (
                    "GET /v2/entities/e/attrs/a/value",
                    "",
                    Says("[1,-5,0.30000000000000004,1234567.891,1000,100000000000,2.5e-7]"),
                ),
                (SHORT, r#"{"id":"x","a":1e999}"#, Refuses(400, "ParseError", "JSON")),
            ],
        ),
        (
            "§9 dates: in UTC with milliseconds, also in metadata; a zone without a time is none",
            vec![
                (
                    CREATE,
                    r#"{"id":"e","a":{"type":"ISO8601","value":"2050-04-05T14Z","metadata":{"m":{"type":"DateTime","value":"2050-04-05T14:00+01:00"}}}}"#,
                    Is(201),
                ),
                (
                    "GET /v2/entities/e/attrs/a",
                    "",
                    Shows(
                        r#"{"type":"ISO8601","value":"2050-04-05T14:00:00.000Z","metadata":{"m":{"type":"DateTime","value":"2050-04-05T13:00:00.000Z"}}}"#,
                    ),
                ),
                (
                    "PUT /v2/entities/e/attrs/a",
                    r#"{"type":"DateTime","value":"2050-04-05Z"}"#,
                    Refuses(400, "BadRequest", "2050-04-05Z"),
                ),
                ("GET /v2/entities?q=a==2050-04-05T14:00:00Z&options=count", "", Has("fiware-total-count", "1")),
            ],
        ),
        (
            "§9 one location: a null one does not count; a FeatureCollection of one is stored whole and shows its geometry",
            vec![
                (
                    CREATE,
                    r#"{"id":"e","a":{"type":"geo:json","value":null},"b":{"type":"geo:json","value":{"type":"FeatureCollection","features":[
                    {"type":"Feature","properties":{"p":1},"geometry":{"type":"Point","coordinates":[2,1]}}]}}}"#,
                    Is(201),
                ),
                ("GET /v2/entities/e/attrs/b/value", "", Shows(r#"{"type":"Point","coordinates":[2,1]}"#)),
                (
                    "GET /v2/entities?georel=equals&geometry=point&coords=1,2&options=count",
                    "",
                    Has("fiware-total-count", "1"),
                ),
                (
                    "PUT /v2/entities/e/attrs/a",
                    r#"{"type":"geo:point","value":"1,1"}"#,
                    Refuses(413, "NoResourcesAvailable", "a"),
                ),
            ],
        ),
        (
            "§10 an update merges metadata; {} or overrideMetadata clears them; PUT value leaves them alone",
            vec![
                (CREATE, r#"{"id":"e","a":{"value":1,"metadata":{"x":{"value":1},"y":{"value":1}}}}"#, Is(201)),
                ("PUT /v2/entities/e/attrs/a", r#"{"value":1,"metadata":{"y":{"value":2},"z":{"value":1}}}"#, Is(204)),
                ("GET /v2/entities?mq=a.x==1;a.y==2;a.z==1&options=values", "", Says("[[1]]")),
                ("PUT /v2/entities/e/attrs/a/value?options=overrideMetadata", "[1]", Is(204)),
                ("GET /v2/entities?mq=a.x;a.y;a.z&options=values", "", Says("[[[1]]]")),
                ("PATCH /v2/entities/e/attrs", r#"{"a":{"value":2,"metadata":{}}}"#, Is(204)),
                ("GET /v2/entities/e/attrs/a", "", Shows(r#"{"type":"Number","value":2,"metadata":{}}"#)),
                ("PUT /v2/entities/e/attrs/a", r#"{"value":2,"metadata":{"x":{"value":1}}}"#, Is(204)),
                (
                    "POST /v2/op/update?options=overrideMetadata",
                    r#"{"actionType":"append","entities":[{"id":"e","a":{"value":3}}]}"#,
                    Is(204),
                ),
                ("GET /v2/entities/e/attrs/a", "", Shows(r#"{"type":"Number","value":3,"metadata":{}}"#)),
            ],
        ),
    ]
}

/// Plays each row in a tenant of its own.
pub(crate) async fn play(rows: Vec<(&'static str, Vec<Step>)>) {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let served = world.serve().await;
    for (number, (row, steps)) in rows.into_iter().enumerate() {
        for (head, body, then) in steps {
            let head = format!("{head}\nfiware-service: r{number}");
            let head = if head.contains("fiware-correlator") {
                head
            } else {
                format!("{head}\nfiware-correlator: from-the-test")
            };
            let body = Some(body).filter(|body| !body.is_empty());
            let answer = served.ask(&head, body).await;
            came(&answer, &then, &format!("{row}: {head} {body:?}"));
        }
    }
    served.stop().await;
    world.close();
}

fn came(answer: &Answer, then: &Then, what: &str) {
    match then {
        Is(status) => assert_eq!(answer.status, *status, "{what}: {answer:?}"),
        Shows(json) => {
            let expected: Value = serde_json::from_str(json).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!((answer.status, answer.json()), (200, expected), "{what}");
        }
        Says(text) => assert_eq!((answer.status, answer.body.as_str()), (200, *text), "{what}"),
        Has(name, "") => assert!(answer.header(name).is_some(), "{what}: {answer:?}"),
        Has(name, value) => assert_eq!(answer.header(name), Some(*value), "{what}: {answer:?}"),
        Refuses(status, name, named) => check(answer, *status, name, named, what),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_model_is_that_of_section_2() {
    play(model()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn routes_headers_and_errors_are_those_of_sections_3_5_and_6() {
    play(routes()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn values_names_and_metadata_are_those_of_sections_7_to_10() {
    play(values()).await;
}

/// §4: a route and a body that suits it, and the options that it takes; all other options of NGSI are unknown to it.
const OPTIONS: [(&str, &str, &str, &str); 19] = [
    ("GET", "/v2/entities", "", "count keyValues values unique skipForwarding dateCreated dateModified"),
    ("POST", "/v2/entities", r#"{"id":"ID"}"#, "keyValues upsert overrideMetadata forcedUpdate flowControl"),
    ("GET", "/v2/entities/e", "", "keyValues values unique skipForwarding dateCreated dateModified"),
    ("DELETE", "/v2/entities/gone", "", ""),
    ("GET", "/v2/entities/e/attrs", "", "keyValues values unique skipForwarding dateCreated dateModified"),
    (
        "POST",
        "/v2/entities/e/attrs",
        r#"{"ID":{"value":1}}"#,
        "append keyValues overrideMetadata forcedUpdate flowControl",
    ),
    ("PATCH", "/v2/entities/e/attrs", r#"{"a":{"value":1}}"#, "keyValues overrideMetadata forcedUpdate flowControl"),
    ("PUT", "/v2/entities/p/attrs", r#"{"a":{"value":1}}"#, "keyValues forcedUpdate flowControl"),
    ("GET", "/v2/entities/e/attrs/a", "", "skipForwarding"),
    ("PUT", "/v2/entities/e/attrs/a", r#"{"value":1}"#, "overrideMetadata forcedUpdate flowControl"),
    ("DELETE", "/v2/entities/e/attrs/gone", "", ""),
    ("GET", "/v2/entities/e/attrs/a/value", "", "skipForwarding"),
    ("PUT", "/v2/entities/e/attrs/a/value", "[]", "overrideMetadata forcedUpdate flowControl"),
    ("GET", "/v2/types", "", "count values noAttrDetail"),
    ("GET", "/v2/types/T", "", "noAttrDetail"),
    ("POST", "/v2/op/query", ALL, "count keyValues values unique skipForwarding"),
    (
        "POST",
        "/v2/op/update",
        r#"{"actionType":"append","entities":[{"id":"u"}]}"#,
        "keyValues overrideMetadata forcedUpdate flowControl",
    ),
    ("GET", "/v2/subscriptions", "", "count"),
    ("GET", "/statistics", "", "fullCounters"),
];
const EVERY_OPTION: [&str; 15] = [
    "count",
    "keyValues",
    "values",
    "unique",
    "append",
    "upsert",
    "overrideMetadata",
    "forcedUpdate",
    "flowControl",
    "skipForwarding",
    "noAttrDetail",
    "fullCounters",
    "dateCreated",
    "dateModified",
    "nonsense",
];

#[tokio::test(flavor = "multi_thread")]
async fn each_option_is_taken_where_section_4_has_it_and_passed_over_elsewhere() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let served: Served = world.serve().await;
    for id in ["e", "p"] {
        let body = format!(r#"{{"id":"{id}","type":"T","a":{{"value":"x"}}}}"#);
        assert_eq!(served.ask(CREATE, Some(&body)).await.status, 201);
    }
    for (method, target, body, taken) in OPTIONS {
        for option in EVERY_OPTION {
            let head = format!("{method} {target}?options={option}");
            // What is made has a new name each time.
            let body = body.replace("ID", &format!("{option}-{}", target.len()));
            let answer = ask(&served, &head, (!body.is_empty()).then_some(body.as_str())).await;
            if taken.split(' ').any(|known| known == option) {
                // A normalized body is none of bare values' only where it says otherwise.
                assert!(answer.status < 300, "{head} {body}: {answer:?}");
            } else if option == "nonsense" {
                check(&answer, 400, "BadRequest", option, &head);
            } else {
                assert_ne!(answer.status, 400, "{head} {body}: {answer:?}");
            }
        }
    }
    served.stop().await;
    world.close();
}
