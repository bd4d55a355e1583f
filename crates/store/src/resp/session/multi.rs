//! MULTI, EXEC and WATCH.
//!
//! The data commands of a queue are one unit, so they take effect together or not at all. Commands that do not work on
//! keys (PUBLISH, PING) run after it, and each reply has its place. Commands over all keys (DBSIZE, FLUSHDB) and COPY to
//! another database are not part of a transaction: the queue is cut before and after them, and each piece takes effect
//! by itself, as a whole.

use std::time::Instant;

use bytes::Bytes;

use super::{ReplyMode, RespSession, WaitingCommand};
use crate::resp::command::{CommandId, Flag, Run};
use crate::resp::context::{Fault, Outcome};
use crate::resp::host::ErrorReply;
use crate::resp::shared::owned;
use crate::resp::unit::{CommandUnit, Purpose, Watched};

/// Bytes of the commands that a client may queue.
const QUEUE_MAX_BYTES: usize = 64 << 20;
/// Bytes that each queued argument counts for beside its own.
const ARGUMENT_BYTES: usize = 32;
/// Keys that a client may watch.
const WATCHED_MAX: usize = 1 << 16;

/// The commands that a client has queued since MULTI.
#[derive(Debug, Default)]
pub(crate) struct MultiQueue {
    commands: Vec<(CommandId, Vec<Bytes>)>,
    bytes: usize,
    /// A command was refused, so EXEC will be.
    pub(crate) has_failed: bool,
}

pub(crate) fn multi(session: &mut RespSession, _: &[Bytes]) -> Outcome {
    if session.queue.is_some() {
        return Err(Fault::error("ERR MULTI calls can not be nested"));
    }
    session.queue = Some(MultiQueue::default());
    session.show_queue();
    session.reply().ok();
    Ok(())
}

pub(crate) fn discard(session: &mut RespSession, _: &[Bytes]) -> Outcome {
    if session.queue.take().is_none() {
        return Err(Fault::error("ERR DISCARD without MULTI"));
    }
    session.watched.clear();
    session.show_queue();
    session.reply().ok();
    Ok(())
}

pub(crate) fn unwatch(session: &mut RespSession, _: &[Bytes]) -> Outcome {
    session.watched.clear();
    session.reply().ok();
    Ok(())
}

impl RespSession {
    pub(super) fn enqueue(&mut self, command: CommandId, arguments: Vec<Bytes>) {
        let Some(queue) = &mut self.queue else { return };
        queue.bytes += arguments.iter().map(|argument| argument.len() + ARGUMENT_BYTES).sum::<usize>();
        if queue.bytes > QUEUE_MAX_BYTES {
            queue.has_failed = true;
            queue.commands.clear();
            return self.refuse(
                Some(command),
                format!("ERR the commands in MULTI have more than {QUEUE_MAX_BYTES} bytes; use several transactions")
                    .into(),
            );
        }
        queue.commands.push((command, arguments));
        self.show_queue();
        match self.reply_mode {
            ReplyMode::On => self.reply().simple("QUEUED"),
            ReplyMode::Off => {}
            ReplyMode::Skip => self.reply_mode = ReplyMode::On,
        }
    }

    /// Bytes of the commands that wait for EXEC.
    pub(crate) fn queued_bytes(&self) -> usize {
        self.queue.as_ref().map_or(0, |queue| queue.bytes)
    }

    /// Tells CLIENT LIST about the queue.
    pub(super) fn show_queue(&self) {
        let mut about = self.client.about.lock();
        about.queued = self.queue.as_ref().map(|queue| queue.commands.len());
        about.queued_bytes = self.queued_bytes();
    }

    pub(super) async fn watch(&mut self, arguments: &[Bytes]) -> Outcome {
        if self.queue.is_some() {
            return Err(Fault::error("ERR WATCH inside MULTI is not allowed"));
        }
        let database = self.database;
        let is_new = |key: &&Bytes| !self.watched.iter().any(|old| old.key == *key && old.database == database);
        let keys: Vec<Bytes> = arguments[1..].iter().filter(is_new).map(|key| owned(key)).collect();
        if self.watched.len() + keys.len() > WATCHED_MAX {
            return Err(Fault::from(format!("ERR a client may watch at most {WATCHED_MAX} keys; use UNWATCH")));
        }
        let unit = self.execute(CommandUnit::with_purpose(Purpose::Watch(keys.clone()))).await?;
        let seen = keys.into_iter().zip(unit.seen).map(|(key, seen)| Watched { database, key, seen });
        self.watched.extend(seen);
        self.reply().ok();
        Ok(())
    }

    pub(super) async fn exec(&mut self) -> Outcome {
        let Some(queue) = self.queue.take() else { return Err(Fault::error("ERR EXEC without MULTI")) };
        let watched = std::mem::take(&mut self.watched);
        self.show_queue();
        if queue.has_failed {
            return Err(Fault::error("EXECABORT Transaction discarded because of previous errors."));
        }
        let needs_memory = queue.commands.iter().any(|(command, _)| command.command().has(Flag::DenyOom));
        if needs_memory && let Some(ErrorReply(text)) = self.bucket.as_ref().ok().and_then(|bucket| bucket.is_full()) {
            return Err(Fault::from(format!("EXECABORT Transaction discarded because of: {text}")));
        }
        if watched.iter().any(|watched| watched.database != self.database) {
            return Err(Fault::error("ERR keys of another database are watched; watch and run in one database"));
        }
        let mut watched = Some(watched);
        let mut replies = vec![Vec::new(); queue.commands.len()];
        let mut rest = (0, &queue.commands[..]);
        while !rest.1.is_empty() || watched.is_some() {
            let cuts = |(command, arguments): &(CommandId, Vec<Bytes>)| {
                is_over_all_keys(*command) || self.copies_elsewhere(*command, arguments)
            };
            let count = rest.1.iter().position(cuts).unwrap_or(rest.1.len());
            let (piece, after) = rest.1.split_at(count);
            let watched = watched.take().unwrap_or_default();
            if !self.exec_piece(piece, watched, &mut replies[rest.0..]).await? {
                self.reply().null_array();
                return Ok(());
            }
            rest = (rest.0 + count, after);
            if let [(command, arguments), after @ ..] = after {
                replies[rest.0] = self.exec_alone(*command, arguments).await;
                rest = (rest.0 + 1, after);
            }
        }
        self.reply().array(replies.len());
        replies.iter().for_each(|reply| self.out.extend_from_slice(reply));
        Ok(())
    }

    /// Runs commands among which none cuts the queue. Returns `false` if a watched key has changed.
    async fn exec_piece(
        &mut self,
        piece: &[(CommandId, Vec<Bytes>)],
        watched: Vec<Watched>,
        replies: &mut [Vec<u8>],
    ) -> Result<bool, Fault> {
        let (mut unit, mut places) = (CommandUnit::default(), Vec::new());
        for (place, (command, arguments)) in
            piece.iter().enumerate().filter(|(_, (command, _))| command.command().is_data())
        {
            let first = unit.arguments.len();
            unit.arguments.extend_from_slice(arguments);
            unit.push(*command, first);
            places.push(place);
        }
        if !places.is_empty() || !watched.is_empty() {
            unit.purpose = Purpose::Exec(watched);
            let unit = self.execute(unit).await?;
            if unit.is_aborted {
                return Ok(false);
            }
            self.account(&unit);
            let mut start = 0;
            for (place, result) in places.into_iter().zip(&unit.results) {
                replies[place] = unit.replies[start..result.end].to_vec();
                start = result.end;
            }
        }
        for (place, (command, arguments)) in piece.iter().enumerate() {
            if !command.command().is_data() {
                replies[place] = self.exec_alone(*command, arguments).await;
            }
        }
        Ok(true)
    }

    /// Runs a command that is not part of the unit, and returns its reply.
    async fn exec_alone(&mut self, command: CommandId, arguments: &[Bytes]) -> Vec<u8> {
        let before = std::mem::take(&mut self.out);
        self.in_exec = true;
        let began = Instant::now();
        let outcome = self.run(command, arguments).await;
        self.in_exec = false;
        self.finish(command, arguments, outcome, 0, began.elapsed());
        std::mem::replace(&mut self.out, before)
    }
}

fn is_over_all_keys(command: CommandId) -> bool {
    use WaitingCommand::{DbSize, FlushAll, FlushDb, Keys, RandomKey, Scan, Select};
    matches!(command.command().run, Run::Waiting(DbSize | FlushAll | FlushDb | Keys | RandomKey | Scan | Select))
}
