//! Properties: one hash for one content, JSON as any program writes it, and hostile changes of valid documents.

use std::path::Path;

use millstream_flow::Document;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::catalogue::context;
use crate::take_apart::take_apart;

/// A job whose parameters are `value`.
fn job(value: &Value) -> Value {
    json!({
        "version": 1,
        "kind": "Job",
        "name": "property",
        "params": { "value": value },
        "sources": { "in": { "type": "stream", "config": { "topic": "a" } } },
        "sinks": { "out": { "type": "collect", "inputs": ["in"] } },
    })
}

fn read(text: &str) -> Document {
    Document::read(text, &context()).unwrap_or_else(|findings| panic!("{text}\n{findings:?}"))
}

fn values() -> impl Strategy<Value = Value> {
    let texts =
        prop_oneof!["[ -~]{0,12}", "\\PC{0,8}", any::<String>().prop_map(|text| text.chars().take(6).collect())];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>()
            .prop_filter_map("JSON has finite numbers", |number| serde_json::Number::from_f64(number).map(Value::from)),
        texts.clone().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((texts.clone(), inner), 0..5)
                .prop_map(|members| Value::Object(members.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

/// The value in block YAML, with comments, keys in reverse order and texts in double quotes.
fn yaml(value: &Value, indent: usize, out: &mut String) {
    let pad = " ".repeat(indent);
    match value {
        Value::Object(members) if !members.is_empty() => {
            for (key, member) in members.iter().rev() {
                out.push_str(&format!("\n{pad}# a comment\n{pad}{}:", quoted(key)));
                yaml(member, indent + 2, out);
            }
        }
        Value::Array(elements) if !elements.is_empty() => {
            for element in elements {
                out.push_str(&format!("\n{pad}-"));
                yaml(element, indent + 2, out);
            }
        }
        Value::String(text) => out.push_str(&format!(" {}", quoted(text))),
        plain => out.push_str(&format!(" {plain}")),
    }
}

fn quoted(text: &str) -> String {
    let escaped = |c: char| {
        if c.is_ascii_alphanumeric() || c == ' ' { c.to_string() } else { format!("\\U{:08X}", u32::from(c)) }
    };
    format!("\"{}\"", text.chars().map(escaped).collect::<String>())
}

/// The value with all keys in reverse order.
fn reversed(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            Value::Object(members.iter().rev().map(|(key, member)| (key.clone(), reversed(member))).collect())
        }
        Value::Array(elements) => elements.iter().map(reversed).collect(),
        plain => plain.clone(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn equal_content_has_equal_hashes_in_any_form_and_order(value in values()) {
        let job = job(&value);
        let compact = read(&job.to_string());
        prop_assert_eq!(&compact.json, &job);
        let mut block = String::new();
        yaml(&job, 0, &mut block);
        for text in [serde_json::to_string_pretty(&job).unwrap(), reversed(&job).to_string(), block] {
            let other = read(&text);
            prop_assert_eq!(&other.json, &job, "{}", text);
            prop_assert_eq!(&other.hash, &compact.hash, "{}", text);
        }
    }

    #[test]
    fn different_content_has_different_hashes(left in values(), right in values()) {
        prop_assume!(left != right);
        prop_assert_ne!(read(&job(&left).to_string()).hash, read(&job(&right).to_string()).hash);
    }

    #[test]
    fn changed_documents_are_answered_with_findings_or_a_document(
        file in 0..10usize,
        changes in prop::collection::vec((any::<prop::sample::Index>(), 0..9u8, any::<prop::sample::Index>()), 1..12),
    ) {
        let text = changed(&example(file), &changes);
        take_apart(text.as_bytes(), &context());
    }

    #[test]
    fn any_text_is_answered_with_findings_or_a_document(text in "\\PC{0,200}|[-:{}\\[\\], \n\"'&*!|>#a0]{0,200}") {
        take_apart(text.as_bytes(), &context());
    }
}

fn example(index: usize) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/jobs");
    std::fs::read_to_string(folder.join(format!("f{}.yaml", index + 1))).unwrap()
}

type Change = (prop::sample::Index, u8, prop::sample::Index);

/// The text after some changes: parts are cut, doubled, exchanged and replaced.
fn changed(text: &str, changes: &[Change]) -> String {
    const WORDS: [&str; 12] = [
        " ",
        "\n",
        "{",
        "}",
        "[",
        "]",
        ": ",
        "- ",
        "'",
        "\"",
        "use: { a: { bundle: cleaning, inputs: [in] } }\n",
        "all",
    ];
    let mut characters: Vec<char> = text.chars().collect();
    for (at, kind, other) in changes {
        if characters.is_empty() {
            break;
        }
        let (at, other) = (at.index(characters.len()), other.index(characters.len()));
        let (start, end) = (at.min(other), at.max(other).min(at.min(other) + 60));
        match kind {
            0 => drop(characters.drain(start..end)),
            1 => drop(characters.remove(at)),
            2 => characters.swap(at, other),
            3 => {
                let part: Vec<char> = characters[start..end].to_vec();
                drop(characters.splice(start..start, part));
            }
            4 => characters.truncate(at.max(1)),
            5 => characters[at] = '\u{1F600}',
            _ => drop(characters.splice(at..at, WORDS[other % WORDS.len()].chars())),
        }
    }
    characters.into_iter().collect()
}
