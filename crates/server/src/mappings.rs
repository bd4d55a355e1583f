//! How a device's measurements become an entity stands in the registry, in the device's `ext`: this is where the planes
//! that keep the one and need the other are introduced to each other.

use std::collections::HashMap;
use std::sync::Arc;

use millstream_connect::{Device, Registry};
use millstream_context::{Mapping, Mappings};
use millstream_types::TenantId;
use parking_lot::Mutex;
use serde_json::Value;

/// Devices whose mapping is remembered; when it is full all are forgotten, and read again when they next send.
const REMEMBERED_MAX: usize = 100_000;

/// Mappings out of the registry, parsed once for each version of a device.
pub(crate) struct RegistryMappings {
    registry: Registry,
    parsed: Mutex<HashMap<(TenantId, String), Parsed>>,
}

/// What a device's `ext` says, and of which version of the device.
#[derive(Clone)]
struct Parsed {
    device: Arc<Device>,
    mapping: Option<Arc<Mapping>>,
}

impl RegistryMappings {
    pub(crate) fn new(registry: Registry) -> Self {
        Self { registry, parsed: Mutex::new(HashMap::new()) }
    }
}

impl Mappings for RegistryMappings {
    fn mapping(&self, tenant: &TenantId, device: &str) -> Option<Arc<Mapping>> {
        let registered = self.registry.device(tenant, device)?;
        let key = (tenant.clone(), device.to_owned());
        if let Some(parsed) = self.parsed.lock().get(&key).filter(|parsed| Arc::ptr_eq(&parsed.device, &registered)) {
            return parsed.mapping.clone();
        }
        let mapping = parse(tenant, device, &registered);
        let mut parsed = self.parsed.lock();
        if parsed.len() >= REMEMBERED_MAX {
            parsed.clear();
        }
        parsed.insert(key, Parsed { device: registered, mapping: mapping.clone() });
        mapping
    }
}

/// The device's mapping; the default one, and a line in the log, if what stands there is none.
fn parse(tenant: &TenantId, device: &str, registered: &Device) -> Option<Arc<Mapping>> {
    match Mapping::of_ext(&Value::Object(registered.ext.clone())) {
        Ok(mapping) => mapping.map(Arc::new),
        Err(error) => {
            tracing::warn!(%tenant, device, %error, "the device's mapping is not used");
            None
        }
    }
}
