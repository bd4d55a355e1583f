//! Prints the settings in force, with their origin or their meaning.
//!
//! Meanings are the doc comments of the configuration's structs.

use std::collections::BTreeMap;

use figment::value::Value;
use schemars::generate::SchemaSettings;

use crate::config::{Config, Loaded, origin_of};

/// Keys whose values are never shown.
const SECRET_KEYS: [&str; 3] = ["token", "secret", "password"];

impl Loaded {
    /// Every setting, its value and where it came from, one a line.
    pub(crate) fn show(&self) -> anyhow::Result<String> {
        let shown = self.settings()?.into_iter();
        Ok(beside(shown.map(|Setting { path, value, origin }| (format!("{path} = {value}"), origin)).collect()))
    }

    /// Every setting, its value and what it means, one a line.
    pub(crate) fn explain(&self) -> anyhow::Result<String> {
        let meanings = Meanings::of_settings();
        let shown = self.settings()?.into_iter();
        let lines =
            shown.map(|Setting { path, value, .. }| (format!("{path} = {value}"), meanings.of(&path).to_owned()));
        Ok(beside(lines.collect()))
    }

    fn settings(&self) -> anyhow::Result<Vec<Setting>> {
        let mut settings = Vec::new();
        self.walk("", &Value::serialize(&self.config)?, &mut settings);
        Ok(settings)
    }

    fn walk(&self, path: &str, value: &Value, settings: &mut Vec<Setting>) {
        if let Value::Dict(_, members) = value
            && !members.is_empty()
        {
            for (name, member) in members {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                self.walk(&path, member, settings);
            }
            return;
        }
        let origin = self.sources.find_metadata(path).map_or_else(|| "default".to_owned(), origin_of);
        let name = path.rsplit_once('.').map_or(path, |(_, name)| name);
        let value = if matches!(value, Value::Empty(..)) { render(value) } else { shown(name, value) };
        settings.push(Setting { path: path.to_owned(), value, origin });
    }
}

/// A setting that is in force.
struct Setting {
    path: String,
    value: String,
    origin: String,
}

/// Settings, each with its comment behind it.
fn beside(lines: Vec<(String, String)>) -> String {
    let width = lines.iter().map(|(setting, _)| setting.len()).max().unwrap_or_default();
    lines.into_iter().map(|(setting, comment)| format!("{setting:width$}  # {comment}\n")).collect()
}

/// The value of a key as TOML writes it; that of a secret is masked.
fn shown(name: &str, value: &Value) -> String {
    if SECRET_KEYS.contains(&name) { "\"***\"".to_owned() } else { render(value) }
}

/// A value as TOML writes it, secrets masked.
fn render(value: &Value) -> String {
    match value {
        Value::String(_, text) => format!("{text:?}"),
        Value::Char(_, c) => format!("{:?}", c.to_string()),
        Value::Bool(_, b) => b.to_string(),
        Value::Num(_, number) => match (number.to_i128(), number.to_u128(), number.to_f64()) {
            (Some(n), _, _) => n.to_string(),
            (None, Some(n), _) => n.to_string(),
            (None, None, Some(n)) => n.to_string(),
            (None, None, None) => "0".to_owned(),
        },
        Value::Empty(..) => "none".to_owned(),
        Value::Array(_, items) => format!("[{}]", items.iter().map(render).collect::<Vec<_>>().join(", ")),
        Value::Dict(_, members) if members.is_empty() => "{}".to_owned(),
        Value::Dict(_, members) => {
            let members = members.iter().map(|(name, value)| format!("{name} = {}", shown(name, value)));
            format!("{{ {} }}", members.collect::<Vec<_>>().join(", "))
        }
    }
}

/// The meaning of each setting, by its path such as `log.sync_interval_ms`.
pub(crate) struct Meanings(BTreeMap<String, String>);

impl Meanings {
    pub(crate) fn of_settings() -> Self {
        let generator = SchemaSettings::default().with(|settings| settings.inline_subschemas = true).into_generator();
        let mut meanings = BTreeMap::new();
        collect("", generator.into_root_schema_for::<Config>().as_value(), &mut meanings);
        Self(meanings)
    }

    /// The meaning of a setting; an entry of a table has that of its table.
    pub(crate) fn of(&self, path: &str) -> &str {
        match (self.0.get(path), path.rsplit_once('.')) {
            (Some(meaning), _) => meaning,
            (None, Some((table, _))) => self.of(table),
            (None, None) => "",
        }
    }
}

fn collect(path: &str, schema: &serde_json::Value, meanings: &mut BTreeMap<String, String>) {
    for (name, member) in schema["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        if member["properties"].is_object() {
            collect(&path, member, meanings);
        } else if let Some(text) = member["description"].as_str() {
            meanings.insert(path, text.split_whitespace().collect::<Vec<_>>().join(" "));
        }
    }
}
