//! Devices that wait for commands over MQTT, each with a subscription of its own.

use std::io;
use std::time::Duration;

use bytes::BytesMut;
use rumqttc::QoS;
use rumqttc::mqttbytes::Error as PacketError;
use rumqttc::mqttbytes::v4::{Connect, Packet, PingReq, PubAck, Publish, Subscribe, SubscribeReasonCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{Ready, STATUS};
use crate::client::Target;
use crate::sim::{Auth, SimArgs};
use crate::{Error, Failure};

/// What the server is told: a client that is silent for longer than one and a half times this is gone.
const KEEP_ALIVE: Duration = Duration::from_secs(60);
/// A longer packet is no command.
const PACKET_MAX_BYTES: usize = 16 << 20;
/// All commands for the device that logs in.
const FILTER: &str = "command///req/#";

/// All of them.
pub(super) struct Devices {
    args: SimArgs,
    target: Target,
    qos: QoS,
}

impl Devices {
    pub(super) fn of(args: &SimArgs) -> Result<Self, Error> {
        let qos = if args.qos == 0 { QoS::AtMostOnce } else { QoS::AtLeastOnce };
        Ok(Self { args: args.clone(), target: args.target()?, qos })
    }

    /// Listens and answers until the connection breaks; why it did.
    pub(super) async fn serve(&self, number: u64, ready: &mut Ready) -> Failure {
        let limit = self.target.request_timeout;
        let opened = timeout(limit, self.subscribe(number)).await.unwrap_or(Err(Failure::Timeout(limit)));
        *ready = None;
        let answered = match opened {
            Ok(mut subscriber) => subscriber.answer_all(self.qos).await,
            Err(failure) => Err(failure),
        };
        match answered {
            Err(failure) => failure,
            Ok(never) => match never {},
        }
    }

    /// A connection whose subscription is confirmed.
    async fn subscribe(&self, number: u64) -> Result<Subscriber, Failure> {
        let id = self.args.device_id(number);
        let socket = TcpStream::connect(&self.target.address).await.map_err(Failure::Connect)?;
        socket.set_nodelay(true).map_err(Failure::Connect)?;
        let mut subscriber = Subscriber { socket, read: BytesMut::new(), out: BytesMut::new(), next_id: 1 };
        let mut hello = Connect::new(id.as_str());
        (hello.keep_alive, hello.clean_session) = (KEEP_ALIVE.as_secs() as u16, true);
        if self.args.auth == Auth::Basic {
            hello.set_login(format!("{id}@{}", self.args.tenant), self.args.password.as_str());
        }
        hello.write(&mut subscriber.out).map_err(no_packet)?;
        match subscriber.exchange().await? {
            Packet::ConnAck(welcome) if welcome.code as u8 == 0 => {}
            Packet::ConnAck(refusal) => return Err(Failure::Refused(refusal.code as u8)),
            other => return Err(unexpected(&other)),
        }
        let mut subscribe = Subscribe::new(FILTER, self.qos);
        subscribe.pkid = 1;
        subscribe.write(&mut subscriber.out).map_err(no_packet)?;
        match subscriber.exchange().await? {
            Packet::SubAck(answer) if !answer.return_codes.contains(&SubscribeReasonCode::Failure) => Ok(subscriber),
            other => Err(unexpected(&other)),
        }
    }
}

/// A device's connection.
struct Subscriber {
    socket: TcpStream,
    read: BytesMut,
    /// To be written.
    out: BytesMut,
    next_id: u16,
}

impl Subscriber {
    async fn answer_all(&mut self, qos: QoS) -> Result<std::convert::Infallible, Failure> {
        loop {
            match timeout(KEEP_ALIVE, self.exchange()).await {
                Ok(packet) => match packet? {
                    Packet::Publish(command) => self.answer(&command, qos)?,
                    Packet::PubAck(_) | Packet::PingResp => {}
                    other => return Err(unexpected(&other)),
                },
                Err(_) => drop(PingReq.write(&mut self.out).map_err(no_packet)?),
            }
        }
    }

    /// Confirms a command and says what has become of it.
    fn answer(&mut self, command: &Publish, qos: QoS) -> Result<(), Failure> {
        if command.qos == QoS::AtLeastOnce {
            PubAck::new(command.pkid).write(&mut self.out).map_err(no_packet)?;
        }
        // command / tenant / device / req / request id / name
        let Some(request) = command.topic.split('/').nth(4).filter(|request| !request.is_empty()) else {
            return Ok(());
        };
        let topic = format!("command///res/{request}/{STATUS}");
        let mut answer = Publish::new(topic, qos, command.payload.clone());
        answer.pkid = self.next_id;
        self.next_id = self.next_id.checked_add(1).unwrap_or(1);
        answer.write(&mut self.out).map(drop).map_err(no_packet)
    }

    /// Writes what is to be written; the next packet. A future that is dropped while nothing is to be written has taken
    /// nothing.
    async fn exchange(&mut self) -> Result<Packet, Failure> {
        loop {
            match Packet::read(&mut self.read, PACKET_MAX_BYTES) {
                Ok(packet) => return Ok(packet),
                Err(PacketError::InsufficientBytes(_)) => {}
                Err(error) => return Err(no_packet(error)),
            }
            if !self.out.is_empty() {
                self.socket.write_all_buf(&mut self.out).await.map_err(lost)?;
            }
            if self.socket.read_buf(&mut self.read).await.map_err(lost)? == 0 {
                return Err(Failure::Lost("the server has closed the connection".into()));
            }
        }
    }
}

fn lost(error: io::Error) -> Failure {
    Failure::Lost(Box::new(error))
}

fn no_packet(error: PacketError) -> Failure {
    Failure::Lost(Box::new(error))
}

fn unexpected(packet: &Packet) -> Failure {
    Failure::Lost(format!("{packet:?} was not asked for").into())
}
