//! An application over AMQP 1.0: frames are written and read one by one.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use millstream_amqp::{
    Attach, Begin, Body, DeliveryState, Disposition, FRAME_MIN_MAX_BYTES, Flow, Framed, HEADER_BYTES, Message,
    MessageDraft, Open, Performative, ProtocolHeader, Sasl, SaslInit, SaslResponse, Source, Symbol, Target,
    TargetTerminus, Transfer, Value, frame, write_frame, write_sasl,
};
use millstream_net::{
    Login, LoginCheck, Logins, RefusedLogin, Revocation, Revoker, ScramCredential, ScramMechanism, ScramUser,
};
use millstream_types::{AccessScope, Principal, Roles, SystemClock, TenantId, WallClock as _};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Time after which a silent server has failed the test.
const PATIENCE: Duration = Duration::from_secs(30);

/// The applications that may log in; nobody has to if there are none.
#[derive(Default)]
pub(crate) struct Users {
    open: Revoker,
    users: Vec<(&'static str, Login)>,
}

/// The secret of every user.
pub(crate) const SECRET: &str = "mst_secret";

impl Users {
    /// Adds an application with these roles in its tenant.
    pub(crate) fn with(mut self, name: &'static str, tenant: &str, roles: Roles) -> Self {
        let (tenant, scope) = (TenantId::new(tenant).unwrap(), AccessScope::default());
        let principal = Arc::new(Principal { tenant, name: name.to_owned(), roles, scope });
        self.users.push((name, Login { principal, in_every_tenant: false, revocation: None, expires_ms: None }));
        self
    }

    /// Has the tokens expire in so many milliseconds.
    pub(crate) fn expiring(mut self, in_ms: i64) -> Self {
        let now_ms = SystemClock::default().now_ms();
        self.users.iter_mut().for_each(|(_, login)| login.expires_ms = Some(now_ms + in_ms));
        self
    }

    fn named(&self, name: &str) -> Option<Login> {
        self.users.iter().find(|(known, _)| *known == name).map(|(_, login)| login.clone())
    }
}

impl Logins for Users {
    fn open_access(&self) -> Option<Revocation> {
        self.users.is_empty().then(|| self.open.revocation())
    }

    fn log_in<'a>(&'a self, name: Option<&'a str>, password: &'a str) -> LoginCheck<'a> {
        let is_right = password == SECRET;
        // A token alone is that of the first one.
        let named = name.map_or_else(|| self.users.first().map(|(_, login)| login.clone()), |name| self.named(name));
        let login = named.filter(|_| is_right);
        Box::pin(async move { login.ok_or(RefusedLogin::Unknown) })
    }

    fn scram(&self, name: &str, mechanism: ScramMechanism) -> Option<(ScramCredential, Login)> {
        Some((ScramCredential::derive(mechanism, SECRET), self.named(name)?))
    }

    fn scram_users(&self, _: Option<&TenantId>) -> Vec<ScramUser> {
        Vec::new()
    }
}

/// A connection of an application.
pub(crate) struct Amqp {
    socket: TcpStream,
    held: Vec<u8>,
    out: Vec<u8>,
}

/// A message that was received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Received {
    pub(crate) handle: u32,
    pub(crate) id: u32,
    pub(crate) is_settled: bool,
    pub(crate) payload: Vec<u8>,
    pub(crate) failed_deliveries: u32,
    pub(crate) device: String,
    /// The correlation id, as it is printed.
    pub(crate) correlation_id: String,
    pub(crate) status: Option<i32>,
    /// Frames that it came in.
    pub(crate) frames: usize,
}

impl Amqp {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        Self { socket: TcpStream::connect(address).await.unwrap(), held: Vec::new(), out: Vec::new() }
    }

    /// Connects and opens without a login, with largest frames of `frame_max_bytes`.
    pub(crate) async fn open(address: SocketAddr, frame_max_bytes: u32) -> Self {
        Self::open_by(address, Open { max_frame_size: frame_max_bytes, ..opening() }).await
    }

    /// The same for a client that wants a frame at least every so many milliseconds.
    pub(crate) async fn open_with_idle(address: SocketAddr, idle_ms: u32) -> Self {
        Self::open_by(address, Open { idle_time_out: Some(idle_ms), ..opening() }).await
    }

    async fn open_by(address: SocketAddr, open: Open<'_>) -> Self {
        let mut client = Self::connect(address).await;
        client.out.extend_from_slice(&ProtocolHeader::Amqp.bytes());
        client.write(0, &Performative::Open(open)).send().await;
        assert_eq!(client.bytes(HEADER_BYTES).await, ProtocolHeader::Amqp.bytes());
        client.expect(|body| matches!(body, Performative::Open(_)).then_some(())).await;
        client
    }

    /// Logs in by a mechanism; `steps` answers challenges. Returns the code of the outcome.
    pub(crate) async fn log_in(
        &mut self,
        mechanism: &str,
        first: Option<&[u8]>,
        mut step: impl FnMut(&[u8]) -> Vec<u8>,
    ) -> u8 {
        self.out.extend_from_slice(&ProtocolHeader::Sasl.bytes());
        self.send().await;
        assert_eq!(self.bytes(HEADER_BYTES).await, ProtocolHeader::Sasl.bytes());
        let init = SaslInit { mechanism: Symbol(mechanism), initial_response: first, hostname: None };
        write_sasl(&mut self.out, &Sasl::Init(init));
        self.send().await;
        loop {
            let bytes = self.frame().await.expect("the outcome of a login");
            let Ok(Framed::Whole(whole)) = frame(&bytes, usize::MAX) else { panic!("a frame") };
            match whole.body().unwrap() {
                Body::Sasl(Sasl::Mechanisms(_)) => {}
                Body::Sasl(Sasl::Challenge(challenge)) => {
                    let response = step(challenge.challenge);
                    write_sasl(&mut self.out, &Sasl::Response(SaslResponse { response: &response }));
                    self.send().await;
                }
                Body::Sasl(Sasl::Outcome(outcome)) => return outcome.code,
                other => panic!("{other:?}"),
            }
        }
    }

    /// Opens after a login.
    pub(crate) async fn open_logged_in(&mut self) {
        self.out.extend_from_slice(&ProtocolHeader::Amqp.bytes());
        self.write(0, &Performative::Open(opening())).send().await;
        assert_eq!(self.bytes(HEADER_BYTES).await, ProtocolHeader::Amqp.bytes());
        self.expect(|body| matches!(body, Performative::Open(_)).then_some(())).await;
    }

    /// Appends bytes to what is sent next.
    pub(crate) fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.out.extend_from_slice(bytes);
        self
    }

    /// Appends a frame to what is sent next.
    pub(crate) fn write(&mut self, channel: u16, performative: &Performative<'_>) -> &mut Self {
        write_frame(&mut self.out, channel, performative, &[]);
        self
    }

    pub(crate) async fn send(&mut self) {
        let out = std::mem::take(&mut self.out);
        self.socket.write_all(&out).await.unwrap();
    }

    /// Begins a session, attaches a receiver of `address` and grants credit, without waiting for an answer.
    pub(crate) async fn receive(&mut self, address: &str, credit: u32) {
        self.begin(0, 5_000).attach(0, 0, address, None).credit(0, None, credit).send().await;
        self.expect(|body| match body {
            Performative::Attach(attach) if attach.source.is_some() => Some(()),
            Performative::Detach(detach) => panic!("{detach:?}"),
            _ => None,
        })
        .await;
    }

    pub(crate) fn begin(&mut self, channel: u16, window: u32) -> &mut Self {
        let begin = Begin { incoming_window: window, outgoing_window: 100, ..Begin::default() };
        self.write(channel, &Performative::Begin(begin))
    }

    /// Attaches a receiver, with the name of a subscription if there is one.
    pub(crate) fn attach(&mut self, channel: u16, handle: u32, address: &str, subscription: Option<&str>) -> &mut Self {
        let source = Some(Source { address: Some(Value::String(address)), ..Source::default() });
        let mut properties = millstream_amqp::MapBuilder::default();
        if let Some(name) = subscription {
            properties.symbol("subscription-name", Value::String(name));
        }
        let properties = (!properties.is_empty()).then(|| properties.clone());
        let name = format!("link-{channel}-{handle}");
        let properties = properties.as_ref().map(|properties| properties.as_map());
        let attach = Attach { name: &name, handle, role: true, source, properties, ..Attach::default() };
        self.write(channel, &Performative::Attach(attach))
    }

    /// Attaches a sender; without an address its messages name theirs.
    pub(crate) fn attach_sender(&mut self, handle: u32, address: Option<&str>) -> &mut Self {
        let target = Target { address: address.map(Value::String), ..Target::default() };
        let (source, target) = (Some(Source::default()), Some(TargetTerminus::Node(target)));
        let name = format!("sender-{handle}");
        let attach =
            Attach { name: &name, handle, source, target, initial_delivery_count: Some(0), ..Attach::default() };
        self.write(0, &Performative::Attach(attach))
    }

    /// Appends a message in frames with at most `part_bytes` of it.
    pub(crate) fn transfer(
        &mut self,
        handle: u32,
        id: u32,
        message: &MessageDraft<'_>,
        part_bytes: usize,
    ) -> &mut Self {
        let mut bytes = Vec::new();
        message.write(&mut bytes);
        let mut parts = bytes.chunks(part_bytes).peekable();
        let tag = id.to_be_bytes();
        let (mut delivery_id, mut delivery_tag) = (Some(id), Some(&tag[..]));
        while let Some(part) = parts.next() {
            let transfer = Transfer {
                handle,
                delivery_id: delivery_id.take(),
                delivery_tag: delivery_tag.take(),
                more: parts.peek().is_some(),
                ..Transfer::default()
            };
            write_frame(&mut self.out, 0, &Performative::Transfer(transfer), part);
        }
        self
    }

    /// The outcome of what was sent: empty if it was accepted, `released`, or the condition and the text of its rejection.
    pub(crate) async fn outcome(&mut self, id: u32) -> String {
        self.expect(|body| match body {
            Performative::Disposition(Disposition { role: true, first, settled: true, state: Some(state), .. })
                if *first == id =>
            {
                Some(match state {
                    DeliveryState::Accepted => String::new(),
                    DeliveryState::Released => "released".to_owned(),
                    DeliveryState::Rejected(Some(error)) => {
                        format!("{}: {}", error.condition.0, error.description.unwrap_or_default())
                    }
                    other => panic!("{other:?}"),
                })
            }
            _ => None,
        })
        .await
    }

    /// Grants credit from a count of deliveries.
    pub(crate) fn credit(&mut self, handle: u32, delivery_count: Option<u32>, credit: u32) -> &mut Self {
        let flow = Flow { delivery_count, link_credit: Some(credit), ..flow_of(handle) };
        self.write(0, &Performative::Flow(flow))
    }

    /// Settles deliveries.
    pub(crate) fn settle(&mut self, first: u32, last: u32, state: DeliveryState<'_>) -> &mut Self {
        let settled =
            Disposition { role: true, first, last: Some(last), settled: true, state: Some(state), batchable: false };
        self.write(0, &Performative::Disposition(settled))
    }

    /// Reads frames until `wanted` finds something in one.
    pub(crate) async fn expect<T>(&mut self, wanted: impl Fn(&Performative<'_>) -> Option<T>) -> T {
        loop {
            let bytes = self.frame().await.expect("the connection goes on");
            let Ok(Framed::Whole(whole)) = frame(&bytes, usize::MAX) else { panic!("a frame") };
            let body = whole.body().unwrap();
            let Body::Amqp { performative, .. } = body else { continue };
            match wanted(&performative) {
                Some(found) => return found,
                None if matches!(performative, Performative::Close(_)) => panic!("{performative:?}"),
                None => {}
            }
        }
    }

    /// Receives so many messages, whatever other frames come between them.
    pub(crate) async fn messages(&mut self, count: usize) -> Vec<Received> {
        let mut received = Vec::new();
        while received.len() < count {
            received.push(self.message().await.expect("a message"));
        }
        received
    }

    /// Receives a message; `None` once the server has nothing more to say: it answers an echo first.
    pub(crate) async fn message(&mut self) -> Option<Received> {
        let (mut whole, mut frames, mut first) = (Vec::new(), 0, None);
        loop {
            let bytes = self.frame().await.expect("the connection goes on");
            let Ok(Framed::Whole(read)) = frame(&bytes, usize::MAX) else { panic!("a frame") };
            let Body::Amqp { performative, payload, .. } = read.body().unwrap() else { continue };
            let transfer = match performative {
                Performative::Transfer(transfer) => transfer,
                Performative::Flow(_) => return None,
                Performative::Detach(_) | Performative::End(_) | Performative::Close(_) => panic!("{performative:?}"),
                _ => continue,
            };
            whole.extend_from_slice(payload);
            frames += 1;
            let id = transfer.delivery_id.or(first).unwrap();
            first = Some(id);
            if transfer.more {
                continue;
            }
            let message = Message::read(&whole).unwrap();
            let device = message.application_properties.get("device_id").and_then(|value| value.text());
            return Some(Received {
                handle: transfer.handle,
                id,
                is_settled: transfer.settled == Some(true),
                payload: message.content.bytes().unwrap().to_vec(),
                failed_deliveries: message.header.delivery_count,
                device: device.unwrap_or_default().to_owned(),
                correlation_id: message.properties.correlation_id.map_or(String::new(), |id| format!("{id:?}")),
                status: message.application_properties.get("status").map(|status| match status {
                    Value::Int(status) => status,
                    other => panic!("{other:?}"),
                }),
                frames,
            });
        }
    }

    /// Receives so many transfers: whether more of the message follows, and their bytes.
    pub(crate) async fn transfers(&mut self, count: usize) -> Vec<(bool, Vec<u8>)> {
        let mut received = Vec::new();
        while received.len() < count {
            let bytes = self.frame().await.expect("the connection goes on");
            let Ok(Framed::Whole(read)) = frame(&bytes, usize::MAX) else { panic!("a frame") };
            if let Body::Amqp { performative: Performative::Transfer(transfer), payload, .. } = read.body().unwrap() {
                received.push((transfer.more, payload.to_vec()));
            }
        }
        received
    }

    /// The messages that come before the answer to a flow with echo.
    pub(crate) async fn messages_so_far(&mut self) -> Vec<Received> {
        let mut received = Vec::new();
        // Records become stable, and a bell rings, in a time of their own: two silent rounds are the end.
        for _ in 0..2 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            let echo = Flow { echo: true, ..flow_of_session() };
            self.write(0, &Performative::Flow(echo)).send().await;
            while let Some(message) = self.message().await {
                received.push(message);
            }
        }
        received
    }

    /// The condition and the text with which the server closes the connection.
    pub(crate) async fn closed(&mut self) -> (String, String) {
        loop {
            let bytes = self.frame().await.expect("a close");
            let Ok(Framed::Whole(whole)) = frame(&bytes, usize::MAX) else { panic!("a frame") };
            if let Body::Amqp { performative: Performative::Close(close), .. } = whole.body().unwrap() {
                let error = close.error.expect("a reason");
                assert!(self.frame().await.is_none(), "the connection ends");
                return (error.condition.0.to_owned(), error.description.unwrap_or_default().to_owned());
            }
        }
    }

    /// The bytes of the next frame; `None` at the end.
    pub(crate) async fn frame(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Ok(Framed::Whole(whole)) = frame(&self.held, usize::MAX) {
                let rest = self.held.split_off(whole.size);
                return Some(std::mem::replace(&mut self.held, rest));
            }
            if self.read().await == 0 {
                return None;
            }
        }
    }

    pub(crate) async fn bytes(&mut self, count: usize) -> Vec<u8> {
        while self.held.len() < count {
            assert!(self.read().await > 0, "{count} bytes");
        }
        let rest = self.held.split_off(count);
        std::mem::replace(&mut self.held, rest)
    }

    async fn read(&mut self) -> usize {
        timeout(PATIENCE, self.socket.read_buf(&mut self.held)).await.expect("the server says something").unwrap_or(0)
    }
}

fn opening() -> Open<'static> {
    Open { container_id: "test", max_frame_size: FRAME_MIN_MAX_BYTES as u32, ..Open::default() }
}

fn flow_of_session() -> Flow<'static> {
    Flow { incoming_window: 5_000, outgoing_window: 100, ..Flow::default() }
}

pub(crate) fn flow_of(handle: u32) -> Flow<'static> {
    Flow { handle: Some(handle), ..flow_of_session() }
}
