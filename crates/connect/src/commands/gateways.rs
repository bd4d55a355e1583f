//! The gateway through which each device sent last.

use std::collections::HashMap;
use std::sync::Arc;

/// A bounded memory: what was not confirmed for long is forgotten first.
#[derive(Debug)]
pub(crate) struct LastGateways {
    recent: HashMap<Arc<str>, Arc<str>>,
    older: HashMap<Arc<str>, Arc<str>>,
    /// Devices that each of the two may hold.
    max: usize,
}

impl LastGateways {
    /// Remembers at most `max` devices.
    pub(crate) fn new(max: usize) -> Self {
        Self { recent: HashMap::new(), older: HashMap::new(), max: (max / 2).max(1) }
    }

    pub(crate) fn note(&mut self, device: &str, gateway: &str) {
        if self.recent.get(device).is_some_and(|known| **known == *gateway) {
            return;
        }
        if self.recent.len() >= self.max && !self.recent.contains_key(device) {
            self.older = std::mem::take(&mut self.recent);
        }
        self.recent.insert(device.into(), gateway.into());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.recent.is_empty()
    }

    pub(crate) fn of(&self, device: &str) -> Option<&Arc<str>> {
        self.recent.get(device).or_else(|| self.older.get(device))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_gateway_is_known_and_the_memory_is_bounded() {
        let mut last = LastGateways::new(8);
        for number in 0..100 {
            last.note("busy", if number % 2 == 0 { "g1" } else { "g2" });
            last.note(&format!("d{number}"), "g");
            assert!(last.recent.len() <= 4 && last.older.len() <= 4);
        }
        assert_eq!(last.of("busy").map(|gateway| &**gateway), Some("g2"));
        assert_eq!(last.of("d99").map(|gateway| &**gateway), Some("g"));
        assert_eq!(last.of("d0"), None);
    }
}
