//! Devices over MQTT, each with a connection of its own and several messages under way if that is allowed.

use std::collections::VecDeque;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, Sleep, sleep_until};
use tokio_util::sync::WaitForCancellationFuture;

use super::fleet::Fleet;
use super::worker::Run;
use super::{Auth, SimArgs, between};
use crate::mqtt::{Heard, Hello, Line, disconnect, pingreq, publish, pubrel};
use crate::{Failure, FailureKind};

/// What the server is told: a client that is silent for longer than one and a half times this is gone.
const KEEP_ALIVE: Duration = Duration::from_secs(60);

/// What one thread's devices have to say.
#[derive(Debug)]
pub(super) struct Letters {
    qos: u8,
    /// Messages of a device that may be under way at once.
    in_flight: usize,
    /// By the devices' numbers.
    senders: Vec<Sender>,
}

#[derive(Debug)]
struct Sender {
    hello: Vec<u8>,
    topic: String,
}

impl Letters {
    /// Of the devices with these ids.
    pub(super) fn of<'a>(args: &SimArgs, ids: impl Iterator<Item = &'a str>) -> Self {
        let sender = |id: &str| {
            let user = format!("{id}@{}", args.tenant);
            let login = (args.auth == Auth::Basic).then_some((user.as_str(), args.password.as_str()));
            let hello = Hello { client: id, keep_alive_s: KEEP_ALIVE.as_secs() as u16, login };
            Sender { hello: hello.packet(), topic: args.topic(id) }
        };
        Self { qos: args.qos(), in_flight: args.in_flight(), senders: ids.map(sender).collect() }
    }
}

/// A message that nothing has confirmed yet.
#[derive(Debug, Clone, Copy)]
struct UnderWay {
    /// At QoS 0 it is not sent.
    id: u16,
    /// From when its latency counts.
    from: Instant,
    started: Instant,
}

/// A device at work.
struct Device {
    run: Arc<Run>,
    fleet: Arc<Mutex<Fleet>>,
    letters: Arc<Letters>,
    number: usize,
    line: Option<Line>,
    /// When the next message is due.
    due: Instant,
    /// Since when one more message may be under way.
    free_since: Instant,
    next_id: u16,
    /// In the order in which they were begun.
    under_way: VecDeque<UnderWay>,
    /// At QoS 0: how many of them a ping that is under way is to confirm, and since when.
    pinged: usize,
    pinged_at: Instant,
    /// To be written.
    out: Vec<u8>,
    written_at: Instant,
}

/// One device's task.
pub(super) async fn work(run: Arc<Run>, fleet: Arc<Mutex<Fleet>>, letters: Arc<Letters>, number: usize, due: Instant) {
    let now = Instant::now();
    let mut device = Device {
        run: run.clone(),
        fleet,
        letters,
        number,
        line: None,
        due,
        free_since: now,
        next_id: 0,
        under_way: VecDeque::new(),
        pinged: 0,
        pinged_at: now,
        out: Vec::new(),
        written_at: now,
    };
    // Both live as long as the device: to make them anew for each message would cost more than the message.
    let mut timer = pin!(sleep_until(due));
    let mut stopped = pin!(run.stop.cancelled());
    while let Some(now) = device.begin() {
        let outcome = match device.write(now).await {
            Ok(()) => device.hear(timer.as_mut(), stopped.as_mut()).await,
            Err(failure) => Err(failure),
        };
        if let Err(failure) = outcome {
            device.lose(&failure);
            if matches!(failure, Failure::Connect(_) | Failure::Refused(_)) {
                run.rest().await;
            }
        }
    }
    if let Some(mut line) = device.line {
        let mut goodbye = Vec::new();
        disconnect(&mut goodbye);
        // The server may have gone first.
        drop(line.send(&goodbye, run.target.request_timeout).await);
    }
}

impl Device {
    /// Begins every message whose time has come. The time now; `None` when the run is over and nothing is under way.
    fn begin(&mut self) -> Option<Instant> {
        let now = Instant::now();
        while self.may_begin() && self.due <= now && !self.run.is_over_at(now) && self.run.take_ticket() {
            let payload = self.fleet.lock().payload(self.number);
            // Packet ids begin at 1.
            self.next_id = self.next_id.checked_add(1).unwrap_or(1);
            let waited = self.free_since < self.due;
            let from = self.run.pacing.counts_from(self.due, now, waited);
            self.under_way.push_back(UnderWay { id: self.next_id, from, started: now });
            let letters = &self.letters;
            publish(&mut self.out, letters.qos, self.next_id, &letters.senders[self.number].topic, &payload);
            self.due = self.run.pacing.next_due(self.run.period, self.due, now, now);
        }
        let is_over = self.run.is_over_at(now);
        if is_over && self.under_way.is_empty() {
            return None;
        }
        let unasked = self.letters.qos == 0 && self.pinged == 0 && !self.under_way.is_empty();
        if unasked && (is_over || !self.may_begin()) {
            (self.pinged, self.pinged_at) = (self.under_way.len(), now);
            pingreq(&mut self.out);
        } else if self.line.is_some() && between(self.written_at, now) >= KEEP_ALIVE {
            pingreq(&mut self.out);
        }
        Some(now)
    }

    fn may_begin(&self) -> bool {
        self.under_way.len() < self.letters.in_flight
    }

    async fn write(&mut self, now: Instant) -> Result<(), Failure> {
        if self.out.is_empty() {
            return Ok(());
        }
        let target = &self.run.target;
        let limit = target.request_timeout;
        if self.line.is_none() {
            let hello = &self.letters.senders[self.number].hello;
            self.line = Some(Line::open(&target.address, hello, limit).await?);
        }
        if let Some(line) = &mut self.line {
            line.send(&self.out, limit).await?;
        }
        self.out.clear();
        self.written_at = now;
        Ok(())
    }

    /// Waits until the server says something or there is something to do.
    async fn hear(
        &mut self,
        mut timer: Pin<&mut Sleep>,
        stopped: Pin<&mut WaitForCancellationFuture<'_>>,
    ) -> Result<(), Failure> {
        let wake = self.wake();
        // One that is too early wakes once too often; setting it anew for each message would cost more.
        if timer.deadline() > wake || timer.is_elapsed() {
            timer.as_mut().reset(wake);
        }
        let is_stopped = self.run.stop.is_cancelled();
        let line = &mut self.line;
        let heard = async {
            match line {
                Some(line) => line.hear().await,
                None => std::future::pending().await,
            }
        };
        let heard = tokio::select! {
            biased;
            heard = heard => Some(heard?),
            () = timer => None,
            () = stopped, if !is_stopped => None,
        };
        let now = Instant::now();
        let mut next = heard;
        while let Some(heard) = next {
            self.confirm(heard, now)?;
            next = match &mut self.line {
                Some(line) => line.heard_already()?,
                None => None,
            };
        }
        match self.gives_up() {
            Some(at) if at <= now => Err(Failure::Timeout(self.run.target.request_timeout)),
            _ => Ok(()),
        }
    }

    /// When an answer is overdue.
    fn gives_up(&self) -> Option<Instant> {
        let asked = match self.letters.qos {
            0 => (self.pinged > 0).then_some(self.pinged_at),
            _ => self.under_way.front().map(|oldest| oldest.started),
        };
        asked.map(|asked| asked + self.run.target.request_timeout)
    }

    /// When there is something to do even if the server says nothing.
    fn wake(&self) -> Instant {
        let now = Instant::now();
        let is_over = self.run.is_over_at(now);
        let begins = (self.may_begin() && !is_over).then_some(self.due);
        let ends = self.run.end.filter(|_| !is_over);
        let pings = self.line.is_some().then_some(self.written_at + KEEP_ALIVE);
        // Every one of them may be missing only while the server owes nothing and nothing is to come.
        [self.gives_up(), begins, ends, pings].into_iter().flatten().min().unwrap_or(now + KEEP_ALIVE)
    }

    /// Takes note of what the server has said.
    fn confirm(&mut self, heard: Heard, now: Instant) -> Result<(), Failure> {
        let unexpected = |what: &str| Err(Failure::Lost(what.into()));
        let was_full = !self.may_begin();
        match heard {
            Heard::Welcome(_) => return unexpected("a second welcome"),
            Heard::Received(id) => pubrel(&mut self.out, id),
            Heard::Done(id) => {
                let Some(at) = self.under_way.iter().position(|message| message.id == id) else {
                    return unexpected("a message was confirmed that was not sent");
                };
                if let Some(message) = self.under_way.remove(at).filter(|message| self.counts(message)) {
                    self.fleet.lock().tally.count(Ok(between(message.from, now)));
                }
            }
            Heard::Pong => self.read_up_to_ping(now),
        }
        if was_full {
            self.free_since = now;
        }
        Ok(())
    }

    fn read_up_to_ping(&mut self, now: Instant) {
        let read = std::mem::take(&mut self.pinged);
        let mut read: Vec<_> = self.under_way.drain(..read).collect();
        read.retain(|message| message.from >= self.run.measured_from);
        let mut fleet = self.fleet.lock();
        if let Some((last, others)) = read.split_last() {
            fleet.tally.accept(others.len() as u64);
            fleet.tally.count(Ok(between(last.from, now)));
        }
    }

    /// Whether a message is part of the result.
    fn counts(&self, message: &UnderWay) -> bool {
        message.from >= self.run.measured_from
    }

    /// Nothing that is under way will be confirmed any more; the next message finds a new connection.
    fn lose(&mut self, failure: &Failure) {
        let kind = FailureKind::from(failure);
        let lost = std::mem::take(&mut self.under_way);
        let mut fleet = self.fleet.lock();
        for _ in lost.iter().filter(|message| self.counts(message)) {
            fleet.tally.count(Err(kind));
        }
        drop(fleet);
        self.line = None;
        self.pinged = 0;
        self.out.clear();
        self.free_since = Instant::now();
    }
}
