//! LoRaWAN devices, whose network servers post their uplinks as webhooks: one path a network server, as in Eclipse Hono.
//!
//! The network server logs in as a gateway. An uplink becomes telemetry of the device that its DevEUI names, with the bytes
//! that the device has sent and the radio metadata as headers. Requests that are no uplinks, such as joins, are accepted and
//! counted: most network servers post all they have to one URL, and report refusals as errors.
//!
//! Commands to the devices are posted to the network server's `command-endpoint`.
//!
//! Not here: which messages are taken (`ingest`); which command goes to whom (`commands`).

mod actility;
mod chirpstack_v3;
mod chirpstack_v4;
mod config;
mod downlink_body;
mod downlinks;
mod json_body;
mod loriot;
mod message;
mod provider;
mod repeats;
mod the_things_stack;
mod uplink_message;
mod webhook;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use downlinks::Downlinks;
use millstream_http::{Access, Content, Limits, Metrics, Route, Routes};
use millstream_types::{MemoryBudget, RemoteCallers};
use provider::Provider;
use repeats::Repeats;
use serde_json::json;

pub use config::LoraConfig;

use crate::Error;
use crate::tenant_counter::TenantCounter;
use crate::uplink::Uplink;

/// The shared state of the handlers.
pub(crate) struct LoraAdapter {
    uplink: Uplink,
    config: LoraConfig,
    request_timeout: Duration,
    repeats: Arc<Repeats>,
    /// Requests that differ from a new and complete uplink.
    cases: TenantCounter,
    /// Empty until [`LoraAdapter::open_downlinks`].
    downlinks: OnceLock<Arc<Downlinks>>,
}

impl LoraAdapter {
    pub(crate) fn new(uplink: Uplink, config: LoraConfig, request_timeout: Duration, metrics: &Metrics) -> Self {
        let repeats = Arc::new(Repeats::new(uplink.monotonic.clone(), config.repeats_max_per_tenant));
        let help =
            "Requests of LoRaWAN network servers that were no uplinks, came again, or had too much to be stored.";
        let cases = TenantCounter::new(metrics, "millstream_connect_lora_requests_total", help, "case", &[]);
        Self { uplink, config, request_timeout, repeats, cases, downlinks: OnceLock::new() }
    }

    /// Lets network servers have commands. The requests take their bytes from `memory`.
    pub(crate) fn open_downlinks(&self, callers: RemoteCallers, memory: &MemoryBudget) -> Result<(), Error> {
        let outgoing = Arc::new(self.config.outgoing(callers)?);
        let downlinks = || {
            Arc::new(Downlinks {
                commands: self.uplink.commands.clone(),
                ingest: self.uplink.ingest.clone(),
                meters: self.uplink.meters.clone(),
                wall: self.uplink.wall.clone(),
                config: self.config.clone(),
                outgoing,
                memory: memory.clone(),
                known: Default::default(),
            })
        };
        self.downlinks.get_or_init(downlinks);
        Ok(())
    }

    pub(crate) fn stop(&self) {
        if let Some(downlinks) = self.downlinks.get() {
            downlinks.stop();
        }
    }
}

/// The routes, for the listener of devices.
pub(crate) fn routes(adapter: &Arc<LoraAdapter>) -> Routes {
    let limits = Limits {
        body_max_bytes: adapter.config.body_max_bytes,
        body_max_setting: "connect.lora.body_max_bytes",
        timeout: adapter.request_timeout,
    };
    let route = |provider: Provider| -> Route {
        let draft = Route::post(provider.path(), Access::Device, limits, provider.summary());
        let draft = if provider.names_event() {
            draft.query("event", "The kind of event; all but `up` are accepted and not stored.")
        } else {
            draft
        };
        let draft = draft
            .takes(Content::json(json!({"type": "object"})))
            .answers(202, "Accepted; an uplink is stored, unless it was before.")
            .answers(400, "The body is not the JSON of this network server, or its DevEUI or payload is wrong.")
            .answers(404, "The device is unknown or disabled.")
            .answers(415, "The body is Protobuf; switch the integration to JSON.")
            .answers(503, "Not accepted; Retry-After says when to try again.");
        let adapter = adapter.clone();
        draft.answered_by(move |request| adapter.take(provider, request))
    };
    Provider::ALL.into_iter().map(route).fold(Routes::new("lora"), Routes::route)
}
