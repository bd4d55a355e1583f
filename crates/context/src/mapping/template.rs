//! Texts with expressions in them: `urn:ngsi-ld:WeatherObserved:${origin}`.

use millstream_columns::{ColumnsOf, Value};

use super::expressions::Expressions;
use crate::json;
use crate::syntax::check_identifier;

/// Text and expressions in turn.
#[derive(Debug)]
pub(super) struct Template(Vec<Part>);

#[derive(Debug)]
enum Part {
    Text(String),
    /// The expression at this place.
    Value(usize),
}

impl Template {
    /// Reads the text of the member `place`. One without expressions is the identifier itself.
    pub(super) fn read(place: &str, text: &str, expressions: &mut Expressions<'_>) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((plain, after)) = rest.split_once("${") {
            let Some(end) = end_of(after) else {
                return Err(format!("{place}: an expression begins by ${{ and is not closed; write ${{expression}}"));
            };
            let before = text[..text.len() - after.len()].chars().count();
            push(&mut parts, plain);
            parts.push(Part::Value(expressions.add((place, before), &after[..end])?));
            rest = &after[end + 1..];
        }
        push(&mut parts, rest);
        match parts.as_slice() {
            [] => check_identifier(place, "").map_err(|refusal| refusal.description)?,
            [Part::Text(whole)] => check_identifier(place, whole).map_err(|refusal| refusal.description)?,
            _ => {}
        }
        Ok(Self(parts))
    }

    /// The text for a record.
    pub(super) fn text(&self, of: &ColumnsOf<'_, '_>) -> Result<String, String> {
        let mut text = String::new();
        for part in &self.0 {
            match part {
                Part::Text(plain) => text.push_str(plain),
                Part::Value(place) => match of.value(*place) {
                    Ok(Value::Text(value)) => text.push_str(&value),
                    // As an attribute of that value is shown: 5.0 is 5.
                    Ok(Value::Double(value)) => text.push_str(&json::text(&value.into())),
                    Ok(value @ (Value::Integer(_) | Value::Boolean(_))) => {
                        let mut json = Vec::new();
                        value.write_json(&mut json);
                        text.push_str(&String::from_utf8_lossy(&json));
                    }
                    Ok(Value::Null) => {
                        return Err("its expression is NULL: a member that it reads is missing".to_owned());
                    }
                    Ok(Value::Nested(_) | Value::List(_)) => return Err("its expression is a list or a map".to_owned()),
                    Err(failure) => return Err(format!("its expression has no value: {failure}")),
                },
            }
        }
        Ok(text)
    }
}

fn push(parts: &mut Vec<Part>, plain: &str) {
    if !plain.is_empty() {
        parts.push(Part::Text(plain.to_owned()));
    }
}

/// Where the `}` stands that ends the expression: the first that is in no quotes.
fn end_of(text: &str) -> Option<usize> {
    let mut quote = None;
    text.char_indices().find_map(|(at, c)| match (quote, c) {
        (None, '}') => Some(at),
        (None, '\'' | '"') => {
            quote = Some(c);
            None
        }
        (Some(open), c) if open == c => {
            quote = None;
            None
        }
        _ => None,
    })
}
