//! Clients that have not logged in. Their connection is of no tenant: each message and each filter names tenant and
//! device, and is taken if that tenant's entry for this adapter says that its devices need not log in.
//!
//! A client speaks on behalf of one tenant at a time. One that names another turns to it as soon as all is answered for
//! that it has sent before, so it costs no more memory than any other, however many tenants it names.

use std::sync::Arc;

use millstream_mqtt::from_client::Packet;
use millstream_mqtt::{Version, reason};
use millstream_types::{AccessScope, Principal, Role, Roles, TenantId};

use super::adapter::MqttAdapter;
use super::client::{Client, Counted, Takes};
use super::disconnect::DisconnectCause;
use super::topic::{TopicKind, is_about_commands};
use crate::adapter::UNAUTHENTICATED;
use crate::sender::DeviceAddress;

/// The principal of an anonymous client of `tenant`.
fn anonymous(tenant: TenantId) -> Principal {
    Principal {
        tenant,
        name: UNAUTHENTICATED.to_owned(),
        roles: Roles::NONE.with(Role::Device),
        scope: AccessScope::default(),
    }
}

impl Client {
    /// A client without login, which has named no tenant yet.
    pub(super) fn anonymous(
        adapter: Arc<MqttAdapter>,
        cipher_suite: Option<&'static str>,
        version: Version,
        takes: Takes,
    ) -> Self {
        let counted = Counted::Anonymous(adapter.connections.open_unauthenticated(cipher_suite));
        Self::new(adapter, Arc::new(anonymous(TenantId::default())), None, version, takes, counted)
    }

    /// The principal that a filter of commands or errors is for. An anonymous client names tenant and device in it.
    pub(super) fn named_in(&self, filter: &str) -> Option<Arc<Principal>> {
        if self.login.is_some() {
            return Some(Arc::clone(self.uplink.who()));
        }
        let mut levels = filter.split('/').skip(1);
        let tenant = TenantId::new(levels.next()?).ok()?;
        levels.next().filter(|device| !device.is_empty())?;
        Some(Arc::new(anonymous(tenant)))
    }

    /// True if an anonymous client has to switch tenants before `packet` is handled.
    pub(super) fn has_to_turn(&mut self, packet: &Packet<'_>) -> Result<bool, DisconnectCause> {
        let named = match packet {
            Packet::Publish(publish) => {
                let topic = self.topic(publish)?;
                self.other_than_now(topic.as_str())
            }
            Packet::Subscribe(given) => {
                let filters = given.filters.iter().map(|(filter, _)| *filter);
                let of_commands = filters.filter(|filter| is_about_commands(filter));
                let mut named = of_commands.filter_map(|filter| self.named_in(filter));
                // Their events have to have a place where to go.
                named.find(|who| self.adapter.uplink.streams.known(&who.tenant).is_none()).map(|who| who.tenant.clone())
            }
            _ => None,
        };
        // Nothing is opened for a tenant that does not want it, or that nobody knows.
        self.turns_to = named.filter(|tenant| self.adapter.check(&anonymous(tenant.clone())).is_ok());
        Ok(self.turns_to.is_some())
    }

    /// The tenant that a topic names, unless the client speaks on its behalf already.
    fn other_than_now(&self, topic: &str) -> Option<TenantId> {
        let Some(DeviceAddress::Named { tenant: Some(tenant), .. }) = TopicKind::of(topic).target() else {
            return None;
        };
        let is_now = self.uplink.streams().is_some() && tenant == self.uplink.tenant().as_str();
        if is_now { None } else { TenantId::new(tenant).ok() }
    }

    /// Turns to the tenant that was named. All that was sent before is answered for.
    pub(super) async fn turn(&mut self) -> Result<(), DisconnectCause> {
        let Some(tenant) = self.turns_to.take() else { return Ok(()) };
        let streams = self.adapter.uplink.streams.of(&tenant).await;
        let streams = streams.map_err(|error| DisconnectCause::refused(reason::UNAVAILABLE, error.to_string()))?;
        self.uplink.turn_to(Arc::new(anonymous(tenant)), streams);
        Ok(())
    }

    /// Switches to the tenant that an anonymous client's will names, if the will is published.
    pub(super) async fn turn_to_will(&mut self, fault: Option<&DisconnectCause>) {
        let is_left = self.login.is_none() && self.leaves_its_will(fault);
        let Some(will) = self.will.as_ref().filter(|_| is_left) else { return };
        let named = self.other_than_now(&will.topic);
        self.turns_to = named.filter(|tenant| self.adapter.check(&anonymous(tenant.clone())).is_ok());
        if let Err(fault) = self.turn().await {
            tracing::warn!(%fault, "mqtt: the will of a client without login cannot be sent");
        }
    }

    /// Checks that an anonymous client may publish to `place`.
    pub(super) fn check_anonymous(&self, place: &TopicKind<'_>) -> Result<(), DisconnectCause> {
        let refuse = |code, why: String| Err(DisconnectCause::refused(code, why));
        match place.target() {
            None => Ok(()),
            Some(DeviceAddress::Named { tenant: Some(tenant), .. }) => match TenantId::new(tenant) {
                Ok(tenant) => {
                    let checked = self.adapter.check(&anonymous(tenant));
                    checked.or_else(|problem| refuse(reason::NOT_AUTHORISED, problem.text()))
                }
                Err(error) => refuse(reason::BAD_TOPIC, error.to_string()),
            },
            Some(_) => {
                let rule = "a client without login names tenant and device in the topic: WORD/TENANT/DEVICE";
                refuse(reason::BAD_TOPIC, rule.to_owned())
            }
        }
    }

    /// Ends the connection of an anonymous client that may no longer listen for commands.
    pub(super) fn recheck_stranger(&self) -> Result<(), DisconnectCause> {
        let mut listens = self.commands.iter().flat_map(|commands| commands.each());
        match listens.find(|(who, device)| !self.may_act_for(who, device)) {
            Some((who, device)) => {
                let why =
                    format!("commands of device '{device}' of tenant '{}' are not for who has no login", who.tenant);
                Err(DisconnectCause::refused(reason::NOT_AUTHORISED, why))
            }
            None => Ok(()),
        }
    }
}
