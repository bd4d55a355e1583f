//! Commands of applications to devices.
//!
//! ```text
//!   command.<tenant> ─► intake ─► owner: waits, by value ─► router ─► listener ─► device
//!                                   ▲                         ▲          │
//!          command_response ◄───────┴─ clerk: how it ends ◄───┴─ verdict ┘
//! ```
//!
//! Each command has exactly one end: accepted, released, rejected or expired. What waits goes from the state topic
//! `_commands` together with the notice of that end, in one append.

mod clerk;
mod command;
mod config;
mod delivery;
mod gateways;
mod hub;
mod intake;
mod listener;
mod listeners;
mod notice;
mod outcome;
mod post;
mod record;
mod request_id;
mod router;
#[cfg(test)]
mod router_tests;
mod routes;
mod state;
#[cfg(test)]
mod tests;
mod view;
mod waiters;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use bytes::Bytes;
use millstream_http::Metrics;
use millstream_types::{TenantId, TopicName};
use millstream_view::{Failure, Follower, FollowerConfig, Ground, Views, ViewsConfig};
use parking_lot::Mutex;

use crate::Error;
use crate::registry::Registry;
use crate::streams::Streams;

use clerk::Clerk;
pub(crate) use command::Command;
pub use config::CommandsConfig;
pub(crate) use delivery::Delivery;
use hub::Hub;
use intake::Intake;
pub(crate) use listener::{Listening, Once, Way, Whose};
use outcome::Outcome;
pub(crate) use request_id::correlation_of;
use view::{CommandView, Limits};

/// Room for all that the commands of one step lead to.
const APPEND_MAX_BYTES: usize = 4 << 20;
/// Records that are taken in one step: so many of the largest fit into one append.
const TAKEN_MAX_RECORDS: usize = 16;

/// A device's answer to a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Response {
    /// The device that has answered.
    pub(crate) device: Arc<str>,
    /// As it says itself: 200 to 299 or 400 to 599.
    pub(crate) status: u16,
    pub(crate) content_type: Option<Box<str>>,
    pub(crate) payload: Bytes,
}

/// See the module. One for the process.
pub(crate) struct Commands {
    hub: Arc<Hub>,
    views: Arc<Views<CommandView>>,
    registry: Registry,
    streams: Arc<Streams>,
    config: CommandsConfig,
    follower: Follower,
    stopped: Arc<AtomicBool>,
    clerk: Mutex<Option<JoinHandle<()>>>,
}

impl Commands {
    /// Rebuilds what waits and begins to follow the streams of commands.
    pub(crate) fn open(
        ground: &Ground,
        config: &CommandsConfig,
        registry: &Registry,
        streams: &Arc<Streams>,
        metrics: &Metrics,
    ) -> Result<Self, Error> {
        let hub = Hub::new(registry, config, ground.wall.clone(), metrics);
        let views_config = ViewsConfig {
            partitions: config.state_partitions,
            append_max_bytes: APPEND_MAX_BYTES,
            dirty_max_bytes: config.state_dirty_max_bytes,
            inbox_max_bytes: config.state_inbox_max_bytes,
            inbox_setting: "connect.commands.state_inbox_max_bytes",
            ..ViewsConfig::default()
        };
        let view = CommandView { limits: Limits::of(config), hub: hub.clone() };
        let name = TopicName::internal("_commands");
        let views = Views::open(view, &name, &views_config, ground).map_err(Error::Commands)?;
        let stopped = Arc::new(AtomicBool::new(false));
        let clerk = Clerk {
            hub: hub.clone(),
            views: views.clone(),
            streams: streams.clone(),
            stopped: stopped.clone(),
            ends: take_up(&hub, &views),
        };
        let thread = std::thread::Builder::new().name("commands".to_owned()).spawn(move || clerk.run());
        let thread = thread.map_err(|source| Error::Thread(Arc::new(source)))?;
        let payload_max_bytes = config.payload_max_bytes;
        let intake =
            Intake { views: views.clone(), registry: registry.clone(), streams: streams.clone(), payload_max_bytes };
        let follower_config =
            FollowerConfig { threads: 1, command_max_records: TAKEN_MAX_RECORDS, ..FollowerConfig::default() };
        let follower =
            Follower::start(Arc::new(intake), &views, &ground.log, &follower_config).map_err(Error::Commands)?;
        let (registry, streams, config) = (registry.clone(), streams.clone(), config.clone());
        let clerk = Mutex::new(Some(thread));
        Ok(Self { hub, views, registry, streams, config, follower, stopped, clerk })
    }

    /// Listens until what it returns is dropped.
    pub(crate) fn listen(&self, tenant: &TenantId, whose: Whose, way: Way) -> Listening {
        self.hub.router.listen(tenant, whose, way, self.hub.wall.now_ms())
    }

    /// `gateway` has sent for `device`: unless one names the device, commands go that way.
    pub(crate) fn seen_behind(&self, tenant: &TenantId, device: &str, gateway: &str) {
        self.hub.router.seen_behind(tenant, device, gateway);
    }

    /// A response's append was answered: whoever waits for it over HTTP has it now.
    pub(crate) fn responded(&self, tenant: &TenantId, correlation_id: &str, response: Response) {
        self.hub.waiters.responded(tenant, correlation_id, response);
    }

    /// What of it has failed.
    pub(crate) fn failures(&self) -> Vec<Failure> {
        self.views.failures()
    }

    /// Records of commands that were never taken.
    pub(crate) fn records_passed_over(&self) -> u64 {
        self.views.records_passed_over()
    }

    /// Takes no more, stores how those ended that have, writes the checkpoint. Nobody listens any more.
    pub(crate) fn stop(&self) {
        self.follower.stop();
        self.stopped.store(true, Ordering::Release);
        self.hub.notes.bell.ring();
        if let Some(thread) = self.clerk.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that stores how commands end panicked");
        }
        self.views.stop();
    }
}

/// Takes up what waited when the process ended: what may wait for its device goes on, of the rest nobody knows any more
/// what became of it.
fn take_up(hub: &Hub, views: &Views<CommandView>) -> Vec<(Arc<Command>, Outcome)> {
    const UNKNOWN: &str = "the server ended before it was known whether the device has the command";
    let mut waiting: Vec<Arc<Command>> =
        views.snapshots().iter().flat_map(|snapshot| snapshot.state.all().cloned().collect::<Vec<_>>()).collect();
    waiting.sort_unstable_by_key(|command| command.place);
    let (lasting, lost): (Vec<_>, Vec<_>) = waiting.into_iter().partition(|command| command.expires_ms.is_some());
    let now_ms = hub.wall.now_ms();
    lasting.iter().for_each(|command| hub.router.arrive(command, now_ms));
    lost.into_iter().map(|command| (command, Outcome::released(UNKNOWN))).collect()
}
