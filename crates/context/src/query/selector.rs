//! Selects entities by ids or an id pattern and by types or a type pattern.

use serde_json::{Map, Value};

use crate::model::entity::Key;
use crate::model::syntax::check_identifier;
use crate::query::Pattern;
use crate::refusal::Refusal;

/// A condition on ids or types.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) enum NameFilter {
    #[default]
    Any,
    Of(Vec<String>),
    /// A match of the pattern.
    Like(Pattern),
}

fn names(members: &Map<String, Value>, one: &str, pattern: &str) -> Result<NameFilter, Refusal> {
    let text = |name: &str| match members.get(name) {
        None => Ok(None),
        Some(Value::String(text)) if !text.is_empty() => Ok(Some(text.as_str())),
        Some(other) => Err(Refusal::bad(format!("{name} {other} of an entity must be a text that is not empty"))),
    };
    match (text(one)?, text(pattern)?) {
        (Some(_), Some(_)) => Err(Refusal::bad(format!(
            "an entity has both {one} and {pattern}: one excludes the other; remove one of them"
        ))),
        (Some(name), None) => {
            check_identifier(format_args!("entity {one}"), name)?;
            Ok(NameFilter::Of(vec![name.to_owned()]))
        }
        (None, Some(text)) => Ok(NameFilter::Like(Pattern::new(pattern, text)?)),
        (None, None) => Ok(NameFilter::Any),
    }
}

impl NameFilter {
    pub(crate) fn have(&self, name: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Of(names) => names.iter().any(|known| known == name),
            Self::Like(pattern) => pattern.fits(name),
        }
    }
}

/// A selection by id and type; both must match.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Selector {
    pub(crate) ids: NameFilter,
    pub(crate) kinds: NameFilter,
}

impl Selector {
    /// Members of an entity in a body.
    pub(crate) const MEMBERS: [&str; 4] = ["id", "idPattern", "type", "typePattern"];

    /// Reads an item of a body's `entities`: `id` or `idPattern`, and optionally `type` or `typePattern`.
    pub(crate) fn of_json(member: &Value) -> Result<Self, Refusal> {
        let Value::Object(members) = member else {
            return Err(Refusal::bad(format!("{member} among the entities is no object: write {{\"id\": …}}")));
        };
        if let Some(unknown) = members.keys().find(|name| !Self::MEMBERS.contains(&name.as_str())) {
            return Err(Refusal::bad(format!(
                "an entity has a member '{unknown}': it may have {}; remove it",
                Self::MEMBERS.join(", ")
            )));
        }
        let selector = Self { ids: names(members, "id", "idPattern")?, kinds: names(members, "type", "typePattern")? };
        if selector.ids == NameFilter::Any {
            return Err(Refusal::bad(format!("{member} among the entities has neither id nor idPattern; add one")));
        }
        Ok(selector)
    }

    /// Returns `true` if the key matches the selector.
    pub(crate) fn has(&self, key: &Key) -> bool {
        self.kinds.have(&key.kind) && self.ids.have(&key.id)
    }
}
