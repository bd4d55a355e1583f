//! Hints about a valid query: a field that no sampled record has, while a field of nearly the same name exists.

use millstream_columns::{Cursor, Diagnostic, Expr, Field, Literal, Name, PathStep, nearest};

use crate::{Language, QueryPlan, Schema};

/// The hints for a statement, one for each position in the text. JSON documents have no hints.
pub(crate) fn hints(text: &str, plan: &QueryPlan, schema: &Schema) -> Vec<Diagnostic> {
    let Some(Ok(cursor)) = (Language::of(text) == Language::Bql).then(|| Cursor::new(text)) else {
        return Vec::new();
    };
    let known: Vec<&[PathStep]> = schema.payload_paths().collect();
    let mut hints: Vec<Diagnostic> = Vec::new();
    plan.each_expression(&mut |expr| {
        if let Expr::Field(Field::Payload(steps)) = expr
            && let Some(hint) = hint(&cursor, steps, &known, &schema.stream)
            && hints.iter().all(|known| known.place != hint.place)
        {
            hints.push(hint);
        }
    });
    hints
}

fn hint(cursor: &Cursor<'_>, steps: &[PathStep], known: &[&[PathStep]], stream: &str) -> Option<Diagnostic> {
    let (depth, name) = first_unknown(steps, known)?;
    let siblings = known.iter().filter_map(|path| match path.split_last()? {
        (PathStep::Key(name), parents) if same(parents, &steps[..depth]) => Some(name.as_str()),
        _ => None,
    });
    let Some(meant) = nearest(name, siblings) else {
        return (steps.len() == 1 && !known.is_empty()).then(|| quoted(cursor, name, stream)).flatten();
    };
    let suggestion = Name(meant).to_string();
    if depth > 0 && suggestion != meant {
        return None;
    }
    let path = Field::Payload(steps[..=depth].to_vec());
    let message = format!("no record of '{stream}' that was looked at has {path}");
    let mut hint = cursor.refuse_at(cursor.mark_of_name(name)?, message);
    hint.suggestion = Some(suggestion);
    Some(*hint)
}

/// The hint for a name in double quotes that was probably meant as a text.
fn quoted(cursor: &Cursor<'_>, name: &str, stream: &str) -> Option<Diagnostic> {
    let mark = cursor.mark_of_quoted(name)?;
    let message = format!(
        "no record of '{stream}' that was looked at has a field {}; double quotes are around names, single ones around texts",
        Name(name)
    );
    let mut hint = cursor.refuse_at(mark, message);
    hint.suggestion = Some(Literal::Text(name.to_owned()).to_string());
    Some(*hint)
}

/// The first name on the way of `steps` that no path has.
fn first_unknown<'s>(steps: &'s [PathStep], known: &[&[PathStep]]) -> Option<(usize, &'s str)> {
    let is_unknown = |depth: &usize| !known.iter().any(|path| same(path, &steps[..=*depth]));
    let depth = (0..steps.len()).find(is_unknown)?;
    match &steps[depth] {
        PathStep::Key(name) => Some((depth, name)),
        PathStep::Index(_) => None,
    }
}

/// True if both are the same path; of a list only the first element is known.
fn same(known: &[PathStep], steps: &[PathStep]) -> bool {
    let is_same = |(known, step): (&PathStep, &PathStep)| {
        known == step || matches!((known, step), (PathStep::Index(_), PathStep::Index(_)))
    };
    known.len() == steps.len() && known.iter().zip(steps).all(is_same)
}
