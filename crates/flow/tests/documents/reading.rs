//! Reading of whole documents: values, defaults, both forms, and bounds of the text.

use millstream_flow::{Document, Finding, JoinInput, RouteTarget};
use serde_json::json;

use crate::catalogue::context;
use crate::take_apart::take_apart;

const SMALL: &str = r#"
version: 1
kind: Job
name: fahrenheit
sources:
  in: { type: stream, config: { topic: weather } }
transforms:
  known: { type: filter, inputs: [in], where: "temp IS NOT NULL" }
  celsius:
    type: map
    inputs: [known]
    select: "*, (temp - 32) / 1.8 AS celsius"
sinks:
  out: { type: stream, inputs: [celsius], config: { topic: celsius, key: station } }
"#;

fn read(text: &str) -> Document {
    Document::read(text, &context()).unwrap_or_else(|findings| panic!("{text}\n{}", rendered(&findings)))
}

fn refused(text: &str) -> Vec<Finding> {
    Document::read(text, &context()).unwrap_err()
}

pub(crate) fn rendered(findings: &[Finding]) -> String {
    let line = |finding: &Finding| format!("{finding:?}\n");
    findings.iter().map(line).collect()
}

#[test]
fn a_small_document_has_its_nodes_edges_and_defaults() {
    let document = read(SMALL);
    let names: Vec<_> = document.nodes.iter().map(|node| node.name.as_str()).collect();
    assert_eq!(names, ["in", "known", "celsius", "out"]);
    assert_eq!(document.nodes[3].inputs.iter().map(|id| id.0).collect::<Vec<_>>(), [2]);
    assert_eq!(document.nodes[0].config["start"], "latest");
    assert_eq!(document.nodes[0].batch.size, 1024);
    assert_eq!(document.nodes[0].batch.timeout_ms, 5);
    assert_eq!(document.nodes[0].ack_timeout_ms, 60_000);
    assert_eq!(document.nodes[0].max_in_flight, 10_000);
    assert_eq!(document.restart.max_attempts, 10);
    assert_eq!((document.restart.backoff_min_ms, document.restart.backoff_max_ms), (1_000, 60_000));
    assert_eq!((document.nodes[0].parallelism.min, document.nodes[0].parallelism.max), (1, 1));
}

#[test]
fn yaml_and_json_of_the_same_content_have_one_hash() {
    let yaml = read(SMALL);
    let json = read(&serde_json::to_string_pretty(&yaml.json).unwrap());
    assert_eq!(yaml.hash, json.hash);
    assert_eq!(yaml.json, json.json);
    assert_eq!(yaml.hash.len(), 64);
    let commented = read(&SMALL.replace("kind: Job", "# a comment\nkind: 'Job'"));
    assert_eq!(yaml.hash, commented.hash);
    let other = read(&SMALL.replace("1.8", "1.80"));
    assert_ne!(yaml.hash, other.hash);
}

#[test]
fn words_of_yaml_1_1_are_words() {
    let text = SMALL.replace("name: fahrenheit", "name: fahrenheit\nlabels: { on: yes, no: off, y: n }");
    let labels = read(&text).labels;
    assert_eq!(labels["on"], "yes");
    assert_eq!(labels["no"], "off");
    assert_eq!(labels["y"], "n");
}

#[test]
fn edges_mean_the_same_in_all_three_forms() {
    let without =
        SMALL.replace(" inputs: [in],", "").replace("    inputs: [known]\n", "").replace(" inputs: [celsius],", "");
    let pairs = format!("{without}edges: [[in, known], [known, celsius], [celsius, out]]\n");
    let by_node = format!("{without}edges: {{ in: [known], known: celsius, celsius: [out] }}\n");
    let mixed = format!("{SMALL}edges: [[in, known]]\n");
    let inputs = |text: &str| read(text).nodes.into_iter().map(|node| node.inputs).collect::<Vec<_>>();
    for text in [&pairs, &by_node, &mixed] {
        assert_eq!(inputs(text), inputs(SMALL), "{text}");
    }
}

#[test]
fn a_stored_document_is_read_again_with_the_same_hash() {
    let used = SMALL.replace("inputs: [celsius]", "inputs: [clean.celsius]").replace(
        "name: fahrenheit",
        "name: f\nuse: { clean: { bundle: cleaning, inputs: [celsius], params: { min: -40 } } }",
    );
    let document = read(&used);
    let again = read(&document.json.to_string());
    assert_eq!(document.hash, again.hash);
    assert_eq!(document.nodes.len(), again.nodes.len());
}

#[test]
fn a_bundle_is_merged_under_the_name_of_its_use() {
    let used = SMALL.replace("inputs: [celsius]", "inputs: [clean.celsius]").replace(
        "name: fahrenheit",
        "name: f\nuse: { clean: { bundle: cleaning, inputs: [celsius], params: { min: -40 } } }",
    );
    let document = read(&used);
    let node = |name: &str| document.nodes.iter().find(|node| node.name == name).unwrap();
    let plausible = node("clean.plausible");
    assert_eq!(document.nodes[plausible.inputs[0].0].name, "celsius");
    assert_eq!(plausible.params["min"], -40);
    assert_eq!(plausible.params["max"], 60);
    assert_eq!(node("clean.dead").config["topic"], "dead-letters");
    assert_eq!(document.hooks.len(), 3);
    let RouteTarget::Nodes(to) = &document.routes[0].to else { panic!("{:?}", document.routes[0]) };
    assert_eq!(document.nodes[to[0].0].name, "clean.dead");
}

#[test]
fn a_parameter_of_a_bundle_is_a_whole_text_of_a_config() {
    let document = read(
        "{version: 1, kind: Job, name: j, use: {a: {bundle: sites, params: {name: north}}}, \
         sinks: {out: {type: stdout, inputs: [a.sites]}}}",
    );
    let sites = document.nodes.iter().find(|node| node.name == "a.sites").unwrap();
    let expected = json!([{"whole": "north", "longer": "site-:name", "unknown": ":names"}]);
    assert_eq!(sites.config["records"], expected);
}

#[test]
fn a_join_in_a_bundle_has_the_inputs_of_its_use() {
    let document = read(
        "{version: 1, kind: Job, name: j, use: {a: {bundle: paid, inputs: [orders]}}, \
         sources: {orders: {type: stream, config: {topic: orders}}}, \
         sinks: {out: {type: stdout, inputs: [a.paid]}}}",
    );
    let join = document.nodes.iter().find_map(|node| node.join.clone()).unwrap();
    let side = |input: &JoinInput| {
        (document.nodes[input.node.0].name.clone(), input.key.join(", "), input.member.clone(), input.gives_unmatched)
    };
    assert_eq!(side(&join.left), ("orders".to_owned(), "id".to_owned(), "bought".to_owned(), true));
    assert_eq!(side(&join.right), ("a.payments".to_owned(), "bought".to_owned(), "payments".to_owned(), false));
    assert_eq!((join.before_ms, join.after_ms), (900_000, 900_000));
}

#[test]
fn the_process_configuration_is_stronger_than_the_document() {
    let text = SMALL
        .replace("temp IS NOT NULL", "temp > :min AND temp < :max AND :job > 0")
        .replace("inputs: [in],", "inputs: [in], params: { min: 1, max: 2 },")
        .replace("kind: Job", "kind: Job\nparams: { job: 1, min: 0 }");
    let mut context = context();
    context.params.entry("known".to_owned()).or_default().insert("max".to_owned(), 9.into());
    let document = Document::read(&text, &context).unwrap();
    let params = &document.nodes[1].params;
    assert_eq!((&params["min"], &params["max"], &params["job"]), (&1.into(), &9.into(), &1.into()));
}

#[test]
fn json_of_other_programs_is_read() {
    let document = read(SMALL);
    let mut json = document.json.clone();
    json["doc"] = "tab \t, quote \", slash /, 😀 and \u{7f}".into();
    let plain = json.to_string();
    let escaped: String = plain
        .encode_utf16()
        .map(|unit| match u8::try_from(unit) {
            Ok(byte) if byte.is_ascii() => char::from(byte).to_string(),
            _ => format!("\\u{unit:04x}"),
        })
        .collect();
    let tabs = serde_json::to_string_pretty(&json).unwrap().replace("  ", "\t").replace(": ", "\n\t:\n");
    let slashes = plain.replace("/", "\\/");
    for text in [plain, escaped, tabs, slashes] {
        assert_eq!(read(&text).json, json, "{text}");
    }
}

#[test]
fn a_fault_of_json_is_told_in_the_words_of_json() {
    let json = serde_json::to_string_pretty(&read(SMALL).json).unwrap();
    let findings = refused(&json.replacen("\"Job\",", "\"Job\"", 1));
    assert_eq!(findings.len(), 1);
    assert_eq!((findings[0].rule, findings[0].line), ("syntax", 4), "{findings:?}");
    assert!(findings[0].message.contains("expected `,` or `}`"), "{}", findings[0].message);
}

#[test]
fn lines_end_where_yaml_ends_them() {
    for end in ["\n", "\r\n", "\r"] {
        let text = ["# a job", "version: 1", "kind: Job", "id: a", "colour: red", ""].join(end);
        let findings = refused(&text);
        let unknown = findings.iter().find(|finding| finding.rule == "unknown_key").unwrap();
        assert_eq!((unknown.line, unknown.column), (5, 1), "{end:?}: {}", rendered(&findings));
        assert!(!take_apart(text.as_bytes(), &context()), "{end:?}");
        // Found by the fuzzer: a fault in a line behind the last line feed.
        let broken = format!("# a{end}b{end}# c{end}d\n");
        assert_eq!(refused(&broken)[0].line, 4, "{end:?}");
        assert!(!take_apart(broken.as_bytes(), &context()), "{end:?}");
    }
}

#[test]
fn hostile_texts_are_refused_in_bounded_work() {
    let anchors: String = (0..10_000).map(|index| format!("a{index}: &a{index} x\n")).collect();
    let laughs = "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n".to_owned();
    let rows = [
        (anchors, "anchor"),
        (laughs, "anchor"),
        ("[".repeat(1_000_000), "depth"),
        ("{".repeat(1_000_000), "depth"),
        ("- ".repeat(500_000), "depth"),
        ("{a: ".repeat(200_000), "depth"),
        (format!("a: [{}]", "1,".repeat(400_000)), "text_size"),
        ("x".repeat((1 << 20) + 1), "text_size"),
        ("\u{0}\u{1}%PNG".to_owned(), "syntax"),
        ("a: b: c".to_owned(), "syntax"),
        ("a: [1, 2".to_owned(), "syntax"),
        ("a: !!binary x".to_owned(), "tag"),
        ("a: 1\n---\nb: 2".to_owned(), "several_documents"),
        ("# nothing".to_owned(), "empty"),
        (String::new(), "empty"),
        ("? [a]\n: b".to_owned(), "syntax"),
    ];
    for (text, rule) in rows {
        let findings = refused(&text);
        let start: String = text.chars().take(40).collect();
        assert!(findings.iter().any(|finding| finding.rule == rule), "{start}: {findings:?}");
        assert!(findings.len() <= 200);
    }
}

#[test]
fn large_documents_are_refused_in_bounded_work() {
    let numbered = |count: usize, line: &dyn Fn(usize) -> String| (0..count).map(line).collect::<String>();
    let many_nodes = numbered(1001, &|index| format!("  n{index}: {{ type: stdout, inputs: [nobody{index}] }}\n"));
    let many_routes = numbered(1001, &|index| format!("  - {{ from: x{index}, to: [y{index}] }}\n"));
    let many_params = numbered(257, &|index| format!("  p{index}: 1\n"));
    let many_uses =
        numbered(500, &|index| format!("  u{index}: {{ bundle: cleaning, inputs: [in], params: {{ min: 1 }} }}\n"));
    let long = "x".repeat(300_000);
    let keys = numbered(40_000, &|index| format!("    k{index}: 1\n"));
    let many_targets = "unknown, known, celsius, ".repeat(20_000);
    let rows = [
        (format!("sources:\n  ? {long}\n  :\n{keys}"), "unknown_key"),
        (
            format!("sources: {{}}\nsinks: {{ known: {{}} }}\nroutes: [{{ from: {long}, to: [{many_targets}x] }}]"),
            "route_node",
        ),
        (format!("{SMALL}routes: [{{ from: all, to: [{}] }}]\n", many_targets.replace("unknown, ", "")), "route_edge"),
        (format!("{SMALL}hooks: [{{ task: {long}, on: start, call: trace.point }}]\n"), "hook_task"),
        (format!("sinks:\n{many_nodes}"), "too_many"),
        (format!("{SMALL}routes:\n{many_routes}"), "too_many"),
        (format!("{SMALL}params:\n{many_params}"), "too_many"),
        (format!("{SMALL}use:\n{many_uses}"), "too_many"),
        (SMALL.replace("temp IS", &format!("{} IS", "(".repeat(60_000))), "expression"),
        (
            // A text of a few kilobytes names a large value so often that the copies would fill the memory.
            SMALL.replace("temp IS NOT NULL", &vec![":p = 1"; 5_000].join(" OR "))
                + &format!("params: {{ p: [{}1] }}\n", "1, ".repeat(50_000)),
            "expression",
        ),
    ];
    for (text, rule) in rows {
        let findings = refused(&text);
        assert!(findings.iter().any(|finding| finding.rule == rule), "{rule}: {}", rendered(&findings));
        assert!(findings.len() <= 200);
    }
}

#[test]
fn a_long_chain_of_nodes_is_no_cycle_and_needs_no_stack() {
    let node = |index: usize| format!("  n{index}: {{ type: map, inputs: [n{}], select: \"*\" }}\n", index + 1);
    let chain: String = (0..999).map(node).collect();
    let text = SMALL
        .replace("transforms:\n", &format!("transforms:\n{chain}"))
        .replace("  known: { type: filter, inputs: [in]", "  n999: { type: filter, inputs: [in]");
    let findings = refused(&text);
    assert!(findings.iter().all(|finding| finding.rule != "cycle"), "{}", rendered(&findings));
}

#[test]
fn fields_are_known_behind_a_select_list_only() {
    let nodes = |where_: &str, routes: &str| {
        let text = SMALL
            .replace("select: \"*, (temp", "select: \"station, (temp")
            .replace(
                "sinks:\n",
                &format!("  hot: {{ type: filter, inputs: [celsius], where: \"{where_}\" }}\nsinks:\n"),
            )
            .replace("inputs: [celsius], config", "inputs: [hot], config");
        format!("{text}{routes}")
    };
    read(&nodes("celsius > 30 AND station IS NOT NULL AND $key = 'a'", ""));
    read(&nodes("celsius > 30", "routes: [{ from: hot, to: [out], when: \"celsius > 40 AND input.temp > 1\" }]\n"));
    for text in [
        nodes("celsius > 30 AND humidity > 4", ""),
        nodes("celsius > 30", "routes: [{ from: hot, to: [out], when: \"humidity > 4\" }]\n"),
    ] {
        let findings = refused(&text);
        let rules: Vec<_> = findings.iter().map(|finding| finding.rule).collect();
        assert_eq!(rules, ["unknown_field"], "{}", rendered(&findings));
    }
}

#[test]
fn select_lists_and_conditions_have_the_whole_language() {
    let text = SMALL
        .replace(
            "*, (temp - 32) / 1.8 AS celsius",
            "* EXCEPT (card), CASE WHEN temp > 86 THEN 'warm' ELSE 'cold' END AS band, $topic AS origin",
        )
        .replace("temp IS NOT NULL", "temp > :limit AND $headers['x'] IS NULL AND name LIKE 'a%'");
    read(&format!("{text}params: {{ limit: 3 }}\n"));
    let routes = r#"routes:
  - { from: celsius, on_error: true, to: [dead], select: "'celsius' AS stage, error.message AS error, input AS record", stop: true }
  - { from: celsius, to: [out], when: "output_count = 1 AND NOT input.test" }
"#;
    let dead = "  dead: { type: stream, inputs: [celsius], config: { topic: dead } }\n";
    read(&format!("{SMALL}{dead}{routes}"));
}

#[test]
fn a_document_of_later_parts_is_refused_for_these_parts_alone() {
    let text = r#"
version: 1
kind: Job
name: hourly-means
delivery: exactly_once
checkpoint: { interval: 1s, retain: 3 }
sources:
  weather: { type: stream, config: { topic: telemetry, start: earliest }, event_time: { field: at, max_out_of_orderness: 5m } }
transforms:
  valid: { type: map, inputs: [weather], where: "temp IS NOT NULL", select: "*, (temp - 32) / 1.8 AS celsius, $key AS station" }
  hourly:
    type: aggregate
    inputs: [valid]
    key_by: [station]
    window: { id: hour, type: tumbling, size: 1h, allowed_lateness: 10m, late_to: late }
    aggregates: "AVG(celsius) AS mean, COUNT(*) AS n"
    triggers: [{ id: done, on: watermark, mode: discarding, emit: true }]
sinks:
  means: { type: stream, inputs: [hourly], config: { topic: hourly-means, key: station } }
  late:  { type: stream, config: { topic: weather-late } }
  dead:  { type: stream, inputs: [valid], config: { topic: weather-dead } }
routes:
  - { from: valid, on_error: true, to: [dead], select: "error.message AS error, input AS record", stop: true }
  - { from: valid, to: [hourly] }
  - { from: hourly, when: "mean > :limit", to: [means] }
params: { limit: 30 }
tests:
  - name: a mean of two
    inject: { weather: [{ $key: s1, at: "2026-01-01T00:05:00Z", temp: 50 }] }
    tick: 2h
    expect: { means: [{ station: s1, mean: 10.0, n: 1 }] }
"#;
    let findings = refused(text);
    assert_eq!(findings.len(), 1, "{}", rendered(&findings));
    assert!(findings.iter().all(|finding| finding.rule == "not_available"), "{}", rendered(&findings));
}
