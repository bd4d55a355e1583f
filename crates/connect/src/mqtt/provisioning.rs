//! Gateways that register the devices behind them: one does so by the first message that it sends for a device, on a topic
//! of telemetry or events that names it, or on one of the private space of which a rule of the tenant says so.
//!
//! The message waits, and with it all that the gateway has sent after it, until the device is registered.

use millstream_mqtt::from_client::Packet;

use super::client::Client;
use super::disconnect::DisconnectCause;
use super::incoming::IncomingPublish;
use super::routing::{rule_of, target_of};
use super::topic::TopicKind;
use crate::registry::{DeviceId, OnUnknown};

/// A gateway with the authority to register devices.
#[derive(Debug, Default)]
pub(super) struct ProvisioningGateway {
    /// The unknown device whose message comes next.
    waits_for: Option<String>,
    /// The device that could not be registered: its message is refused as that of any unknown device.
    failed: Option<String>,
}

impl Client {
    /// Learns from the registry whether the client may register devices.
    pub(super) fn look_at_authority(&mut self) {
        let device = self.adapter.registry.device(self.uplink.tenant(), &self.uplink.who().name);
        let may = self.login.is_some() && device.is_some_and(|device| device.may_provision());
        match may {
            true => _ = self.provisions.get_or_insert_default(),
            false => self.provisions = None,
        }
    }

    /// True while a message waits for its device to be registered.
    pub(super) fn is_provisioning(&self) -> bool {
        self.provisions.as_ref().is_some_and(|gateway| gateway.waits_for.is_some())
    }

    /// True if a device has to be registered before `packet` is handled.
    pub(super) fn has_to_provision(&mut self, packet: &Packet<'_>) -> Result<bool, DisconnectCause> {
        let (Some(_), Packet::Publish(publish)) = (&self.provisions, packet) else { return Ok(false) };
        let item = IncomingPublish { topic: self.topic(publish)?, publish: *publish };
        let device = self.to_provision(&item);
        let Some(gateway) = &mut self.provisions else { return Ok(false) };
        let failed = gateway.failed.take();
        gateway.waits_for = device.filter(|device| failed.as_deref() != Some(device)).map(str::to_owned);
        Ok(gateway.waits_for.is_some())
    }

    /// The device that a message is sent for, if it is unknown and the client may register it.
    fn to_provision<'a>(&self, item: &'a IncomingPublish<'_>) -> Option<&'a str> {
        let topic = item.topic.as_str();
        match TopicKind::of(topic) {
            TopicKind::Stream { target, .. } => self.adapter.uplink.ingest.to_provision(target, self.uplink.who()),
            TopicKind::Broker => {
                let snapshot = self.adapter.registry.snapshot(self.uplink.tenant());
                let route = rule_of(snapshot.state.tenant(self.uplink.tenant())?, item)?;
                let device = self.adapter.uplink.ingest.to_provision(target_of(route), self.uplink.who())?;
                let is_tried = route.on_unknown == OnUnknown::Refuse || device.parse::<DeviceId>().is_ok();
                // A message that the client may not publish is refused before anything is done for it.
                (is_tried && self.may_publish(topic).is_ok()).then_some(device)
            }
            TopicKind::Reply { .. } | TopicKind::Wrong(_) => None,
        }
    }

    /// Registers the device whose message comes next. All that was sent before is answered for.
    pub(super) async fn provision(&mut self) {
        let Some(device) = self.provisions.as_mut().and_then(|gateway| gateway.waits_for.take()) else { return };
        let (tenant, gateway) = (self.uplink.tenant(), &self.uplink.who().name);
        if let Err(problem) = self.adapter.uplink.provisioning.edge_device(tenant, gateway, &device).await {
            if self.is_first_mention(&device) {
                let why = problem.text();
                tracing::warn!(%tenant, gateway, device, why, "mqtt: a device cannot be registered by its gateway");
            }
            if let Some(gateway) = &mut self.provisions {
                gateway.failed = Some(device);
            }
        }
    }

    /// True if the log has not told of this unknown device before. Without a private space nobody remembers that.
    fn is_first_mention(&self, device: &str) -> bool {
        let broker_client = self.broker_client.as_ref();
        broker_client.is_none_or(|broker_client| {
            let unknown_devices = &broker_client.link.broker.unknown_devices;
            unknown_devices.is_first(self.uplink.who(), device)
        })
    }
}
