//! The sink `stdout`: prints each record on a line of the process's standard output.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{Blocking, ConnectorContext, Sink, Waker, Written};
use crate::Error;
use crate::batch::Batch;
use crate::document::{NodeType, Role};
use crate::object;

pub(super) const SINK: NodeType = NodeType {
    name: "stdout",
    role: Role::Sink,
    summary: "Prints each record on a line of the server's standard output.",
    keys: &[],
    can_end: false,
    keeps_state: false,
};

struct Stdout {
    blocking: Arc<Blocking>,
    waker: Waker,
    is_writing: Arc<AtomicBool>,
}

pub(super) fn sink(context: &ConnectorContext<'_>) -> Result<Box<dyn Sink>, Error> {
    let blocking = Arc::clone(&context.services()?.blocking);
    Ok(Box::new(Stdout { blocking, waker: Arc::clone(&context.waker), is_writing: Arc::default() }))
}

/// A record as one line. Control characters, which could forge lines or change a terminal, are escaped; those of a JSON
/// object stand between its values, and become spaces.
fn line(payload: &[u8]) -> Vec<u8> {
    let is_object = object::is_object(payload);
    let mut line = String::with_capacity(payload.len() + 1);
    for character in String::from_utf8_lossy(payload).chars() {
        match character {
            control if control.is_control() && is_object => line.push(' '),
            control if control.is_control() => line.extend(control.escape_default()),
            other => line.push(other),
        }
    }
    line.push('\n');
    line.into_bytes()
}

impl Sink for Stdout {
    fn write(&mut self, batch: &Batch) -> Result<Written, Error> {
        if self.is_writing.swap(true, Ordering::AcqRel) {
            return Ok(Written::NotYet(None));
        }
        let (batch, is_writing, waker) = (batch.clone(), Arc::clone(&self.is_writing), Arc::clone(&self.waker));
        self.blocking.run(move || {
            let mut out = std::io::stdout().lock();
            for row in 0..batch.len() {
                let line = line(batch.payload(row).unwrap_or(b"null"));
                // Nobody reads it any more: the records count as written.
                if out.write_all(&line).is_err() {
                    break;
                }
            }
            let _ = out.flush();
            drop(out);
            drop(batch);
            is_writing.store(false, Ordering::Release);
            waker();
        });
        Ok(Written::Taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_one_line_whatever_its_payload_holds() {
        for (payload, expected) in [
            (&b"{\"a\": 1,\r\n\t\"b\": \"x\\n\"}"[..], "{\"a\": 1,   \"b\": \"x\\n\"}\n"),
            (b"one\ntwo\r\n\x1b[2J", "one\\ntwo\\r\\n\\u{1b}[2J\n"),
            ("gr\u{fc}n\u{85}".as_bytes(), "gr\u{fc}n\\u{85}\n"),
            (b"null", "null\n"),
        ] {
            assert_eq!(String::from_utf8(line(payload)).unwrap(), expected);
        }
    }
}
