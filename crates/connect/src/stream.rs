//! The streams that devices send to, and the kinds of messages in them.

/// The kind of a tenant's topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    Telemetry,
    Event,
    CommandResponse,
}

/// The kind of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// A telemetry message with QoS 0.
    AtMostOnce,
    /// A telemetry message with QoS 1.
    AtLeastOnce,
    Event,
    /// A command response that is not acknowledged.
    UnconfirmedResponse,
    /// A command response that is acknowledged.
    Response,
}

impl Delivery {
    pub(crate) fn stream(self) -> Stream {
        match self {
            Self::AtMostOnce | Self::AtLeastOnce => Stream::Telemetry,
            Self::Event => Stream::Event,
            Self::UnconfirmedResponse | Self::Response => Stream::CommandResponse,
        }
    }

    /// The QoS in record headers and metrics.
    pub(crate) fn qos(self) -> &'static str {
        match self {
            Self::AtMostOnce | Self::UnconfirmedResponse => "0",
            Self::AtLeastOnce | Self::Event | Self::Response => "1",
        }
    }
}
