//! The list `aggregates` as a text, also if it is written as a list of operations.

use std::borrow::Cow;

use millstream_columns::Name;

use super::tree::Tree;

/// The text of a list of aggregates: as it is written, or made of its elements. `None` for other values, and for elements that
/// lack what they need.
pub(super) fn text(tree: &Tree) -> Option<Cow<'_, str>> {
    if let Some(text) = tree.text() {
        return Some(text.into());
    }
    let elements = tree.elements();
    let texts: Option<Vec<String>> = elements.iter().map(element).collect();
    texts.filter(|texts| !texts.is_empty()).map(|texts| texts.join(", ").into())
}

fn element(tree: &Tree) -> Option<String> {
    let field = tree.text_of("field");
    let call = match (tree.text_of("op")?, field) {
        ("count", None) => "COUNT(*)".to_owned(),
        ("collect", None) => "ARRAY_AGG(*)".to_owned(),
        ("collect", Some(field)) => format!("ARRAY_AGG({field})"),
        ("distinct", Some(field)) => format!("ARRAY_AGG(DISTINCT {field})"),
        ("count_distinct", Some(field)) => format!("COUNT(DISTINCT {field})"),
        ("quantile", Some(field)) => format!("QUANTILE({field}, {})", tree.get("q")?.to_json()),
        (op, Some(field)) => format!("{}({field})", op.to_uppercase()),
        (_, None) => return None,
    };
    Some(match tree.text_of("as") {
        Some(name) => format!("{call} AS {}", Name(name)),
        None => call,
    })
}
