//! The body of `POST /v2/op/query`: entities, attributes and conditions.

use serde_json::Value;

use crate::model::request_body::{array, object};
use crate::model::syntax::{check_identifier, without_repeats};
use crate::query::{Criteria, Rules, Selector};
use crate::refusal::Refusal;

const ENTITIES_MAX: usize = 1_000;
const MEMBERS: [&str; 5] = ["entities", "attrs", "attributes", "expression", "metadata"];

#[derive(Debug, PartialEq)]
pub(crate) struct OpQuery {
    /// An empty list selects all entities.
    pub(crate) selectors: Vec<Selector>,
    pub(crate) criteria: Criteria,
    pub(crate) attrs: Vec<String>,
    pub(crate) metadata: Vec<String>,
}

impl OpQuery {
    pub(crate) fn read(body: &[u8]) -> Result<Self, Refusal> {
        let members = object(body)?;
        if members.is_empty() {
            let known = MEMBERS.join(", ");
            return Err(Refusal::bad(format!("the body {{}} asks for nothing: it must have one of {known}; add one")));
        }
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
            Some(Value::Object(expression)) => Criteria::of_json(Rules::Sent, expression)?,
            Some(other) => return Err(Refusal::bad(format!("expression {other} is no object; send one"))),
        };
        let mut attrs = members.get("attrs").map_or(Ok(Vec::new()), |value| identifiers("attrs", value))?;
        if let Some(value) = members.get("attributes") {
            criteria.has_any = identifiers("attributes", value)?;
            attrs.extend(criteria.has_any.iter().cloned());
        }
        let metadata = members.get("metadata").map_or(Ok(Vec::new()), |value| identifiers("metadata", value))?;
        Ok(Self { selectors, criteria, attrs, metadata })
    }
}

/// A list of names; one that is given twice counts once.
fn identifiers(what: &str, value: &Value) -> Result<Vec<String>, Refusal> {
    let one = |item: &Value| match item.as_str() {
        Some(name) => check_identifier(what, name).map(|()| name.to_owned()),
        None => Err(Refusal::bad(format!("{item} in {what} is no string; send names"))),
    };
    array(what, value)?.iter().map(one).collect::<Result<_, _>>().map(without_repeats)
}
