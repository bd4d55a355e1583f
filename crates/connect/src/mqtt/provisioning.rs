//! Gateways that register the devices behind them: one does so by the first message that it sends for a device.
//!
//! The message waits, and with it all that the gateway has sent after it, until the device is registered.

use millstream_mqtt::from_client::Packet;

use super::client::Client;
use super::disconnect::DisconnectCause;
use super::topic::TopicKind;

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
        let device = self.adapter.registry.device(&self.who.tenant, &self.who.name);
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
        let topic = self.topic(publish)?;
        let TopicKind::Stream { target, .. } = TopicKind::of(topic.as_str()) else { return Ok(false) };
        let device = self.adapter.ingest.to_provision(target, &self.who);
        let Some(gateway) = &mut self.provisions else { return Ok(false) };
        let failed = gateway.failed.take();
        gateway.waits_for = device.filter(|device| failed.as_deref() != Some(device)).map(str::to_owned);
        Ok(gateway.waits_for.is_some())
    }

    /// Registers the device whose message comes next. All that was sent before is answered for.
    pub(super) async fn provision(&mut self) {
        let Some(device) = self.provisions.as_mut().and_then(|gateway| gateway.waits_for.take()) else { return };
        let (tenant, gateway) = (&self.who.tenant, &self.who.name);
        if let Err(problem) = self.adapter.provisioning.edge_device(tenant, gateway, &device).await {
            let why = problem.text();
            tracing::warn!(%tenant, gateway, device, why, "mqtt: a device cannot be registered by its gateway");
            if let Some(gateway) = &mut self.provisions {
                gateway.failed = Some(device);
            }
        }
    }
}
