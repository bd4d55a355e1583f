//! Rows of the reference, in the ways in which clients of Orion really send them.

use crate::reference::Then::{Has, Is, Refuses, Says, Shows};
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
            "§3.2 GET /v2 names the entry points; registrations are listed",
            vec![
                (
                    "GET /v2",
                    "",
                    Shows(
                        r#"{"entities_url":"/v2/entities","types_url":"/v2/types","subscriptions_url":"/v2/subscriptions","registrations_url":"/v2/registrations"}"#,
                    ),
                ),
                ("GET /v2/registrations", "", Says("[]")),
                ("GET /v2/registrations?options=count&limit=5", "", Has("fiware-total-count", "0")),
                ("GET /v2/registrations?limit=x", "", Refuses(400, "BadRequest", "limit")),
                ("POST /v2/registrations", "{}", Refuses(400, "BadRequest", "dataProvided")),
            ],
        ),
        (
            "§4 noAttrDetail leaves out types of attributes, of one type as of all",
            vec![
                (SHORT, r#"{"id":"e","a":1}"#, Is(201)),
                ("GET /v2/types/Thing", "", Shows(r#"{"attrs":{"a":{"types":["Number"]}},"count":1}"#)),
                ("GET /v2/types/Thing?options=noAttrDetail", "", Shows(r#"{"attrs":{"a":{"types":[]}},"count":1}"#)),
                (
                    "GET /v2/types?options=noAttrDetail",
                    "",
                    Shows(r#"[{"type":"Thing","attrs":{"a":{"types":[]}},"count":1}]"#),
                ),
            ],
        ),
        (
            "§3.2 an id that no subscription can have is refused",
            vec![
                ("GET /v2/subscriptions/x", "", Refuses(400, "BadRequest", "'x'")),
                ("GET /v2/subscriptions/0123456789abcdef0123456", "", Refuses(400, "BadRequest", "24 hexadecimal")),
                (
                    "DELETE /v2/subscriptions/0123456789abcdef0123456g",
                    "",
                    Refuses(400, "BadRequest", "0123456789abcdef0123456g"),
                ),
                ("PATCH /v2/subscriptions/not-an-id", r#"{"throttling":1}"#, Refuses(400, "BadRequest", "not-an-id")),
                (
                    "GET /v2/subscriptions/0123456789ABCDEF01234567",
                    "",
                    Refuses(404, "NotFound", "0123456789ABCDEF01234567"),
                ),
            ],
        ),
        (
            "§4 what stands twice: names in attrs count once, members of a body are refused but for an equal id or type",
            vec![
                (SHORT, r#"{"id":"e","a":1,"b":2}"#, Is(201)),
                ("GET /v2/entities?attrs=b,a,b&options=values", "", Says("[[2,1]]")),
                ("GET /v2/entities/e?attrs=*,*&options=values", "", Says("[1,2]")),
                ("POST /v2/op/query?options=values", r#"{"attrs":["b","b"]}"#, Says("[[2]]")),
                ("POST /v2/op/query?options=values", r#"{"attributes":["b","b"]}"#, Says("[[2]]")),
                (
                    "POST /v2/op/update",
                    r#"{"actionType":"append","entities":[{"id":"e","type":"Thing","id":"e","type":"Thing"}]}"#,
                    Is(204),
                ),
                (CREATE, r#"{"id":"e","type":"A","type":"B"}"#, Refuses(400, "BadRequest", "'type' is given twice")),
                ("GET /v2/entities?id=e,e&options=values&attrs=b,a", "", Says("[[2,1]]")),
                (
                    "POST /v2/entities/e/attrs",
                    r#"{"c":{"value":1,"value":2}}"#,
                    Refuses(400, "BadRequest", "'value' is given twice"),
                ),
                (
                    "PUT /v2/entities/e/attrs/a/value",
                    r#"[{"x":1,"x":1}]"#,
                    Refuses(400, "BadRequest", "'x' is given twice"),
                ),
                (
                    "POST /v2/op/update",
                    r#"{"actionType":"append","entities":[{"id":"f","a":{"value":1},"a":{"value":1}}]}"#,
                    Refuses(400, "BadRequest", "'a' is given twice"),
                ),
                (
                    "POST /v2/subscriptions",
                    r#"{"subject":{"entities":[{"id":"e","id":"f"}]},"notification":{"http":{"url":"http://h/"}}}"#,
                    Refuses(400, "BadRequest", "'id' is given twice"),
                ),
                ("GET /v2/entities?options=values", "", Says("[[1,2]]")),
            ],
        ),
        (
            "§12 lists: null beside texts, no booleans, one kind; and no < > ( ) in a name or a value",
            vec![
                (SHORT, r#"{"id":"e","a":"foo"}"#, Is(201)),
                (SHORT, r#"{"id":"f","a":null}"#, Is(201)),
                (SHORT, r#"{"id":"g","a":5}"#, Is(201)),
                ("GET /v2/entities?options=count&limit=0&q=a:foo,null", "", Has("fiware-total-count", "2")),
                ("GET /v2/entities?options=count&limit=0&q=a==null,foo", "", Has("fiware-total-count", "2")),
                ("GET /v2/entities?q=a==null,5", "", Refuses(400, "BadRequest", "one kind")),
                ("GET /v2/entities?q=a==true", "", Says("[]")),
                ("GET /v2/entities?q=a==true,false", "", Refuses(400, "BadRequest", "one kind")),
                ("GET /v2/entities?q=a==foo,5", "", Refuses(400, "BadRequest", "one kind")),
                ("GET /v2/entities?q=a==null,foo,5", "", Refuses(400, "BadRequest", "one kind")),
                ("GET /v2/entities?q=a==f(o)", "", Refuses(400, "BadRequest", "< > ( )")),
                ("GET /v2/entities?q=a=='%3Cb%3E'", "", Refuses(400, "BadRequest", "< > ( )")),
                ("GET /v2/entities?q='a(b)'==1", "", Refuses(400, "BadRequest", "< > ( )")),
                ("GET /v2/entities?q=!a(b)", "", Refuses(400, "BadRequest", "< > ( )")),
                ("GET /v2/entities?options=values&q=a~=%5E(foo%7Cbar)$", "", Says(r#"[["foo"]]"#)),
            ],
        ),
        (
            "§4 a parameter has a value, and no forbidden characters, also where it means nothing",
            vec![
                ("GET /v2/entities?a", "", Refuses(400, "BadRequest", "'a' is empty")),
                ("GET /v2/entities?level=", "", Refuses(400, "BadRequest", "'level' is empty")),
                ("GET /v2/entities?level=a%3Cb", "", Refuses(400, "BadRequest", "'a<b'")),
                ("GET /v2/entities?lev%28el=1", "", Refuses(400, "BadRequest", "'lev(el'")),
                ("GET /v2/entities?level=high", "", Says("[]")),
                ("GET /v2/types?q=a%3E1", "", Says("[]")),
            ],
        ),
        (
            "§3.2 what clients of Orion send: a slash behind an id, action types in any capitals, former options",
            vec![
                (SHORT, r#"{"id":"e","a":1}"#, Is(201)),
                ("GET /v2/entities/e/?options=values", "", Says("[1]")),
                (
                    "GET /v2/entities/e/attrs/a/?options=keyValues",
                    "",
                    Shows(r#"{"type":"Number","value":1,"metadata":{}}"#),
                ),
                ("GET /v2/types/Thing/", "", Is(200)),
                ("GET /v2/subscriptions/0123456789abcdef01234567/", "", Refuses(404, "NotFound", "0123")),
                (
                    "POST /v2/op/update?options=keyValues",
                    r#"{"actionType":"append_strict","entities":[{"id":"e","b":2}]}"#,
                    Is(204),
                ),
                (
                    "POST /v2/op/update?options=keyValues",
                    r#"{"actionType":"Append_Strict","entities":[{"id":"e","b":3}]}"#,
                    Is(422),
                ),
                (
                    "POST /v2/op/update?options=keyValues",
                    r#"{"actionType":"APPENDSTRICT","entities":[{"id":"e","c":3}]}"#,
                    Is(204),
                ),
                (
                    "POST /v2/op/update?options=keyValues",
                    r#"{"actionType":"Update","entities":[{"id":"e","a":4}]}"#,
                    Is(204),
                ),
                (
                    "POST /v2/op/update",
                    r#"{"actionType":"appends","entities":[]}"#,
                    Refuses(400, "BadRequest", "appends"),
                ),
                ("GET /v2/entities/e?options=values,libVersions", "", Says("[4,2,3]")),
                (
                    "POST /v2/subscriptions?options=skipInitialNotification",
                    r#"{"subject":{"entities":[{"id":"e"}]},"notification":{"http":{"url":"http://h/"}}}"#,
                    Is(201),
                ),
                ("GET /version?options=libVersions", "", Is(200)),
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
            "§9 with ignoreType a Feature is shown whole, and an update without metadata may set anything",
            vec![
                (
                    CREATE,
                    r#"{"id":"e","g":{"type":"geo:json","value":{"type":"Feature","properties":{"p":1},"geometry":{"type":"Point","coordinates":[2,1]}},"metadata":{"ignoreType":{"value":true}}},"l":{"type":"geo:point","value":"1,1"}}"#,
                    Is(201),
                ),
                (
                    "GET /v2/entities/e/attrs/g/value",
                    "",
                    Shows(r#"{"type":"Feature","properties":{"p":1},"geometry":{"type":"Point","coordinates":[2,1]}}"#),
                ),
                ("PATCH /v2/entities/e/attrs", r#"{"g":{"type":"geo:json","value":"here"}}"#, Is(204)),
                (
                    "GET /v2/entities/e/attrs/g",
                    "",
                    Shows(
                        r#"{"type":"geo:json","value":"here","metadata":{"ignoreType":{"type":"Boolean","value":true}}}"#,
                    ),
                ),
                (
                    "POST /v2/entities/e/attrs",
                    r#"{"g":{"type":"geo:json","value":{"a":1},"metadata":{"m":{"value":1}}}}"#,
                    Is(204),
                ),
                ("PUT /v2/entities/e/attrs/g", r#"{"type":"geo:point","value":"there"}"#, Is(204)),
                (
                    "POST /v2/op/update",
                    r#"{"actionType":"append","entities":[{"id":"e","g":{"type":"geo:box","value":7}}]}"#,
                    Is(204),
                ),
                ("GET /v2/entities/e/attrs/g/value", "", Says("7")),
                (
                    "PATCH /v2/entities/e/attrs?options=overrideMetadata",
                    r#"{"g":{"type":"geo:json","value":"x"}}"#,
                    Refuses(400, "BadRequest", "geo:json"),
                ),
                (
                    "PATCH /v2/entities/e/attrs",
                    r#"{"g":{"type":"geo:json","value":"x","metadata":{"ignoreType":{"value":false}}}}"#,
                    Refuses(400, "BadRequest", "geo:json"),
                ),
                (
                    "PUT /v2/entities/e/attrs",
                    r#"{"g":{"type":"geo:json","value":"x"}}"#,
                    Refuses(400, "BadRequest", "'g'"),
                ),
                (
                    "PATCH /v2/entities/e/attrs",
                    r#"{"l":{"type":"geo:point","value":"x"}}"#,
                    Refuses(400, "BadRequest", "'l'"),
                ),
                (
                    "POST /v2/entities/e/attrs",
                    r#"{"n":{"type":"geo:json","value":"x"}}"#,
                    Refuses(400, "BadRequest", "'n'"),
                ),
                (
                    "POST /v2/entities/e/attrs\nfiware-servicepath: /a",
                    r#"{"g":{"type":"geo:json","value":"x"}}"#,
                    Refuses(400, "BadRequest", "'g'"),
                ),
                (
                    "POST /v2/op/update",
                    r#"{"actionType":"append","entities":[{"id":"new","a":{"value":1}},{"id":"f","g":{"type":"geo:json","value":"x"}}]}"#,
                    Refuses(400, "BadRequest", "'g'"),
                ),
                ("GET /v2/entities?attrs=l,g&options=values", "", Says(r#"[["1,1",7]]"#)),
            ],
        ),
        (
            "§9 a box has an area, and a zone may have a point",
            vec![
                (
                    CREATE,
                    r#"{"id":"e","l":{"type":"geo:box","value":["1,1","1,2"]}}"#,
                    Refuses(400, "BadRequest", "differ in latitude and in longitude"),
                ),
                (
                    CREATE,
                    r#"{"id":"e","l":{"type":"geo:box","value":["1,1","2,1"]}}"#,
                    Refuses(400, "BadRequest", "differ in latitude and in longitude"),
                ),
                (
                    CREATE,
                    r#"{"id":"e","l":{"type":"geo:box","value":["1,1","2,2"]},"d":{"type":"DateTime","value":"2020-01-01T10:00:00+01.00"}}"#,
                    Is(201),
                ),
                ("GET /v2/entities/e?attrs=d&options=values", "", Says(r#"["2020-01-01T09:00:00.000Z"]"#)),
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
            "§8 dateExpires is a DateTime, whatever type it is said to have",
            vec![
                (
                    CREATE,
                    r#"{"id":"e","dateExpires":{"type":"Text","value":"2020-01-01"}}"#,
                    Refuses(400, "BadRequest", "the type 'Text' of attribute 'dateExpires'"),
                ),
                (SHORT, r#"{"id":"e","a":1,"dateExpires":"2999-01-01"}"#, Is(201)),
                (
                    "PATCH /v2/entities/e/attrs",
                    r#"{"dateExpires":{"type":"Number","value":"2020-01-01"}}"#,
                    Refuses(400, "BadRequest", "'Number'"),
                ),
                (
                    "PUT /v2/entities/e/attrs/dateExpires",
                    r#"{"type":"date","value":{"$max":"2020-01-01"}}"#,
                    Refuses(400, "BadRequest", "'date'"),
                ),
                ("PUT /v2/entities/e/attrs/dateExpires", r#"{"type":"ISO8601","value":"2998-01-01"}"#, Is(204)),
                (
                    "GET /v2/entities/e?attrs=a,dateExpires",
                    "",
                    Shows(
                        r#"{"id":"e","type":"Thing","a":{"type":"Number","value":1,"metadata":{}},"dateExpires":{"type":"DateTime","value":"2998-01-01T00:00:00.000Z","metadata":{}}}"#,
                    ),
                ),
            ],
        ),
        (
            "§3.1 a value as text: booleans and null in any case, dates in quotes",
            vec![
                (
                    CREATE,
                    r#"{"id":"e","a":{"value":1},"d":{"type":"DateTime","value":null},"t":{"value":"x"}}"#,
                    Is(201),
                ),
                ("PUT /v2/entities/e/attrs/a/value\ncontent-type: text/plain", "TRUE", Is(204)),
                ("GET /v2/entities/e/attrs/a/value", "", Says("true")),
                ("PUT /v2/entities/e/attrs/a/value\ncontent-type: text/plain", "False", Is(204)),
                ("GET /v2/entities/e/attrs/a/value", "", Says("false")),
                ("PUT /v2/entities/e/attrs/a/value\ncontent-type: text/plain", "NULL", Is(204)),
                ("GET /v2/entities/e/attrs/a/value", "", Says("null")),
                (
                    "PUT /v2/entities/e/attrs/a/value\ncontent-type: text/plain",
                    "TRUER",
                    Refuses(400, "BadRequest", "TRUER"),
                ),
                ("PUT /v2/entities/e/attrs/a/value\ncontent-type: text/plain", "\"TRUE\"", Is(204)),
                ("GET /v2/entities/e/attrs/a/value", "", Says("\"TRUE\"")),
                (
                    "PUT /v2/entities/e/attrs/d/value\ncontent-type: text/plain",
                    "\"2016-04-05T16:00:00+02:00\"",
                    Is(204),
                ),
                ("GET /v2/entities/e/attrs/d/value", "", Says("\"2016-04-05T14:00:00.000Z\"")),
                ("PUT /v2/entities/e/attrs/t/value\ncontent-type: text/plain", "\"2016-04-05\"", Is(204)),
                ("GET /v2/entities/e/attrs/t/value", "", Says("\"2016-04-05\"")),
                (
                    "PUT /v2/entities/e/attrs/d/value\ncontent-type: text/plain",
                    "2016-04-05",
                    Refuses(400, "BadRequest", "2016-04-05"),
                ),
                ("PUT /v2/entities/e/attrs/dateExpires/value\ncontent-type: text/plain", "\"2999-01-01\"", Is(404)),
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
