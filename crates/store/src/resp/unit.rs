//! A unit: data commands of one connection that a bucket runs in one transaction.
//!
//! Pipelined commands are a unit so that one turn of the owner serves all of them; each of them succeeds or fails by
//! itself. The commands of MULTI are a unit that takes effect as a whole.
//!
//! Invariants
//! - A unit may be run again from its start: what it wrote into its buffers before is dropped.
//! - A command that a limit of the bucket refuses answers an error and changes nothing. If it had changed a key already, the
//!   whole transaction is given up, and the next run answers the error at once.
//! - Pipelined commands whose writes do not fit one append are run in several; the commands of MULTI are then refused together.

use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::resp::codec::{ReplyWriter, RespVersion};
use crate::resp::command::{CommandId, Flag, RedisCommand, Run};
use crate::resp::context::{Context, Fault};
use crate::resp::events::{EventClasses, KeyEvent};
use crate::resp::host::ErrorReply;
use crate::{Interrupted, Transaction, Value, WriteRefusal};

/// Replies up to this size are gathered; the other commands of the unit wait until they have been sent.
const REPLIES_BYTES: usize = 1 << 20;
/// Most bytes that one command, or all commands of MULTI together, may answer.
pub(crate) const REPLIES_MAX_BYTES: usize = 64 << 20;

/// The settings that all commands of a unit share.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Environment {
    pub(crate) protocol: RespVersion,
    pub(crate) database: u32,
    pub(crate) databases: u32,
    pub(crate) value_max_bytes: u64,
    pub(crate) classes: EventClasses,
}

#[derive(Debug, Clone, Copy)]
struct Call {
    id: CommandId,
    first: u32,
    count: u32,
}

/// The result of a command of a unit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallResult {
    /// End of the command's reply in the replies of the unit.
    pub(crate) end: usize,
    pub(crate) took: Duration,
}

/// A key that WATCH has looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Watched {
    pub(crate) database: u32,
    pub(crate) key: Bytes,
    pub(crate) seen: Seen,
}

/// The state of a key as WATCH has seen it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seen {
    Missing,
    Version(u64),
    /// A write of somebody else is on its way to the log. Nobody can tell later whether it was the last one.
    InFlight,
}

impl Seen {
    fn look(transaction: &mut dyn Transaction, key: &[u8]) -> Self {
        match transaction.entry(key).map(|entry| entry.version) {
            None => Self::Missing,
            Some(Some(version)) => Self::Version(version),
            Some(None) => Self::InFlight,
        }
    }
}

/// The purpose of a unit, which decides how it takes effect.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum Purpose {
    /// Commands that succeed or fail one by one.
    #[default]
    Pipeline,
    /// Commands of MULTI, unless one of these keys has changed.
    Exec(Vec<Watched>),
    /// No commands: the versions of these keys are asked for.
    Watch(Vec<Bytes>),
    /// No commands: the value of this key is asked for.
    Read(Bytes),
    /// No commands: a value is stored under this key, unless the key is there and shall not be replaced.
    Store { key: Bytes, value: Value, replace: bool },
}

/// Data commands that a bucket runs in one transaction. See [`crate::resp::Bucket::execute`].
#[derive(Debug, Default)]
pub struct CommandUnit {
    pub(crate) environment: Environment,
    pub(crate) purpose: Purpose,
    pub(crate) arguments: Vec<Bytes>,
    calls: Vec<Call>,
    /// Calls that have run in earlier transactions.
    done: usize,
    /// The next run ends before this call.
    end: Option<usize>,
    /// Results of the calls behind `done`.
    pub(crate) results: Vec<CallResult>,
    pub(crate) replies: Vec<u8>,
    pub(crate) events: Vec<KeyEvent>,
    /// Calls that a limit refused after they had changed a key.
    refused: Vec<(usize, WriteRefusal)>,
    must_run_again: bool,
    /// Why nothing of the commands of MULTI has taken effect.
    pub(crate) rejection: Option<WriteRefusal>,
    /// A watched key has changed.
    pub(crate) is_aborted: bool,
    /// The states of the keys that WATCH named, in their order.
    pub(crate) seen: Vec<Seen>,
    /// The value that [`Purpose::Read`] has found.
    pub(crate) value: Option<Value>,
    /// `true` if [`Purpose::Store`] has stored its value.
    pub(crate) is_stored: bool,
    /// Why the bucket refuses what a unit without commands is for.
    refusal: Option<WriteRefusal>,
}

impl CommandUnit {
    /// A unit of one purpose and no commands.
    pub(crate) fn with_purpose(purpose: Purpose) -> Self {
        Self { purpose, ..Self::default() }
    }

    /// The error reply to what the bucket refuses of a unit without commands.
    pub(crate) fn refusal(&self) -> Option<ErrorReply> {
        self.refusal.as_ref().map(|refusal| ErrorReply(refusal_text(refusal).into()))
    }

    /// Runs the commands in `transaction`, from the start of the unit each time.
    ///
    /// # Errors
    /// [`Interrupted`]: the transaction must not take effect.
    pub fn run(&mut self, transaction: &mut dyn Transaction) -> Result<(), Interrupted> {
        self.results.clear();
        self.replies.clear();
        self.events.clear();
        self.seen.clear();
        self.is_aborted = false;
        self.must_run_again = false;
        self.rejection = None;
        match &self.purpose {
            Purpose::Watch(keys) => {
                self.seen.extend(keys.iter().map(|key| Seen::look(transaction, key)));
                return Ok(());
            }
            Purpose::Exec(watched) if watched.iter().any(|watched| watched.has_changed(transaction)) => {
                self.is_aborted = true;
                return Ok(());
            }
            Purpose::Read(_) | Purpose::Store { .. } => return self.run_alone(transaction),
            _ => {}
        }
        let mut began = Instant::now();
        for index in self.done..self.end.unwrap_or(self.calls.len()) {
            began = self.run_call(index, transaction, began)?;
            let replies_bytes = self.replies.len();
            if replies_bytes > REPLIES_BYTES && self.purpose == Purpose::Pipeline {
                break;
            }
            if replies_bytes > REPLIES_MAX_BYTES {
                self.replies = Vec::new();
                let refusal = WriteRefusal::RepliesTooLarge { max_bytes: REPLIES_MAX_BYTES };
                self.rejection = Some(refusal.clone());
                return Err(refusal.into());
            }
        }
        Ok(())
    }

    /// Reads or stores the value that a unit without commands is for.
    fn run_alone(&mut self, transaction: &mut dyn Transaction) -> Result<(), Interrupted> {
        self.is_stored = false;
        let outcome = match &self.purpose {
            Purpose::Read(key) => transaction.get(key).map(|value| self.value = value),
            Purpose::Store { key, value, replace } if *replace || transaction.entry(key).is_none() => {
                transaction.put(key, value.clone()).map(|()| self.is_stored = true)
            }
            _ => Ok(()),
        };
        match outcome {
            // Nothing has been written that would have to be given up.
            Err(Interrupted::Refused(refusal)) => self.refusal = Some(refusal),
            Err(Interrupted::NotLoaded) => return Err(Interrupted::NotLoaded),
            Ok(()) => {}
        }
        Ok(())
    }

    /// Runs a command that begins now, and returns when it ended.
    fn run_call(
        &mut self,
        index: usize,
        transaction: &mut dyn Transaction,
        began: Instant,
    ) -> Result<Instant, Interrupted> {
        let call = self.calls[index];
        let (start, events) = (self.replies.len(), self.events.len());
        let refused = self.refused.iter().find(|(refused, _)| *refused == index).map(|(_, refusal)| refusal.clone());
        let (outcome, has_written) = match refused {
            Some(refusal) => (Err(Interrupted::Refused(refusal).into()), false),
            None => self.attempt(call, transaction),
        };
        let error = match outcome {
            Ok(()) => None,
            Err(Fault::Error(text)) => Some(text),
            Err(Fault::Interrupted(Interrupted::NotLoaded)) => return Err(Interrupted::NotLoaded),
            Err(Fault::Interrupted(Interrupted::Refused(refusal))) if self.is_parted(index, &refusal) => {
                return Err(refusal.into());
            }
            Err(Fault::Interrupted(Interrupted::Refused(refusal))) if has_written => {
                self.refused.push((index, refusal.clone()));
                self.must_run_again = true;
                return Err(refusal.into());
            }
            Err(Fault::Interrupted(Interrupted::Refused(refusal))) => Some(refusal_text(&refusal).into()),
        };
        if let Some(text) = error {
            self.replies.truncate(start);
            self.events.truncate(events);
            ReplyWriter::new(&mut self.replies, self.environment.protocol).error(text.as_bytes());
        }
        let ended = Instant::now();
        self.results.push(CallResult { end: self.replies.len(), took: ended - began });
        Ok(ended)
    }

    /// Has the commands before this one run first, if the writes of all of them together are too large. The commands of MULTI
    /// cannot be parted: all are refused. Returns `false` if the refusal is of this command alone.
    fn is_parted(&mut self, index: usize, refusal: &WriteRefusal) -> bool {
        if !matches!(refusal, WriteRefusal::TransactionTooLarge { .. }) {
            return false;
        }
        match self.purpose {
            Purpose::Exec(_) => self.rejection = Some(refusal.clone()),
            _ if index > self.done => {
                self.end = Some(index);
                self.must_run_again = true;
            }
            _ => return false,
        }
        true
    }

    /// Has the first half of the commands run first, after the log has refused the writes of all of them as too large. Returns
    /// `false` if they cannot be parted.
    pub(crate) fn halve(&mut self) -> bool {
        let pending = self.end.unwrap_or(self.calls.len()) - self.done;
        if self.purpose != Purpose::Pipeline || pending < 2 {
            return false;
        }
        self.end = Some(self.done + pending / 2);
        self.must_run_again = true;
        true
    }

    /// Runs a command and tells whether it has changed a key.
    fn attempt(&mut self, call: Call, transaction: &mut dyn Transaction) -> (Result<(), Fault>, bool) {
        let Run::Data(run) = call.id.command().run else {
            return (Err(Fault::error("ERR this command does not work on keys")), false);
        };
        let mut context = Context {
            transaction,
            reply: ReplyWriter::new(&mut self.replies, self.environment.protocol),
            database: self.environment.database,
            databases: self.environment.databases,
            value_max_bytes: self.environment.value_max_bytes,
            classes: self.environment.classes,
            events: &mut self.events,
            has_written: false,
        };
        let arguments = &self.arguments[call.first as usize..][..call.count as usize];
        let outcome = run(&mut context, arguments);
        (outcome, context.has_written)
    }

    /// Approximate size of the arguments, which bounds what waits for a bucket.
    pub fn size_bytes(&self) -> usize {
        let stored = if let Purpose::Store { value, .. } = &self.purpose { value.bytes.len() } else { 0 };
        stored + self.arguments.iter().map(Bytes::len).sum::<usize>() + self.arguments.len() * size_of::<Bytes>()
    }

    /// `true` if each command reads one key at most, so that nobody can tell if others wrote between them.
    pub fn reads_keys_one_by_one(&self) -> bool {
        let reads_one = |call: &Call| {
            let command = call.id.command();
            !command.has(Flag::Write) && command.key_places(call.count as usize).count() <= 1
        };
        !matches!(self.purpose, Purpose::Exec(_) | Purpose::Store { .. }) && self.pending().all(reads_one)
    }

    /// `true` if no command may change a key, so that a bucket may serve the unit from a snapshot.
    pub fn is_read_only(&self) -> bool {
        !matches!(self.purpose, Purpose::Store { .. }) && self.pending().all(|call| !call.id.command().has(Flag::Write))
    }

    /// `true` if the commands only delete keys, which they may do while the disk is nearly full.
    pub fn makes_room(&self) -> bool {
        let mut commands = self.pending().map(|call| call.id.full_name()).peekable();
        commands.peek().is_some() && commands.all(|name| matches!(name, "del" | "unlink"))
    }

    /// The keys of the commands that have not run, some of them several times.
    pub fn keys(&self) -> impl Iterator<Item = &Bytes> {
        let named: &[Bytes] = match &self.purpose {
            Purpose::Pipeline | Purpose::Exec(_) => &[],
            Purpose::Watch(keys) => &keys[..],
            Purpose::Read(key) | Purpose::Store { key, .. } => std::slice::from_ref(key),
        };
        let exec = match &self.purpose {
            Purpose::Exec(watched) => watched.iter(),
            _ => [].iter(),
        };
        let calls = self.pending().flat_map(|call| {
            let arguments = &self.arguments[call.first as usize..][..call.count as usize];
            call.id.command().key_places(arguments.len()).map(|place| &arguments[place])
        });
        named.iter().chain(exec.map(|watched| &watched.key)).chain(calls)
    }

    fn pending(&self) -> impl Iterator<Item = &Call> {
        self.calls[self.done..].iter()
    }

    /// Adds the arguments from `first` on as a command.
    pub(crate) fn push(&mut self, id: CommandId, first: usize) {
        let count = self.arguments.len() - first;
        // A request has at most 2^20 arguments, and a unit a bounded number of requests.
        let (first, count) = (first as u32, count as u32);
        self.calls.push(Call { id, first, count });
    }

    /// Commands that have not run yet.
    pub(crate) fn pending_count(&self) -> usize {
        self.calls.len() - self.done
    }

    /// Returns `true`, once, if the unit must be submitted again before its replies count.
    pub(crate) fn take_must_run_again(&mut self) -> bool {
        std::mem::take(&mut self.must_run_again)
    }

    /// Returns `true` if the unit knows the reason for which a limit has refused its last run.
    pub(crate) fn knows_its_refusal(&self) -> bool {
        self.must_run_again || self.rejection.is_some()
    }

    /// The commands that the last run has answered, with their arguments and results.
    pub(crate) fn answered(&self) -> impl Iterator<Item = (CommandId, &[Bytes], CallResult)> {
        self.pending()
            .zip(&self.results)
            .map(|(call, result)| (call.id, &self.arguments[call.first as usize..][..call.count as usize], *result))
    }

    /// Counts the answered commands as done, and forgets everything once all are.
    pub(crate) fn settle(&mut self) {
        self.done += self.results.len();
        self.end = None;
        self.results.clear();
        self.replies.clear();
        self.events.clear();
        if self.done == self.calls.len() {
            self.calls.clear();
            self.arguments.clear();
            self.refused.clear();
            self.done = 0;
        }
    }
}

impl Watched {
    fn has_changed(&self, transaction: &mut dyn Transaction) -> bool {
        self.seen == Seen::InFlight || Seen::look(transaction, &self.key) != self.seen
    }
}

/// The reply to a write that a limit refuses.
pub(crate) fn refusal_text(refusal: &WriteRefusal) -> String {
    match refusal {
        WriteRefusal::CacheFull { .. } => ErrorReply::OUT_OF_MEMORY.to_string(),
        WriteRefusal::BucketFull { .. } | WriteRefusal::TooManyKeys { .. } => {
            format!("OOM command not allowed: {refusal}")
        }
        _ => format!("ERR {refusal}"),
    }
}

impl RedisCommand {
    /// `true` if a bucket runs the command.
    pub(crate) fn is_data(&self) -> bool {
        matches!(self.run, Run::Data(_))
    }
}
