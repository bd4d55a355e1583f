//! A device's connection to an MQTT server.

use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use millstream_mqtt::from_server::{Packet, decode};
use millstream_mqtt::{Framed, Version, frame};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::unexpected;
use crate::RequestFailure;
use crate::target::ServerTarget;
use crate::transport::{ClientStream, connect};

/// Room for a read. Most packets of a server are short.
const READ_BYTES: usize = 256;
/// Longest packet that a device reads.
const PACKET_MAX_BYTES: usize = 16 << 20;

/// An open connection after a successful CONNECT.
#[derive(Debug)]
pub(crate) struct MqttConnection {
    stream: ClientStream,
    /// Bytes that have arrived and are not parsed yet.
    heard: BytesMut,
}

impl MqttConnection {
    /// Connects and sends the CONNECT packet `hello`; CONNACK must come within `limit`.
    ///
    /// # Errors
    /// The failure; [`RequestFailure::Refused`] if the server refuses this client.
    pub(crate) async fn open(target: &ServerTarget, hello: &[u8], limit: Duration) -> Result<Self, RequestFailure> {
        let stream = connect(target).await?;
        let mut connection = Self { stream, heard: BytesMut::new() };
        connection.send(hello, limit).await?;
        let answered = connection.hear(|packet| match packet {
            Packet::ConnAck(answer) if answer.code == 0 => Ok(()),
            Packet::ConnAck(answer) => Err(RequestFailure::Refused(answer.code)),
            other => Err(unexpected(&other)),
        });
        timeout(limit, answered).await.map_err(|_| RequestFailure::Timeout(limit))??;
        Ok(connection)
    }

    pub(crate) async fn send(&mut self, bytes: &[u8], limit: Duration) -> Result<(), RequestFailure> {
        let written = timeout(limit, async {
            self.stream.write_all(bytes).await?;
            self.stream.flush().await
        });
        written.await.map_err(|_| RequestFailure::Timeout(limit))?.map_err(lost)
    }

    /// Waits for the next packet and hands it to `read`. Cancel-safe.
    pub(crate) async fn hear<T>(
        &mut self,
        mut read: impl FnMut(Packet<'_>) -> Result<T, RequestFailure>,
    ) -> Result<T, RequestFailure> {
        loop {
            if let Some(heard) = self.next_buffered(&mut read)? {
                return Ok(heard);
            }
            self.heard.reserve(READ_BYTES);
            if self.stream.read_buf(&mut self.heard).await.map_err(lost)? == 0 {
                return Err(RequestFailure::Lost("the server has closed the connection".into()));
            }
        }
    }

    /// Hands the next packet that has arrived already to `read`.
    pub(crate) fn next_buffered<T>(
        &mut self,
        read: impl FnOnce(Packet<'_>) -> Result<T, RequestFailure>,
    ) -> Result<Option<T>, RequestFailure> {
        let Framed::Whole(frame) = frame(&self.heard, PACKET_MAX_BYTES).map_err(lost)? else { return Ok(None) };
        let heard = read(decode(frame, Version::V311).map_err(lost)?)?;
        let size = frame.size;
        self.heard.advance(size);
        Ok(Some(heard))
    }
}

fn lost(error: impl std::error::Error + Send + Sync + 'static) -> RequestFailure {
    RequestFailure::Lost(Box::new(error))
}
