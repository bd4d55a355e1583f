//! Texts and JSON with macros: `${name}`, or an expression in JEXL, `${temperature * 2}`.

use std::borrow::Cow;

use millstream_jexl::{Expression, closing_brace};
use serde_json::Value;

use crate::model::json;
use crate::refusal::Refusal;

/// The words of JEXL that look like names.
const LITERALS: [&str; 3] = ["true", "false", "null"];

pub(crate) trait MacroValues {
    /// The canonical JSON text of a name; `None` if it has no value.
    fn json(&self, name: &str) -> Option<Cow<'_, str>>;

    /// The value of an expression.
    fn evaluate(&self, expression: &Expression) -> Value;
}

/// The inside of `${…}`.
#[derive(Debug, Clone)]
pub(crate) enum Macro {
    Name(String),
    Expression(Expression),
    /// No expression: Orion takes it, and its value is null.
    Misspelt,
}

impl Macro {
    fn read(text: &str) -> Self {
        if is_bare(text) {
            return Self::Name(text.to_owned());
        }
        // Forbidden characters arrive encoded.
        let decoded = || percent_encoding::percent_decode_str(text).decode_utf8_lossy();
        let expression = Expression::parse(text).or_else(|_| Expression::parse(&decoded()));
        expression.map_or(Self::Misspelt, Self::Expression)
    }

    /// The canonical JSON text; `None` without a value, and for an expression that is null.
    fn json<'a>(&self, values: &'a dyn MacroValues) -> Option<Cow<'a, str>> {
        match self {
            Self::Name(name) => values.json(name),
            Self::Expression(expression) => match values.evaluate(expression) {
                Value::Null => None,
                value => Some(Cow::Owned(json::text(&value).to_string())),
            },
            Self::Misspelt => None,
        }
    }
}

/// An expression that is a condition.
#[derive(Debug)]
pub(crate) struct JexlCondition(Option<Expression>);

impl JexlCondition {
    /// Reads any text; one that is no expression never holds.
    pub(crate) fn read(text: &str) -> Self {
        Self(Expression::parse(text).ok())
    }

    /// The value is `true`, and nothing that counts as true.
    pub(crate) fn holds(&self, values: &dyn MacroValues) -> bool {
        self.0.as_ref().map(|expression| values.evaluate(expression)) == Some(Value::Bool(true))
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct MacroTemplate {
    parts: Vec<TemplatePart>,
    raw: String,
}

#[derive(Debug, Clone)]
enum TemplatePart {
    Text(String),
    Macro(Macro),
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
            let inside = &rest[begin + 2..];
            let Some(length) = closing_brace(inside) else {
                return Err(Refusal::bad(format!(
                    "{what} '{text}': a macro that begins with ${{ must end with }}; end it"
                )));
            };
            if begin > 0 {
                parts.push(TemplatePart::Text(rest[..begin].to_owned()));
            }
            parts.push(TemplatePart::Macro(Macro::read(&inside[..length])));
            rest = &inside[length + 1..];
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
            filled @ TemplatePart::Macro(_) => filled,
        };
        Self { parts: self.parts.into_iter().map(decode).collect(), raw: self.raw }
    }

    /// Replaces every macro; a missing value becomes `null`.
    pub(crate) fn fill(&self, values: &dyn MacroValues) -> String {
        let mut out = String::new();
        for part in &self.parts {
            match part {
                TemplatePart::Text(text) => out.push_str(text),
                TemplatePart::Macro(one) => out.push_str(&one.json(values).map_or("null".into(), |json| plain(&json))),
            }
        }
        out
    }

    /// Replaces every macro; `None` if the text is a single macro without a value.
    pub(crate) fn fill_if_there(&self, values: &dyn MacroValues) -> Option<String> {
        match self.whole() {
            Some(whole) => whole.json(values).map(|json| plain(&json)),
            None => Some(self.fill(values)),
        }
    }

    /// The texts outside macros.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            TemplatePart::Text(text) => Some(&**text),
            TemplatePart::Macro(_) => None,
        })
    }

    /// The macro, if there is nothing else.
    fn whole(&self) -> Option<&Macro> {
        match &self.parts[..] {
            [TemplatePart::Macro(whole)] => Some(whole),
            _ => None,
        }
    }

    pub(crate) fn has_macros(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, TemplatePart::Macro(_)))
    }
}

/// The text is a bare name; anything else is an expression. So `A-B` is a difference and `A:B` nothing, also where an
/// attribute has that name.
fn is_bare(name: &str) -> bool {
    let word = |text: &str| {
        let is_word = text.bytes().all(|c| c.is_ascii_alphanumeric() || b"_@$".contains(&c));
        is_word && text.bytes().next().is_some_and(|first| !first.is_ascii_digit())
    };
    match name.strip_prefix("metadata.").and_then(|rest| rest.split_once('.')) {
        Some((attribute, item)) => word(attribute) && word(item),
        None => word(name) && !LITERALS.contains(&name),
    }
}

/// The text without its macros: forbidden characters are none in expressions.
pub(crate) fn without_macros(text: &str) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some((before, inside)) = rest.split_once("${")
        && let Some(end) = closing_brace(inside)
    {
        out.push_str(before);
        rest = &inside[end + 1..];
    }
    out + rest
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
    Whole(Macro),
    Text(MacroTemplate),
    Array(Vec<JsonTemplate>),
    Object(Vec<(String, JsonTemplate)>),
}

impl JsonTemplate {
    pub(crate) fn read(what: &str, value: &Value) -> Result<Self, Refusal> {
        match value {
            Value::String(text) => {
                let template = MacroTemplate::read(what, text)?;
                Ok(match template.whole() {
                    Some(whole) => Self::Whole(whole.clone()),
                    None if template.has_macros() => Self::Text(template),
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
    pub(crate) fn fill(&self, values: &dyn MacroValues, out: &mut String) {
        match self {
            Self::Fixed(text) => out.push_str(text),
            Self::Whole(whole) => out.push_str(&whole.json(values).unwrap_or(Cow::Borrowed("null"))),
            Self::Text(template) => json::push_string(&template.fill(values), out),
            Self::Array(items) => {
                out.push('[');
                for (i, item) in items.iter().enumerate() {
                    if i > 0 {
                        out.push(',');
                    }
                    item.fill(values, out);
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
                    value.fill(values, out);
                }
                out.push('}');
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use millstream_jexl::Names;
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

        fn evaluate(&self, expression: &Expression) -> Value {
            expression.evaluate(self, 0)
        }
    }

    impl Names for Few {
        fn value(&self, name: &str) -> Option<Cow<'_, Value>> {
            self.json(name).map(|json| Cow::Owned(serde_json::from_str(&json).unwrap()))
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
            // Expressions.
            ("${t+1}", "22.5"),
            ("${t + 1} and ${ t }", "22.5 and 21.5"),
            ("${{a: {b: t}}}!", "{\"a\":{\"b\":21.5}}!"),
            ("${o.k[0]}${o|toString}", "1{\"k\":[1]}"),
            ("${'}'}${\"{\"}", "}{"),
            ("${s|uppercase}", "A\"B"),
            ("${true}${false}${null}${12}", "truefalsenull12"),
            // No value: an unknown name in an operation or function, no expression.
            ("${none+1}|${t|nothing}|${t||-1}|${t +}|${}", "null|null|null|null|null"),
        ] {
            assert_eq!(MacroTemplate::read("x", given).unwrap().fill(&Few), expected, "{given}");
        }
        assert_eq!(MacroTemplate::read("x", "%22${s}%22 100%25").unwrap().decoded().fill(&Few), "\"a\"b\" 100%");
        assert_eq!(MacroTemplate::literal("${t}").fill(&Few), "${t}");
        for (given, expected) in [
            ("${none}", None),
            ("-${none}", Some("-null")),
            ("${t}", Some("21.5")),
            ("", Some("")),
            ("${none+1}", None),
            ("${t*2}", Some("43")),
        ] {
            assert_eq!(MacroTemplate::read("x", given).unwrap().fill_if_there(&Few).as_deref(), expected, "{given}");
        }
    }

    #[test]
    fn a_macro_that_fills_a_string_of_json_keeps_its_type() {
        let given = json!({
            "a": "${t}", "b": "x${t}", "c": ["${s}", "${none}", 1.0, null], "d": {"${t}": "${o}"},
            "e": "${t>20}", "f": "${[t,s]}", "g": "${none/2}", "h": "x${none/2}",
        });
        let mut out = String::new();
        JsonTemplate::read("x", &given).unwrap().fill(&Few, &mut out);
        assert_eq!(
            out,
            concat!(
                r#"{"a":21.5,"b":"x21.5","c":["a\"b",null,1,null],"d":{"${t}":{"k":[1]}},"#,
                r#""e":true,"f":[21.5,"a\"b"],"g":null,"h":"xnull"}"#
            ),
            "keys are left alone"
        );
    }

    #[test]
    fn bare_names_are_names_and_all_else_is_an_expression() {
        for (given, is_name) in [
            ("t", true),
            ("_$a@1", true),
            ("metadata.t.unit", true),
            ("metadata.t", false),
            ("metadata.t.unit.x", false),
            ("a.b", false),
            ("a-b", false),
            ("a:b", false),
            ("1", false),
            ("1a", false),
            ("true", false),
            (" t ", false),
            ("", false),
        ] {
            assert_eq!(matches!(Macro::read(given), Macro::Name(_)), is_name, "{given}");
        }
        assert_eq!(MacroTemplate::read("payload", "x${t").unwrap_err().name, ErrorName::BadRequest);
    }
}
