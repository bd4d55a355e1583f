//! The body of `POST /v2/op/query`: which entities, what of them, under which conditions.

use serde_json::Value;

use crate::given::object;
use crate::query::{Criteria, Selector};
use crate::refusal::Refusal;
use crate::syntax::check_identifier;

/// Most entities that one body may name.
const ENTITIES_MAX: usize = 1_000;
/// What the body may say.
const MEMBERS: [&str; 5] = ["entities", "attrs", "attributes", "expression", "metadata"];

/// A query as its body tells it.
#[derive(Debug, PartialEq)]
pub(crate) struct OpQuery {
    /// None means all entities.
    pub(crate) selectors: Vec<Selector>,
    pub(crate) criteria: Criteria,
    /// Attributes to show.
    pub(crate) attrs: Vec<String>,
    /// Metadata to show.
    pub(crate) metadata: Vec<String>,
}

impl OpQuery {
    /// Reads the body.
    pub(crate) fn read(body: &[u8]) -> Result<Self, Refusal> {
        let members = object(body)?;
        if let Some(unknown) = members.keys().find(|name| !MEMBERS.contains(&name.as_str())) {
            return Err(Refusal::bad(format!(
                "the body has a member '{unknown}': it may have {}; remove it",
                MEMBERS.join(", ")
            )));
        }
        let entities = members.get("entities").map_or(Ok(&[][..]), |value| array("entities", value))?;
        if entities.len() > ENTITIES_MAX {
            let count = entities.len();
            return Err(Refusal::bad(format!(
                "{count} entities: at most {ENTITIES_MAX} are allowed; send several requests"
            )));
        }
        let selectors = entities.iter().map(Selector::of_json).collect::<Result<_, _>>()?;
        let mut criteria = match members.get("expression") {
            None => Criteria::default(),
            Some(Value::Object(expression)) => Criteria::of_json(expression)?,
            Some(other) => return Err(Refusal::bad(format!("expression {other} is no object; send one"))),
        };
        let mut attrs = members.get("attrs").map_or(Ok(Vec::new()), |value| identifiers("attrs", value))?;
        if let Some(value) = members.get("attributes") {
            criteria.has = identifiers("attributes", value)?;
            attrs.extend(criteria.has.iter().cloned());
        }
        let metadata = members.get("metadata").map_or(Ok(Vec::new()), |value| identifiers("metadata", value))?;
        Ok(Self { selectors, criteria, attrs, metadata })
    }
}

/// The items of a member that must be an array; `what` says which member.
pub(crate) fn array<'a>(what: &str, value: &'a Value) -> Result<&'a [Value], Refusal> {
    value.as_array().map(Vec::as_slice).ok_or_else(|| Refusal::bad(format!("{what} {value} is no array; send one")))
}

/// A list of names in a body.
pub(crate) fn identifiers(what: &str, value: &Value) -> Result<Vec<String>, Refusal> {
    let one = |item: &Value| match item.as_str() {
        Some(name) => check_identifier(what, name).map(|()| name.to_owned()),
        None => Err(Refusal::bad(format!("{item} in {what} is no string; send names"))),
    };
    array(what, value)?.iter().map(one).collect()
}
