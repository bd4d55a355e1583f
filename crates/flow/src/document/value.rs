//! Checks one value against the form that its key has in the model.

use millstream_types::{TenantId, TopicName};

use super::catalogue::{Key, KeyType};
use super::finding::{Findings, join};
use super::names::{is_name, name_rule};
use super::quantity::{
    DURATION_RULE, SIZE_RULE, calendar_step, duration_ms, duration_range_ms, signed_duration_ms, size_bytes,
};
use super::tree::{Tree, TreeContent};

/// Most parameters of a node.
pub(super) const PARAMETERS_MAX: usize = 256;
/// Most instances of a node.
const PARALLELISM_MAX: u64 = 1024;

/// Adds a finding if the value does not have the form of the key.
pub(super) fn check_value(value: &Tree, path: &str, key: &Key, findings: &mut Findings) {
    let mut check = Check { value, path, name: key.name, findings };
    match key.value {
        // Expressions are parsed by a rule, which knows the parameters.
        KeyType::Text | KeyType::Condition | KeyType::SelectList | KeyType::Aggregates | KeyType::Expression => {
            let _ = check.text();
        }
        KeyType::Extent if matches!(value.content, TreeContent::Number(_)) => check.whole(1, u64::from(u32::MAX)),
        KeyType::WindowSize if matches!(value.content, TreeContent::Number(_)) => check.whole(1, u64::from(u32::MAX)),
        KeyType::WindowSize => check.quantity(
            value.text().is_some_and(|text| duration_ms(text).is_some() || calendar_step(text).is_some()),
            "duration",
            "a duration such as 5m, days, weeks, months or years such as 1mo, or a number of records such as 100",
        ),
        KeyType::Extent => check.quantity(
            duration_ms(value.text().unwrap_or_default()).is_some(),
            "duration",
            "a duration such as 5m, or a number of records such as 100",
        ),
        KeyType::Whole(min, max) => check.whole(min, max),
        KeyType::Bool => check.form(matches!(value.content, TreeContent::Bool(_)), "true or false"),
        KeyType::Duration => {
            check.quantity(duration_ms(value.text().unwrap_or_default()).is_some(), "duration", DURATION_RULE)
        }
        KeyType::DurationOr(_) => {
            check.quantity(duration_ms(value.text().unwrap_or_default()).is_some(), "duration", DURATION_RULE)
        }
        KeyType::SignedDuration => {
            let is_right = signed_duration_ms(value.text().unwrap_or_default()).is_some();
            check.quantity(is_right, "duration", &format!("{DURATION_RULE}; with - in front if it is negative"));
        }
        KeyType::DurationRange => {
            let rule = "a duration such as 1s, or the first and the longest wait such as 1s..1m";
            check.quantity(duration_range_ms(value.text().unwrap_or_default()).is_some(), "duration", rule);
        }
        KeyType::Size => check.quantity(size_bytes(value.text().unwrap_or_default()).is_some(), "size", SIZE_RULE),
        KeyType::OneOf(words) => check.one_of(words, &[]),
        KeyType::OneOfSoFar(words, later) => check.one_of(words, later),
        KeyType::Texts => check.elements("a list of texts", |element| element.text().is_some()),
        KeyType::Topic => check.rule("topic", topic_fault),
        KeyType::Url => check.rule("url", url_fault),
        KeyType::Template => check.rule("template", template_fault),
        KeyType::Checked(fault) => check.connector(fault),
        KeyType::Name => check.rule("name", name_fault),
        KeyType::Names => check.names(),
        KeyType::Expressions => check.expressions(),
        KeyType::ExpressionsByInput if matches!(value.content, TreeContent::Object(_)) => {
            for member in value.members() {
                let path = join(path, &member.key);
                Check { value: &member.value, path: &path, name: key.name, findings: &mut *check.findings }
                    .expressions();
            }
        }
        KeyType::ExpressionsByInput => check.expressions(),
        KeyType::Labels => {
            check.members("an object of texts", "a text; put it into quotes", |value| value.text().is_some())
        }
        KeyType::Params => check.params(),
        KeyType::ParamsByNode => {
            check.members("an object of parameters by node", "an object", |value| {
                matches!(value.content, TreeContent::Object(_))
            });
        }
        KeyType::RecordsByNode => check.records(),
        KeyType::TextsByName => check.members("an object of lists of texts", "a list of texts", |value| {
            matches!(value.content, TreeContent::List(_)) && value.elements().iter().all(|line| line.text().is_some())
        }),
        KeyType::Parallelism => check.whole(1, PARALLELISM_MAX),
        KeyType::ResumeFrom => {
            check.form(value.text().is_some(), "the name or id of a job, or an object with it under 'job'");
        }
        KeyType::Edges => check.edges(),
        KeyType::Any
        | KeyType::Config
        | KeyType::Object(_)
        | KeyType::ListOf(_)
        | KeyType::MapOf(_)
        | KeyType::NotAvailable(_) => {}
    }
}

struct Check<'a> {
    value: &'a Tree,
    path: &'a str,
    name: &'a str,
    findings: &'a mut Findings,
}

impl<'a> Check<'a> {
    fn refuse(&mut self, at: &Tree, path: &str, rule: &'static str, message: String) {
        self.findings.add(at.place, path, rule, message).value(at);
    }

    fn form(&mut self, is_right: bool, wanted: &str) {
        if !is_right {
            let message = format!("this is {}; '{}' is {wanted}", self.value.form(), self.name);
            self.refuse(self.value, self.path, "type", message);
        }
    }

    fn text(&mut self) -> Option<&'a str> {
        let text = self.value.text();
        self.form(text.is_some(), "a text; put it into quotes");
        text
    }

    /// A text for which `fault` returns no fault.
    fn rule(&mut self, rule: &'static str, fault: fn(&str) -> Option<String>) {
        if let Some(message) = self.text().and_then(fault) {
            self.refuse(self.value, self.path, rule, message);
        }
    }

    fn whole(&mut self, min: u64, max: u64) {
        match self.value.whole() {
            Some(number) if (min..=max).contains(&number) => {}
            None if !matches!(self.value.content, TreeContent::Number(_)) => self.form(false, "a whole number"),
            _ if min == max => {
                let message = format!("'{}' is {min}; write {}: {min}", self.name, self.name);
                self.refuse(self.value, self.path, "range", message);
            }
            _ => {
                let message =
                    format!("'{}' is a whole number from {min} to {max}; choose one in that range", self.name);
                self.refuse(self.value, self.path, "range", message);
            }
        }
    }

    fn quantity(&mut self, is_right: bool, rule: &'static str, wanted: &str) {
        match self.value.content {
            _ if is_right => {}
            TreeContent::Text(_) | TreeContent::Number(_) => {
                let message = format!("this is no {rule}; write {wanted}");
                self.refuse(self.value, self.path, rule, message);
            }
            _ => self.form(false, wanted),
        }
    }

    fn one_of(&mut self, words: &[&'static str], later: &[&str]) {
        let Some(text) = self.value.text() else {
            return self.form(false, &format!("one of {}", words.join(", ")));
        };
        if later.contains(&text) {
            let message =
                format!("'{}: {text}' is not available in this version; use {}", self.name, words.join(" or "));
            self.refuse(self.value, self.path, "not_available", message);
        } else if !words.contains(&text) {
            let message = format!("'{}' is one of {}; choose one of them", self.name, words.join(", "));
            self.findings
                .add(self.value.place, self.path, "choice", message)
                .value(self.value)
                .near(text, words.iter().copied());
        }
    }

    fn elements(&mut self, wanted: &str, is_right: fn(&Tree) -> bool) {
        let TreeContent::List(elements) = &self.value.content else { return self.form(false, wanted) };
        for (index, element) in elements.iter().enumerate().filter(|(_, element)| !is_right(element)) {
            let message = format!("this is {}; '{}' is {wanted}", element.form(), self.name);
            self.refuse(element, &format!("{}[{index}]", self.path), "type", message);
        }
    }

    /// Checks that the value is an object whose values all pass `is_right`.
    fn members(&mut self, wanted: &str, each: &str, is_right: fn(&Tree) -> bool) {
        if !matches!(self.value.content, TreeContent::Object(_)) {
            return self.form(false, wanted);
        }
        for member in self.value.members().iter().filter(|member| !is_right(&member.value)) {
            let message = format!("this is {}; each value of '{}' is {each}", member.value.form(), self.name);
            self.refuse(&member.value, &join(self.path, &member.key), "type", message);
        }
    }

    fn names(&mut self) {
        match &self.value.content {
            TreeContent::Text(_) => self.rule("name", name_fault),
            _ => self.elements("a name or a list of names", |element| element.text().is_some()),
        }
    }

    fn params(&mut self) {
        self.members("an object of parameters", "", |_| true);
        let count = self.value.members().len();
        if count > PARAMETERS_MAX {
            let message =
                format!("{count} parameters are more than {PARAMETERS_MAX}; put them into a list or an object");
            self.findings.add(self.value.place, self.path, "too_many", message);
        }
        for member in self.value.members().iter().filter(|member| !is_parameter(&member.key)) {
            let message = format!(
                "'{}' cannot be written as :name; use letters, digits and _, and begin with a letter",
                super::finding::shortened(&member.key)
            );
            self.findings
                .add(member.key_place, &join(self.path, &member.key), "parameter_name", message)
                .named(&member.key);
        }
    }

    fn records(&mut self) {
        self.members("an object of lists of records by node", "a list of records", |value| {
            matches!(value.content, TreeContent::List(_))
        });
        for member in self.value.members() {
            let path = join(self.path, &member.key);
            for (index, record) in member.value.elements().iter().enumerate() {
                if !matches!(record.content, TreeContent::Object(_)) {
                    let message = format!("this is {}; a record is an object of fields", record.form());
                    self.refuse(record, &format!("{path}[{index}]"), "record", message);
                }
            }
        }
    }

    fn edges(&mut self) {
        let is_pair =
            |pair: &Tree| pair.elements().len() == 2 && pair.elements().iter().all(|end| end.text().is_some());
        match &self.value.content {
            TreeContent::List(_) => self.elements("a list of pairs [from, to]", is_pair),
            TreeContent::Object(_) => self.members("", "a name or a list of names", |to| {
                to.text().is_some()
                    || (matches!(to.content, TreeContent::List(_))
                        && to.elements().iter().all(|to| to.text().is_some()))
            }),
            _ => self.form(false, "a list of pairs [from, to], or an object {from: [to, …]}"),
        }
    }

    fn expressions(&mut self) {
        match &self.value.content {
            TreeContent::Text(_) => {}
            TreeContent::List(elements) if !elements.is_empty() => {
                self.elements("an expression or a list of expressions", |element| element.text().is_some());
            }
            _ => self.form(false, "an expression, or a list of at least one"),
        }
    }

    fn connector(&mut self, fault: fn(&serde_json::Value) -> Result<(), String>) {
        if let Err(message) = fault(&self.value.to_json()) {
            self.refuse(self.value, self.path, "config", format!("'{}': {message}", self.name));
        }
    }
}

/// A parameter's name as it is written after the colon.
pub(super) fn is_parameter(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn name_fault(name: &str) -> Option<String> {
    (!is_name(name)).then(|| format!("'{}' is not a name: {}", super::finding::shortened(name), name_rule()))
}

fn topic_fault(name: &str) -> Option<String> {
    TopicName::parse(name, &TenantId::default()).err().map(|error| error.to_string())
}

pub(super) fn url_fault(url: &str) -> Option<String> {
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
    let host = rest.map(|rest| rest.split(['/', '?', '#']).next().unwrap_or_default());
    let is_legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | ':' | '[' | ']' | '{' | '}');
    let name = host.map(|host| host.split(':').next().unwrap_or_default());
    let is_url = host.is_some_and(|host| host.chars().all(is_legal))
        && name.is_some_and(|name| !name.is_empty() && !name.starts_with('.'))
        && !url.contains(char::is_whitespace);
    (!is_url)
        .then(|| format!("'{}' is not a URL with a host; use http://host[:port]/path", super::finding::shortened(url)))
}

fn template_fault(template: &str) -> Option<String> {
    let mut rest = template;
    while let Some(at) = rest.find(['{', '}']) {
        let field = rest[at..].strip_prefix('{').and_then(|inside| inside.find('}').map(|end| &inside[..end]));
        match field {
            Some(field) if !field.trim().is_empty() && !field.contains('{') => rest = &rest[at + field.len() + 2..],
            _ => {
                return Some(
                    "a field is written {field} inside the text; close each brace and name a field".to_owned(),
                );
            }
        }
    }
    None
}
