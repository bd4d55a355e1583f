//! A connection to a broker, whose answers and failures count for the contact with it.

use std::sync::Arc;
use std::time::Duration;

use kafka_protocol::protocol::Request;
use millstream_kafka_wire::{CallError, Connection, log_in};
use tokio::io::split;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::contact::Contact;
use crate::security::Security;

/// Largest answer that is read; a fetch asks for much less.
const ANSWER_MAX_BYTES: usize = 128 << 20;

/// A connection to one broker, which has taken the login if there is any.
#[derive(Debug)]
pub(crate) struct BrokerConnection {
    connection: Connection,
    request_timeout: Duration,
    contact: Arc<Contact>,
}

impl BrokerConnection {
    /// Connects to the broker at `address`, and logs in.
    pub(crate) async fn open(
        address: &str,
        security: &Security,
        request_timeout: Duration,
        contact: Arc<Contact>,
    ) -> Result<Self, CallError> {
        let unsent = |why: String| CallError::Unsent(format!("{address}: {why}"));
        let connected = timeout(request_timeout, connect(address, security, request_timeout)).await;
        let connected = connected.unwrap_or_else(|_| Err("no answer".to_owned()));
        let connection = connected.inspect_err(|_| contact.failed()).map_err(unsent)?;
        let open = Self { connection, request_timeout, contact };
        if let Some(login) = &security.login {
            let logged_in = log_in(&open.connection, login).await;
            open.note(&logged_in);
            logged_in.map_err(|error| unsent(error.to_string()))?;
        }
        Ok(open)
    }

    /// `true` if no further request can be sent.
    pub(crate) fn is_closed(&self) -> bool {
        self.connection.is_closed()
    }

    /// Sends a request and waits for its answer.
    pub(crate) async fn call<R: Request>(&self, request: &R, version: i16) -> Result<R::Response, CallError> {
        self.call_within(request, version, self.request_timeout).await
    }

    /// As [`BrokerConnection::call`], for a request that the broker itself may hold for some of `patience`.
    pub(crate) async fn call_within<R: Request>(
        &self,
        request: &R,
        version: i16,
        patience: Duration,
    ) -> Result<R::Response, CallError> {
        let answer = self.connection.call_within(request, version, patience).await;
        self.note(&answer);
        answer
    }

    fn note<T>(&self, answer: &Result<T, CallError>) {
        match answer {
            Ok(_) => self.contact.answered(),
            Err(CallError::Unanswered(_)) => self.contact.failed(),
            Err(CallError::Unsent(_)) => {}
        }
    }
}

async fn connect(address: &str, security: &Security, request_timeout: Duration) -> Result<Connection, String> {
    let socket = TcpStream::connect(address).await.map_err(|e| e.to_string())?;
    socket.set_nodelay(true).map_err(|e| e.to_string())?;
    Ok(match &security.tls {
        None => {
            let (reader, writer) = socket.into_split();
            Connection::over(reader, writer, request_timeout, ANSWER_MAX_BYTES)
        }
        Some(tls) => {
            let (reader, writer) = split(tls.connect(socket, address).await?);
            Connection::over(reader, writer, request_timeout, ANSWER_MAX_BYTES)
        }
    })
}
