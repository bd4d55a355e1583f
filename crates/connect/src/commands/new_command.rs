//! A command that an application sends through this server, and waits for.

use millstream_http::{Problem, Reason};
use millstream_log::{AckLevel, reply};
use millstream_types::{ErrorCode, Header, Record, TenantId, header};

use super::Commands;
use super::command::{CORRELATION_ID, RESPONSE_REQUIRED, SUBJECT};
use super::listeners::Devices;
use super::waiters::{CannotWait, Waiter};
use crate::refusal::{not_taken, unknown_device};
use crate::registry::DeviceId;

/// A command that is to be sent.
pub(crate) struct NewCommand {
    pub(crate) tenant: TenantId,
    pub(crate) device: DeviceId,
    pub(crate) name: String,
    pub(crate) is_one_way: bool,
    /// Longest wait for its device, milliseconds.
    pub(crate) ttl_ms: Option<u64>,
    pub(crate) correlation_id: String,
}

impl Commands {
    /// The device of this name, to which commands can be sent.
    pub(crate) fn commanded(&self, tenant: &TenantId, device: &str) -> Result<DeviceId, Problem> {
        let device: DeviceId = device
            .parse()
            .map_err(|error| Problem::from_error(ErrorCode::Invalid, &error).remedy("name a device of the registry"))?;
        match self.registry.enabled(tenant, device.as_str()) {
            Some(_) => Ok(device),
            None => Err(unknown_device(device.as_str())),
        }
    }

    /// Sends a command with these headers beside its own. Returns once it is durable; its progress comes later.
    pub(crate) async fn send(
        &self,
        command: &NewCommand,
        headers: &[Header<'_>],
        payload: &[u8],
    ) -> Result<Waiter, Problem> {
        let waiter = self.wait(command)?;
        self.append(command, headers, payload).await?;
        Ok(waiter)
    }

    fn wait(&self, command: &NewCommand) -> Result<Waiter, Problem> {
        let NewCommand { tenant, device, correlation_id, .. } = command;
        self.hub.waiters.wait(tenant, correlation_id, device.as_str()).map_err(|why| match why {
            CannotWait::Taken => Problem::new(
                Reason::Code(ErrorCode::Conflict),
                "another request waits for the answer to a command of this correlation id; nothing was sent",
            )
            .value(correlation_id)
            .rule("a correlation id stands for one command at a time")
            .remedy("leave it out: then one is made"),
            CannotWait::Full => {
                let limit = self.config.requests_max_waiting;
                Problem::new(
                    Reason::Code(ErrorCode::Overloaded),
                    "too many requests of the tenant wait for answers of devices; nothing was sent",
                )
                .value(limit)
                .rule(format!(
                    "connect.commands.requests_max_waiting = {limit}, of which a tenant takes no more than it leaves free"
                ))
                .remedy("wait as long as Retry-After says, then send it again")
            }
        })
    }

    /// Appends the command's record and returns once it is durable.
    async fn append(&self, command: &NewCommand, given: &[Header<'_>], payload: &[u8]) -> Result<(), Problem> {
        let NewCommand { tenant, device, .. } = command;
        let device = device.as_str();
        let mut headers = vec![
            Header { key: header::DEVICE_ID, value: Some(device.as_bytes()) },
            Header { key: SUBJECT, value: Some(command.name.as_bytes()) },
            Header { key: CORRELATION_ID, value: Some(command.correlation_id.as_bytes()) },
        ];
        headers.extend_from_slice(given);
        if !command.is_one_way {
            headers.push(Header { key: RESPONSE_REQUIRED, value: Some(b"true") });
        }
        let ttl_ms = command.ttl_ms.map(|ttl_ms| ttl_ms.to_string());
        if let Some(ttl_ms) = &ttl_ms {
            headers.push(Header { key: header::TTL, value: Some(ttl_ms.as_bytes()) });
        }
        let (timestamp_ms, key) = (self.hub.wall.now_ms(), Some(device.as_bytes()));
        let record = Record { timestamp_ms, key, value: Some(payload), headers: &headers };
        let mut is_again = false;
        loop {
            let streams = self.streams.of(tenant).await.map_err(|error| not_taken(&error))?;
            let (done, verdict) = reply();
            let done = done.failing_on_full_disk();
            match streams.command_partition(device).append(&[record], AckLevel::Synced, done) {
                Ok(()) => return verdict.await.map(drop).map_err(|error| not_taken(&error)),
                // The topic was deleted after it was resolved.
                Err(millstream_log::Error::UnknownTopic { .. }) if !is_again => self.streams.forget(tenant),
                Err(error) => return Err(not_taken(&error)),
            }
            is_again = true;
        }
    }
}
