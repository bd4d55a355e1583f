//! Mappings turn a device's measurements into an entity: a default mapping, and those of the registry.

mod attribute;
mod expressions;
pub(crate) mod mapping_errors;
mod rules;
mod template;
mod tenant;
mod written;

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use millstream_columns::{Columns, ColumnsOf, ParserLimits};
use millstream_types::{RecordView, TenantId};
use serde_json::{Map, Value};

use crate::model::content::{AttributeContent, KindAndValue, kind_of};
use crate::model::entity::{Attribute, DATE_EXPIRES, Items};
use crate::model::json;
use crate::model::request_body::attribute_of_mapping;
use crate::model::syntax;
use crate::model::update;
use crate::refusal::Refusal;
use attribute::Computed;
use expressions::Expressions;
use rules::check;
use template::MappingTemplate;
use written::{MappingDocument, UnmappedMembers};

pub use tenant::TenantMappings;

/// The member of a tenant's and a device's `ext` that holds mappings.
pub const MAPPING_MEMBER: &str = "context";
/// Prefix of the default entity id, before the device's name.
pub const DEFAULT_ID_PREFIX: &str = "urn:ngsi-ld:Device:";
/// The entity's type by default.
pub const DEFAULT_TYPE: &str = "Device";

/// The mappings in the registry. Called for each measurement: implementations should cache.
pub trait Mappings: Send + Sync + 'static {
    /// Returns the mapping of `device`.
    ///
    /// # Errors
    /// Why there is none: what the registry holds cannot be used.
    fn mapping(&self, tenant: &TenantId, device: &str) -> Result<Arc<Mapping>, Arc<str>>;
}

/// Rules that turn measurements into an entity.
#[derive(Debug, Default)]
pub struct Mapping {
    id: Option<MappingTemplate>,
    kind: Option<MappingTemplate>,
    constants: Vec<Attribute>,
    computed: Vec<Computed>,
    /// Members of the payload that do not become attributes by themselves.
    left_out: HashSet<String>,
    rest: UnmappedMembers,
    columns: Columns,
    /// A part that can never work; see [`Mapping::check`].
    flaw: Option<String>,
}

/// The entity of a measurement and its attributes.
#[derive(Debug, PartialEq)]
pub(crate) struct Mapped {
    pub(crate) id: Arc<str>,
    pub(crate) kind: Arc<str>,
    /// The attributes; their names are unique.
    pub(crate) attributes: Vec<Attribute>,
    /// The reasons, one for each attribute that is left out.
    pub(crate) left_out: Vec<String>,
}

/// A measurement before its mapping.
pub(crate) struct MappingInput<'a> {
    pub(crate) device: &'a str,
    pub(crate) record: &'a RecordView<'a>,
    pub(crate) members: Map<String, Value>,
    pub(crate) now_ms: i64,
    /// Metadata of every measured attribute.
    pub(crate) metadata: Items,
}

impl Mapping {
    /// Compiles and checks a mapping document.
    fn new(written: MappingDocument, limits: &ParserLimits) -> Result<Self, String> {
        let mut expressions = Expressions::new(limits);
        let mut template = |place: &str, written: Option<String>| {
            written.map(|text| MappingTemplate::read(place, &text, &mut expressions)).transpose()
        };
        let (id, kind) = (template("id", written.id)?, template("type", written.kind)?);
        let (mut constants, mut flaws) = (Vec::with_capacity(written.constants.len()), Vec::new());
        for (name, value) in written.constants {
            let at = |refusal: Refusal| format!("static.{name}: {}", refusal.description);
            let given = attribute_of_mapping(&name, value).map_err(at)?;
            if matches!(given.content, AttributeContent::Operator { .. }) {
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

    /// Refuses a new document with a part that can never work. In a stored document the other parts still work.
    ///
    /// # Errors
    /// The text names the part and the rule that it breaks.
    fn check(&self) -> Result<(), String> {
        self.flaw.clone().map_or(Ok(()), Err)
    }

    /// Maps a measurement to its entity.
    ///
    /// # Errors
    /// Why it says nothing of any.
    pub(crate) fn apply(&self, measured: MappingInput<'_>) -> Result<Mapped, String> {
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
        if self.rest == UnmappedMembers::Keep {
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

/// Finds a second location: the entity of a mapping has one.
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

/// The identifier from `template`, or the default.
fn named(
    template: Option<&MappingTemplate>,
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

/// Type and value of a member that becomes an attribute by itself.
fn kept(name: &str, value: &Value) -> Result<KindAndValue, String> {
    check(name, value)?;
    if name == DATE_EXPIRES {
        return Err(format!(
            "attribute '{name}' would end the entity; only a mapping's 'attributes' or 'static' may set it, a payload may not"
        ));
    }
    Ok((kind_of(value).into(), json::text(value)))
}

/// Adds an attribute or replaces the one of the same name.
pub(crate) fn put(attributes: &mut Vec<Attribute>, attribute: Attribute) {
    match attributes.iter_mut().find(|known| known.name == attribute.name) {
        Some(known) => *known = attribute,
        None => attributes.push(attribute),
    }
}

#[cfg(test)]
mod tests;
