//! Unknown names in requests are ignored, because clients of other versions send them; the log names them.
//!
//! Each name is logged once, and the number of kept names is limited: no client can fill the log or the memory.

use parking_lot::Mutex;
use serde_json::{Map, Value};

const NAMES_MAX: usize = 100;
const NAME_MAX_CHARS: usize = 256;

/// The logged names, each with its kind.
static LOGGED: Mutex<Vec<(&'static str, String)>> = Mutex::new(Vec::new());

/// Logs that `name` is ignored; `what` is its kind, a parameter or a member.
pub(crate) fn warn(what: &'static str, name: &str) {
    let name: String = name.chars().take(NAME_MAX_CHARS).collect();
    let mut logged = LOGGED.lock();
    let is_new = !logged.iter().any(|(of, known)| *of == what && *known == name);
    if is_new && logged.len() < NAMES_MAX {
        logged.push((what, name.clone()));
        drop(logged);
        tracing::warn!(what, ?name, "NGSI does not know this name; it is ignored, and not logged again");
    }
}

/// Unknown members of a body.
#[derive(Debug, Default)]
pub(crate) struct IgnoredMembers(Vec<(String, String)>);

impl IgnoredMembers {
    /// Adds the member `name` of the object at the JSON pointer `parent`.
    pub(crate) fn add(&mut self, parent: &str, name: String) {
        self.0.push((parent.to_owned(), name));
    }

    /// Removes the members from `document` and logs them.
    pub(crate) fn strip(self, document: &mut Map<String, Value>) {
        let mut whole = Value::Object(std::mem::take(document));
        for (parent, name) in self.0 {
            warn("member of a subscription", &format!("{parent}/{name}"));
            if let Some(members) = whole.pointer_mut(&parent).and_then(Value::as_object_mut) {
                members.shift_remove(&name);
            }
        }
        if let Value::Object(members) = whole {
            *document = members;
        }
    }
}
