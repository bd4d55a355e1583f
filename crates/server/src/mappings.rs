//! Reads the mappings of devices to entities from the registry, where they are in the `ext` of tenants and devices.
//! This connects the registry's plane with the plane that applies mappings.

use std::collections::HashMap;
use std::sync::Arc;

use millstream_columns::ParserLimits;
use millstream_connect::{Device, ExtRules, Registry, Tenant};
use millstream_context::{Mapping, Mappings, TenantMappings};
use millstream_types::TenantId;
use parking_lot::Mutex;
use serde_json::{Map, Value};

/// Limit of cached devices, and of tenants; a full cache is cleared.
const DEVICES_MAX: usize = 100_000;
const TENANTS_MAX: usize = 10_000;

/// A mapping, or the reason that there is none.
type Read = Result<Arc<Mapping>, Arc<str>>;

/// Mappings of the registry, parsed once per version of a tenant or device.
pub(crate) struct RegistryMappings {
    registry: Registry,
    limits: ParserLimits,
    tenants: Mutex<HashMap<TenantId, CachedTenant>>,
    devices: Mutex<HashMap<(TenantId, String), CachedDevice>>,
}

/// The mappings in a tenant's `ext`, with the tenant's version.
#[derive(Clone)]
struct CachedTenant {
    version: Arc<Tenant>,
    mappings: Result<Arc<TenantMappings>, Arc<str>>,
}

/// The mapping in a device's `ext`, with the versions of device and tenant.
struct CachedDevice {
    version: Arc<Device>,
    of_tenant: Arc<Tenant>,
    mapping: Read,
}

impl RegistryMappings {
    pub(crate) fn new(registry: Registry, limits: ParserLimits) -> Self {
        Self { registry, limits, tenants: Mutex::default(), devices: Mutex::default() }
    }

    fn of_tenant(&self, tenant: &TenantId) -> CachedTenant {
        let version = self.registry.tenant(tenant).unwrap_or_default();
        let mut known = self.tenants.lock();
        if let Some(known) = known.get(tenant).filter(|known| Arc::ptr_eq(&known.version, &version)) {
            return known.clone();
        }
        let mappings = TenantMappings::of_ext(version.ext(), &self.limits);
        let mappings = mappings.map(Arc::new).map_err(|error| error.to_string().into());
        let of_tenant = CachedTenant { version, mappings };
        make_room(&mut known, TENANTS_MAX);
        known.insert(tenant.clone(), of_tenant.clone());
        of_tenant
    }
}

impl Mappings for RegistryMappings {
    fn mapping(&self, tenant: &TenantId, device: &str) -> Read {
        let CachedTenant { version: of_tenant, mappings } = self.of_tenant(tenant);
        let mappings = mappings?;
        let Some(version) = self.registry.device(tenant, device).filter(|device| !device.ext.is_empty()) else {
            return Ok(mappings.default_mapping());
        };
        let key = (tenant.clone(), device.to_owned());
        let is_current =
            |known: &&CachedDevice| Arc::ptr_eq(&known.version, &version) && Arc::ptr_eq(&known.of_tenant, &of_tenant);
        if let Some(known) = self.devices.lock().get(&key).filter(is_current) {
            return known.mapping.clone();
        }
        let mapping: Read = mappings.of_device(&version.ext, &self.limits).map_err(|error| error.to_string().into());
        let mut devices = self.devices.lock();
        make_room(&mut devices, DEVICES_MAX);
        devices.insert(key, CachedDevice { version, of_tenant, mapping: mapping.clone() });
        mapping
    }
}

fn make_room<K, V>(known: &mut HashMap<K, V>, max: usize) {
    if known.len() >= max {
        known.clear();
    }
}

/// Refuses mappings that could not be used, when their document is written.
pub(crate) struct MappingRules(pub(crate) ParserLimits);

impl ExtRules for MappingRules {
    fn check_tenant(&self, ext: &Map<String, Value>) -> Result<(), String> {
        TenantMappings::of_ext(ext, &self.0).and_then(|mappings| mappings.check()).map_err(|error| error.to_string())
    }

    fn check_device(&self, of_tenant: &Map<String, Value>, ext: &Map<String, Value>) -> Result<(), String> {
        // An error in the tenant's mappings is not the device's.
        let tenant = TenantMappings::of_ext(of_tenant, &self.0).unwrap_or_default();
        tenant.check_device(ext, &self.0).map_err(|error| error.to_string())
    }
}
