//! The commands that have come over one connection and have no outcome yet.

use std::sync::Arc;

use millstream_amqp::condition;
use millstream_net::Login;
use millstream_types::{Grant, TenantId};
use tokio::task::JoinSet;

use super::adapter::AmqpAdapter;
use super::fault::Fault;
use super::incoming_command::{CommandOutcome, command};

/// The delivery of a command.
#[derive(Debug, Clone, Copy)]
pub(super) struct CommandDelivery {
    pub(super) channel: u16,
    pub(super) handle: u32,
    /// The serial number of the link.
    pub(super) serial: u64,
    pub(super) id: u32,
    pub(super) is_settled: bool,
}

/// A command that has come.
pub(super) struct NewDelivery {
    pub(super) delivery: CommandDelivery,
    /// The tenant of its link.
    pub(super) tenant: Option<TenantId>,
    /// Its message.
    pub(super) bytes: Vec<u8>,
    pub(super) room: Grant,
}

/// The commands of a connection. Those that are on their way when it ends go on, and nobody is told.
#[derive(Default)]
pub(super) struct CommandTasks(JoinSet<(CommandDelivery, CommandOutcome)>);

impl CommandTasks {
    /// Sends a command.
    pub(super) fn begin(&mut self, new: NewDelivery, adapter: &Arc<AmqpAdapter>, login: &Login) {
        let NewDelivery { delivery, tenant, bytes, room } = new;
        let outcome = command(Arc::clone(adapter), login.clone(), tenant, bytes, room);
        self.0.spawn(async move { (delivery, outcome.await) });
    }

    /// Waits for the next outcome.
    pub(super) async fn next(&mut self) -> Result<(CommandDelivery, CommandOutcome), Fault> {
        match self.0.join_next().await {
            Some(Ok(ended)) => Ok(ended),
            Some(Err(_)) => Err(Fault::refused(condition::INTERNAL_ERROR, "a command could not be handled")),
            None => std::future::pending().await,
        }
    }
}
