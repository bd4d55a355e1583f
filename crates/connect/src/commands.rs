//! Commands of applications to devices.
//!
//! ```text
//!   command.<tenant> ─► intake ─► owner: waits, by value ─► router ─► listener ─► device
//!                                   ▲                         ▲          │
//!          command_response ◄───────┴─ settlement ◄───────────┴─ verdict ┘
//! ```
//!
//! Each command has exactly one outcome: accepted, released, rejected or expired. One append removes the waiting
//! command from the state topic `_commands` and writes the notice of its outcome.

mod answered;
mod command;
mod config;
mod delivery;
mod gateways;
mod hub;
mod intake;
mod listener;
mod listeners;
mod new_command;
mod notice;
mod outcome;
mod post;
mod record;
mod request_id;
mod response;
mod router;
#[cfg(test)]
mod router_tests;
mod routes;
mod settlement;
mod state;
#[cfg(test)]
mod tests;
mod view;
mod waiters;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use millstream_http::{Metrics, Problem};
use millstream_types::{StateTopic, TenantId, TopicName};
use millstream_view::{Failure, Follower, FollowerConfig, ViewRuntime, Views, ViewsConfig};
use parking_lot::Mutex;

use crate::Error;
use crate::refusal::nobody_waits;
use crate::registry::Registry;
use crate::streams::Streams;

pub(crate) use answered::{Answered, GivenAnswer};
pub(crate) use command::{CORRELATION_ID_MAX_BYTES, Command, NAME_MAX_BYTES, is_correlation_id, is_name};
pub use config::CommandsConfig;
pub(crate) use delivery::CommandDelivery;
use hub::Hub;
use intake::Intake;
pub(crate) use listener::{Once, Way, Whose};
pub(crate) use new_command::NewCommand;
pub(crate) use outcome::{End, Outcome};
pub(crate) use request_id::{RequestId, RequestIds};
pub(crate) use response::Response;
pub(crate) use router::Listening;
use settlement::Settlement;
use view::{CommandView, Limits};

/// Byte budget for all changes that one step's commands cause.
const APPEND_MAX_BYTES: usize = 4 << 20;
/// Records that one step takes; this many of the largest fit into one append.
const TAKEN_MAX_RECORDS: usize = 16;

/// The command service of the process.
pub(crate) struct Commands {
    hub: Arc<Hub>,
    request_ids: RequestIds,
    views: Arc<Views<CommandView>>,
    registry: Registry,
    streams: Arc<Streams>,
    config: CommandsConfig,
    follower: Follower,
    stopped: Arc<AtomicBool>,
    settlement: Mutex<Option<JoinHandle<()>>>,
}

impl Commands {
    /// Restores the waiting commands and starts to follow the command streams.
    pub(crate) fn open(
        ground: &ViewRuntime,
        config: &CommandsConfig,
        registry: &Registry,
        streams: &Arc<Streams>,
        metrics: &Metrics,
    ) -> Result<Self, Error> {
        let Some(request_ids) = RequestIds::of(&*ground.log) else {
            let topic = TopicName::internal(StateTopic::Registry);
            return Err(Error::Commands(millstream_log::Error::UnknownTopic { topic }.into()));
        };
        let hub = Hub::new(registry, config, request_ids, ground.wall.clone(), metrics);
        let views_config = ViewsConfig {
            partitions: config.state_partitions,
            append_max_bytes: APPEND_MAX_BYTES,
            dirty_max_bytes: config.state_dirty_max_bytes,
            inbox_max_bytes: config.state_inbox_max_bytes,
            inbox_setting: "connect.commands.state_inbox_max_bytes",
            ..ViewsConfig::default()
        };
        let view = CommandView { limits: Limits::of(config), sink: hub.clone() };
        let name = TopicName::internal(StateTopic::Commands);
        let views = Views::open(view, &name, &views_config, ground).map_err(Error::Commands)?;
        let stopped = Arc::new(AtomicBool::new(false));
        let settlement = Settlement {
            hub: hub.clone(),
            views: views.clone(),
            streams: streams.clone(),
            stopped: stopped.clone(),
            ends: take_up(&hub, &views),
        };
        let thread = std::thread::Builder::new().name("commands".to_owned()).spawn(move || settlement.run());
        let thread = thread.map_err(|source| Error::Thread(Arc::new(source)))?;
        let payload_max_bytes = config.payload_max_bytes;
        let intake =
            Intake { views: views.clone(), registry: registry.clone(), streams: streams.clone(), payload_max_bytes };
        let follower_config =
            FollowerConfig { threads: 1, command_max_records: TAKEN_MAX_RECORDS, ..FollowerConfig::default() };
        let follower =
            Follower::start(Arc::new(intake), &views, &ground.log, &follower_config).map_err(Error::Commands)?;
        let (registry, streams, config) = (registry.clone(), streams.clone(), config.clone());
        let settlement = Mutex::new(Some(thread));
        Ok(Self { hub, request_ids, views, registry, streams, config, follower, stopped, settlement })
    }

    /// Registers a listener; dropping the returned value removes it.
    pub(crate) fn listen(&self, tenant: &TenantId, whose: Whose, way: Way) -> Listening {
        self.hub.router.listen(tenant, whose, way, self.hub.wall.now_ms())
    }

    /// Records that `gateway` has sent for `device`.
    /// Commands to `device` then go through the gateway unless a listener names the device.
    pub(crate) fn seen_behind(&self, tenant: &TenantId, device: &str, gateway: &str) {
        self.hub.router.seen_behind(tenant, device, gateway);
    }

    /// Refuses a response of `device` to a command that this server did not deliver to it.
    pub(crate) fn check_request_id(&self, tenant: &TenantId, device: &str, id: &RequestId) -> Result<(), Problem> {
        match self.request_ids.is_of(tenant, device, id) {
            true => Ok(()),
            false => Err(nobody_waits(device, id)),
        }
    }

    /// The answers that were given lately.
    pub(crate) fn answered(&self) -> &Arc<Answered> {
        &self.hub.answered
    }

    /// Hands a durable response to the HTTP request that waits for it.
    pub(crate) fn responded(&self, tenant: &TenantId, correlation_id: &str, response: Response) {
        self.hub.waiters.responded(tenant, correlation_id, response);
    }

    /// Failures of the command views.
    pub(crate) fn failures(&self) -> Vec<Failure> {
        self.views.failures()
    }

    /// Number of command records that were skipped.
    pub(crate) fn records_passed_over(&self) -> u64 {
        self.views.records_passed_over()
    }

    /// Stops taking commands, stores the known outcomes and writes the checkpoint. The listeners have stopped before.
    pub(crate) fn stop(&self) {
        self.follower.stop();
        self.stopped.store(true, Ordering::Release);
        self.hub.notes.bell.ring();
        if let Some(thread) = self.settlement.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that stores how commands end panicked");
        }
        self.views.stop();
    }
}

/// Resumes the commands that waited when the last process ended. Commands with an expiry go on waiting. The outcome of
/// the other commands is unknown, so they are released.
fn take_up(hub: &Hub, views: &Views<CommandView>) -> Vec<(Arc<Command>, Outcome)> {
    const UNKNOWN: &str = "the server ended before it was known whether the device has the command";
    let mut waiting: Vec<Arc<Command>> =
        views.snapshots().iter().flat_map(|snapshot| snapshot.state.all().cloned().collect::<Vec<_>>()).collect();
    waiting.sort_unstable_by_key(|command| command.position);
    let (lasting, lost): (Vec<_>, Vec<_>) = waiting.into_iter().partition(|command| command.expires_ms.is_some());
    let now_ms = hub.wall.now_ms();
    lasting.iter().for_each(|command| hub.router.arrive(command, now_ms));
    lost.into_iter().map(|command| (command, Outcome::released(UNKNOWN))).collect()
}
