//! Hands durable changes to the router and to the HTTP requests that wait for them.

use std::sync::Arc;

use millstream_http::Metrics;
use millstream_types::WallClock;

use super::CommandsConfig;
use super::answered::Answered;
use super::command::Command;
use super::delivery::Notes;
use super::outcome::Outcome;
use super::request_id::RequestIds;
use super::router::Router;
use super::view::{ChangeSink, DurableChange};
use super::waiters::Waiters;
use crate::registry::Registry;
use crate::tenant_counter::TenantCounter;

pub(crate) struct Hub {
    pub(crate) router: Arc<Router>,
    pub(crate) notes: Arc<Notes>,
    pub(crate) waiters: Arc<Waiters>,
    pub(crate) answered: Arc<Answered>,
    pub(crate) wall: Arc<dyn WallClock>,
    /// The metric of ended commands, by outcome.
    ends: TenantCounter,
}

impl Hub {
    pub(crate) fn new(
        registry: &Registry,
        config: &CommandsConfig,
        request_ids: RequestIds,
        wall: Arc<dyn WallClock>,
        metrics: &Metrics,
    ) -> Arc<Self> {
        let notes = Arc::new(Notes::default());
        let router = Arc::new(Router::new(Arc::new(registry.clone()), notes.clone(), request_ids));
        let waiters = Arc::new(Waiters::new(config.requests_max_waiting));
        let help = "Commands to devices, by how they have ended.";
        let ends = TenantCounter::new(metrics, "millstream_connect_commands_total", help, "outcome", &[]);
        Arc::new(Self { router, notes, waiters, answered: Arc::default(), wall, ends })
    }

    /// A new command waits for its device.
    fn waits(&self, command: &Arc<Command>, now_ms: i64) {
        if let Some(correlation_id) = &command.correlation_id {
            self.answered.forget(&command.tenant, &command.device, correlation_id);
        }
        self.router.arrive(command, now_ms);
    }

    fn ended(&self, command: &Command, outcome: &Outcome) {
        self.ends.count(Some(&command.tenant), outcome.end.name());
        self.waiters.ended(command, outcome);
    }
}

impl ChangeSink for Hub {
    fn landed(&self, change: &DurableChange) {
        match change {
            DurableChange::Taken { waiting, refused } => {
                let now_ms = self.wall.now_ms();
                waiting.iter().for_each(|command| self.waits(command, now_ms));
                refused.iter().for_each(|(command, outcome)| self.ended(command, outcome));
            }
            DurableChange::Ended(None) => {}
            DurableChange::Ended(Some((command, outcome))) => {
                self.router.forget(command);
                self.ended(command, outcome);
            }
        }
    }
}
