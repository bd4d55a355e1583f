//! Texts and JSON with macros `${name}`.

use std::borrow::Cow;

use serde_json::Value;

use crate::model::json;
use crate::refusal::Refusal;

pub(crate) trait MacroValues {
    /// The canonical JSON text of a name; `None` if it has no value.
    fn json(&self, name: &str) -> Option<Cow<'_, str>>;
}

#[derive(Debug, Clone, Default)]
pub(crate) struct MacroTemplate {
    parts: Vec<TemplatePart>,
    raw: String,
}

#[derive(Debug, Clone)]
enum TemplatePart {
    Text(String),
    Name(String),
}

impl MacroTemplate {
    /// Returns a template of a text without macros.
    pub(crate) fn literal(text: &str) -> Self {
        Self { parts: vec![TemplatePart::Text(text.to_owned())], raw: text.to_owned() }
    }

    /// Returns the text as it was written.
    pub(crate) fn raw(&self) -> &str {
        &self.raw
    }

    /// Parses a text with macros; `what` names it in errors.
    pub(crate) fn read(what: &str, text: &str) -> Result<Self, Refusal> {
        let (mut parts, mut rest) = (Vec::new(), text);
        while let Some(begin) = rest.find("${") {
            let Some(length) = rest[begin..].find('}') else {
                return Err(Refusal::bad(format!(
                    "{what} '{text}': a macro that begins with ${{ must end with }}; end it"
                )));
            };
            let name = &rest[begin + 2..begin + length];
            if !is_bare(name) {
                return Err(Refusal::later(&format!("the expression in {what}"), name));
            }
            if begin > 0 {
                parts.push(TemplatePart::Text(rest[..begin].to_owned()));
            }
            parts.push(TemplatePart::Name(name.to_owned()));
            rest = &rest[begin + length + 1..];
        }
        if !rest.is_empty() {
            parts.push(TemplatePart::Text(rest.to_owned()));
        }
        Ok(Self { parts, raw: text.to_owned() })
    }

    /// Decodes `%xx` in the text outside macros.
    pub(crate) fn decoded(self) -> Self {
        let decode = |part| match part {
            TemplatePart::Text(text) => {
                TemplatePart::Text(percent_encoding::percent_decode_str(&text).decode_utf8_lossy().into_owned())
            }
            name @ TemplatePart::Name(_) => name,
        };
        Self { parts: self.parts.into_iter().map(decode).collect(), raw: self.raw }
    }

    /// Replaces every macro; a missing value becomes `null`.
    pub(crate) fn fill(&self, names: &dyn MacroValues) -> String {
        let mut out = String::new();
        for part in &self.parts {
            match part {
                TemplatePart::Text(text) => out.push_str(text),
                TemplatePart::Name(name) => {
                    out.push_str(&names.json(name).map_or("null".into(), |value| plain(&value)))
                }
            }
        }
        out
    }

    /// Replaces every macro; `None` if the text is a single macro without a value.
    pub(crate) fn fill_if_there(&self, names: &dyn MacroValues) -> Option<String> {
        let is_missing = self.whole_name().is_some_and(|name| names.json(name).is_none());
        (!is_missing).then(|| self.fill(names))
    }

    /// The texts outside macros.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            TemplatePart::Text(text) => Some(&**text),
            TemplatePart::Name(_) => None,
        })
    }

    fn whole_name(&self) -> Option<&str> {
        match &self.parts[..] {
            [TemplatePart::Name(name)] => Some(name),
            _ => None,
        }
    }

    pub(crate) fn has_names(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, TemplatePart::Name(_)))
    }
}

/// The name is a bare name; anything else would be an expression.
fn is_bare(name: &str) -> bool {
    let word =
        |text: &str| !text.is_empty() && text.bytes().all(|c| c.is_ascii_alphanumeric() || b"_:-@$".contains(&c));
    match name.strip_prefix("metadata.").and_then(|rest| rest.split_once('.')) {
        Some((attribute, item)) => word(attribute) && word(item),
        None => word(name),
    }
}

/// A value within a text: strings without quotes, others as JSON.
fn plain(json: &str) -> String {
    if json.starts_with('"') { serde_json::from_str(json).unwrap_or_default() } else { json.to_owned() }
}

#[derive(Debug, Clone)]
pub(crate) enum JsonTemplate {
    /// A canonical JSON text without macros.
    Fixed(String),
    /// A single macro, which keeps its JSON type.
    Whole(String),
    Text(MacroTemplate),
    Array(Vec<JsonTemplate>),
    Object(Vec<(String, JsonTemplate)>),
}

impl JsonTemplate {
    pub(crate) fn read(what: &str, value: &Value) -> Result<Self, Refusal> {
        match value {
            Value::String(text) => {
                let template = MacroTemplate::read(what, text)?;
                Ok(match template.whole_name() {
                    Some(name) => Self::Whole(name.to_owned()),
                    None if template.has_names() => Self::Text(template),
                    None => Self::Fixed(json::text(value).to_string()),
                })
            }
            Value::Array(items) => {
                items.iter().map(|item| Self::read(what, item)).collect::<Result<_, _>>().map(Self::Array)
            }
            Value::Object(members) => members
                .iter()
                .map(|(name, value)| Ok((name.clone(), Self::read(what, value)?)))
                .collect::<Result<_, _>>()
                .map(Self::Object),
            plain => Ok(Self::Fixed(json::text(plain).to_string())),
        }
    }

    /// Appends the JSON text; a missing value becomes `null`.
    pub(crate) fn fill(&self, names: &dyn MacroValues, out: &mut String) {
        match self {
            Self::Fixed(text) => out.push_str(text),
            Self::Whole(name) => out.push_str(&names.json(name).unwrap_or(Cow::Borrowed("null"))),
            Self::Text(template) => json::push_string(&template.fill(names), out),
            Self::Array(items) => {
                out.push('[');
                for (i, item) in items.iter().enumerate() {
                    if i > 0 {
                        out.push(',');
                    }
                    item.fill(names, out);
                }
                out.push(']');
            }
            Self::Object(members) => {
                out.push('{');
                for (i, (name, value)) in members.iter().enumerate() {
                    if i > 0 {
                        out.push(',');
                    }
                    json::push_string(name, out);
                    out.push(':');
                    value.fill(names, out);
                }
                out.push('}');
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::refusal::ErrorName;

    struct Few;

    impl MacroValues for Few {
        fn json(&self, name: &str) -> Option<Cow<'_, str>> {
            match name {
                "t" => Some("21.5".into()),
                "s" => Some("\"a\\\"b\"".into()),
                "o" => Some("{\"k\":[1]}".into()),
                "metadata.t.unit" => Some("\"C\"".into()),
                _ => None,
            }
        }
    }

    #[test]
    fn macros_in_text_become_text() {
        for (given, expected) in [
            ("plain", "plain"),
            ("${t}", "21.5"),
            ("t=${t}, s=${s}!", "t=21.5, s=a\"b!"),
            ("${o}${none}", "{\"k\":[1]}null"),
            ("${none}", "null"),
            ("${metadata.t.unit}", "C"),
            ("$t $ {t}", "$t $ {t}"),
            ("", ""),
        ] {
            assert_eq!(MacroTemplate::read("x", given).unwrap().fill(&Few), expected, "{given}");
        }
        assert_eq!(MacroTemplate::read("x", "%22${s}%22 100%25").unwrap().decoded().fill(&Few), "\"a\"b\" 100%");
        assert_eq!(MacroTemplate::literal("${t}").fill(&Few), "${t}");
        for (given, expected) in
            [("${none}", None), ("-${none}", Some("-null")), ("${t}", Some("21.5")), ("", Some(""))]
        {
            assert_eq!(MacroTemplate::read("x", given).unwrap().fill_if_there(&Few).as_deref(), expected, "{given}");
        }
    }

    #[test]
    fn a_macro_that_fills_a_string_of_json_keeps_its_type() {
        let given = json!({"a": "${t}", "b": "x${t}", "c": ["${s}", "${none}", 1.0, null], "d": {"${t}": "${o}"}});
        let mut out = String::new();
        JsonTemplate::read("x", &given).unwrap().fill(&Few, &mut out);
        assert_eq!(
            out, r#"{"a":21.5,"b":"x21.5","c":["a\"b",null,1,null],"d":{"${t}":{"k":[1]}}}"#,
            "keys are left alone"
        );
    }

    #[test]
    fn expressions_are_for_later_and_an_open_macro_is_a_mistake() {
        for given in ["${t+1}", "${t|uppercase}", "${a.b}", "${}", "${ t }", "${a[0]}", "${metadata.t.unit.x}"] {
            let refusal = MacroTemplate::read("payload", given).unwrap_err();
            assert_eq!(refusal.name, ErrorName::NotImplemented, "{given}");
        }
        assert_eq!(MacroTemplate::read("payload", "x${t").unwrap_err().name, ErrorName::BadRequest);
    }
}
