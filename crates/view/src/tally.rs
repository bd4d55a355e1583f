//! The smallest view, for the tests of this crate: numbers by name.

use crate::{DecodeError, Draft, Encoded, InState, View};

pub(crate) struct TallyView;

#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) name: String,
    /// `None` removes it.
    pub(crate) number: Option<u8>,
}

impl View for TallyView {
    type State = imbl::OrdMap<String, u8>;
    type Storage = InState;
    type Change = Change;
    type Command = Change;
    type Answer = ();
    const NAME: &'static str = "tally";

    fn decide(&self, draft: &mut Draft<'_, Self>, command: Change) {
        draft.change(command);
    }

    fn apply(state: &mut Self::State, change: &Change) {
        match change.number {
            Some(number) => drop(state.insert(change.name.clone(), number)),
            None => drop(state.remove(&change.name)),
        }
    }

    fn encode(change: &Change, key: &mut Vec<u8>, value: &mut Vec<u8>) -> Encoded {
        key.extend_from_slice(change.name.as_bytes());
        let Some(number) = change.number else { return Encoded::Tombstone };
        value.extend_from_slice(&[1, number]);
        Encoded::Value
    }

    fn decode(key: &[u8], value: Option<&[u8]>) -> Result<Change, DecodeError> {
        let name = String::from_utf8_lossy(key).into_owned();
        match value {
            None => Ok(Change { name, number: None }),
            Some([1, number]) => Ok(Change { name, number: Some(*number) }),
            Some(other) => Err(DecodeError::new(format!("no number: {other:?}"))),
        }
    }
}
