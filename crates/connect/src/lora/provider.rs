//! The network servers whose JSON is understood.

use millstream_http::Problem;
use serde_json::{Map, Value};

use super::uplink_message::UplinkMessage;
use super::{actility, chirpstack_v3, chirpstack_v4, loriot, the_things_stack};

/// A kind of network server. Each has a path of its own, as in Eclipse Hono.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Provider {
    ChirpStackV4,
    ChirpStack,
    TheThingsStack,
    TheThingsNetwork,
    Loriot,
    Actility,
    ActilityWireless,
    ActilityEnterprise,
}

impl Provider {
    pub(super) const ALL: [Self; 8] = [
        Self::ChirpStackV4,
        Self::ChirpStack,
        Self::TheThingsStack,
        Self::TheThingsNetwork,
        Self::Loriot,
        Self::Actility,
        Self::ActilityWireless,
        Self::ActilityEnterprise,
    ];

    pub(super) fn path(self) -> &'static str {
        match self {
            Self::ChirpStackV4 => "/chirpstackV4",
            Self::ChirpStack => "/chirpstack",
            Self::TheThingsStack => "/thethingsstack",
            Self::TheThingsNetwork => "/ttn",
            Self::Loriot => "/loriot",
            Self::Actility => "/actility",
            Self::ActilityWireless => "/actilityWireless",
            Self::ActilityEnterprise => "/actilityEnterprise",
        }
    }

    /// The name in records.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::ChirpStackV4 => "chirpStackV4",
            Self::ChirpStack => "chirpStack",
            Self::TheThingsStack => "theThingsStack",
            Self::TheThingsNetwork => "ttn",
            Self::Loriot => "loriot",
            Self::Actility => "actility",
            Self::ActilityWireless => "actilityWireless",
            Self::ActilityEnterprise => "actilityEnterprise",
        }
    }

    /// The content type of a payload that is stored as the device has sent it.
    pub(super) fn content_type(self) -> &'static str {
        match self {
            Self::ChirpStackV4 => "application/vnd.eclipse-hono.lora.chirpStackV4",
            Self::ChirpStack => "application/vnd.eclipse-hono.lora.chirpStack",
            Self::TheThingsStack => "application/vnd.eclipse-hono.lora.theThingsStack",
            Self::TheThingsNetwork => "application/vnd.eclipse-hono.lora.ttn",
            Self::Loriot => "application/vnd.eclipse-hono.lora.loriot",
            Self::Actility => "application/vnd.eclipse-hono.lora.actility",
            Self::ActilityWireless => "application/vnd.eclipse-hono.lora.actilityWireless",
            Self::ActilityEnterprise => "application/vnd.eclipse-hono.lora.actilityEnterprise",
        }
    }

    pub(super) fn summary(self) -> &'static str {
        match self {
            Self::ChirpStackV4 => "Send an event of ChirpStack 4",
            Self::ChirpStack => "Send an event of ChirpStack 3",
            Self::TheThingsStack => "Send a message of The Things Stack",
            Self::TheThingsNetwork => "Send a message of The Things Network",
            Self::Loriot => "Send a message of Loriot",
            Self::Actility => "Send a message of Actility ThingPark",
            Self::ActilityWireless => "Send a message of Actility ThingPark Wireless",
            Self::ActilityEnterprise => "Send a message of Actility ThingPark Enterprise",
        }
    }

    /// True if the server names the event in the query, and posts all events to one URL.
    pub(super) fn names_event(self) -> bool {
        matches!(self, Self::ChirpStackV4 | Self::ChirpStack)
    }

    /// Reads a body; `None` if it is no uplink. `event` is the event's name in the query.
    pub(super) fn read(self, event: Option<&str>, body: Map<String, Value>) -> Result<Option<UplinkMessage>, Problem> {
        if self.names_event() && event.is_none() && !body.contains_key("data") {
            return Ok(None);
        }
        match self {
            Self::ChirpStackV4 => chirpstack_v4::read(body).map(Some),
            Self::ChirpStack => chirpstack_v3::read(body).map(Some),
            Self::TheThingsStack | Self::TheThingsNetwork => the_things_stack::read(body),
            Self::Loriot => loriot::read(body),
            Self::Actility | Self::ActilityWireless | Self::ActilityEnterprise => actility::read(body),
        }
    }
}
