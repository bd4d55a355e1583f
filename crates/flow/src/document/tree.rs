//! A text as a tree of values, each with its place in the text.

use serde_json::{Map, Number, Value};

/// The place of a value: its text, line and column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct TextPosition {
    /// 0 for the document, n for the n-th bundle that was merged into it.
    pub(super) source: usize,
    /// The line, counted from 1.
    pub(super) line: usize,
    /// The column in characters, counted from 1.
    pub(super) column: usize,
}

/// A value with its place.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Tree {
    pub(super) place: TextPosition,
    pub(super) content: TreeContent,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum TreeContent {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Tree>),
    /// The members in the order of the text; no key stands twice.
    Object(Vec<TreeMember>),
}

/// A key and its value.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TreeMember {
    pub(super) key: String,
    pub(super) key_place: TextPosition,
    pub(super) value: Tree,
}

impl Tree {
    /// The value of `key`, if this is an object that has it.
    pub(super) fn get(&self, key: &str) -> Option<&Self> {
        self.member(key).map(|member| &member.value)
    }

    pub(super) fn member(&self, key: &str) -> Option<&TreeMember> {
        self.members().iter().find(|member| member.key == key)
    }

    /// The members of an object; empty for any other value.
    pub(super) fn members(&self) -> &[TreeMember] {
        match &self.content {
            TreeContent::Object(members) => members,
            _ => &[],
        }
    }

    /// The elements of a list; empty for any other value.
    pub(super) fn elements(&self) -> &[Self] {
        match &self.content {
            TreeContent::List(elements) => elements,
            _ => &[],
        }
    }

    pub(super) fn text(&self) -> Option<&str> {
        match &self.content {
            TreeContent::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(super) fn whole(&self) -> Option<u64> {
        match &self.content {
            TreeContent::Number(number) => number.as_u64(),
            _ => None,
        }
    }

    pub(super) fn is_true(&self) -> bool {
        self.content == TreeContent::Bool(true)
    }

    pub(super) fn text_of(&self, key: &str) -> Option<&str> {
        self.get(key)?.text()
    }

    /// The value as JSON, without places.
    pub(super) fn to_json(&self) -> Value {
        match &self.content {
            TreeContent::Null => Value::Null,
            TreeContent::Bool(value) => Value::Bool(*value),
            TreeContent::Number(number) => Value::Number(number.clone()),
            TreeContent::Text(text) => Value::String(text.clone()),
            TreeContent::List(elements) => Value::Array(elements.iter().map(Self::to_json).collect()),
            TreeContent::Object(members) => Value::Object(object(members)),
        }
    }

    /// True if the value is certain to have more than `max_bytes` as JSON. Looks at no more of it than that.
    pub(super) fn is_larger(&self, max_bytes: usize) -> bool {
        let mut left = max_bytes;
        !self.fits(&mut left)
    }

    fn fits(&self, left: &mut usize) -> bool {
        let own = match &self.content {
            TreeContent::Text(text) => text.len() + 2,
            _ => 1,
        };
        let Some(rest) = left.checked_sub(own) else { return false };
        *left = rest;
        self.elements().iter().all(|element| element.fits(left))
            && self.members().iter().all(|member| member.value.fits(left))
    }

    /// The form of the value, for messages.
    pub(super) fn form(&self) -> &'static str {
        match &self.content {
            TreeContent::Null => "null",
            TreeContent::Bool(_) => "a boolean",
            TreeContent::Number(_) => "a number",
            TreeContent::Text(_) => "a text",
            TreeContent::List(_) => "a list",
            TreeContent::Object(_) => "an object",
        }
    }
}

fn object(members: &[TreeMember]) -> Map<String, Value> {
    members.iter().map(|member| (member.key.clone(), member.value.to_json())).collect()
}
