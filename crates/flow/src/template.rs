//! Texts with `{field}` in them, filled from a record. A field may be nested, such as `{o.k}`.

use std::borrow::Cow;

use serde_json::Value;

use crate::object;

/// A parsed template. A text without braces names a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Template(Vec<TemplatePart>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TemplatePart {
    Text(String),
    Field(String),
}

impl Template {
    pub(crate) fn read(text: &str) -> Self {
        if !text.contains('{') {
            return Self(vec![TemplatePart::Field(text.to_owned())]);
        }
        let (mut parts, mut rest) = (Vec::new(), text);
        while let Some((before, after)) = rest.split_once('{') {
            let Some((field, after)) = after.split_once('}') else { break };
            if !before.is_empty() {
                parts.push(TemplatePart::Text(before.to_owned()));
            }
            parts.push(TemplatePart::Field(field.to_owned()));
            rest = after;
        }
        if !rest.is_empty() {
            parts.push(TemplatePart::Text(rest.to_owned()));
        }
        Self(parts)
    }

    /// A template in which a text without braces stands for itself.
    pub(crate) fn read_text(text: &str) -> Self {
        if text.contains('{') { Self::read(text) } else { Self(vec![TemplatePart::Text(text.to_owned())]) }
    }

    /// The texts and fields of the template, in order.
    pub(crate) fn parts(&self) -> &[TemplatePart] {
        &self.0
    }

    /// The fields that the text is made of.
    pub(crate) fn fields(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|part| match part {
            TemplatePart::Field(field) => Some(field.as_str()),
            TemplatePart::Text(_) => None,
        })
    }

    /// The text for a JSON object; `None` if one of the fields is missing or null.
    pub(crate) fn render(&self, object: &[u8]) -> Option<String> {
        let mut text = String::new();
        self.render_into(object, &mut text).then_some(text)
    }

    /// Appends the text for a JSON object; `false`, and nothing is appended, if one of the fields is missing or null.
    pub(crate) fn render_into(&self, object: &[u8], text: &mut String) -> bool {
        let start = text.len();
        for part in &self.0 {
            match part {
                TemplatePart::Text(plain) => text.push_str(plain),
                TemplatePart::Field(field) => match value_of(object, field) {
                    Some(value) => text.push_str(&value),
                    None => {
                        text.truncate(start);
                        return false;
                    }
                },
            }
        }
        true
    }
}

fn value_of<'a>(object: &'a [u8], field: &str) -> Option<Cow<'a, str>> {
    match object::find(object, field)? {
        b"null" => None,
        [b'"', inner @ .., b'"'] if !inner.contains(&b'\\') => Some(String::from_utf8_lossy(inner)),
        text @ [b'"', ..] => match serde_json::from_slice(text) {
            Ok(Value::String(text)) => Some(Cow::Owned(text)),
            _ => None,
        },
        other => Some(String::from_utf8_lossy(other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_is_filled_from_the_record() {
        let object = br#"{"id": "a\"b", "n": 7, "plain": "x", "none": null, "o": {"k": "y", "p": {"q": 1}}}"#;
        for (template, expected) in [
            ("plain", Some("x")),
            ("n", Some("7")),
            ("urn:{id}:{n}.", Some("urn:a\"b:7.")),
            ("{none}", None),
            ("missing", None),
            ("o.k", Some("y")),
            ("{o.k}-{o.p.q}", Some("y-1")),
            ("o.missing", None),
        ] {
            assert_eq!(Template::read(template).render(object).as_deref(), expected, "{template}");
        }
        assert_eq!(Template::read_text("plain").render(object).as_deref(), Some("plain"));
        assert_eq!(Template::read_text("{plain}-{n}").fields().collect::<Vec<_>>(), ["plain", "n"]);
    }
}
