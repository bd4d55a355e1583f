//! More rows of sections 8 to 13 of the reference: built-ins, values, operators, paths, queries.

use crate::reference::Then::{Has, Is, Refuses, Says, Shows};
use crate::reference::{CREATE, SHORT, Step, play};

fn built_ins() -> Vec<(&'static str, Vec<Step>)> {
    vec![
        (
            "§8 a date in the past is accepted and ends it at once; null and what is no date are 400",
            vec![
                (CREATE, r#"{"id":"e","dateExpires":{"type":"DateTime","value":"2000-01-01"}}"#, Is(201)),
                ("GET /v2/entities/e", "", Refuses(404, "NotFound", "'e'")),
                ("GET /v2/entities?options=count", "", Has("fiware-total-count", "0")),
                ("GET /v2/types", "", Says("[]")),
                (SHORT, r#"{"id":"e","dateExpires":"2999-01-01"}"#, Is(201)),
                ("GET /v2/entities?attrs=dateExpires&options=values", "", Says(r#"[["2999-01-01T00:00:00.000Z"]]"#)),
                ("PATCH /v2/entities/e/attrs", r#"{"dateExpires":{"value":null}}"#, Refuses(400, "BadRequest", "null")),
                (
                    "PATCH /v2/entities/e/attrs?options=keyValues",
                    r#"{"dateExpires":7}"#,
                    Refuses(400, "BadRequest", "7"),
                ),
                (
                    "PUT /v2/entities/e/attrs/dateExpires/value\ncontent-type: text/plain",
                    "null",
                    Refuses(400, "BadRequest", "null"),
                ),
                (
                    "PUT /v2/entities/e/attrs/dateExpires/value\ncontent-type: text/plain",
                    "7",
                    Refuses(400, "BadRequest", "7"),
                ),
                ("PUT /v2/entities/e/attrs/dateExpires/value\ncontent-type: text/plain", "\"2999-02-01\"", Is(204)),
                ("GET /v2/entities/e/attrs/dateExpires/value", "", Says(r#""2999-02-01T00:00:00.000Z""#)),
                (
                    "PATCH /v2/entities/e/attrs?options=keyValues",
                    r#"{"dateExpires":{"$set":null}}"#,
                    Refuses(422, "Unprocessable", "null"),
                ),
                (
                    "PUT /v2/entities/e/attrs/dateExpires",
                    r#"{"value":"2998-01-01","type":"Text"}"#,
                    Refuses(400, "BadRequest", "'Text'"),
                ),
                ("PUT /v2/entities/e/attrs/dateExpires", r#"{"value":"2998-01-01"}"#, Is(204)),
                (
                    "GET /v2/entities?attrs=dateExpires",
                    "",
                    Shows(
                        r#"[{"id":"e","type":"Thing","dateExpires":{"type":"DateTime","value":"2998-01-01T00:00:00.000Z","metadata":{}}}]"#,
                    ),
                ),
                ("PUT /v2/entities/e/attrs?options=keyValues", r#"{"a":1}"#, Is(204)),
                ("GET /v2/entities?q=!dateExpires&options=values", "", Says("[[1]]")),
            ],
        ),
        (
            "§8 alterationType is none of q's and orderBy's; built-ins are no segments of paths",
            vec![
                (SHORT, r#"{"id":"e","a":1}"#, Is(201)),
                ("GET /v2/entities?q=alterationType", "", Says("[]")),
                ("GET /v2/entities?orderBy=alterationType&options=values", "", Says("[[1]]")),
                ("PUT /v2/entities/e/attrs/dateCreated", r#"{"value":1}"#, Refuses(404, "NotFound", "dateCreated")),
                ("DELETE /v2/entities/e/attrs/dateModified", "", Refuses(404, "NotFound", "dateModified")),
                ("PUT /v2/entities/e/attrs/servicePath/value", "[]", Refuses(404, "NotFound", "servicePath")),
            ],
        ),
        (
            "§8 naming built-in metadata only hides all of the user's; * stands for those",
            vec![
                (CREATE, r#"{"id":"e","a":{"value":1,"metadata":{"m":{"value":1}}}}"#, Is(201)),
                (
                    "GET /v2/entities?mq=a.dateModified&metadata=none,*",
                    "",
                    Shows(
                        r#"[{"id":"e","type":"Thing","a":{"type":"Number","value":1,"metadata":{"m":{"type":"Number","value":1}}}}]"#,
                    ),
                ),
                (
                    "GET /v2/entities/e/attrs/a?metadata=actionType,m,m",
                    "",
                    Shows(r#"{"type":"Number","value":1,"metadata":{"m":{"type":"Number","value":1}}}"#),
                ),
                (
                    "GET /v2/entities/e/attrs/a?metadata=m,m",
                    "",
                    Says(r#"{"type":"Number","value":1,"metadata":{"m":{"type":"Number","value":1}}}"#),
                ),
                (
                    "GET /v2/entities/e?attrs=a,*,id,type&options=keyValues",
                    "",
                    Says(r#"{"id":"e","type":"Thing","a":1}"#),
                ),
            ],
        ),
    ]
}

fn values() -> Vec<(&'static str, Vec<Step>)> {
    vec![
        (
            "§9 dates in q and mq, in every form; a null one matches none; it stays a date when its value is set",
            vec![
                (
                    CREATE,
                    r#"{"id":"e","d":{"type":"DateTime","value":"2020-01-02T03:04:05.006Z","metadata":{"m":{"type":"ISO8601","value":"2020-01-02"}}}}"#,
                    Is(201),
                ),
                (CREATE, r#"{"id":"n","d":{"type":"DateTime","value":null}}"#, Is(201)),
                (
                    "GET /v2/entities?q=d==2020-01-02T030405.006&attrs=id&options=count",
                    "",
                    Has("fiware-total-count", "1"),
                ),
                (
                    "GET /v2/entities?q=d==2020-01-02T05:04:05.006%2B0200&attrs=id&options=count",
                    "",
                    Has("fiware-total-count", "1"),
                ),
                (
                    "GET /v2/entities?q=d%3E2020-01-02;d%3C2020-01-02T04&attrs=id&options=count",
                    "",
                    Has("fiware-total-count", "1"),
                ),
                ("GET /v2/entities?mq=d.m==2020-01-02T00:00Z&options=count", "", Has("fiware-total-count", "1")),
                ("GET /v2/entities?q=d!=1999-01-01&options=count", "", Has("fiware-total-count", "1")),
                ("GET /v2/entities?q=d==null&options=count", "", Has("fiware-total-count", "0")),
                ("PUT /v2/entities/e/attrs/d/value\ncontent-type: text/plain", "\"2021-01-01\"", Is(204)),
                ("GET /v2/entities/e/attrs/d/value", "", Says(r#""2021-01-01T00:00:00.000Z""#)),
                (
                    "PUT /v2/entities/e/attrs/d/value\ncontent-type: text/plain",
                    "\"soon\"",
                    Refuses(422, "Unprocessable", "soon"),
                ),
            ],
        ),
        (
            "§9 numbers: a double is read back as itself, integral ones have no decimals",
            vec![
                (SHORT, r#"{"id":"e","a":[9007199254740993,1e21,5e-324,123456789.123456789,1E2]}"#, Is(201)),
                (
                    "GET /v2/entities/e/attrs/a/value",
                    "",
                    Says("[9007199254740993,1e+21,5e-324,123456789.12345679,100]"),
                ),
            ],
        ),
        (
            "§9 one location: of two that come at once; ignoreType lets the first go",
            vec![
                (
                    CREATE,
                    r#"{"id":"e","a":{"type":"geo:point","value":"1,1"},"b":{"type":"geo:json","value":{"type":"Point","coordinates":[2,2]}}}"#,
                    Refuses(413, "NoResourcesAvailable", "a, b"),
                ),
                (CREATE, r#"{"id":"e","a":{"type":"geo:point","value":"1,1"}}"#, Is(201)),
                (
                    "POST /v2/op/update",
                    r#"{"actionType":"append","entities":[{"id":"e","b":{"type":"geo:point","value":"2,2"}}]}"#,
                    Refuses(413, "NoResourcesAvailable", "a, b"),
                ),
                (
                    "POST /v2/entities/e/attrs",
                    r#"{"a":{"type":"geo:point","value":"1,1","metadata":{"ignoreType":{"value":true,"type":"Boolean"}}},"b":{"type":"geo:point","value":"2,2"}}"#,
                    Is(204),
                ),
                (
                    "GET /v2/entities?georel=equals&geometry=point&coords=2,2&options=count",
                    "",
                    Has("fiware-total-count", "1"),
                ),
                (
                    "GET /v2/entities?georel=equals&geometry=point&coords=1,1&options=count",
                    "",
                    Has("fiware-total-count", "0"),
                ),
            ],
        ),
        (
            "§9 the older forms of locations, latitude first; more features than one and collections are 400",
            vec![
                (CREATE, r#"{"id":"line","l":{"type":"geo:line","value":["1,10","2,10"]}}"#, Is(201)),
                (CREATE, r#"{"id":"box","l":{"type":"geo:box","value":["1,10","2,11"]}}"#, Is(201)),
                (
                    CREATE,
                    r#"{"id":"polygon","l":{"type":"geo:polygon","value":["1,10","1,11","2,11","1,10"]}}"#,
                    Is(201),
                ),
                (
                    "GET /v2/entities?georel=intersects&geometry=box&coords=0.5,9.5;2.5,11.5&options=count",
                    "",
                    Has("fiware-total-count", "3"),
                ),
                (
                    "GET /v2/entities?georel=coveredBy&geometry=box&coords=0.5,9.5;2.5,10.5&attrs=id",
                    "",
                    Shows(r#"[{"id":"line","type":"Thing"}]"#),
                ),
                (
                    CREATE,
                    r#"{"id":"x","l":{"type":"geo:json","value":{"type":"GeometryCollection","geometries":[]}}}"#,
                    Refuses(400, "BadRequest", "GeometryCollection"),
                ),
                (
                    "PUT /v2/entities/line/attrs/l/value",
                    r#"{"type":"Circle"}"#,
                    Refuses(422, "Unprocessable", "geo:line"),
                ),
            ],
        ),
        (
            "§10 operators in a body that replaces all begin with their base; metadata beside them is merged",
            vec![
                (CREATE, r#"{"id":"e","n":{"value":5,"metadata":{"m":{"value":1}}},"l":{"value":[1]}}"#, Is(201)),
                ("PATCH /v2/entities/e/attrs", r#"{"n":{"value":{"$inc":2},"metadata":{"o":{"value":2}}}}"#, Is(204)),
                ("GET /v2/entities?mq=n.m==1;n.o==2&attrs=n&options=values", "", Says("[[7]]")),
                (
                    "PUT /v2/entities/e/attrs?options=keyValues",
                    r#"{"n":{"$inc":2},"l":{"$pull":1},"o":{"$unset":{"a":1}},"s":{"$set":{"a":1}}}"#,
                    Is(204),
                ),
                ("GET /v2/entities/e?options=keyValues", "", Says(r#"{"id":"e","type":"Thing","n":2,"s":{"a":1}}"#)),
                (
                    "POST /v2/entities/e/attrs?options=append,keyValues",
                    r#"{"m":{"$mul":3},"n":{"$inc":1}}"#,
                    Refuses(422, "PartialUpdate", "attributes n"),
                ),
                ("GET /v2/entities/e?attrs=n,m&options=values", "", Says("[2,0]")),
                (
                    "PATCH /v2/entities/e/attrs?options=keyValues",
                    r#"{"n":{"$push":1}}"#,
                    Refuses(422, "Unprocessable", "$push"),
                ),
                (
                    "POST /v2/op/update?options=keyValues",
                    r#"{"actionType":"append","entities":[{"id":"e","n":{"$inc":"x"}},{"id":"f"}]}"#,
                    Refuses(400, "BadRequest", "$inc"),
                ),
                ("GET /v2/entities/f", "", Refuses(404, "NotFound", "'f'")),
            ],
        ),
        (
            "§11 an entity belongs to one path; lists may show one id twice, servicePath tells them apart",
            vec![
                ("POST /v2/entities?options=keyValues\nfiware-servicepath: /a", r#"{"id":"e","n":1}"#, Is(201)),
                ("POST /v2/entities?options=keyValues\nfiware-servicepath: /b/", r#"{"id":"e","n":2}"#, Is(201)),
                ("GET /v2/entities?attrs=n,servicePath&options=values", "", Says(r#"[[1,"/a"],[2,"/b"]]"#)),
                ("PATCH /v2/entities/e/attrs?options=keyValues", r#"{"n":3}"#, Refuses(404, "NotFound", "'e'")),
                ("GET /v2/entities/e\nfiware-servicepath: /a,/b", "", Refuses(409, "TooManyResults", "'e'")),
                (
                    "PUT /v2/entities/e/attrs/n/value\nfiware-servicepath: /a,/b",
                    "[]",
                    Refuses(400, "BadRequest", "/a,/b"),
                ),
                (
                    "POST /v2/op/update\nfiware-servicepath: /a/#",
                    r#"{"actionType":"delete","entities":[{"id":"e"}]}"#,
                    Refuses(400, "BadRequest", "/a/#"),
                ),
                (
                    "POST /v2/op/update\nfiware-servicepath: /a",
                    r#"{"actionType":"delete","entities":[{"id":"e"}]}"#,
                    Is(204),
                ),
                ("GET /v2/entities/e/attrs/n/value", "", Says("2")),
            ],
        ),
        (
            "§12 tokens with dots are quoted, in mq as well; an empty list and an unknown operator are 400",
            vec![
                (CREATE, r#"{"id":"e","a.b":{"value":{"c":1},"metadata":{"m.n":{"value":{"o":2}}}}}"#, Is(201)),
                ("GET /v2/entities?q='a.b'.c==1&options=count", "", Has("fiware-total-count", "1")),
                ("GET /v2/entities?mq='a.b'.'m.n'.o==2&options=count", "", Has("fiware-total-count", "1")),
                ("GET /v2/entities?q=a.b&options=count", "", Has("fiware-total-count", "0")),
                ("GET /v2/entities?q=a%3C%3E1", "", Refuses(400, "BadRequest", "'<>' is no operator")),
                ("GET /v2/entities?q=a===1", "", Refuses(400, "BadRequest", "'===' is no operator")),
                ("GET /v2/entities?q=a=%3E1", "", Refuses(400, "BadRequest", "is no operator")),
                ("GET /v2/entities?q=a=='=1'&options=count", "", Has("fiware-total-count", "0")),
                ("GET /v2/entities?q=", "", Refuses(400, "BadRequest", "q")),
            ],
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn built_ins_are_those_of_section_8() {
    play(built_ins()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn values_operators_paths_and_queries_are_those_of_sections_9_to_12() {
    play(values()).await;
}
