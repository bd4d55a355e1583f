//! Devices that rules of a tenant name and that are not registered. The log tells of each once.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};

use millstream_types::Principal;
use parking_lot::Mutex;

use crate::registry::{DeviceId, ID_MAX_CHARS};

/// Devices of one tenant that are told of. After them no further one is, until the server starts again.
const TOLD_MAX: usize = 1_000;
/// Characters of a topic that the log shows.
const TOPIC_SHOWN_CHARS: usize = 256;

/// The unknown devices of one tenant that the log has told of, as hashes of their names: these may be long.
#[derive(Default)]
pub(super) struct UnknownDevices {
    told: Mutex<HashSet<u64>>,
    hasher: RandomState,
}

impl UnknownDevices {
    /// Tells, once for each device, that its messages are published and not recorded.
    pub(super) fn tell(&self, publisher: &Principal, topic: &str, device: &str) {
        if !self.is_first(publisher, device) {
            return;
        }
        let device = shown(device, ID_MAX_CHARS + 1);
        let why = match device.parse::<DeviceId>() {
            Ok(_) => "it is not registered, and its publisher may not register it".to_owned(),
            Err(error) => error.to_string(),
        };
        let (tenant, gateway, topic) = (&publisher.tenant, &*publisher.name, shown(topic, TOPIC_SHOWN_CHARS));
        tracing::warn!(%tenant, gateway, topic, device, why, "mqtt: messages of an unknown device are published and not recorded");
    }

    /// True if the device has not been told of; it has been from now on.
    pub(super) fn is_first(&self, publisher: &Principal, device: &str) -> bool {
        let mut told = self.told.lock();
        if told.len() >= TOLD_MAX || !told.insert(self.hasher.hash_one(device)) {
            return false;
        }
        if told.len() == TOLD_MAX {
            let tenant = &publisher.tenant;
            tracing::warn!(%tenant, "mqtt: {TOLD_MAX} unknown devices are told of; others are not, until the next start");
        }
        true
    }
}

fn shown(text: &str, most_chars: usize) -> String {
    text.chars().take(most_chars).collect()
}

#[cfg(test)]
mod tests {
    use millstream_types::{AccessScope, Roles, TenantId};

    use super::*;

    #[test]
    fn each_device_is_told_of_once_and_the_table_is_bounded() {
        let (name, tenant) = ("g".to_owned(), TenantId::default());
        let publisher = Principal { tenant, name, roles: Roles::NONE, scope: AccessScope::default() };
        let devices = UnknownDevices::default();
        for is_first in [true, false] {
            for device in ["a", "b c", &"x".repeat(60_000)] {
                assert_eq!(devices.is_first(&publisher, device), is_first, "{}", shown(device, 9));
            }
        }
        let told = (0..2 * TOLD_MAX).filter(|number| devices.is_first(&publisher, &number.to_string()));
        assert_eq!(told.count(), TOLD_MAX - 3);
        assert_eq!(devices.told.lock().len(), TOLD_MAX);
    }
}
