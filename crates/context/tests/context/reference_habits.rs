//! Rows of the reference, in the ways in which clients of Orion really send them.

use crate::reference::Then::{Is, Refuses, Says, Shows};
use crate::reference::{CREATE, SHORT, Step, play};

fn queries() -> Vec<(&'static str, Vec<Step>)> {
    vec![
        (
            "§12 blanks around statements, names, operators and values mean nothing; within quotes they do",
            vec![
                (SHORT, r#"{"id":"e","t":50,"s":" x "}"#, Is(201)),
                ("GET /v2/entities?options=values&attrs=t&q=t%20%3E%2040", "", Says("[[50]]")),
                ("GET /v2/entities?options=values&attrs=t&q=t+%3E+40;+t+%3C+60", "", Says("[[50]]")),
                ("GET /v2/entities?options=values&attrs=t&q=t==%201%20,%2050", "", Says("[[50]]")),
                ("GET /v2/entities?options=values&attrs=t&q=t==%2040%20..%2060%20", "", Says("[[50]]")),
                ("GET /v2/entities?options=values&attrs=t&q=!%20t", "", Says("[]")),
                ("GET /v2/entities?options=values&attrs=t&q=s=='%20x%20'", "", Says("[[50]]")),
                ("GET /v2/entities?options=values&attrs=t&q=s==%20x%20", "", Says("[]")),
                ("GET /v2/entities?q=t%3E%20", "", Refuses(400, "BadRequest", "nothing stands right")),
                ("GET /v2/entities?q=t;%20;s", "", Refuses(400, "BadRequest", "empty statement")),
                (
                    "POST /v2/op/query?options=values",
                    r#"{"attrs":["t"],"expression":{"q":"t > 40; s ~= x"}}"#,
                    Says("[[50]]"),
                ),
            ],
        ),
        (
            "§7, §12 patterns have groups, in the query and in bodies",
            vec![
                (SHORT, r#"{"id":"R1"}"#, Is(201)),
                (SHORT, r#"{"id":"R2"}"#, Is(201)),
                (SHORT, r#"{"id":"R3"}"#, Is(201)),
                ("GET /v2/entities?limit=0&options=count&idPattern=%5E(R1%7CR2)%24", "", Says("[]")),
                (
                    "GET /v2/entities?options=keyValues&idPattern=%5E(R1%7CR2)%24&orderBy=!id",
                    "",
                    Shows(r#"[{"id":"R2","type":"Thing"},{"id":"R1","type":"Thing"}]"#),
                ),
                (
                    "POST /v2/op/query?options=keyValues",
                    r#"{"entities":[{"idPattern":"^(R2)$","typePattern":"^(Thing)$"}]}"#,
                    Shows(r#"[{"id":"R2","type":"Thing"}]"#),
                ),
            ],
        ),
        (
            "§4 what an option means nothing to passes over it; one that nobody knows is refused, and so are two forms",
            vec![
                (SHORT, r#"{"id":"e","t":1}"#, Is(201)),
                (
                    "GET /v2/entities/e/attrs/t?options=keyValues",
                    "",
                    Shows(r#"{"type":"Number","value":1,"metadata":{}}"#),
                ),
                ("GET /v2/entities/e?options=count,values", "", Says("[1]")),
                ("PUT /v2/entities/e/attrs?options=overrideMetadata", r#"{"t":{"value":2}}"#, Is(204)),
                ("GET /v2/entities/e?options=unknown", "", Refuses(400, "BadRequest", "unknown")),
                ("GET /v2/entities?options=keyValues,values", "", Refuses(400, "BadRequest", "keyValues and values")),
                ("GET /v2/entities/e?options=values,unique", "", Refuses(400, "BadRequest", "values and unique")),
            ],
        ),
        (
            "§6 a body that means nothing is passed over",
            vec![
                (SHORT, r#"{"id":"e","t":1}"#, Is(201)),
                ("GET /v2/entities/e?options=values\ncontent-type: application/json", "{}", Says("[1]")),
                ("DELETE /v2/entities/e\ncontent-type: application/json", "{}", Is(204)),
            ],
        ),
        (
            "§8 what nobody gave has no times of its own",
            vec![
                (SHORT, r#"{"id":"e"}"#, Is(201)),
                (
                    "GET /v2/entities/e?attrs=servicePath&metadata=dateCreated,dateModified",
                    "",
                    Shows(r#"{"id":"e","type":"Thing","servicePath":{"type":"Text","value":"/","metadata":{}}}"#),
                ),
            ],
        ),
    ]
}

fn writes() -> Vec<(&'static str, Vec<Step>)> {
    vec![
        (
            "§9 with ignoreType a location is plain data, whatever it is",
            vec![
                (
                    CREATE,
                    r#"{"id":"e","g":{"type":"geo:json","value":"garbage","metadata":{"ignoreType":{"value":true}}},"l":{"type":"geo:point","value":"1,1"}}"#,
                    Is(201),
                ),
                ("PUT /v2/entities/e/attrs/g/value", r#"{"type":"GeometryCollection","geometries":[]}"#, Is(204)),
                (
                    "GET /v2/entities?options=values&attrs=g&georel=near;maxDistance:9&geometry=point&coords=1,1",
                    "",
                    Says(r#"[[{"type":"GeometryCollection","geometries":[]}]]"#),
                ),
                ("PUT /v2/entities/e/attrs/l/value\ncontent-type: text/plain", "\"x\"", Is(422)),
                (
                    CREATE,
                    r#"{"id":"f","g":{"type":"geo:json","value":"x","metadata":{"ignoreType":{"value":false}}}}"#,
                    Refuses(400, "BadRequest", "geo:json"),
                ),
            ],
        ),
        (
            "§3.2 in a batch's delete values do not matter",
            vec![
                (SHORT, r#"{"id":"e","t":1,"u":2}"#, Is(201)),
                (
                    "POST /v2/op/update",
                    r#"{"actionType":"delete","entities":[{"id":"e","t":{"value":{"$inc":"bad"}}}]}"#,
                    Is(204),
                ),
                ("GET /v2/entities/e?options=values", "", Says("[2]")),
            ],
        ),
        (
            "§10 operators stand alone, and what is not understood of them is refused",
            vec![
                (SHORT, r#"{"id":"e","a":[1]}"#, Is(201)),
                ("PATCH /v2/entities/e/attrs?options=keyValues", r#"{"a":{"$addToSet":{"$each":[1,2]}}}"#, Is(204)),
                (
                    "PATCH /v2/entities/e/attrs?options=keyValues",
                    r#"{"a":{"$push":{"$each":[9],"$slice":1}}}"#,
                    Refuses(400, "BadRequest", "$slice"),
                ),
                (
                    "PATCH /v2/entities/e/attrs?options=keyValues",
                    r#"{"a":{"x":1,"$push":9}}"#,
                    Refuses(400, "BadRequest", "one operator"),
                ),
                ("GET /v2/entities/e?options=values", "", Says("[[1,2]]")),
            ],
        ),
        (
            "§3.1 what is read of a text as text can be written back",
            vec![
                (CREATE, r#"{"id":"e","s":{"value":"a\nb\\c\td"}}"#, Is(201)),
                ("GET /v2/entities/e/attrs/s/value", "", Says("\"a\nb\\c\td\"")),
                ("PUT /v2/entities/e/attrs/s/value\ncontent-type: text/plain", "\"a\nb\\c\td\"", Is(204)),
                ("GET /v2/entities/e?options=values", "", Shows(r#"["a\nb\\c\td"]"#)),
            ],
        ),
        (
            "§11 a path header that is given twice is refused",
            vec![(
                "POST /v2/entities\nfiware-servicepath: /a\nfiware-servicepath: /b",
                r#"{"id":"e"}"#,
                Refuses(400, "BadRequest", "twice"),
            )],
        ),
        (
            "§19 If-Match is never passed over",
            vec![
                (
                    "POST /v2/entities?options=upsert\nif-match: \"x\"",
                    r#"{"id":"e"}"#,
                    Refuses(412, "PreconditionFailed", "e"),
                ),
                (SHORT, r#"{"id":"e","t":1}"#, Is(201)),
                (
                    "POST /v2/entities?options=upsert\nif-match: \"x\"",
                    r#"{"id":"e"}"#,
                    Refuses(412, "PreconditionFailed", "e"),
                ),
                ("POST /v2/entities?options=upsert\nif-match: *", r#"{"id":"e"}"#, Is(204)),
                (
                    "POST /v2/op/update\nif-match: \"x\"",
                    r#"{"actionType":"delete","entities":[{"id":"e"}]}"#,
                    Refuses(400, "BadRequest", "If-Match"),
                ),
            ],
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_are_taken_as_clients_send_them() {
    play(queries()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_are_taken_as_clients_send_them() {
    play(writes()).await;
}
