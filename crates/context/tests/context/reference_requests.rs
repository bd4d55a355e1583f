//! More rows of sections 3 to 7 of the reference: routes, options, headers, errors and limits.

use std::sync::Arc;

use millstream_context::ContextConfig;
use serde_json::json;

use crate::reference::Then::{Has, Is, Refuses, Says, Shows};
use crate::reference::{ALL, CREATE, SHORT, Step, play};
use crate::refusals::{ask, check};
use crate::world::{Registry, World};

const MADRID: &str = r#"{"id":"e1","type":"A","t":{"value":20,"metadata":{"m":{"value":1}}},"l":{"type":"geo:point","value":"40.4,-3.7"}}"#;

fn entities() -> Vec<(&'static str, Vec<Step>)> {
    vec![
        (
            "§3.1 GET entities: all filters are ANDed, also op/query's; [] when nothing matches",
            vec![
                (CREATE, MADRID, Is(201)),
                (SHORT, r#"{"id":"e2","type":"A","t":20}"#, Is(201)),
                (SHORT, r#"{"id":"e3","type":"B","t":20}"#, Is(201)),
                (
                    "GET /v2/entities?type=A&idPattern=e&q=t==20&mq=t.m==1&georel=near;maxDistance:1000&geometry=point&coords=40.4,-3.7&options=values&attrs=t",
                    "",
                    Says("[[20]]"),
                ),
                ("GET /v2/entities?type=B&idPattern=e&q=t==20&mq=t.m==1", "", Says("[]")),
                (
                    "GET /v2/entities?type=A&idPattern=e&q=t==20&georel=disjoint&geometry=box&coords=40,-4;41,-3",
                    "",
                    Says("[]"),
                ),
                (
                    "POST /v2/op/query?options=values",
                    r#"{"entities":[{"idPattern":"e","type":"A"}],"attrs":["t"],"expression":{"q":"t==20","mq":"t.m==1",
                        "georel":"near;maxDistance:1000","geometry":"point","coords":"40.4,-3.7"}}"#,
                    Says("[[20]]"),
                ),
            ],
        ),
        (
            "§3.1 POST entities: Location names id and type as a URL has them; §7 clients send %25 for %",
            vec![
                (SHORT, r#"{"id":"a:b%41","type":"T-1","t":1}"#, Has("location", "/v2/entities/a:b%2541?type=T-1")),
                ("GET /v2/entities/a:b%2541?type=T-1&options=values", "", Says("[1]")),
                ("GET /v2/entities?id=a:b%2541&options=values", "", Says("[[1]]")),
                ("GET /v2/entities/a:bA", "", Refuses(404, "NotFound", "a:bA")),
            ],
        ),
        (
            "§3.1 POST entities upsert is 204 with Location, whether it creates or finds the entity",
            vec![
                (
                    "POST /v2/entities?options=upsert",
                    r#"{"id":"new","type":"T"}"#,
                    Has("location", "/v2/entities/new?type=T"),
                ),
                ("POST /v2/entities?options=upsert", r#"{"id":"e","type":"T","a":{"value":1}}"#, Is(204)),
                ("POST /v2/entities?options=upsert", r#"{"id":"e","type":"T","b":{"value":2}}"#, Is(204)),
                (
                    "POST /v2/entities?options=upsert",
                    r#"{"id":"e","type":"T"}"#,
                    Has("location", "/v2/entities/e?type=T"),
                ),
                ("GET /v2/entities/e?options=values", "", Says("[1,2]")),
            ],
        ),
        (
            "§3.1 GET attrs: as the entity without id and type, with attrs and metadata",
            vec![
                (
                    CREATE,
                    r#"{"id":"e","a":{"value":1,"metadata":{"m":{"value":1},"n":{"value":2}}},"b":{"value":2}}"#,
                    Is(201),
                ),
                (
                    "GET /v2/entities/e/attrs?attrs=a&metadata=n",
                    "",
                    Shows(r#"{"a":{"type":"Number","value":1,"metadata":{"n":{"type":"Number","value":2}}}}"#),
                ),
                ("GET /v2/entities/e/attrs?options=keyValues&attrs=b,a", "", Says(r#"{"b":2,"a":1}"#)),
                ("GET /v2/entities/e/attrs?type=Car", "", Refuses(404, "NotFound", "Car")),
            ],
        ),
        (
            "§3.1 PUT attrs: what is sent replaces all there were; PUT, POST and PATCH need an attribute",
            vec![
                (SHORT, r#"{"id":"e","a":1,"b":2}"#, Is(201)),
                ("PUT /v2/entities/e/attrs?options=keyValues", r#"{"c":3}"#, Is(204)),
                ("PUT /v2/entities/e/attrs", "{}", Refuses(400, "BadRequest", "{}")),
                ("GET /v2/entities/e/attrs?options=keyValues", "", Says(r#"{"c":3}"#)),
                ("PATCH /v2/entities/e/attrs", "{}", Refuses(400, "BadRequest", "{}")),
                ("POST /v2/entities/e/attrs", "{}", Refuses(400, "BadRequest", "{}")),
            ],
        ),
        (
            "§3.1 GET, PUT and DELETE of an attribute: type and metadata; the type that is left out is the value's",
            vec![
                (
                    CREATE,
                    r#"{"id":"e","type":"A","a":{"value":1,"type":"Celsius","metadata":{"m":{"value":1},"n":{"value":1}}}}"#,
                    Is(201),
                ),
                (SHORT, r#"{"id":"e","type":"B","a":5}"#, Is(201)),
                ("GET /v2/entities/e/attrs/a", "", Refuses(409, "TooManyResults", "'e'")),
                (
                    "GET /v2/entities/e/attrs/a?type=A&metadata=n",
                    "",
                    Shows(r#"{"type":"Celsius","value":1,"metadata":{"n":{"type":"Number","value":1}}}"#),
                ),
                ("PUT /v2/entities/e/attrs/a?type=A", r#"{"value":"x"}"#, Is(204)),
                (
                    "GET /v2/entities/e/attrs/a?type=A&metadata=none",
                    "",
                    Shows(r#"{"type":"Text","value":"x","metadata":{}}"#),
                ),
                ("PUT /v2/entities/e/attrs/a?type=A", "{}", Is(204)),
                ("GET /v2/entities/e/attrs/a/value?type=A", "", Says("null")),
                ("DELETE /v2/entities/e/attrs/a?type=B", "", Is(204)),
                ("GET /v2/entities/e?type=B", "", Shows(r#"{"id":"e","type":"B"}"#)),
            ],
        ),
        (
            "§3.1 PUT value: text is a string in quotes, true, false, null, else a number; else 400 and nothing changes",
            vec![
                (SHORT, r#"{"id":"e","a":1}"#, Is(201)),
                ("PUT /v2/entities/e/attrs/a/value\ncontent-type: text/plain; charset=utf-8", "  7.50 ", Is(204)),
                ("GET /v2/entities/e/attrs/a/value", "", Says("7.5")),
                (
                    "PUT /v2/entities/e/attrs/a/value\ncontent-type: text/plain",
                    "NaN",
                    Refuses(400, "BadRequest", "NaN"),
                ),
                (
                    "PUT /v2/entities/e/attrs/a/value\ncontent-type: text/plain",
                    "Infinity",
                    Refuses(400, "BadRequest", "Inf"),
                ),
                (
                    "PUT /v2/entities/e/attrs/a/value\ncontent-type: text/plain",
                    "1e999",
                    Refuses(400, "BadRequest", "1e999"),
                ),
                (
                    "PUT /v2/entities/e/attrs/a/value\ncontent-type: text/plain",
                    "0x10",
                    Refuses(400, "BadRequest", "0x10"),
                ),
                ("PUT /v2/entities/e/attrs/a/value\ncontent-type: text/plain", "\"", Refuses(400, "BadRequest", "\"")),
                (
                    "PUT /v2/entities/e/attrs/a/value\ncontent-type: text/plain",
                    "\"a\"b\"",
                    Refuses(400, "BadRequest", "a\"b"),
                ),
                (
                    "PUT /v2/entities/e/attrs/a/value\ncontent-type: text/plain",
                    "Truth",
                    Refuses(400, "BadRequest", "Truth"),
                ),
                ("GET /v2/entities/e/attrs/a/value", "", Says("7.5")),
            ],
        ),
    ]
}

fn batches() -> Vec<(&'static str, Vec<Step>)> {
    vec![
        (
            "§3.2 op/update: the description names the type only if the request gave it",
            vec![
                (SHORT, r#"{"id":"e","type":"T","a":1}"#, Is(201)),
                (
                    "POST /v2/op/update?options=keyValues",
                    r#"{"actionType":"update","entities":[{"id":"e","x":1},{"id":"none","y":1}]}"#,
                    Refuses(422, "Unprocessable", "2 of 2 entities: e: attributes x"),
                ),
                (
                    "POST /v2/op/update?options=keyValues",
                    r#"{"actionType":"update","entities":[{"id":"e","type":"T","x":1},{"id":"none","type":"U"}]}"#,
                    Refuses(422, "Unprocessable", "none/U: there is no entity 'none'"),
                ),
            ],
        ),
        (
            "§3.2 appendStrict creates what is not there; of several, those that can be done are; §6 409 before 422",
            vec![
                (
                    "POST /v2/op/update?options=keyValues",
                    r#"{"actionType":"appendStrict","entities":[{"id":"e","type":"A","a":1},{"id":"e","type":"B","a":1}]}"#,
                    Is(204),
                ),
                (
                    "POST /v2/op/update?options=keyValues",
                    r#"{"actionType":"appendStrict","entities":[{"id":"e","type":"A","a":2},{"id":"new","a":1}]}"#,
                    Refuses(422, "PartialUpdate", "e/A"),
                ),
                ("GET /v2/entities?options=values", "", Says("[[1],[1],[1]]")),
                (
                    "POST /v2/op/update?options=keyValues",
                    r#"{"actionType":"update","entities":[{"id":"new","x":1},{"id":"e","a":1}]}"#,
                    Refuses(409, "TooManyResults", "'e'"),
                ),
                (
                    "POST /v2/op/update?options=keyValues",
                    r#"{"actionType":"delete","entities":[{"id":"e"}]}"#,
                    Refuses(409, "TooManyResults", "'e'"),
                ),
            ],
        ),
        (
            "§3.2 op/query: typePattern, a list of paths, a backslash doubled in JSON, geo:distance",
            vec![
                (CREATE, MADRID, Is(201)),
                (
                    "POST /v2/entities\nfiware-servicepath: /x",
                    r#"{"id":"far","type":"Aa","n":{"value":"a1"},"l":{"type":"geo:point","value":"41,-3.7"}}"#,
                    Is(201),
                ),
                (
                    "POST /v2/op/query?options=count",
                    r#"{"entities":[{"idPattern":".*","typePattern":"^A$"}]}"#,
                    Has("fiware-total-count", "1"),
                ),
                (
                    "POST /v2/op/query?options=values\nfiware-servicepath: /x,/y/#",
                    r#"{"attrs":["n"]}"#,
                    Says(r#"[["a1"]]"#),
                ),
                (
                    "POST /v2/op/query?options=values",
                    r#"{"attrs":["n"],"expression":{"q":"n~=^\\w\\d$"}}"#,
                    Says(r#"[["a1"]]"#),
                ),
                (
                    "POST /v2/op/query?options=values&orderBy=geo:distance",
                    r#"{"attrs":["type","id","t","n"],"expression":{"georel":"near;minDistance:0","geometry":"point","coords":"41,-3.7"}}"#,
                    Says(r#"[["a1"],[20]]"#),
                ),
                ("POST /v2/op/query?orderBy=geo:distance", ALL, Refuses(400, "BadRequest", "near")),
            ],
        ),
        (
            "§3.2 op/notify takes normalized entities; 200",
            vec![
                (
                    "POST /v2/op/notify",
                    r#"{"subscriptionId":"x","data":[{"id":"e","type":"T","a":1}]}"#,
                    Refuses(400, "BadRequest", "keyValues"),
                ),
                (
                    "POST /v2/op/notify?options=keyValues",
                    r#"{"subscriptionId":"x","data":[{"id":"e","type":"T"}]}"#,
                    Refuses(400, "BadRequest", "keyValues"),
                ),
                (
                    "POST /v2/op/notify\nfiware-servicepath: /n",
                    r#"{"subscriptionId":"x","data":[{"id":"e","type":"T","a":{"value":1}}]}"#,
                    Is(200),
                ),
                ("GET /v2/entities?options=values\nfiware-servicepath: /n", "", Says("[[1]]")),
            ],
        ),
        (
            "§3.2 types: of the tenant and path alone; §4 limits, offsets and counts of every list",
            vec![
                (SHORT, r#"{"id":"e","type":"T","a":1}"#, Is(201)),
                ("GET /v2/types?options=values\nfiware-servicepath: /other", "", Says("[]")),
                ("GET /v2/types?limit=0&options=count", "", Has("fiware-total-count", "1")),
                ("GET /v2/types?limit=0&options=count", "", Says("[]")),
                ("GET /v2/types?offset=7", "", Says("[]")),
                ("GET /v2/types?limit=1000&options=values", "", Says(r#"["T"]"#)),
                ("GET /v2/types?limit=1001", "", Refuses(400, "BadRequest", "1001")),
                ("GET /v2/types?offset=-1", "", Refuses(400, "BadRequest", "-1")),
                ("GET /v2/types/T?options=values", "", Is(200)),
                ("POST /v2/op/query?limit=1001", ALL, Refuses(400, "BadRequest", "1001")),
                ("POST /v2/op/query?offset=7&options=count", ALL, Has("fiware-total-count", "1")),
                ("POST /v2/op/query?offset=7", ALL, Says("[]")),
                ("GET /v2/subscriptions?limit=1001", "", Refuses(400, "BadRequest", "1001")),
                ("GET /v2/subscriptions?limit=0&options=count", "", Has("fiware-total-count", "0")),
                ("GET /v2/entities?limit=1000&options=values", "", Says("[[1]]")),
                ("GET /v2/entities?limit=", "", Refuses(400, "BadRequest", "limit")),
            ],
        ),
    ]
}

fn headers() -> Vec<(&'static str, Vec<Step>)> {
    vec![
        (
            "§4 keyValues is read by each request that has attributes in its body",
            vec![
                (SHORT, r#"{"id":"e","a":1}"#, Is(201)),
                ("POST /v2/entities/e/attrs?options=keyValues", r#"{"b":{"value":1}}"#, Is(204)),
                ("PATCH /v2/entities/e/attrs?options=keyValues", r#"{"a":[1]}"#, Is(204)),
                (
                    "POST /v2/op/query?options=keyValues",
                    ALL,
                    Says(r#"[{"id":"e","type":"Thing","a":[1],"b":{"value":1}}]"#),
                ),
                ("PUT /v2/entities/e/attrs?options=keyValues", r#"{"c":null}"#, Is(204)),
                (
                    "POST /v2/op/update?options=keyValues",
                    r#"{"actionType":"append","entities":[{"id":"e","d":"x"}]}"#,
                    Is(204),
                ),
                ("GET /v2/entities/e?options=keyValues", "", Says(r#"{"id":"e","type":"Thing","c":null,"d":"x"}"#)),
            ],
        ),
        (
            "§5 Content-Type: none is 415, as is text where no value is set; parameters of the type do not matter",
            vec![
                ("POST /v2/entities\ncontent-type:", r#"{"id":"e"}"#, Refuses(415, "UnsupportedMediaType", "none")),
                (
                    "POST /v2/subscriptions\ncontent-type: text/plain",
                    "{}",
                    Refuses(415, "UnsupportedMediaType", "text/plain"),
                ),
                (
                    "PATCH /v2/entities/e/attrs\ncontent-type: application/xml",
                    "{}",
                    Refuses(415, "UnsupportedMediaType", "xml"),
                ),
                ("PUT /v2/entities/e/attrs/a/value\ncontent-type:", "7", Refuses(415, "UnsupportedMediaType", "none")),
                ("POST /v2/entities\ncontent-type: Application/JSON; charset=utf-8", r#"{"id":"e"}"#, Is(201)),
            ],
        ),
        (
            "§5 Content-Length: a body in chunks has none",
            vec![(
                "POST /v2/entities\ntransfer-encoding: chunked\ncontent-type: application/json",
                "",
                Refuses(411, "ContentLengthRequired", "none"),
            )],
        ),
        (
            "§5 Accept: a list, a wildcard over JSON, and what is refused by its weight",
            vec![
                ("GET /v2/entities\naccept: text/html, application/*;q=0.1", "", Is(200)),
                ("GET /v2/entities\naccept: */*", "", Is(200)),
                ("GET /v2/entities\naccept: application/json;q=0", "", Refuses(406, "NotAcceptable", "q=0")),
                ("POST /v2/entities\naccept: text/html", r#"{"id":"e"}"#, Refuses(406, "NotAcceptable", "text/html")),
                ("GET /v2/entities/e", "", Refuses(404, "NotFound", "'e'")),
            ],
        ),
        (
            "§5 Date and a correlator stand on refusals too",
            vec![
                ("GET /v2/nothing", "", Has("date", "")),
                ("PUT /v2/entities\nfiware-correlator: mine", "{}", Has("fiware-correlator", "mine")),
                ("GET /v2/entities?colour=1", "", Has("date", "")),
            ],
        ),
        (
            "§7 names: of metadata and of every type, by the same rule; up to 256 characters",
            vec![
                (
                    CREATE,
                    r#"{"id":"e","a":{"value":1,"metadata":{"m":{"value":1,"type":"x y"}}}}"#,
                    Refuses(400, "BadRequest", "x y"),
                ),
                (
                    CREATE,
                    r#"{"id":"e","a":{"value":1,"metadata":{"m(":{"value":1}}}}"#,
                    Refuses(400, "BadRequest", "m("),
                ),
                (CREATE, r#"{"id":"e","a":{"value":1,"type":""}}"#, Refuses(400, "BadRequest", "1 to 256")),
                (CREATE, "{\"id\":\"e\",\"\u{e4}\":{\"value\":1}}", Refuses(400, "BadRequest", "\u{e4}")),
                ("GET /v2/entities?orderBy=a%26b", "", Refuses(400, "BadRequest", "a&b")),
                ("GET /v2/entities?metadata=a%20b", "", Refuses(400, "BadRequest", "a b")),
                ("GET /v2/types/a%3Cb", "", Refuses(400, "BadRequest", "a<b")),
                ("POST /v2/op/query", r#"{"entities":[{"id":"a;b"}]}"#, Refuses(400, "BadRequest", "a;b")),
                ("POST /v2/op/query", r#"{"entities":[{"idPattern":"^(a|b)$"}]}"#, Is(200)),
                ("POST /v2/op/query", r#"{"expression":{"q":"a=='b;=c'"}}"#, Is(200)),
            ],
        ),
        (
            "§7 service paths: ten levels of 50 characters, lists of ten",
            vec![
                (
                    "POST /v2/entities?options=keyValues\nfiware-servicepath: /1/2/3/4/5/6/7/8/9/a",
                    r#"{"id":"e"}"#,
                    Is(201),
                ),
                (
                    "POST /v2/entities\nfiware-servicepath: /1/2/3/4/5/6/7/8/9/a/b",
                    r#"{"id":"e"}"#,
                    Refuses(400, "BadRequest", "/a/b"),
                ),
                (
                    "GET /v2/entities\nfiware-servicepath: /x23456789012345678901234567890123456789012345678901",
                    "",
                    Refuses(400, "BadRequest", "/x2"),
                ),
                (
                    "GET /v2/entities\nfiware-servicepath: /x2345678901234567890123456789012345678901234567890",
                    "",
                    Says("[]"),
                ),
                (
                    "GET /v2/entities\nfiware-servicepath: /a,/b,/c,/d,/e,/f,/g,/h,/i,/1/#",
                    "",
                    Shows(r#"[{"id":"e","type":"Thing"}]"#),
                ),
                ("GET /v2/entities\nfiware-servicepath: /a-b", "", Refuses(400, "BadRequest", "/a-b")),
            ],
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn entities_and_attributes_are_those_of_section_3_1() {
    play(entities()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_and_types_are_those_of_section_3_2() {
    play(batches()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn options_headers_and_names_are_those_of_sections_4_5_and_7() {
    play(headers()).await;
}

/// §5: who brings no correlator gets a new one, with refusals of every kind too.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_without_a_clients_correlator_has_a_new_one() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let served = world.serve().await;
    let mut known = std::collections::HashSet::new();
    for head in
        ["GET /v2/entities", "GET /v2/nothing", "PUT /v2/entities", "GET /v2/entities/none", "POST /v2/entities"]
    {
        let answer = served.ask(head, None).await;
        let id = answer.header("fiware-correlator").unwrap_or_else(|| panic!("{head}: {answer:?}")).to_owned();
        assert!(id.len() == 36 && known.insert(id), "{head}: {answer:?}");
    }
    served.stop().await;
    world.close();
}

/// §7: the limits as they are if nobody sets them; each is reached and passed.
#[tokio::test(flavor = "multi_thread")]
async fn default_limits_are_those_of_section_7() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::open(dir.path());
    let served = world.serve().await;
    let body = |length: usize| {
        let empty = r#"{"id":"e","type":"TextUnrestricted","a":""}"#.len();
        format!(r#"{{"id":"e","type":"TextUnrestricted","a":"{}"}}"#, "x".repeat(length - empty))
    };
    let head = "POST /v2/op/query";
    let padded = |length: usize| format!("{ALL}{}", " ".repeat(length - ALL.len()));
    assert_eq!(ask(&served, head, Some(&padded(1 << 20))).await.status, 200);
    check(&ask(&served, head, Some(&padded((1 << 20) + 1))).await, 413, "RequestEntityTooLarge", "1048576", head);
    assert_eq!(ask(&served, SHORT, Some(&body(1 << 19))).await.status, 201);
    let (longest, tenant) = ("x".repeat(256), "t".repeat(50));
    let entity = json!({"id": longest, "type": longest,
        longest.clone(): {"value": 1, "type": longest, "metadata": {longest.clone(): {"value": 1, "type": longest}}}});
    let head = format!("{CREATE}\nfiware-service: {tenant}");
    assert_eq!(ask(&served, &head, Some(&entity.to_string())).await.status, 201);
    for pointer in ["/id", "/type", &format!("/{longest}/type"), &format!("/{longest}/metadata/{longest}/type")] {
        let mut long = entity.clone();
        *long.pointer_mut(pointer).unwrap() = json!(format!("{longest}x"));
        check(&ask(&served, &head, Some(&long.to_string())).await, 400, "BadRequest", "1 to 256", pointer);
    }
    served.stop().await;
    world.close();
}

/// §6, §19: a queue that is full is 503 with Retry-After, and nothing is stored; too many subscriptions are 429.
#[tokio::test(flavor = "multi_thread")]
async fn refusals_of_overload_say_when_to_retry() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = ContextConfig { inbox_max_bytes: 1, ..ContextConfig::default() };
    config.notifications.subscriptions_max = 1;
    let world = World::open_with(dir.path(), Arc::new(Registry::default()), config);
    let served = Arc::new(world.serve().await);
    let (mut stored, mut refused) = (0, 0);
    while refused == 0 {
        let creates: Vec<_> = (0..64)
            .map(|n| {
                let (served, body) =
                    (served.clone(), format!(r#"{{"id":"e{stored}-{n}","a":"{}"}}"#, "x".repeat(9_000)));
                tokio::spawn(async move { ask(&served, SHORT, Some(&body)).await })
            })
            .collect();
        let (before, mut created) = (stored, 0);
        for create in creates {
            let answer = create.await.unwrap();
            if answer.status == 503 {
                check(&answer, 503, "ServiceUnavailable", "", "a full queue");
                assert!(answer.header("retry-after").is_some_and(|s| s.parse::<u64>().unwrap() > 0), "{answer:?}");
                refused += 1;
            } else {
                assert_eq!(answer.status, 201, "{answer:?}");
                created += 1;
            }
        }
        stored = before + created;
        let counted = served.get("/v2/entities?limit=0&options=count").await;
        assert_eq!(counted.header("fiware-total-count"), Some(stored.to_string().as_str()), "nothing else is stored");
    }
    let body =
        json!({"subject": {"entities": [{"id": "e"}]}, "notification": {"http": {"url": "http://127.0.0.1:1/"}}});
    let head = "POST /v2/subscriptions";
    assert_eq!(ask(&served, head, Some(&body.to_string())).await.status, 201);
    let answer = ask(&served, head, Some(&body.to_string())).await;
    check(&answer, 429, "TooManyRequests", "subscriptions_max", head);
    assert!(answer.header("retry-after").is_some(), "{answer:?}");
    Arc::into_inner(served).unwrap().stop().await;
    world.close();
}
