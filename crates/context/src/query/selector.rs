//! Which entities are meant: ids or a pattern of ids, types or a pattern of types.

use serde_json::{Map, Value};

use crate::entity::Key;
use crate::query::Pattern;
use crate::refusal::Refusal;
use crate::syntax::check_identifier;

/// Ids or types.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) enum Names {
    /// Whatever it is.
    #[default]
    Any,
    /// One of these.
    Of(Vec<String>),
    /// What contains a match.
    Like(Pattern),
}

/// What an entity in a body may say.
const MEMBERS: [&str; 4] = ["id", "idPattern", "type", "typePattern"];

fn names(members: &Map<String, Value>, one: &str, pattern: &str) -> Result<Names, Refusal> {
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
            Ok(Names::Of(vec![name.to_owned()]))
        }
        (None, Some(text)) => Ok(Names::Like(Pattern::new(pattern, text)?)),
        (None, None) => Ok(Names::Any),
    }
}

impl Names {
    /// Whether `name` is among them.
    pub(crate) fn have(&self, name: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Of(names) => names.iter().any(|known| known == name),
            Self::Like(pattern) => pattern.fits(name),
        }
    }
}

/// Entities by id and type; both must fit.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Selector {
    /// Their ids.
    pub(crate) ids: Names,
    /// Their types.
    pub(crate) kinds: Names,
}

impl Selector {
    /// Reads one of a body's `entities`: `id` or `idPattern`, and perhaps `type` or `typePattern`.
    pub(crate) fn of_json(member: &Value) -> Result<Self, Refusal> {
        let Value::Object(members) = member else {
            return Err(Refusal::bad(format!("{member} among the entities is no object: write {{\"id\": …}}")));
        };
        if let Some(unknown) = members.keys().find(|name| !MEMBERS.contains(&name.as_str())) {
            return Err(Refusal::bad(format!(
                "an entity has a member '{unknown}': it may have {}; remove it",
                MEMBERS.join(", ")
            )));
        }
        let selector = Self { ids: names(members, "id", "idPattern")?, kinds: names(members, "type", "typePattern")? };
        if selector.ids == Names::Any {
            return Err(Refusal::bad(format!("{member} among the entities has neither id nor idPattern; add one")));
        }
        Ok(selector)
    }

    /// Whether an entity of this key is meant.
    pub(crate) fn has(&self, key: &Key) -> bool {
        self.kinds.have(&key.kind) && self.ids.have(&key.id)
    }
}
