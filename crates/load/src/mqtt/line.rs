//! One connection of a device to an MQTT server.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::packet::{Heard, take};
use crate::Failure;

/// Most bytes that are read at once; what a server says to a client that only publishes is short.
const READ_BYTES: usize = 256;

/// How long opening a connection may take, the server's welcome included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// An open connection whose client is logged in.
#[derive(Debug)]
pub(crate) struct Line {
    stream: TcpStream,
    /// Read and not yet worked off: `heard[begin..end]`.
    heard: Box<[u8; READ_BYTES]>,
    begin: usize,
    end: usize,
}

impl Line {
    /// Connects and logs in with the CONNECT packet `hello`. Its answer may take `limit`.
    ///
    /// # Errors
    /// Why it did not come to that; [`Failure::Refused`] if the server does not want this client.
    pub(crate) async fn open(address: &str, hello: &[u8], limit: Duration) -> Result<Self, Failure> {
        let connecting = timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await;
        let stream = connecting.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())).map_err(Failure::Connect)?;
        stream.set_nodelay(true).map_err(Failure::Connect)?;
        let mut line = Self { stream, heard: Box::new([0; READ_BYTES]), begin: 0, end: 0 };
        line.send(hello, limit).await?;
        let welcome = timeout(limit, line.hear()).await.map_err(|_| Failure::Timeout(limit))??;
        match welcome {
            Heard::Welcome(0) => Ok(line),
            Heard::Welcome(code) => Err(Failure::Refused(code)),
            other => Err(Failure::Lost(format!("{other:?} came before the welcome").into())),
        }
    }

    /// Writes all of `bytes`.
    pub(crate) async fn send(&mut self, bytes: &[u8], limit: Duration) -> Result<(), Failure> {
        let written = timeout(limit, self.stream.write_all(bytes)).await.map_err(|_| Failure::Timeout(limit))?;
        written.map_err(|error| Failure::Lost(Box::new(error)))
    }

    /// The next packet, once it is there. A future that is dropped has taken nothing.
    pub(crate) async fn hear(&mut self) -> Result<Heard, Failure> {
        loop {
            if let Some(heard) = self.heard_already()? {
                return Ok(heard);
            }
            self.heard.copy_within(self.begin..self.end, 0);
            (self.begin, self.end) = (0, self.end - self.begin);
            match self.stream.read(&mut self.heard[self.end..]).await {
                Ok(0) => return Err(Failure::Lost("the server has closed the connection".into())),
                Ok(read) => self.end += read,
                Err(error) => return Err(Failure::Lost(Box::new(error))),
            }
        }
    }

    /// The next packet of those that were read before.
    pub(crate) fn heard_already(&mut self) -> Result<Option<Heard>, Failure> {
        let packet = take(&self.heard[self.begin..self.end]).map_err(|why| Failure::Lost(why.into()))?;
        Ok(packet.map(|(heard, length)| {
            self.begin += length;
            heard
        }))
    }
}
