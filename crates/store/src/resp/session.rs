//! A connection without its socket: requests go in, replies come out.
//!
//! Data commands that arrive together are gathered into a [`CommandUnit`] that the bucket runs in one transaction.
//! Every other command ends the unit, is carried out once the unit has been answered, and so sees what it did.
//!
//! ```text
//!   input ──► parser ──► data commands ──► Unit ──► Bucket::execute ──► replies ─┐
//!                └─────► others (held until the unit is answered) ───────────────┴──► output
//! ```

pub(crate) mod acl;
pub(crate) mod client;
pub(crate) mod commands;
pub(crate) mod config;
pub(crate) mod connection;
mod copy;
mod dispatch;
pub(crate) mod help;
mod info;
mod keyspace;
pub(crate) mod latency;
mod login;
pub(crate) mod multi;
pub(crate) mod pubsub;
pub(crate) mod server;
pub(crate) mod slowlog;

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use millstream_net::Revocation;
use millstream_types::TenantId;

use crate::resp::clients::ConnectedClient;
use crate::resp::closed::ClosedFor;
use crate::resp::codec::{ProtocolError, ReplyWriter, RequestLimits, RequestParser, RespVersion};
use crate::resp::command::{CommandId, Flag, Run};
use crate::resp::context::{Fault, Outcome};
use crate::resp::events::KeyEvent;
use crate::resp::host::{Bucket, ErrorReply, Execution, User};
use crate::resp::latency_monitor::LatencySample;
use crate::resp::settings::ProtocolSettings;
use crate::resp::shared::{Shared, TenantState};
use crate::resp::unit::{CommandUnit, Environment, Watched, refusal_text};

/// Replies are written once they have this size.
const OUTPUT_BYTES: usize = 64 << 10;
/// Most commands of a unit.
const UNIT_COMMANDS_MAX: usize = 1_024;

/// Commands that may have to wait for something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitingCommand {
    Auth,
    Hello,
    Select,
    Reset,
    Info,
    Wait,
    WaitAof,
    Keys,
    Scan,
    DbSize,
    RandomKey,
    FlushDb,
    FlushAll,
    Watch,
    Exec,
}

/// The next step of the connection after its requests were processed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionProgress {
    /// Send the output, then read more.
    Read,
    /// Send the output, then process again: there is more to do.
    Write,
    /// Send the output and close.
    Close,
}

/// The replies that a client wants, by CLIENT REPLY.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReplyMode {
    On,
    Off,
    /// Leaves out the next reply only.
    Skip,
}

/// The state of a connection.
pub struct RespSession {
    shared: Arc<Shared>,
    client: Arc<ConnectedClient>,
    user: Option<User>,
    tenant: Option<Arc<TenantState>>,
    database: u32,
    /// The bucket of the database, or why there is none.
    bucket: Result<Arc<dyn Bucket>, ErrorReply>,
    protocol: RespVersion,
    parser: RequestParser,
    unit: CommandUnit,
    /// A unit that must be answered before anything else is done.
    unit_is_closed: bool,
    /// A command that waits for the unit.
    held: Option<(CommandId, Vec<Bytes>)>,
    /// An error that waits for the unit.
    refusal: Option<Cow<'static, str>>,
    /// A request broke the protocol: the connection closes once all before it is answered.
    is_broken: bool,
    queue: Option<multi::MultiQueue>,
    watched: Vec<Watched>,
    /// A command of EXEC runs that is not part of its unit.
    in_exec: bool,
    reply_mode: ReplyMode,
    out: Vec<u8>,
    is_closing: bool,
    /// Bytes of the request that is carried out, and of those behind it.
    buffered_bytes: usize,
}

impl std::fmt::Debug for RespSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RespSession")
            .field("client", &self.client.id)
            .field("database", &self.database)
            .finish_non_exhaustive()
    }
}

impl RespSession {
    /// The session of a connection that has just been accepted.
    pub fn new(shared: &Arc<Shared>, peer: SocketAddr, local: SocketAddr) -> Self {
        let client = shared.clients.open(peer, local, shared.host.now_ms());
        let mut session = Self {
            shared: Arc::clone(shared),
            client,
            user: None,
            tenant: None,
            database: 0,
            bucket: Err(ErrorReply("NOAUTH Authentication required.".into())),
            protocol: RespVersion::V2,
            parser: RequestParser::default(),
            unit: CommandUnit::default(),
            unit_is_closed: false,
            held: None,
            refusal: None,
            is_broken: false,
            queue: None,
            watched: Vec::new(),
            in_exec: false,
            reply_mode: ReplyMode::On,
            out: Vec::new(),
            is_closing: false,
            buffered_bytes: 0,
        };
        if let Some(user) = shared.host.default_user() {
            session.log_in(user);
        }
        session
    }

    /// Carries out the requests in `input`. What they answer is in [`RespSession::output`].
    pub async fn process(&mut self, input: &mut BytesMut) -> SessionProgress {
        self.client.last_ms.store(self.shared.host.now_ms(), Relaxed);
        loop {
            if self.is_closing || !self.is_alive() {
                return SessionProgress::Close;
            }
            if self.out.len() >= OUTPUT_BYTES {
                return SessionProgress::Write;
            }
            if self.unit_is_closed {
                self.run_unit().await;
                self.unit_is_closed = self.unit.pending_count() > 0;
            } else if let Some(text) = self.refusal.take() {
                match self.reply_mode {
                    ReplyMode::Skip => self.reply_mode = ReplyMode::On,
                    _ => self.error(&text),
                }
            } else if self.is_broken {
                self.is_closing = true;
            } else if let Some((command, arguments)) = self.held.take() {
                self.run_alone(command, &arguments).await;
            } else if !self.take_request(input) {
                if self.unit.pending_count() == 0 {
                    return SessionProgress::Read;
                }
                self.unit_is_closed = true;
            }
        }
    }

    /// Takes a request out of `input`, and adds it to the unit or holds it. Returns `false` if there is none.
    fn take_request(&mut self, input: &mut BytesMut) -> bool {
        let limits =
            RequestLimits { bulk_max_bytes: self.settings().bulk_max_bytes(), authenticated: self.user.is_some() };
        let first = self.unit.arguments.len();
        match self.parser.next(input, limits, &mut self.unit.arguments) {
            Ok(None) => false,
            Ok(Some(bytes)) => {
                self.buffered_bytes = bytes + input.len();
                self.dispatch(first);
                true
            }
            Err(error) => {
                self.unit.arguments.truncate(first);
                match error {
                    // A web page shall learn nothing, so there is no answer.
                    ProtocolError::Foreign(protocol) => {
                        self.shared.closed.tell(self.client.peer, &ClosedFor::ForeignProtocol(protocol));
                    }
                    error => self.refuse(None, format!("ERR {error}").into()),
                }
                self.unit_is_closed = self.unit.pending_count() > 0;
                // Nothing behind it may be read.
                self.is_broken = true;
                input.clear();
                true
            }
        }
    }

    /// The tenant of the user, once there is one.
    pub(crate) fn tenant(&self) -> Option<TenantId> {
        self.user.as_ref().map(|user| TenantId::new(&user.tenant).unwrap_or_default())
    }

    /// The replies that have not been sent. The connection clears it when it has sent them.
    pub fn output(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// Resolves when messages of channels wait, or the connection shall close.
    pub fn woken(&self) -> impl Future<Output = ()> + Send + use<> {
        let client = Arc::clone(&self.client);
        let revocation = self.user.as_ref().and_then(|user| user.revocation.clone());
        async move {
            match revocation {
                None => client.woken().await,
                Some(revocation) => tokio::select! {
                    () = client.woken() => {}
                    () = revocation.revoked() => {}
                },
            }
        }
    }

    /// `true` if the credentials of the user were withdrawn, or a login is required by now.
    fn has_login_ended(&self) -> bool {
        let revocation = self.user.as_ref().and_then(|user| user.revocation.as_ref());
        revocation.is_some_and(Revocation::is_revoked)
    }

    /// Moves waiting messages to the output, as many as are sent at once. A long payload is not copied: it is returned,
    /// and goes behind the output. More may be left: then [`RespSession::woken`] resolves at once.
    pub fn take_messages(&mut self) -> Option<Bytes> {
        self.client.take_messages(&mut self.out)
    }

    /// `false` if the connection shall close.
    pub fn is_alive(&self) -> bool {
        !self.client.is_killed.load(Relaxed) && !self.has_login_ended()
    }

    /// Resolves when the connection shall close, also while it sends.
    pub fn killed(&self) -> impl Future<Output = ()> + Send + use<> {
        let client = Arc::clone(&self.client);
        async move { client.killed().await }
    }

    /// Bytes of requests that the session keeps: commands that wait for EXEC, and names of channels.
    pub fn held_bytes(&self) -> usize {
        self.queued_bytes() + self.client.subscriptions.lock().bytes
    }

    /// Counts bytes of the socket.
    pub fn count_bytes(&self, read: usize, written: usize) {
        let statistics = &self.shared.statistics;
        for (counter, bytes) in [
            (&statistics.input_bytes, read),
            (&self.client.input_bytes, read),
            (&statistics.output_bytes, written),
            (&self.client.output_bytes, written),
        ] {
            counter.fetch_add(bytes as u64, Relaxed);
        }
    }

    /// The number of the connection.
    pub fn id(&self) -> u64 {
        self.client.id
    }

    fn reply(&mut self) -> ReplyWriter<'_> {
        ReplyWriter::new(&mut self.out, self.protocol)
    }

    /// The settings of the tenant.
    fn settings(&self) -> &ProtocolSettings {
        self.tenant.as_ref().map_or(&self.shared.settings, |tenant| &tenant.settings)
    }

    fn now_ms(&self) -> i64 {
        self.shared.host.now_ms()
    }

    fn environment(&self) -> Environment {
        let bulk_max_bytes = self.settings().bulk_max_bytes();
        Environment {
            protocol: self.protocol,
            database: self.database,
            databases: self.shared.host.databases(),
            value_max_bytes: self.bucket.as_ref().map_or(0, |bucket| bucket.value_max_bytes()).min(bulk_max_bytes),
            classes: self.settings().classes(),
        }
    }

    /// Has the bucket run the gathered commands, or those of them whose replies are gathered at once.
    async fn run_unit(&mut self) {
        let unit = std::mem::take(&mut self.unit);
        let pending = unit.pending_count();
        match self.execute(unit).await {
            Ok(mut unit) => {
                self.account(&unit);
                if self.reply_mode == ReplyMode::On {
                    if self.out.is_empty() {
                        std::mem::swap(&mut self.out, &mut unit.replies);
                    } else {
                        self.out.extend_from_slice(&unit.replies);
                    }
                }
                unit.settle();
                self.unit = unit;
            }
            Err(ErrorReply(text)) => {
                for _ in 0..pending {
                    self.error(&text);
                }
            }
        }
    }

    /// Runs a unit. It is submitted again while limits refuse single commands of it.
    async fn execute(&mut self, unit: CommandUnit) -> Result<CommandUnit, ErrorReply> {
        let bucket = self.bucket.clone()?;
        self.execute_in(&*bucket, unit).await
    }

    async fn execute_in(&mut self, bucket: &dyn Bucket, mut unit: CommandUnit) -> Result<CommandUnit, ErrorReply> {
        unit.environment = self.environment();
        self.wait_for_pause(!unit.is_read_only()).await;
        loop {
            unit = match bucket.execute(unit) {
                Execution::Done(unit) => unit?,
                Execution::Pending(unit) => unit.await?,
            };
            if let Some(refusal) = unit.rejection.take() {
                return Err(ErrorReply(refusal_text(&refusal).into()));
            }
            if !unit.take_must_run_again() {
                return Ok(unit);
            }
        }
    }

    /// Counts the commands of a unit that have run, notes the slow ones, and publishes the events.
    fn account(&mut self, unit: &CommandUnit) {
        let mut start = 0;
        for (command, arguments, result) in unit.answered() {
            self.count(command, arguments, result.took, &unit.replies[start..result.end]);
            start = result.end;
        }
        self.publish_events(&unit.events);
    }

    fn count(&self, command: CommandId, arguments: &[Bytes], took: Duration, reply: &[u8]) {
        self.shared.statistics.ran(command, took, reply);
        let Some(tenant) = &self.tenant else { return };
        let settings = &tenant.settings;
        let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        if settings.latency_threshold_ms().is_some_and(|threshold_ms| took_ms >= threshold_ms) {
            let event = if command.command().has(Flag::Fast) { "fast-command" } else { "command" };
            tenant.latency.add(event, LatencySample { time_s: self.now_ms() / 1_000, took_ms });
        }
        let is_slow = settings.slower_than_us().is_some_and(|limit| took.as_micros() >= limit.into());
        if is_slow && !command.command().has(Flag::SkipSlowLog) {
            tenant.slow_log.add(arguments, took, self.now_ms(), &self.client, settings.slow_log_length());
        }
    }

    fn publish_events(&self, events: &[KeyEvent]) {
        if let Some(tenant) = &self.tenant {
            events.iter().for_each(|event| self.shared.publish(tenant, self.database, event));
        }
    }

    /// Carries out a command that is not part of a unit.
    async fn run_alone(&mut self, command: CommandId, arguments: &[Bytes]) {
        // Only CLIENT REPLY itself changes the mode of the commands behind it.
        let (mode, start) = (self.reply_mode, self.out.len());
        if mode == ReplyMode::Skip {
            self.reply_mode = ReplyMode::On;
        }
        if command.full_name() != "client|unpause" {
            self.wait_for_pause(command.command().has(Flag::Write)).await;
        }
        if self.runs_in_unit(command, arguments) {
            // After CLIENT REPLY SKIP a data command stands alone.
            let first = self.unit.arguments.len();
            self.unit.arguments.extend_from_slice(arguments);
            self.unit.push(command, first);
            while self.unit.pending_count() > 0 {
                self.run_unit().await;
            }
        } else {
            let began = Instant::now();
            let outcome = match command.command().run {
                Run::Waiting(WaitingCommand::Exec) => self.exec().await,
                Run::Waiting(WaitingCommand::Watch) => self.watch(arguments).await,
                _ => self.run(command, arguments).await,
            };
            self.finish(command, arguments, outcome, start, began.elapsed());
        }
        let is_wanted = match mode {
            ReplyMode::On => true,
            ReplyMode::Off => self.reply_mode == ReplyMode::On,
            ReplyMode::Skip => self.reply_mode == ReplyMode::On && command.full_name() == "client|reply",
        };
        // Confirmations of subscriptions are messages, which come all the same.
        if !is_wanted && !command.full_name().ends_with("subscribe") {
            self.out.truncate(start);
        }
    }

    /// Carries out a command that works on the session. EXEC does so for its queue.
    async fn run(&mut self, command: CommandId, arguments: &[Bytes]) -> Outcome {
        match command.command().run {
            Run::Session(run) => run(self, arguments),
            Run::Container(_) => commands::all(self, arguments),
            // All others are run by a unit.
            Run::Data(_) => self.copy_elsewhere(arguments).await,
            Run::Waiting(waiting) => match waiting {
                WaitingCommand::Auth => self.auth(arguments).await,
                WaitingCommand::Hello => self.hello(arguments).await,
                WaitingCommand::Select => self.select(arguments),
                WaitingCommand::Reset => self.reset(),
                WaitingCommand::Info => self.info(arguments).await,
                WaitingCommand::Wait => self.wait(arguments),
                WaitingCommand::WaitAof => self.wait_aof(arguments).await,
                WaitingCommand::Keys => self.keys(arguments).await,
                WaitingCommand::Scan => self.scan(arguments).await,
                WaitingCommand::DbSize => self.dbsize().await,
                WaitingCommand::RandomKey => self.random_key().await,
                WaitingCommand::FlushDb => self.flush_db(arguments).await,
                WaitingCommand::FlushAll => self.flush_all(arguments).await,
                // They never get into a queue.
                WaitingCommand::Watch | WaitingCommand::Exec => Err(Fault::error("ERR not allowed in MULTI")),
            },
        }
    }

    /// Writes the error of a command, if it has one, and counts the command.
    fn finish(&mut self, command: CommandId, arguments: &[Bytes], outcome: Outcome, start: usize, took: Duration) {
        match outcome {
            Ok(()) => {}
            Err(Fault::Error(text)) => {
                self.out.truncate(start);
                self.reply().error(text.as_bytes());
            }
            Err(Fault::Interrupted(interrupted)) => {
                self.out.truncate(start);
                self.reply().error(format!("ERR {interrupted:?}").as_bytes());
            }
        }
        let reply = &self.out[start.min(self.out.len())..];
        self.count(command, arguments, took, reply);
    }

    /// Writes an error, if the client wants replies.
    fn error(&mut self, text: &str) {
        if self.reply_mode == ReplyMode::On {
            self.reply().error(text.as_bytes());
        }
    }

    async fn wait_for_pause(&self, writes: bool) {
        let Some(tenant) = &self.tenant else { return };
        let mut held = None;
        while let Ok(rest_ms @ 1..) = u64::try_from(tenant.pause.until_ms(writes).saturating_sub(self.now_ms())) {
            held.get_or_insert_with(|| tenant.pause.hold());
            // It ends early by CLIENT UNPAUSE or CLIENT KILL.
            let _ = tokio::time::timeout(Duration::from_millis(rest_ms.min(100)), tenant.pause.ended()).await;
            if self.client.is_killed.load(Relaxed) {
                return;
            }
        }
    }
}

impl From<ErrorReply> for Fault {
    fn from(ErrorReply(text): ErrorReply) -> Self {
        Self::Error(text)
    }
}

impl Drop for RespSession {
    fn drop(&mut self) {
        self.unsubscribe_all();
        self.shared.clients.close(self.client.id);
    }
}
