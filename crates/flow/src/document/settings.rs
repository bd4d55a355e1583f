//! Objects of a document with the defaults of the model.

use super::catalogue::Section;
use super::quantity::duration_ms;
use super::scalar::plain;
use super::tree::{Tree, TreeContent};

/// An object of the document with the defaults of its section.
pub(super) struct Settings<'a> {
    pub(super) tree: Option<&'a Tree>,
    pub(super) section: &'static Section,
}

impl Settings<'_> {
    pub(super) fn value(&self, key: &str) -> TreeContent {
        let written = self.tree.and_then(|tree| tree.get(key)).map(|tree| tree.content.clone());
        let default = || {
            let default = self.section.all().find(|known| known.name == key)?.default?;
            plain(default).ok()
        };
        written.or_else(default).unwrap_or(TreeContent::Null)
    }

    pub(super) fn text(&self, key: &str) -> String {
        match self.value(key) {
            TreeContent::Text(text) => text,
            _ => String::new(),
        }
    }

    pub(super) fn whole(&self, key: &str) -> u32 {
        match self.value(key) {
            TreeContent::Number(number) => {
                number.as_u64().and_then(|number| u32::try_from(number).ok()).unwrap_or(u32::MAX)
            }
            _ => 0,
        }
    }

    pub(super) fn is_true(&self, key: &str) -> bool {
        self.value(key) == TreeContent::Bool(true)
    }

    pub(super) fn duration_ms(&self, key: &str) -> u64 {
        duration_ms(&self.text(key)).unwrap_or_default()
    }
}
