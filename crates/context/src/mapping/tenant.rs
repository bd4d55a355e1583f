//! The mappings of a tenant: one for all its devices, others for types of devices, and what devices say themselves.

use std::collections::HashMap;
use std::sync::Arc;

use millstream_columns::Limits;
use serde_json::{Map, Value};

use super::written::Written;
use super::{MAPPING_MEMBER, Mapping};
use crate::Error;

/// The member of a device's mapping that names one of the tenant's.
const DEVICE_TYPE: &str = "deviceType";
/// The members of a tenant's.
const DEFAULT: &str = "default";
const DEVICE_TYPES: &str = "deviceTypes";

/// What a tenant says of its devices' mappings.
#[derive(Debug, Default)]
pub struct TenantMappings {
    default: Base,
    types: HashMap<String, Base>,
}

/// A mapping, and how it is written.
#[derive(Debug, Clone, Default)]
struct Base {
    written: Written,
    mapping: Arc<Mapping>,
}

impl Base {
    fn read(place: &str, value: Value, limits: &Limits) -> Result<Self, String> {
        let written = Written::read(place, value)?;
        let mapping = Mapping::new(written.clone(), limits).map_err(|what| format!("{place}.{what}"))?;
        Ok(Self { written, mapping: Arc::new(mapping) })
    }
}

impl TenantMappings {
    /// Reads the mappings in a tenant's `ext`: `{"context": {"default": mapping, "deviceTypes": {name: mapping}}}`.
    ///
    /// # Errors
    /// [`Error::Mapping`] names what breaks which rule.
    pub fn of_ext(ext: &Map<String, Value>, limits: &Limits) -> Result<Self, Error> {
        let Some(given) = ext.get(MAPPING_MEMBER) else { return Ok(Self::default()) };
        Self::read(given, limits).map_err(|what| Error::Mapping { what })
    }

    fn read(given: &Value, limits: &Limits) -> Result<Self, String> {
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

    /// Refuses what is read where it is written already, but not taken in new documents: what can never work.
    ///
    /// # Errors
    /// [`Error::Mapping`] names what breaks which rule.
    pub fn check(&self) -> Result<(), Error> {
        let types = self.types.iter().map(|(name, base)| (format!("{DEVICE_TYPES}.{name}"), base));
        let mut all = std::iter::once((DEFAULT.to_owned(), &self.default)).chain(types);
        all.try_for_each(|(place, base)| base.mapping.check().map_err(|what| format!("{place}: {what}")))
            .map_err(|what| Error::Mapping { what })
    }

    /// The same of a device's `ext`.
    ///
    /// # Errors
    /// [`Error::Mapping`] names what breaks which rule.
    pub fn check_device(&self, ext: &Map<String, Value>, limits: &Limits) -> Result<(), Error> {
        let mapping = self.of_device(ext, limits)?;
        // What the tenant itself says wrongly is no fault of the device.
        let is_own =
            std::iter::once(&self.default).chain(self.types.values()).all(|base| !Arc::ptr_eq(&base.mapping, &mapping));
        if is_own { mapping.check().map_err(|what| Error::Mapping { what }) } else { Ok(()) }
    }

    /// The mapping of a device that says nothing of it.
    pub fn default_mapping(&self) -> Arc<Mapping> {
        self.default.mapping.clone()
    }

    /// The mapping of a device with this `ext`: `{"context": {"deviceType": name, …}}`, beside which everything else
    /// that a mapping has is its own.
    ///
    /// # Errors
    /// [`Error::Mapping`] names what breaks which rule.
    pub fn of_device(&self, ext: &Map<String, Value>, limits: &Limits) -> Result<Arc<Mapping>, Error> {
        let Some(given) = ext.get(MAPPING_MEMBER) else { return Ok(self.default_mapping()) };
        self.beside(given, limits).map_err(|what| Error::Mapping { what })
    }

    fn beside(&self, given: &Value, limits: &Limits) -> Result<Arc<Mapping>, String> {
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
        let own = Written::read("the mapping", Value::Object(own))?;
        Mapping::new(base.written.clone().with(own), limits).map(Arc::new)
    }
}
