//! The slow log: the latest commands that took long.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::resp::clients::ConnectedClient;
use crate::resp::shared::owned;

/// Arguments that an entry keeps.
const ARGUMENTS_MAX: usize = 32;
/// Bytes that an entry keeps of an argument.
const ARGUMENT_MAX_BYTES: usize = 128;

/// Stands for an argument that nobody may see.
const REDACTED: &[u8] = b"(redacted)";

/// A command that took long.
#[derive(Debug, Clone)]
pub(crate) struct SlowCommand {
    pub(crate) id: i64,
    pub(crate) time_ms: i64,
    pub(crate) took: Duration,
    pub(crate) arguments: Vec<Bytes>,
    pub(crate) peer: String,
    pub(crate) client_name: Bytes,
}

/// The latest slow commands, the newest first.
#[derive(Debug, Default)]
pub(crate) struct SlowLog(Mutex<Entries>);

#[derive(Debug, Default)]
struct Entries {
    next_id: i64,
    newest_first: VecDeque<SlowCommand>,
}

impl SlowLog {
    pub(crate) fn add(
        &self,
        arguments: &[Bytes],
        took: Duration,
        time_ms: i64,
        client: &ConnectedClient,
        length: usize,
    ) {
        let mut entries = self.0.lock();
        let id = entries.next_id;
        entries.next_id += 1;
        let (peer, client_name) = (client.peer.to_string(), client.about.lock().name.clone());
        let arguments = shortened(&without_secrets(arguments));
        entries.newest_first.push_front(SlowCommand { id, time_ms, took, arguments, peer, client_name });
        entries.newest_first.truncate(length);
    }

    pub(crate) fn latest(&self, count: usize) -> Vec<SlowCommand> {
        self.0.lock().newest_first.iter().take(count).cloned().collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().newest_first.len()
    }

    pub(crate) fn clear(&self) {
        self.0.lock().newest_first.clear();
    }
}

/// The arguments with names and passwords of logins hidden, as Redis hides them.
fn without_secrets(arguments: &[Bytes]) -> Vec<Bytes> {
    let is = |at: usize, word: &str| arguments.get(at).is_some_and(|given| given.eq_ignore_ascii_case(word.as_bytes()));
    let hidden = if is(0, "auth") {
        1..arguments.len()
    } else if is(0, "hello") {
        let login = (1..arguments.len()).find(|at| is(*at, "auth"));
        login.map_or(0..0, |at| at + 1..at + 3)
    } else {
        0..0
    };
    let shown = |(at, argument): (usize, &Bytes)| match hidden.contains(&at) {
        true => Bytes::from_static(REDACTED),
        false => argument.clone(),
    };
    arguments.iter().enumerate().map(shown).collect()
}

/// The arguments as Redis keeps them: at most 32 of them, of 128 bytes each.
fn shortened(arguments: &[Bytes]) -> Vec<Bytes> {
    let kept = if arguments.len() > ARGUMENTS_MAX { ARGUMENTS_MAX - 1 } else { arguments.len() };
    let mut shown: Vec<Bytes> = arguments[..kept]
        .iter()
        .map(|argument| match argument.len().checked_sub(ARGUMENT_MAX_BYTES) {
            None | Some(0) => owned(argument),
            Some(more) => {
                let end = format!("... ({more} more bytes)");
                [&argument[..ARGUMENT_MAX_BYTES], end.as_bytes()].concat().into()
            }
        })
        .collect();
    if kept < arguments.len() {
        shown.push(format!("... ({} more arguments)", arguments.len() - kept).into());
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_passwords_of_logins_are_hidden() {
        for (given, shown) in [
            ("AUTH secret", "AUTH (redacted)"),
            ("auth user secret", "auth (redacted) (redacted)"),
            ("HELLO 3 AUTH user secret SETNAME auth", "HELLO 3 AUTH (redacted) (redacted) SETNAME auth"),
            ("hello 3 setname a auth user", "hello 3 setname a auth (redacted)"),
            ("hello 3", "hello 3"),
            ("SET auth secret", "SET auth secret"),
            ("", ""),
        ] {
            let arguments: Vec<Bytes> = given.split_ascii_whitespace().map(|word| word.to_owned().into()).collect();
            let words: Vec<_> = shown.split_ascii_whitespace().map(str::as_bytes).collect();
            assert_eq!(without_secrets(&arguments), words, "{given}");
        }
    }

    #[test]
    fn long_commands_are_shortened_as_in_redis() {
        let long = Bytes::from(vec![b'a'; ARGUMENT_MAX_BYTES + 5]);
        let shown = shortened(&[long.clone(), long.slice(5..)]);
        assert!(shown[0].ends_with(b"aaa... (5 more bytes)") && shown[0].len() == ARGUMENT_MAX_BYTES + 18);
        assert_eq!(shown[1], long.slice(5..));
        let many = vec![Bytes::from_static(b"x"); 40];
        let shown = shortened(&many);
        assert_eq!((shown.len(), &shown[31][..]), (ARGUMENTS_MAX, &b"... (9 more arguments)"[..]));
        assert_eq!(shortened(&many[..32]).len(), ARGUMENTS_MAX);
    }
}
