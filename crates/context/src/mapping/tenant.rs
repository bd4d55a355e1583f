//! The mappings of a tenant: the default, one for each device type, and the overrides of devices.

use std::collections::HashMap;
use std::sync::Arc;

use millstream_columns::ParserLimits;
use serde_json::{Map, Value};

use super::written::MappingDocument;
use super::{MAPPING_MEMBER, Mapping};
use crate::Error;

/// The member of a device's mapping that names a device type.
const DEVICE_TYPE: &str = "deviceType";
/// Members of the tenant's document.
const DEFAULT: &str = "default";
const DEVICE_TYPES: &str = "deviceTypes";

/// The mappings of a tenant.
#[derive(Debug, Default)]
pub struct TenantMappings {
    default: Base,
    types: HashMap<String, Base>,
}

/// A compiled mapping and its document.
#[derive(Debug, Clone, Default)]
struct Base {
    written: MappingDocument,
    mapping: Arc<Mapping>,
}

impl Base {
    fn read(place: &str, value: Value, limits: &ParserLimits) -> Result<Self, String> {
        let written = MappingDocument::read(place, value)?;
        let mapping = Mapping::new(written.clone(), limits).map_err(|what| format!("{place}.{what}"))?;
        Ok(Self { written, mapping: Arc::new(mapping) })
    }
}

impl TenantMappings {
    /// Reads the mappings in a tenant's `ext`: `{"context": {"default": mapping, "deviceTypes": {name: mapping}}}`.
    ///
    /// # Errors
    /// [`Error::Mapping`] names what breaks which rule.
    pub fn of_ext(ext: &Map<String, Value>, limits: &ParserLimits) -> Result<Self, Error> {
        let Some(given) = ext.get(MAPPING_MEMBER) else { return Ok(Self::default()) };
        Self::read(given, limits).map_err(|what| Error::Mapping { what })
    }

    fn read(given: &Value, limits: &ParserLimits) -> Result<Self, String> {
        let known = |members: &Map<String, Value>| members.keys().all(|name| name == DEFAULT || name == DEVICE_TYPES);
        let Some(members) = given.as_object().filter(|members| known(members)) else {
            return Err(format!("{given} must be an object with {DEFAULT} and {DEVICE_TYPES}"));
        };
        let default = members.get(DEFAULT).cloned();
        let default = default.map(|value| Base::read(DEFAULT, value, limits)).transpose()?.unwrap_or_default();
        let types = match members.get(DEVICE_TYPES) {
            None => HashMap::new(),
            Some(Value::Object(types)) => {
                let read = |(name, value): (&String, &Value)| {
                    Base::read(&format!("{DEVICE_TYPES}.{name}"), value.clone(), limits)
                        .map(|base| (name.clone(), base))
                };
                types.iter().map(read).collect::<Result<_, _>>()?
            }
            Some(other) => return Err(format!("{DEVICE_TYPES} is {other}: it must be an object of mappings by name")),
        };
        Ok(Self { default, types })
    }

    /// Refuses a new document with a part that can never work; stored documents with such a part are still read.
    ///
    /// # Errors
    /// [`Error::Mapping`] names what breaks which rule.
    pub fn check(&self) -> Result<(), Error> {
        let types = self.types.iter().map(|(name, base)| (format!("{DEVICE_TYPES}.{name}"), base));
        let mut all = std::iter::once((DEFAULT.to_owned(), &self.default)).chain(types);
        all.try_for_each(|(place, base)| base.mapping.check().map_err(|what| format!("{place}: {what}")))
            .map_err(|what| Error::Mapping { what })
    }

    /// Checks a device's `ext` in the same way.
    ///
    /// # Errors
    /// [`Error::Mapping`] names what breaks which rule.
    pub fn check_device(&self, ext: &Map<String, Value>, limits: &ParserLimits) -> Result<(), Error> {
        let mapping = self.of_device(ext, limits)?;
        // An error in the tenant's own document is not the device's.
        let is_own =
            std::iter::once(&self.default).chain(self.types.values()).all(|base| !Arc::ptr_eq(&base.mapping, &mapping));
        if is_own { mapping.check().map_err(|what| Error::Mapping { what }) } else { Ok(()) }
    }

    /// The mapping of a device without its own document.
    pub fn default_mapping(&self) -> Arc<Mapping> {
        self.default.mapping.clone()
    }

    /// The mapping of a device with this `ext`: `{"context": {"deviceType": name, …}}`. All other members
    /// override those of the type.
    ///
    /// # Errors
    /// [`Error::Mapping`] names what breaks which rule.
    pub fn of_device(&self, ext: &Map<String, Value>, limits: &ParserLimits) -> Result<Arc<Mapping>, Error> {
        let Some(given) = ext.get(MAPPING_MEMBER) else { return Ok(self.default_mapping()) };
        self.beside(given, limits).map_err(|what| Error::Mapping { what })
    }

    fn beside(&self, given: &Value, limits: &ParserLimits) -> Result<Arc<Mapping>, String> {
        let Value::Object(mut own) = given.clone() else {
            return Err(format!("{given} must be an object with {DEVICE_TYPE} or the members of a mapping"));
        };
        let base = match own.shift_remove(DEVICE_TYPE) {
            None => &self.default,
            Some(Value::String(name)) => self.types.get(&name).ok_or_else(|| {
                let known: Vec<_> = self.types.keys().map(String::as_str).collect();
                format!(
                    "{DEVICE_TYPE} '{name}' is none of the tenant's ({}); write it to ext.context.{DEVICE_TYPES} of the \
                     tenant first",
                    known.join(", ")
                )
            })?,
            Some(other) => return Err(format!("{DEVICE_TYPE} is {other}: it must be the name of a mapping")),
        };
        if own.is_empty() {
            return Ok(base.mapping.clone());
        }
        let own = MappingDocument::read("the mapping", Value::Object(own))?;
        Mapping::new(base.written.clone().with(own), limits).map(Arc::new)
    }
}
