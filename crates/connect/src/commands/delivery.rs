//! A command in the hands of a listener, and the verdict that comes back.

use std::borrow::Cow;
use std::sync::Arc;

use millstream_log::Bell;
use parking_lot::Mutex;

use super::command::Command;
use super::outcome::Outcome;
use super::request_id::request_id;

/// What became of a command, in its listener's word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The device has it.
    Accepted,
    /// The device does not have it, as far as is known.
    Released,
    /// It cannot be given to the device, ever.
    Rejected { status: u16, why: Cow<'static, str> },
}

/// What is to be done about a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Note {
    /// A listener has said what became of it.
    Said(Arc<Command>, Verdict),
    /// It ends so.
    Ends(Arc<Command>, Outcome),
    /// It goes on waiting: nobody listens.
    Waits(Arc<Command>),
}

/// Notes that nobody has acted on yet: never more than commands that wait, times a few.
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

/// A command in the hands of a listener. Dropped without a verdict it is released.
#[derive(Debug)]
pub(crate) struct Delivery {
    command: Arc<Command>,
    request_id: Option<String>,
    notes: Arc<Notes>,
    is_open: bool,
}

impl Delivery {
    pub(super) fn new(command: Arc<Command>, notes: Arc<Notes>) -> Self {
        let id = command.correlation_id.as_deref().filter(|_| command.wants_response).map(request_id);
        Self { command, request_id: id, notes, is_open: true }
    }

    pub(crate) fn command(&self) -> &Command {
        &self.command
    }

    /// The id under which the device answers; `None` if no answer is wanted.
    pub(crate) fn request_id(&self) -> Option<&str> {
        self.request_id.as_deref()
    }

    /// The device has it.
    pub(crate) fn accept(self) {
        self.say(Verdict::Accepted);
    }

    /// The device does not have it: no acknowledgement in time, or it has gone.
    pub(crate) fn release(self) {
        self.say(Verdict::Released);
    }

    /// It cannot be given to the device, whoever listens. `status` is what the application is told.
    pub(crate) fn reject(self, status: u16, why: impl Into<Cow<'static, str>>) {
        self.say(Verdict::Rejected { status, why: why.into() });
    }

    /// It was never handed over.
    pub(super) fn take_back(mut self) {
        self.is_open = false;
    }

    fn say(mut self, verdict: Verdict) {
        self.is_open = false;
        self.notes.add(Note::Said(Arc::clone(&self.command), verdict));
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        if self.is_open {
            self.notes.add(Note::Said(Arc::clone(&self.command), Verdict::Released));
        }
    }
}
