//! `q`, `mq` and patterns: every row of the reference's table of statements, over HTTP.

use crate::refusals::{ask, check};
use crate::world::{Served, World, wait_for_index};

/// Encodes a query's value as clients do.
pub(crate) fn encoded(text: &str) -> String {
    text.bytes()
        .map(|c| match c {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b',' | b':' => {
                char::from(c).to_string()
            }
            other => format!("%{other:02X}"),
        })
        .collect()
}

/// The ids that `GET /v2/entities` lists for these parameters, joined by blanks.
pub(crate) async fn listed(served: &Served, parameters: &[(&str, &str)]) -> String {
    let query: Vec<String> = parameters.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
    let answer = served.get(&format!("/v2/entities?{}", query.join("&"))).await;
    assert_eq!(answer.status, 200, "{parameters:?}: {answer:?}");
    let list = answer.json();
    let ids: Vec<&str> = list.as_array().unwrap().iter().map(|entity| entity["id"].as_str().unwrap()).collect();
    ids.join(" ")
}

const ENTITIES: [&str; 6] = [
    r#"{"id":"e1","type":"Room","t":{"value":20},"name":{"value":"kitchen"},"on":{"value":true},
        "when":{"value":"2017-06-17T07:21:24Z","type":"DateTime"},
        "list":{"value":[1,"x",null]},"o":{"value":{"a":{"b":7},"a.b":8,"d":"2017-06-17"}}}"#,
    r#"{"id":"e2","type":"Room","t":{"value":21.5,"metadata":{"acc":{"value":0.1},"m":{"value":{"k":"deep"}}}},
        "name":{"value":"bath, upstairs"},"on":{"value":false}}"#,
    r#"{"id":"e3","type":"Car","t":{"value":"20"},"name":{"value":"20"},
        "when":{"value":"2018-01-01","type":"DateTime","metadata":{"at":{"value":"2017-01-01","type":"DateTime"}}}}"#,
    r#"{"id":"e4","type":"Car","t":{"value":null},"when":{"value":null,"type":"DateTime"},"list":{"value":[5,6]}}"#,
    r#"{"id":"e5","type":"Cart","t":{"value":-3,"metadata":{"acc":{"value":"good"}}},
        "when":{"value":"2017-06-17T07:21:24Z"},"a.b":{"value":9}}"#,
    r#"{"id":"e6","type":"Train","o":{"value":{"a":[1,2]}}}"#,
];

async fn filled(dir: &std::path::Path) -> (World, Served) {
    let world = World::open(dir);
    let served = world.serve().await;
    for body in ENTITIES {
        assert_eq!(served.ask("POST /v2/entities", Some(body)).await.status, 201, "{body}");
    }
    (world, served)
}

/// Row of the reference's section 12, statement, what it finds.
const Q: [(&str, &str, &str); 57] = [
    ("a exists", "t", "e1 e2 e3 e4 e5"),
    ("a exists, null date", "when", "e1 e3 e4 e5"),
    ("!a", "!t", "e6"),
    ("!a.sub", "!o.a.b", "e2 e3 e4 e5 e6"),
    ("a==v number", "t==20", "e1"),
    ("a==v number, other text", "t==2.0e1", "e1"),
    ("a:v", "t:20", "e1"),
    ("a==v text", "name==kitchen", "e1"),
    ("a==v boolean", "on==true", "e1"),
    ("a==v boolean", "on==false", "e2"),
    ("a==v null", "t==null", "e4"),
    ("a==v quoted is text", "t=='20'", "e3"),
    ("a==v element of an array", "list==x", "e1"),
    ("a==v element of an array", "list==5", "e4"),
    ("a==v element of an array", "list==null", "e1"),
    ("a==v date", "when==2017-06-17T07:21:24.000Z", "e1"),
    ("a==v date in another zone", "when==2017-06-17T09:21:24+02:00", "e1"),
    ("a:v date", "when:2018-01-01", "e3"),
    ("a==v,w", "t==20,21.5", "e1 e2"),
    ("a==v,w quotes protect commas", "name=='bath, upstairs',kitchen", "e1 e2"),
    ("a==x..y", "t==-3..20", "e1 e5"),
    ("a==x..y texts", "name==a..c", "e2"),
    ("a==x..y dates", "when==2017-01-01..2017-12-31", "e1"),
    ("a==x..y element of an array", "list==6..7", "e4"),
    ("a!=v", "t!=20", "e2 e3 e4 e5"),
    ("a!=v only where it exists", "name!=kitchen", "e2 e3"),
    ("a!=v,w", "t!=20,21.5", "e3 e4 e5"),
    ("a==v; with nothing behind it", "t==20;", "e1"),
    ("a;b; with nothing behind it", "t>=20;name~=i; ", "e1 e2"),
    ("a!=x..y", "t!=0..100", "e3 e4 e5"),
    ("a!=v of an array", "list!=1", "e4"),
    ("a!=v null date never", "when!=2018-01-01", "e1 e5"),
    ("a>v", "t>20", "e2"),
    ("a>=v", "t>=20", "e1 e2"),
    ("a<v", "t<20", "e5"),
    ("a<=v", "t<=20", "e1 e5"),
    ("a>v date", "when>2017-06-17T07:21:24Z", "e3"),
    ("a<=v date", "when<=2017-06-17T07:21:24Z", "e1"),
    ("a>v text", "name>b", "e1 e2"),
    ("a~=re", "name~=^k", "e1"),
    ("a~=re anywhere", "name~=tch|stairs", "e1 e2"),
    ("a~=re class", "name~=^[[:digit:]]+$", "e3"),
    ("a~=re of a number", "t~=2", "e3"),
    ("a~=re with blanks and commas", "name~=h, u", "e2"),
    ("a~=re with a semicolon", "name~=h\\x3b|h,", "e2"),
    ("a.sub", "o.a.b", "e1"),
    ("a.sub==v", "o.a.b==7", "e1"),
    ("a.'sub with dot'", "o.'a.b'==8", "e1"),
    ("'a with dot'", "'a.b'==9", "e5"),
    ("a.sub of an array", "o.a==2", "e6"),
    ("a.sub text that looks like a date", "o.d=='2017-06-17'", "e1"),
    ("; is and", "t>=20;name~=i", "e1 e2"),
    ("; is and", "t;!list;!o", "e2 e3 e5"),
    ("built-in servicePath", "servicePath==/;t==20", "e1"),
    ("built-in dateCreated", "dateCreated>2017-01-01;list", "e1 e4"),
    ("built-in dateModified", "dateModified<2017-01-01", ""),
    ("nothing matches", "nothing==1", ""),
];

#[tokio::test(flavor = "multi_thread")]
async fn q_follows_each_row_of_the_reference() {
    let dir = tempfile::tempdir().unwrap();
    let (world, served) = filled(dir.path()).await;
    for (row, q, expected) in Q {
        assert_eq!(listed(&served, &[("q", q)]).await, expected, "{row}: {q}");
    }
    // Again, now that what was queried has an index.
    for (query, attribute) in [("q=t==20", "t"), ("q=name==x", "name"), ("q=when==2018-01-01", "when")] {
        wait_for_index(&served, query, attribute).await;
    }
    for (row, q, expected) in Q {
        assert_eq!(listed(&served, &[("q", q)]).await, expected, "{row}: {q}, by index");
    }
    served.stop().await;
    world.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn mq_and_patterns_follow_the_reference() {
    let dir = tempfile::tempdir().unwrap();
    let (world, served) = filled(dir.path()).await;
    for (parameters, expected) in [
        (&[("mq", "t.acc")][..], "e2 e5"),
        (&[("mq", "!t.acc")], "e1 e3 e4 e6"),
        (&[("mq", "t.acc<1")], "e2"),
        (&[("mq", "t.acc==good")], "e5"),
        (&[("mq", "t.m.k==deep")], "e2"),
        (&[("mq", "t.'acc'==0.1,0.2")], "e2"),
        (&[("mq", "when.at<2017-06-01")], "e3"),
        (&[("mq", "t.dateCreated>2017-01-01;t.acc")], "e2 e5"),
        (&[("mq", "t.dateModified<2017-01-01")], ""),
        (&[("q", "t>0"), ("mq", "t.acc")], "e2"),
        (&[("idPattern", "e[1-3]")], "e1 e2 e3"),
        (&[("idPattern", "^e.*6$")], "e6"),
        (&[("typePattern", "^Car")], "e3 e4 e5"),
        (&[("typePattern", "r"), ("idPattern", "[45]")], "e4 e5"),
        (&[("id", "e1,e3"), ("typePattern", "Car")], "e3"),
        (&[("type", "Room,Train"), ("idPattern", "[26]")], "e2 e6"),
        (&[("type", "Room"), ("q", "on==false")], "e2"),
        (&[("id", "e5,e2"), ("q", "t>0")], "e2"),
        (&[("typePattern", "a"), ("limit", "2"), ("offset", "1")], "e4 e5"),
    ] {
        assert_eq!(listed(&served, parameters).await, expected, "{parameters:?}");
    }
    let counted = served.get("/v2/entities?q=t&options=count&limit=2&offset=1").await;
    assert_eq!(counted.header("fiware-total-count"), Some("5"));
    assert_eq!(counted.json().as_array().unwrap().len(), 2);
    served.stop().await;
    world.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_q_mq_and_patterns_are_400() {
    let dir = tempfile::tempdir().unwrap();
    let (world, served) = filled(dir.path()).await;
    for (name, text, why) in [
        ("q", ";", "empty statement"),
        ("q", "t;;", "empty statement"),
        ("q", ";t", "empty statement"),
        ("q", "t!=true,5", "values of one kind"),
        ("q", "t==20,'20'", "values of one kind"),
        ("q", "t==null,20", "values of one kind"),
        ("mq", "t.acc==2020-01-01,1", "values of one kind"),
        ("q", "t~='101'", "no quotes"),
        ("q", "t==", "nothing stands right"),
        ("q", "==1", "empty name"),
        ("q", "t.==1", "empty name"),
        ("q", "t=1", "no operator"),
        ("q", "t!1", "'!' within a name"),
        ("q", "!t==1", "'!' stands before"),
        ("q", "!", "empty name"),
        ("q", "t==1..x", "ends of a range"),
        ("q", "t==true..false", "ends of a range"),
        ("q", "t==1..", "empty value"),
        ("q", "t==1,,2", "empty value"),
        ("q", "t==1..2,3", "range within a list"),
        ("q", "t>1,2", "one number, date or text"),
        ("q", "t>true", "one number, date or text"),
        ("q", "t<1..2", "no range"),
        ("q", "t=='x", "not closed"),
        ("q", "t==it's 'x'", "not closed"),
        ("q", "t=='a'b", "quote within a value"),
        ("q", "t~=[", "regular expression"),
        ("q", "t~=(?=x)", "look-around"),
        ("q", "name~=a{99999}", "regular expression"),
        ("mq", "t", "no metadata"),
        ("mq", "t.==1", "empty name"),
        ("idPattern", "[", "regular expression"),
    ] {
        let head = format!("GET /v2/entities?{name}={}", encoded(text));
        check(&ask(&served, &head, None).await, 400, "BadRequest", why, &head);
    }
    for query in ["id=a&idPattern=b", "type=a&typePattern=b"] {
        let head = format!("GET /v2/entities?{query}");
        check(&ask(&served, &head, None).await, 400, "BadRequest", "together", &head);
    }
    served.stop().await;
    world.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn op_query_asks_by_a_body() {
    let dir = tempfile::tempdir().unwrap();
    let (world, served) = filled(dir.path()).await;
    for (body, expected) in [
        (r#"{"entities":[{"id":"e3"},{"idPattern":"[12]","type":"Room"}]}"#, "e1 e2 e3"),
        (r#"{"entities":[{"idPattern":".*","typePattern":"^Car"}]}"#, "e3 e4 e5"),
        (r#"{"entities":[{"id":"e1"},{"id":"e1","type":"Room"}]}"#, "e1"),
        (r#"{"expression":{"q":"t>0","mq":"t.acc"}}"#, "e2"),
        (r#"{"entities":[{"idPattern":".*","type":"Room"}],"expression":{"q":"name~=^k"}}"#, "e1"),
        (r#"{"attrs":["name"]}"#, "e1 e2 e3 e4 e5 e6"),
        (r#"{"attributes":["name"]}"#, "e1 e2 e3"),
        (r#"{"attributes":["name","list"]}"#, "e1 e2 e3 e4"),
        (r#"{"attributes":["name","list","none"],"attrs":["name"],"expression":{"q":"t>20"}}"#, "e2"),
        (r#"{"attributes":["none"]}"#, ""),
    ] {
        let answer = served.ask("POST /v2/op/query?options=count,keyValues", Some(body)).await;
        assert_eq!(answer.status, 200, "{body}: {answer:?}");
        let list = answer.json();
        let ids: Vec<&str> = list.as_array().unwrap().iter().map(|entity| entity["id"].as_str().unwrap()).collect();
        assert_eq!(ids.join(" "), expected, "{body}");
        assert_eq!(answer.header("fiware-total-count"), Some(ids.len().to_string().as_str()), "{body}");
    }
    let shown = served.ask("POST /v2/op/query?options=keyValues&limit=1", Some(r#"{"attrs":["on","t"]}"#)).await;
    assert_eq!(shown.body, r#"[{"id":"e1","type":"Room","on":true,"t":20}]"#);
    for (body, why) in [
        (r#"{"entities":[{"type":"Room"}]}"#, "neither id nor idPattern"),
        (r#"{"entities":[{"id":"a","idPattern":"b"}]}"#, "both id and idPattern"),
        (r#"{"entities":{}}"#, "no array"),
        (r#"{"entities":[7]}"#, "no object"),
        (r#"{"entities":[{"id":"a","colour":"b"}]}"#, "colour"),
        (r#"{"colour":1}"#, "colour"),
        (r#"{"attrs":[1]}"#, "no string"),
        ("{}", "asks for nothing"),
        (r#"{"expression":{}}"#, "expression {} asks for nothing"),
        (r#"{"attrs":["a"],"attrs":["b"]}"#, "member 'attrs' is given twice"),
        (r#"{"expression":{"q":""}}"#, "empty"),
        (r#"{"expression":{"p":"x"}}"#, "'p'"),
        (r#"{"expression":"q"}"#, "no object"),
        (r#"{"expression":{"q":"a=1"}}"#, "no operator"),
    ] {
        check(&ask(&served, "POST /v2/op/query", Some(body)).await, 400, "BadRequest", why, body);
    }
    served.stop().await;
    world.close();
}
