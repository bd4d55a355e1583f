//! Inside a crate, the modules of a folder import downwards only: their imports form no circle.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::imports::{Graph, graphs, graphs_of_texts};

/// Imports that close a circle and are not mended yet: crate and folder, importing module, imported module. The list only
/// shrinks: mend a new circle instead.
const EXCEPTIONS: &[(&str, &str, &str)] = &[
    ("connect::mqtt", "last_will", "broker"),
    ("connect::mqtt", "provisioning", "client"),
    ("connect::mqtt", "session_store", "broker"),
    ("context::entities", "decide", "topic_update"),
    ("context::entities", "view", "topic_update"),
    ("context::subscriptions", "subscription", "body"),
    ("flow::runtime", "instance", "run"),
    ("flow::runtime", "instance_task", "run"),
    ("flow::runtime", "reading", "run"),
    ("flow::runtime", "started_nodes", "run"),
    ("store::cache", "shard", "eviction"),
    ("store::http", "write", "multipart"),
    ("store::resp", "channels", "clients"),
    ("store::resp", "command", "bitfield"),
    ("store::resp", "command", "bitmaps"),
    ("store::resp", "command", "session"),
    ("store::resp", "command", "strings"),
    ("store::resp", "cursors", "shared"),
    ("store::resp", "host", "unit"),
    ("store::resp", "messages", "closed"),
    ("store::resp", "shared", "clients"),
    ("store::resp", "shared", "slow_log"),
    ("testkit::memory", "transactions", "contents"),
];

/// A circle in the graph: each module imports the next one, the last one the first one.
fn circle(graph: &Graph) -> Option<Vec<String>> {
    let mut done = BTreeSet::new();
    graph.keys().find_map(|start| walk(graph, start, &mut Vec::new(), &mut done))
}

fn walk(graph: &Graph, module: &String, path: &mut Vec<String>, done: &mut BTreeSet<String>) -> Option<Vec<String>> {
    if let Some(at) = path.iter().position(|known| known == module) {
        return Some(path[at..].to_vec());
    }
    if done.contains(module) {
        return None;
    }
    path.push(module.clone());
    let found = graph.get(module).into_iter().flatten().find_map(|(next, _)| walk(graph, next, path, done));
    path.pop();
    done.insert(module.clone());
    found
}

fn without(graph: &Graph, exceptions: &[(&str, &str)]) -> Graph {
    let mut graph = graph.clone();
    for (from, to) in exceptions {
        graph.get_mut(*from).and_then(|imports| imports.remove(*to));
    }
    graph
}

/// Says what is wrong with the imports of a crate.
fn complaint(name: &str, graph: &Graph, exceptions: &[(&str, &str)]) -> Option<String> {
    let allowed = without(graph, exceptions);
    if let Some(circle) = circle(&allowed) {
        let next = circle.iter().cycle().skip(1);
        let steps = circle.iter().zip(next).map(|(from, to)| {
            let import = &allowed[from][to];
            format!("  {from} imports {to}: {}:{}: crate::{}\n", import.file, import.line, import.path)
        });
        return Some(format!(
            "the modules of {name} import each other in a circle:\n{}move what the lower module needs into it or \
             below both, or let the lower module declare a trait that the upper one implements",
            steps.collect::<String>()
        ));
    }
    for (at, (from, to)) in exceptions.iter().enumerate() {
        let others = [&exceptions[..at], &exceptions[at + 1..]].concat();
        if circle(&without(graph, &others)).is_none() {
            return Some(format!(
                "the exception ({name:?}, {from:?}, {to:?}) is no longer needed; delete it from EXCEPTIONS"
            ));
        }
    }
    None
}

#[test]
fn modules_of_a_crate_import_downwards_only() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let mut exceptions: BTreeMap<&str, Vec<(&str, &str)>> = BTreeMap::new();
    for (name, from, to) in EXCEPTIONS {
        exceptions.entry(name).or_default().push((from, to));
    }
    let mut complaints = Vec::new();
    for (name, _) in crate::ALLOWED {
        let folder = format!("crates/{name}/src");
        for (inner, graph) in graphs(&root.join(&folder), &folder) {
            let name = [name, &inner].join("::").trim_end_matches(':').to_owned();
            complaints.extend(complaint(&name, &graph, &exceptions.remove(&*name).unwrap_or_default()));
        }
    }
    assert!(exceptions.is_empty(), "EXCEPTIONS names folders that are not there: {exceptions:?}");
    assert!(complaints.is_empty(), "{}", complaints.join("\n\n"));
}

#[test]
fn the_check_sees_the_imports_between_modules() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let graph = &graphs(&root.join("connect/src"), "crates/connect/src")[""];
    assert!(graph["mqtt"].contains_key("registry") && graph["connect"].contains_key("mqtt"), "{graph:#?}");
}

/// The imports of a module `a` with this text, beside `b`, and `c` whose items the root imports.
fn imported(text: &str) -> Vec<String> {
    let root = "mod a; mod b; mod c;\npub use c::{C, inner::D as Renamed};\nuse c::Private;";
    let graph = &graphs_of_texts(&[("lib.rs", root), ("a.rs", text), ("b.rs", ""), ("c/mod.rs", "")])[""];
    graph.get("a").into_iter().flatten().map(|(module, import)| format!("{module}:{}", import.line)).collect()
}

#[test]
fn an_import_is_found_in_each_form_and_nowhere_else() {
    for (text, expected) in [
        ("use crate::b::Item;", &["b:1"][..]),
        ("use crate::{b, c};", &["b:1", "c:1"]),
        ("use crate::{\n    b::{One, two::Three as Four},\n    c::*,\n};", &["b:2", "c:3"]),
        ("use super::b::Item;", &["b:1"]),
        ("pub(crate) use crate::b::Item;", &["b:1"]),
        ("use crate::C;", &["c:1"]),
        ("use crate::{Private, Renamed};", &["c:1"]),
        ("\nfn f() -> crate::b::Item { let _ = super::c::make::<u8>(); }", &["b:2", "c:2"]),
        ("mod inner { use super::super::b::Item; fn f() { super::own() } }\nuse super::c::C;", &["b:1", "c:2"]),
        ("fn f<'a>(x: &'a str) -> impl Sized + use<'a> { crate::b::f(x) }", &["b:1"]),
        ("macro_rules! m { () => { $crate::b::f() } }", &["b:1"]),
        ("#[cfg(not(test))]\nuse crate::b::Item;", &["b:2"]),
        ("#[cfg(test)]\nuse crate::b::{One, Two};\nuse crate::c::C;", &["c:3"]),
        ("#[cfg(test)]\n#[allow(clippy::x)]\nmod tests {\n use crate::b; fn f() {}\n}\nuse crate::c::C;", &["c:6"]),
        ("struct S {\n #[cfg(test)]\n x: crate::b::Item,\n y: crate::c::C,\n}", &["c:4"]),
        ("// use crate::b::Item;\n/* crate::b /* nested */ crate::b::f() */ use crate::c::C;", &["c:2"]),
        ("/// [`crate::b::Item`]\nconst T: &str = \"crate::b::f() \\\" crate::b::f()\";", &[]),
        ("const T: &str = r#\"use crate::b::Item; \" \"#;\nconst Q: char = '\"'; use crate::c::C;", &["c:2"]),
        ("pub(in crate::b) struct S; pub(crate) struct T;", &[]),
        ("use crate::a::Item; use self::inner::Item; use crate::Own; use b::Item; use std::c::C;", &[]),
    ] {
        assert_eq!(imported(text), expected, "{text}");
    }
}

#[test]
fn a_file_and_its_folder_are_one_module_and_files_for_tests_do_not_count() {
    let graph = &graphs_of_texts(&[
        ("main.rs", "mod a; mod b; use crate::a::A;"),
        ("a.rs", "mod deep;\n#[cfg(test)]\nmod tests;"),
        ("a/deep.rs", "use super::other;\nuse super::super::b::B;"),
        ("a/tests.rs", "use crate::c::C;"),
        ("b.rs", ""),
        ("c.rs", "use crate::b::B;"),
    ])[""];
    let shown: Vec<_> = graph.iter().flat_map(|(from, to)| to.values().map(move |import| (from, import))).collect();
    let lines: Vec<String> =
        shown.iter().map(|(from, to)| format!("{from} {}:{} {}", to.file, to.line, to.path)).collect();
    assert_eq!(lines, ["a a/deep.rs:2 b::B", "c c.rs:1 b::B"]);
}

#[test]
fn a_circle_is_reported_with_its_imports_and_an_unneeded_exception_fails() {
    let files = |a| {
        let files = [("lib.rs", ""), ("a.rs", a), ("b.rs", "\nuse crate::c::C;"), ("c.rs", "use crate::a::A;")];
        graphs_of_texts(&files).remove("").unwrap()
    };
    let (round, straight) = (files("use crate::b::B;"), files(""));
    let told = complaint("x", &round, &[]).unwrap();
    for part in
        ["modules of x", "a imports b: a.rs:1: crate::b::B", "b imports c: b.rs:2: crate::c::C", "c imports a", "trait"]
    {
        assert!(told.contains(part), "{told}");
    }
    assert_eq!(complaint("x", &round, &[("c", "a")]), None);
    assert_eq!(complaint("x", &straight, &[]), None);
    for (graph, exceptions) in [(&straight, &[("c", "a")][..]), (&round, &[("c", "a"), ("b", "c")])] {
        let told = complaint("x", graph, exceptions).unwrap();
        assert!(told.contains("no longer needed; delete it"), "{told}");
    }
}

#[test]
fn imports_are_read_between_the_modules_of_each_folder() {
    let graphs = graphs_of_texts(&[
        ("lib.rs", "mod a; mod other;"),
        ("a.rs", "mod b; mod c; mod d;\npub use d::deep::D;"),
        ("a/b.rs", "use super::c::C;\nuse crate::other::O;\nuse super::own;"),
        ("a/c.rs", "use crate::a::D;"),
        ("a/d.rs", "mod deep; mod low;"),
        ("a/d/deep.rs", "use super::low::L;\nuse super::super::b::B;"),
        ("a/d/low.rs", ""),
        ("other.rs", ""),
    ]);
    let lines = |folder: &str| -> Vec<String> {
        let graph = graphs[folder].iter();
        graph.flat_map(|(from, to)| to.keys().map(move |to| format!("{from} {to}"))).collect()
    };
    assert_eq!(lines(""), ["a other"]);
    assert_eq!(lines("a"), ["b c", "c d", "d b"]);
    assert_eq!(lines("a::d"), ["deep low"]);
    assert!(complaint("x::a", &graphs["a"], &[]).unwrap().contains("d imports b: a/d/deep.rs:2"));
}
