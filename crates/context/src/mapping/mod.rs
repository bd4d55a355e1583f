//! How a device's measurements become an entity: a default, and what the registry says otherwise.

mod attribute;
mod expressions;
mod template;
mod tenant;
mod written;

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use millstream_columns::{Columns, ColumnsOf, Limits};
use millstream_types::{RecordView, TenantId};
use serde_json::{Map, Value};

use crate::content::{Content, KindAndValue, canonical};
use crate::entity::{Attribute, DATE_EXPIRES, DATE_TIME, Items};
use crate::given::{attribute_of_mapping, kind_of};
use crate::refusal::Refusal;
use crate::syntax::{self, NESTING_MAX};
use crate::{json, update};
use attribute::Computed;
use expressions::Expressions;
use template::Template;
use written::{Rest, Written};

pub use tenant::TenantMappings;

/// The member of a tenant's and a device's `ext` that holds mappings.
pub const MAPPING_MEMBER: &str = "context";
/// What stands before the device's name in the entity's id by default.
pub const DEFAULT_ID_PREFIX: &str = "urn:ngsi-ld:Device:";
/// The entity's type by default.
pub const DEFAULT_TYPE: &str = "Device";

/// What the registry knows of devices' mappings. Asked for each measurement, so the answer should come from a cache.
pub trait Mappings: Send + Sync + 'static {
    /// The mapping of `device`.
    ///
    /// # Errors
    /// Why there is none: what the registry holds cannot be used.
    fn mapping(&self, tenant: &TenantId, device: &str) -> Result<Arc<Mapping>, Arc<str>>;
}

/// How measurements become an entity.
#[derive(Debug, Default)]
pub struct Mapping {
    id: Option<Template>,
    kind: Option<Template>,
    constants: Vec<Attribute>,
    computed: Vec<Computed>,
    /// Members of the payload that do not become attributes by themselves.
    left_out: HashSet<String>,
    rest: Rest,
    columns: Columns,
    /// What of it can never work; see [`Mapping::check`].
    flaw: Option<String>,
}

/// The entity that a measurement belongs to, and what it says of it.
#[derive(Debug, PartialEq)]
pub(crate) struct Mapped {
    pub(crate) id: Arc<str>,
    pub(crate) kind: Arc<str>,
    /// No name twice.
    pub(crate) attributes: Vec<Attribute>,
    /// Why attributes were left out, of each that was.
    pub(crate) left_out: Vec<String>,
}

/// A measurement as it is mapped.
pub(crate) struct Measured<'a> {
    pub(crate) device: &'a str,
    pub(crate) record: &'a RecordView<'a>,
    /// The payload's members.
    pub(crate) members: Map<String, Value>,
    pub(crate) now_ms: i64,
    /// What every attribute that is measured has.
    pub(crate) metadata: Items,
}

impl Mapping {
    /// Reads what is written and checks all of it.
    fn new(written: Written, limits: &Limits) -> Result<Self, String> {
        let mut expressions = Expressions::new(limits);
        let mut template = |place: &str, written: Option<String>| {
            written.map(|text| Template::read(place, &text, &mut expressions)).transpose()
        };
        let (id, kind) = (template("id", written.id)?, template("type", written.kind)?);
        let (mut constants, mut flaws) = (Vec::with_capacity(written.constants.len()), Vec::new());
        for (name, value) in written.constants {
            let at = |refusal: Refusal| format!("static.{name}: {}", refusal.description);
            let given = attribute_of_mapping(&name, value).map_err(at)?;
            if matches!(given.content, Content::Operator { .. }) {
                flaws.push(format!("static.{name} is an update operator: a mapping has values; write one"));
            }
            constants.extend(update::create(given).map_err(at)?);
        }
        let computed =
            written.attributes.into_iter().map(|(name, value)| Computed::read(&name, value, &mut expressions));
        let computed = computed.collect::<Result<Vec<_>, _>>()?;
        flaws.extend(computed.iter().filter_map(Computed::flaw));
        flaws.extend(too_many_locations(&constants, &computed));
        let (columns, read) = expressions.finish();
        let left_out = written.skip.into_iter().chain(read).collect();
        let rest = written.rest.unwrap_or_default();
        Ok(Self { id, kind, constants, computed, left_out, rest, columns, flaw: flaws.into_iter().next() })
    }

    /// Refuses what is not taken in new documents because it can never work. Where it is written already the rest works.
    ///
    /// # Errors
    /// What breaks which rule.
    fn check(&self) -> Result<(), String> {
        self.flaw.clone().map_or(Ok(()), Err)
    }

    /// What a measurement says of which entity.
    ///
    /// # Errors
    /// Why it says nothing of any.
    pub(crate) fn apply(&self, measured: Measured<'_>) -> Result<Mapped, String> {
        let of = self.columns.of(measured.record, None, measured.now_ms).map_err(|_| "the payload is no JSON")?;
        let id = named(self.id.as_ref(), "id", &of, || format!("{DEFAULT_ID_PREFIX}{}", measured.device))?;
        let kind = named(self.kind.as_ref(), "type", &of, || DEFAULT_TYPE.to_owned())?;
        let (mut attributes, mut left_out) = (self.constants.clone(), Vec::new());
        for computed in &self.computed {
            match computed.attribute(&of, &measured.metadata) {
                Ok(attribute) => attribute.into_iter().for_each(|attribute| put(&mut attributes, attribute)),
                Err(why) => left_out.push(why),
            }
        }
        if self.rest == Rest::Keep {
            for (name, value) in measured.members.into_iter().filter(|(name, _)| !self.left_out.contains(name)) {
                match kept(&name, &value) {
                    Ok((kind, value)) => {
                        put(&mut attributes, Attribute::new(name.into(), kind, value, measured.metadata.clone()));
                    }
                    Err(why) => left_out.push(why),
                }
            }
        }
        Ok(Mapped { id, kind, attributes, left_out })
    }
}

/// The entity that all of these belong to has one location.
fn too_many_locations(constants: &[Attribute], computed: &[Computed]) -> Option<String> {
    let fixed = constants.iter().filter(|attribute| attribute.is_location()).map(|attribute| &*attribute.name);
    let names: BTreeSet<&str> = fixed.chain(computed.iter().filter_map(Computed::location)).collect();
    let listed = || names.iter().copied().collect::<Vec<_>>().join(", ");
    (names.len() > 1).then(|| {
        format!(
            "it gives the locations {}: an entity has one; give the others the metadata ignoreType = true",
            listed()
        )
    })
}

/// The identifier that `template` gives, or that of who gives none.
fn named(
    template: Option<&Template>,
    what: &str,
    of: &ColumnsOf<'_, '_>,
    default: impl FnOnce() -> String,
) -> Result<Arc<str>, String> {
    let text = match template {
        Some(template) => template.text(of).map_err(|why| format!("{what}: {why}"))?,
        None => default(),
    };
    match syntax::check_identifier(format_args!("entity {what}"), &text) {
        Ok(()) => Ok(text.into()),
        Err(refusal) => Err(refusal.description),
    }
}

/// Type and value of the attribute that a member becomes by itself.
fn kept(name: &str, value: &Value) -> Result<KindAndValue, String> {
    check(name, value)?;
    if name != DATE_EXPIRES {
        return Ok((kind_of(value).into(), json::text(value)));
    }
    let at = |why: String| format!("attribute '{name}': {why}");
    let ends = if value.is_null() { Err("it is null".to_owned()) } else { canonical(DATE_TIME, value) };
    Ok((DATE_TIME.into(), ends.map_err(at)?))
}

/// Whether NGSI allows an attribute of this name and value.
fn check(name: &str, value: &Value) -> Result<(), String> {
    if syntax::is_attribute_name(name) && syntax::forbidden_in(value).is_none() && depth(value) < NESTING_MAX {
        return Ok(());
    }
    let what = format!("attribute '{name}'");
    let named = syntax::check_attribute_name(name).and_then(|()| syntax::check_text(&what, value));
    Err(named.err().map_or_else(|| format!("{what} nests deeper than {NESTING_MAX}"), |refusal| refusal.description))
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

/// Sets an attribute, in the place of one of its name.
pub(crate) fn put(attributes: &mut Vec<Attribute>, attribute: Attribute) {
    match attributes.iter_mut().find(|known| known.name == attribute.name) {
        Some(known) => *known = attribute,
        None => attributes.push(attribute),
    }
}

#[cfg(test)]
mod tests;
