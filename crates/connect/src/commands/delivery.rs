//! A command that a listener holds, and the listener's verdict.

use std::borrow::Cow;
use std::sync::Arc;

use millstream_log::Bell;
use parking_lot::Mutex;

use super::command::Command;
use super::outcome::Outcome;
use super::request_id::RequestIds;

const NO_WORD: &str = "the device did not acknowledge the command, or its connection ended";

/// A listener's verdict on a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The device has received it.
    Accepted,
    /// The device has probably not received it.
    Released { why: Cow<'static, str> },
    /// It can never be delivered to the device.
    Rejected { status: u16, why: Cow<'static, str> },
}

/// A task for the settlement thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Note {
    /// A listener has given its verdict.
    Said(Arc<Command>, Verdict),
    /// The command ends with this outcome.
    Ends(Arc<Command>, Outcome),
    /// The command goes on waiting, because no listener takes it.
    Waits(Arc<Command>),
}

/// Notes for the settlement thread, bounded by a small multiple of the waiting commands.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    open: Mutex<Vec<Note>>,
    pub(crate) bell: Bell,
}

impl Notes {
    pub(crate) fn add(&self, note: Note) {
        self.open.lock().push(note);
        self.bell.ring();
    }

    pub(crate) fn take(&self) -> Vec<Note> {
        std::mem::take(&mut *self.open.lock())
    }
}

/// A command that a listener holds. Dropping it without a verdict releases the command.
#[derive(Debug)]
pub(crate) struct CommandDelivery {
    command: Arc<Command>,
    request_id: Option<String>,
    notes: Arc<Notes>,
    is_open: bool,
}

impl CommandDelivery {
    pub(super) fn new(command: Arc<Command>, notes: Arc<Notes>, request_ids: &RequestIds) -> Self {
        let correlation_id = command.correlation_id.as_deref().filter(|_| command.wants_response);
        let id = correlation_id.map(|id| request_ids.issue(&command.tenant, &command.device, id).to_string());
        Self { command, request_id: id, notes, is_open: true }
    }

    pub(crate) fn command(&self) -> &Command {
        &self.command
    }

    /// The request id of the device's response; `None` for a one-way command.
    pub(crate) fn request_id(&self) -> Option<&str> {
        self.request_id.as_deref()
    }

    /// The device has received it.
    pub(crate) fn accept(self) {
        self.say(Verdict::Accepted);
    }

    /// Releases the command: the device did not acknowledge in time or has disconnected.
    pub(crate) fn release(self) {
        self.release_because(NO_WORD);
    }

    /// Releases the command; the application gets the reason, unless the command goes on waiting.
    pub(crate) fn release_because(self, why: impl Into<Cow<'static, str>>) {
        self.say(Verdict::Released { why: why.into() });
    }

    /// Rejects the command, because no listener can deliver it. The application gets `status`.
    pub(crate) fn reject(self, status: u16, why: impl Into<Cow<'static, str>>) {
        self.say(Verdict::Rejected { status, why: why.into() });
    }

    /// Returns the command without having handed it over.
    pub(super) fn take_back(mut self) {
        self.is_open = false;
    }

    fn say(mut self, verdict: Verdict) {
        self.is_open = false;
        self.notes.add(Note::Said(Arc::clone(&self.command), verdict));
    }
}

impl Drop for CommandDelivery {
    fn drop(&mut self) {
        if self.is_open {
            let verdict = Verdict::Released { why: NO_WORD.into() };
            self.notes.add(Note::Said(Arc::clone(&self.command), verdict));
        }
    }
}
