//! A small MQTT 3.1.1 client for generators: devices that publish, and devices that answer commands.
//!
//! Callers batch packets in one write, and many packets are parsed from one read without an allocation for each.

mod connection;

use std::time::Duration;

use millstream_mqtt::from_server::Packet;
use millstream_mqtt::{Connect, Version, WriteError, to_server};

pub(crate) use connection::MqttConnection;

use crate::RequestFailure;

/// Encodes CONNECT with a clean session.
pub(crate) fn connect_packet(
    client_id: &str,
    keep_alive: Duration,
    login: Option<(&str, &str)>,
) -> Result<Vec<u8>, WriteError> {
    let mut connect = Connect::new(Version::V311, client_id);
    connect.keep_alive_s = u16::try_from(keep_alive.as_secs()).unwrap_or(u16::MAX);
    (connect.user, connect.password) = login.map(|(user, password)| (user, password.as_bytes())).unzip();
    let mut packet = Vec::new();
    to_server::connect(&mut packet, &connect)?;
    Ok(packet)
}

/// The failure of a connection whose server sends a packet that it may not send now.
pub(crate) fn unexpected(packet: &Packet<'_>) -> RequestFailure {
    RequestFailure::Lost(format!("{packet:?} was not asked for").into())
}
