//! The smallest view, for the tests of this crate: numbers by name.

use crate::{DecodeError, Draft, Encoded, InState, View};

pub(crate) struct TallyView;

pub(crate) type Change = (String, Option<u8>);

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

    fn apply(state: &mut Self::State, (name, number): &Change) {
        match number {
            Some(number) => drop(state.insert(name.clone(), *number)),
            None => drop(state.remove(name)),
        }
    }

    fn encode((name, number): &Change, key: &mut Vec<u8>, value: &mut Vec<u8>) -> Encoded {
        key.extend_from_slice(name.as_bytes());
        let Some(number) = number else { return Encoded::Tombstone };
        value.extend_from_slice(&[1, *number]);
        Encoded::Value
    }

    fn decode(key: &[u8], value: Option<&[u8]>) -> Result<Change, DecodeError> {
        let name = String::from_utf8_lossy(key).into_owned();
        match value {
            None => Ok((name, None)),
            Some([1, number]) => Ok((name, Some(*number))),
            Some(other) => Err(DecodeError::new(format!("no number: {other:?}"))),
        }
    }
}
