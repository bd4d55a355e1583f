//! The view of registrations, over the compacted topic `_registrations`, partitioned by tenant.
//!
//! | key | value |
//! | --- | --- |
//! | tenant, 0, id | version 1, JSON: `path`, `document` |

use std::sync::Arc;

use millstream_types::{StateTopic, TenantId};
use millstream_view::{DecodeError, Draft, Encoded, InState, View};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::registration::{Identity, Registration};
use super::state::State;

const VERSION: u8 = StateTopic::Registrations.version();

pub(crate) struct RegistrationView {
    /// Limit of registrations of one tenant.
    pub(crate) tenant_max: usize,
}

pub(crate) enum RegistrationCommand {
    Create(Arc<Registration>),
    Delete { tenant: TenantId, id: Arc<str> },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RegistrationReply {
    Done,
    NotFound,
    TooMany { known: usize, limit: usize },
}

/// A registration, or its removal.
#[derive(Debug)]
pub(crate) struct RegistrationChange {
    tenant: TenantId,
    id: Arc<str>,
    registration: Option<Arc<Registration>>,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    path: String,
    document: Map<String, Value>,
}

impl View for RegistrationView {
    type State = State;
    type Storage = InState;
    type Change = RegistrationChange;
    type Command = RegistrationCommand;
    type Answer = RegistrationReply;
    const NAME: &'static str = "registration";

    fn decide(&self, draft: &mut Draft<'_, Self>, command: RegistrationCommand) -> RegistrationReply {
        match command {
            RegistrationCommand::Create(registration) => {
                let Identity { tenant, id, .. } = registration.identity.clone();
                let known = draft.state().of(&tenant).map_or(0, |of_tenant| of_tenant.count());
                if known >= self.tenant_max {
                    return RegistrationReply::TooMany { known, limit: self.tenant_max };
                }
                draft.change(RegistrationChange { tenant, id, registration: Some(registration) });
            }
            RegistrationCommand::Delete { tenant, id } => {
                if draft.state().of(&tenant).and_then(|of_tenant| of_tenant.get(&id)).is_none() {
                    return RegistrationReply::NotFound;
                }
                draft.change(RegistrationChange { tenant, id, registration: None });
            }
        }
        RegistrationReply::Done
    }

    fn apply(state: &mut State, RegistrationChange { tenant, id, registration }: &RegistrationChange) {
        match registration {
            Some(registration) => state.put(tenant, registration),
            None => state.remove(tenant, id),
        }
    }

    fn encode(change: &RegistrationChange, key: &mut Vec<u8>, value: &mut Vec<u8>) -> Encoded {
        for part in [change.tenant.as_str().as_bytes(), &[0], change.id.as_bytes()] {
            key.extend_from_slice(part);
        }
        let Some(registration) = &change.registration else { return Encoded::Tombstone };
        let stored = Stored { path: registration.identity.path.to_string(), document: registration.document.clone() };
        value.push(VERSION);
        serde_json::to_writer(value, &stored).expect("writing to memory");
        Encoded::Value
    }

    fn decode(key: &[u8], value: Option<&[u8]>) -> Result<RegistrationChange, DecodeError> {
        let text = std::str::from_utf8(key).map_err(|_| DecodeError::new("a registration's key is not UTF-8"))?;
        let (tenant, id) =
            text.split_once('\0').ok_or_else(|| DecodeError::new("a registration's key ends too early"))?;
        let tenant = TenantId::new(tenant).map_err(|error| DecodeError::new(error.to_string()))?;
        let id: Arc<str> = id.into();
        let registration = match value.map(<[u8]>::split_first) {
            None => None,
            Some(Some((&VERSION, json))) => {
                let stored: Stored = serde_json::from_slice(json)
                    .map_err(|error| DecodeError::new(format!("a registration's record: {error}")))?;
                let identity = Identity { tenant: tenant.clone(), id: id.clone(), path: stored.path.into() };
                let read = Registration::read(identity, stored.document);
                Some(Arc::new(read.map_err(|refusal| DecodeError::new(refusal.description))?))
            }
            Some(Some((version, _))) => {
                return Err(DecodeError::new(format!("registration record of version {version}")));
            }
            Some(None) => return Err(DecodeError::new("an empty registration record")),
        };
        Ok(RegistrationChange { tenant, id, registration })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &[u8] = b"plant\x00018f0000000100000000abcd";
    const JSON: &str = r#"{"path":"/a","document":{"description":"d","dataProvided":{"entities":[{"idPattern":".*","type":"Room"},{"id":"e"}],"attrs":["t"]},"provider":{"http":{"url":"http://127.0.0.1:1"},"supportedForwardingMode":"query","legacyForwarding":true},"status":"inactive"}}"#;

    #[test]
    fn records_of_version_1_are_read_and_written_byte_for_byte() {
        let value = [&[1], JSON.as_bytes()].concat();
        for value in [Some(value.as_slice()), None] {
            let change = RegistrationView::decode(KEY, value).unwrap();
            let (mut key, mut written) = (Vec::new(), Vec::new());
            let encoded = RegistrationView::encode(&change, &mut key, &mut written);
            assert_eq!((key.as_slice(), encoded == Encoded::Value), (KEY, value.is_some()));
            assert_eq!(written, value.unwrap_or_default());
        }
        for (key, value) in [(KEY, &[2, b'{'][..]), (KEY, &[]), (KEY, b"\x01{}"), (b"plant", b"\x01"), (b"\xff\0", b"")]
        {
            RegistrationView::decode(key, Some(value)).unwrap_err();
        }
    }
}
