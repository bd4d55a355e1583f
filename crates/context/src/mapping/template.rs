//! Texts with expressions in them: `urn:ngsi-ld:WeatherObserved:${origin}`.

use millstream_columns::{ColumnsOf, Value};

use super::expressions::Expressions;
use crate::model::json;
use crate::model::syntax::check_identifier;

/// A template: texts and expressions that alternate.
#[derive(Debug)]
pub(super) struct MappingTemplate(Vec<TemplatePart>);

#[derive(Debug)]
enum TemplatePart {
    Text(String),
    /// The index of the value's expression.
    Value(usize),
}

impl MappingTemplate {
    /// Reads the text of the member `place`. A text without expressions must be an identifier.
    pub(super) fn read(place: &str, text: &str, expressions: &mut Expressions<'_>) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((plain, after)) = rest.split_once("${") {
            let Some(end) = end_of(after) else {
                return Err(format!("{place}: an expression begins by ${{ and is not closed; write ${{expression}}"));
            };
            let before = text[..text.len() - after.len()].chars().count();
            push(&mut parts, plain);
            parts.push(TemplatePart::Value(expressions.add((place, before), &after[..end])?));
            rest = &after[end + 1..];
        }
        push(&mut parts, rest);
        match parts.as_slice() {
            [] => check_identifier(place, "").map_err(|refusal| refusal.description)?,
            [TemplatePart::Text(whole)] => check_identifier(place, whole).map_err(|refusal| refusal.description)?,
            _ => {}
        }
        Ok(Self(parts))
    }

    /// Renders the text for a record.
    pub(super) fn text(&self, of: &ColumnsOf<'_, '_>) -> Result<String, String> {
        let mut text = String::new();
        for part in &self.0 {
            match part {
                TemplatePart::Text(plain) => text.push_str(plain),
                TemplatePart::Value(place) => match of.value(*place) {
                    Ok(Value::Text(value)) => text.push_str(&value),
                    // Numbers look as in attributes: 5.0 is 5.
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

fn push(parts: &mut Vec<TemplatePart>, plain: &str) {
    if !plain.is_empty() {
        parts.push(TemplatePart::Text(plain.to_owned()));
    }
}

/// Position of the `}` that ends the expression: the first outside quotes.
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
