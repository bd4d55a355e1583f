//! What is odd about a query that is right as such: a field that no record has of those that were looked at, while there
//! is one of nearly the same name.

use millstream_columns::{Cursor, Diagnostic, Expr, Field, Name, Step, nearest};

use crate::{Language, Plan, Schema};

/// The oddities of a statement, each once, where they stand in its text; of a JSON document none are told.
pub(crate) fn hints(text: &str, plan: &Plan, schema: &Schema) -> Vec<Diagnostic> {
    let Some(Ok(cursor)) = (Language::of(text) == Language::Bql).then(|| Cursor::new(text)) else {
        return Vec::new();
    };
    let known: Vec<&[Step]> = schema.payload_paths().collect();
    let mut hints = Vec::new();
    plan.each_expression(&mut |expr| {
        if let Expr::Field(Field::Payload(steps)) = expr
            && let Some(hint) = hint(&cursor, steps, &known, &schema.stream)
            && !hints.contains(&hint)
        {
            hints.push(hint);
        }
    });
    hints
}

fn hint(cursor: &Cursor<'_>, steps: &[Step], known: &[&[Step]], stream: &str) -> Option<Diagnostic> {
    let (depth, name) = first_unknown(steps, known)?;
    let siblings = known.iter().filter_map(|path| match path.split_last()? {
        (Step::Key(name), parents) if same(parents, &steps[..depth]) => Some(name.as_str()),
        _ => None,
    });
    let meant = nearest(name, siblings)?;
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

/// The first name on the way of `steps` that no path has.
fn first_unknown<'s>(steps: &'s [Step], known: &[&[Step]]) -> Option<(usize, &'s str)> {
    let is_unknown = |depth: &usize| !known.iter().any(|path| same(path, &steps[..=*depth]));
    let depth = (0..steps.len()).find(is_unknown)?;
    match &steps[depth] {
        Step::Key(name) => Some((depth, name)),
        Step::Index(_) => None,
    }
}

/// Whether both are one path; of a list only the first element is known.
fn same(known: &[Step], steps: &[Step]) -> bool {
    let is_same =
        |(known, step): (&Step, &Step)| known == step || matches!((known, step), (Step::Index(_), Step::Index(_)));
    known.len() == steps.len() && known.iter().zip(steps).all(is_same)
}
