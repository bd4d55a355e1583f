//! The reference page of the job document, made from the model.

use std::fmt::Write as _;

use super::catalogue::{Key, KeyType, NodeType, Section};
use super::keys::{
    AGGREGATE, BATCH, BUNDLE, CHECKPOINT, EVENT_TIME, HOOK, JOB, PARALLELISM, PARAMETER, RESOURCES, RESTART,
    RESUME_FROM, ROUTE, SINK, SOURCE, TEST, TRANSFORM, TRIGGER, USE, WINDOW,
};
use super::rules::{FORM_RULES, RULES};

/// All sections, in the order of the page.
pub(super) static SECTIONS: [&Section; 20] = [
    &JOB,
    &SOURCE,
    &TRANSFORM,
    &SINK,
    &EVENT_TIME,
    &WINDOW,
    &AGGREGATE,
    &TRIGGER,
    &BATCH,
    &PARALLELISM,
    &ROUTE,
    &HOOK,
    &CHECKPOINT,
    &RESUME_FROM,
    &RESTART,
    &RESOURCES,
    &TEST,
    &USE,
    &BUNDLE,
    &PARAMETER,
];

/// The reference page in Markdown: every key of the document, and every rule.
pub fn reference_page() -> String {
    let mut page = String::from(
        "# Keys and rules of a job document\n\n\
         Made from the model in `crates/flow/src/document`; `UPDATE_DOCS=1 cargo test -p millstream-flow --test documents` \
         writes it again.\n\n\
         A document is YAML 1.2 (`on`, `yes` and `no` are words) or JSON, at most 1 MiB. Durations are written `10s` (units \
         ms, s, m, h, d), sizes `16MiB` (B, KiB, MiB, GiB). All findings are reported at once, each with path, line, column, \
         value, rule and remedy.\n",
    );
    for section in SECTIONS {
        let path = if section.path.is_empty() { String::new() } else { format!(" (`{}`)", section.path) };
        let _ = write!(page, "\n## {}{path}\n\n{}\n\n", titled(section.name), section.doc);
        page.push_str("| key | value | default | meaning |\n| --- | --- | --- | --- |\n");
        let later = |key: &&Key| matches!(key.value, KeyType::NotAvailable(_));
        section.all().filter(|key| !later(key)).for_each(|key| row(key, &mut page));
        let names: Vec<String> = section.all().filter(later).map(|key| format!("`{}`", key.name)).collect();
        if !names.is_empty() {
            let _ = write!(page, "\nKnown, and refused by this version with `not_available`: {}.\n", names.join(", "));
        }
    }
    page.push_str("\n## Rules\n\n| rule | holds if |\n| --- | --- |\n");
    for (name, doc) in FORM_RULES.iter().copied().chain(RULES.iter().filter(is_own).map(|rule| (rule.name, rule.doc))) {
        let _ = writeln!(page, "| `{name}` | {doc} |");
    }
    page
}

/// The keys of one node type in Markdown, for the page of connectors.
pub fn node_type_page(kind: &NodeType) -> String {
    let mut page = format!("### {} ({:?})\n\n{}\n", kind.name, kind.role, kind.summary);
    if !kind.keys.is_empty() {
        page.push_str("\n| key | value | default | meaning |\n| --- | --- | --- | --- |\n");
        kind.keys.iter().for_each(|key| row(key, &mut page));
    }
    page
}

/// False for a rule whose findings have the name of another.
fn is_own(rule: &&super::rules::DocumentRule) -> bool {
    rule.name != "type_not_available"
}

fn row(key: &Key, page: &mut String) {
    let default = match (key.is_required, key.default) {
        (true, _) => "required".to_owned(),
        (false, Some(default)) => format!("`{default}`"),
        (false, None) => String::new(),
    };
    let _ = writeln!(page, "| `{}` | {} | {default} | {} |", key.name, form(key.value), key.doc);
}

fn form(value: KeyType) -> String {
    let words = |words: &[&str]| words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ");
    match value {
        KeyType::Whole(min, max) if min == max => format!("`{min}`"),
        KeyType::Whole(min, max) => format!("{min} to {max}"),
        KeyType::OneOf(choices) => words(choices),
        KeyType::OneOfSoFar(choices, later) => format!("{} ({} not yet)", words(choices), words(later)),
        KeyType::Object(section) => linked("", section),
        KeyType::DurationOr(section) => {
            let keys: Vec<&str> = section.all().map(|key| key.name).collect();
            format!("duration, or an object of {}", words(&keys))
        }
        KeyType::ListOf(section) => linked("list of ", section),
        KeyType::MapOf(section) => linked("by name: ", section),
        KeyType::Aggregates => format!("list of aggregates, or {}", linked("list of ", &AGGREGATE)),
        KeyType::Parallelism => format!("1 to 1024, or {}", linked("", &PARALLELISM)),
        KeyType::ResumeFrom => format!("name or id of a job, or {}", linked("", &RESUME_FROM)),
        plain => plain_form(plain).to_owned(),
    }
}

fn plain_form(value: KeyType) -> &'static str {
    match value {
        KeyType::Text => "text",
        KeyType::Bool => "`true`, `false`",
        KeyType::Duration => "duration",
        KeyType::WindowSize => "duration, `1d`, `1w`, `1mo`, `1y`, or number of records",
        KeyType::Extent => "duration, or number of records",
        KeyType::SignedDuration => "duration, with `-` in front if negative",
        KeyType::DurationRange => "duration, or `first..longest`",
        KeyType::Size => "size",
        KeyType::Texts => "list of texts",
        KeyType::Topic => "topic",
        KeyType::Url => "URL",
        KeyType::Template => "text with `{field}`",
        KeyType::Name => "name",
        KeyType::Names => "name, or list of names",
        KeyType::Condition => "condition",
        KeyType::SelectList => "select list",
        KeyType::Expression => "expression",
        KeyType::Expressions => "expression, or list of expressions",
        KeyType::ExpressionsByInput => "expression, or list of expressions; or an object of these, by input",
        KeyType::Labels => "object of texts",
        KeyType::Params => "object of values",
        KeyType::ParamsByNode => "object of objects, by node",
        KeyType::RecordsByNode => "lists of records, by node",
        KeyType::TextsByName => "lists of texts, by name",
        KeyType::Edges => "list of pairs, or object of lists",
        KeyType::Config => "object: the keys of the type",
        _ => "any value",
    }
}

fn linked(before: &str, section: &Section) -> String {
    let path: String = section.path.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-')).collect();
    let anchor = if path.is_empty() { section.name.to_owned() } else { format!("{}-{path}", section.name) };
    format!("{before}[{}](#{anchor})", section.name)
}

fn titled(name: &str) -> String {
    let mut characters = name.chars();
    characters.next().map_or_else(String::new, |first| first.to_uppercase().chain(characters).collect())
}
