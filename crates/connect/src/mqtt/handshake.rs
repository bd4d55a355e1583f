//! From the first byte of a connection to its CONNACK.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use millstream_mqtt::from_client::{Packet, decode};
use millstream_mqtt::to_client::{connack, connack_refusal};
use millstream_mqtt::{ConnackParts, Connect, Framed, Version, frame, reason};
use millstream_net::{PendingLogin, Refusal, TlsSession};
use millstream_types::TenantId;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;

use super::adapter::MqttAdapter;
use super::broker::{Claim, NoSession};
use super::broker_client::BrokerClient;
use super::client::{Client, Counted, Takes};
use super::disconnect::{CONNECT_MAX_BYTES, DisconnectCause};
use super::framing::FramedIo;
use super::last_will::LastWill;
use crate::connection_table::{ClientProtocol, ClientRole, ConnectionFacts, LiveConnection};
use crate::framed_io::Read;
use crate::login::MqttClaim;
use crate::registry::has_broker;
use crate::streams::TenantStreams;
use crate::topic_filter::is_reserved;

/// The listener's verdict on a connection.
pub(super) enum Entrance {
    /// It may come in, once its client has logged in.
    Admitted(PendingLogin),
    /// It may not; its client is told so as soon as it has said its name.
    Refused(Refusal),
}

impl Entrance {
    /// The client has logged in; refuses it where the listener has no room for another connection of its tenant.
    fn count_for(&self, tenant: &TenantId) -> Result<(), ConnectRefusal> {
        match self {
            Self::Admitted(login) => {
                login.succeeded(tenant).map_err(|full| ConnectRefusal(reason::ANOTHER_SERVER, full.to_string()))
            }
            Self::Refused(_) => Ok(()),
        }
    }
}

/// A client that was let in.
pub(super) struct AdmittedClient {
    pub(super) client: Client,
    /// Its place in the table of connections.
    pub(super) live: LiveConnection,
    /// The keep alive in force; 0 is none.
    pub(super) keep_alive_s: u16,
}

/// The content of a CONNECT, kept while its login is checked.
struct Hello {
    version: Version,
    keep_alive_s: u16,
    client_id: String,
    clean_start: bool,
    has_authentication_method: bool,
    user: Option<String>,
    password: Vec<u8>,
    session_expiry_s: u32,
    receive_max: u16,
    packet_max_bytes: usize,
    alias_max: u16,
    will: Option<LastWill>,
}

/// The other end of a connection.
pub(super) struct Peer {
    pub(super) address: SocketAddr,
    pub(super) tls: TlsSession,
}

/// A refused CONNECT: reason code of MQTT 5, and the text.
struct ConnectRefusal(u8, String);

/// Waits for CONNECT and answers it. `None` if the client was turned away, and told why.
pub(super) async fn admit<S: AsyncRead + AsyncWrite + Unpin>(
    io: &mut FramedIo<S>,
    adapter: &Arc<MqttAdapter>,
    peer: &Peer,
    entrance: &Entrance,
) -> Result<Option<AdmittedClient>, DisconnectCause> {
    let limit = Duration::from_millis(adapter.config.connect_timeout_ms);
    let mut hello = match timeout(limit, hello(io, adapter)).await.map_err(|_| DisconnectCause::NoConnect { limit })? {
        Ok(hello) => hello,
        Err(DisconnectCause::Refused { reason: reason::UNSUPPORTED_VERSION, why }) => {
            // In the form of 3.1.1, which all clients know.
            connack_refusal(&mut io.out, Version::V311, reason::UNSUPPORTED_VERSION, &why, usize::MAX);
            io.flush(limit).await?;
            return Err(DisconnectCause::Refused { reason: reason::UNSUPPORTED_VERSION, why });
        }
        Err(DisconnectCause::TooLarge { size_bytes, limit_bytes: CONNECT_MAX_BYTES }) => {
            return Err(DisconnectCause::LargeConnect { size_bytes });
        }
        Err(fault) => return Err(fault),
    };
    if let Entrance::Admitted(login) = entrance {
        login.heard();
    }
    let is_unnamed = hello.client_id.is_empty() && !hello.clean_start && hello.version == Version::V311;
    let assigned = hello.client_id.is_empty().then(|| format!("auto-{:016x}", fastrand::u64(..)));
    if let Some(assigned) = &assigned {
        hello.client_id.clone_from(assigned);
    }
    let judged = match timeout(limit, judge(&hello, adapter, peer, entrance, is_unnamed)).await {
        Ok(judged) => judged,
        Err(_) => Err(ConnectRefusal(reason::BUSY, "the login was not checked in time; try again later".to_owned())),
    };
    let (mut client, session_present) = match judged {
        Ok(judged) => judged,
        Err(ConnectRefusal(code, why)) => {
            tracing::debug!(client_id = hello.client_id, code, why, "mqtt: turned away");
            if let Some(outcome) = outcome(code) {
                adapter.connections.refused(hello.user.as_deref(), outcome, peer.tls.cipher_suite);
            }
            connack_refusal(&mut io.out, hello.version, code, &why, hello.packet_max_bytes);
            io.flush(limit).await?;
            return Ok(None);
        }
    };
    let config = &adapter.config;
    let most_s = if client.broker_client.is_some() { config.broker.session_expiry_max_s } else { 0 };
    let expiry_s = hello.session_expiry_s.min(most_s);
    let ceiling = config.keep_alive_max_s;
    let is_too_long = hello.version == Version::V5 && (hello.keep_alive_s == 0 || hello.keep_alive_s > ceiling);
    let keep_alive_s = if is_too_long { ceiling } else { hello.keep_alive_s };
    connack(
        &mut io.out,
        hello.version,
        &ConnackParts {
            session_present,
            session_expiry_s: (expiry_s != hello.session_expiry_s).then_some(expiry_s),
            receive_max: config.in_flight_max,
            packet_max_bytes: client.packet_max_bytes() as u32,
            alias_max: config.aliases_max,
            keep_alive_s: is_too_long.then_some(ceiling),
            has_broker: client.broker_client.is_some(),
            assigned_client_id: assigned.as_deref(),
        },
    );
    if io.out.len() > hello.packet_max_bytes {
        let why = format!("its maximum packet size leaves no room for a CONNACK of {} bytes", io.out.len());
        io.out.clear();
        connack_refusal(&mut io.out, hello.version, reason::IMPLEMENTATION, &why, hello.packet_max_bytes);
        io.flush(limit).await?;
        return Ok(None);
    }
    // Without a private space a will elsewhere has no effect, as with Hono.
    client.will = hello.will.take().filter(|will| is_reserved(&will.topic) || client.broker_client.is_some());
    io.allow(client.uplink.tenant(), client.packet_max_bytes());
    let live = enter(adapter, &client, peer.address);
    live.set_client_id(&hello.client_id);
    Ok(Some(AdmittedClient { client, live, keep_alive_s }))
}

/// Enters a client that is let in into the table of connections.
fn enter(adapter: &MqttAdapter, client: &Client, address: SocketAddr) -> LiveConnection {
    let (tenant, device) = (client.uplink.tenant(), &client.uplink.who().name);
    let login = client.login.as_ref();
    let facts = ConnectionFacts {
        protocol: ClientProtocol::Mqtt,
        address,
        role: ClientRole::Device,
        login: login.map(|login| format!("{}@{tenant}", login.auth_id.as_str()).into()),
        device: login.map(|_| device.as_str().into()),
    };
    adapter.connection_table.enter(tenant, facts, Arc::clone(&client.figures) as _)
}

async fn hello<S: AsyncRead + AsyncWrite + Unpin>(
    io: &mut FramedIo<S>,
    adapter: &Arc<MqttAdapter>,
) -> Result<Hello, DisconnectCause> {
    let limit_bytes = adapter.config.packet_max_bytes.min(CONNECT_MAX_BYTES);
    let mut hello = None;
    while hello.is_none() {
        let read = io.read(|bytes: &[u8], _: &mut Vec<u8>| {
            if hello.is_some() {
                return Ok(0);
            }
            let Framed::Whole(frame) = frame(bytes, limit_bytes)? else {
                return if bytes[0] >> 4 == 1 {
                    Ok(0)
                } else {
                    Err(DisconnectCause::Protocol("the first packet is no CONNECT"))
                };
            };
            let Packet::Connect(connect) = decode(frame, Version::V311)? else {
                return Err(DisconnectCause::Protocol("the first packet is no CONNECT"));
            };
            hello = Some(Hello::of(&connect));
            Ok(frame.size)
        });
        if read.await? == Read::End && hello.is_none() {
            return Err(DisconnectCause::Protocol("it ended without CONNECT"));
        }
    }
    hello.ok_or(DisconnectCause::Protocol("it ended without CONNECT"))
}

impl Hello {
    fn of(connect: &Connect<'_>) -> Self {
        Self {
            version: connect.version,
            keep_alive_s: connect.keep_alive_s,
            client_id: connect.client_id.to_owned(),
            clean_start: connect.clean_start,
            has_authentication_method: connect.authentication_method.is_some(),
            user: connect.user.map(str::to_owned),
            password: connect.password.unwrap_or_default().to_vec(),
            session_expiry_s: connect.session_expiry_s,
            receive_max: connect.receive_max,
            packet_max_bytes: usize::try_from(connect.packet_max_bytes).unwrap_or(usize::MAX),
            alias_max: connect.alias_max,
            will: connect.will.as_ref().map(LastWill::of),
        }
    }
}

async fn judge(
    hello: &Hello,
    adapter: &Arc<MqttAdapter>,
    peer: &Peer,
    entrance: &Entrance,
    is_unnamed: bool,
) -> Result<(Client, bool), ConnectRefusal> {
    let TlsSession { client_certificate, cipher_suite } = &peer.tls;
    let (certificate, cipher_suite) = (client_certificate.as_ref(), *cipher_suite);
    let refuse = |code, why: &str| Err(ConnectRefusal(code, why.to_owned()));
    if let Entrance::Refused(refusal) = entrance {
        let code = match refusal {
            Refusal::NotTls => reason::NOT_AUTHORISED,
            Refusal::LoginsPending { .. } => reason::BUSY,
            Refusal::NoMemory { .. } => reason::ANOTHER_SERVER,
        };
        return Err(ConnectRefusal(code, refusal.to_string()));
    }
    if hello.has_authentication_method {
        return refuse(
            reason::BAD_AUTHENTICATION_METHOD,
            "devices log in with user name and password, a token or a certificate",
        );
    }
    if is_unnamed {
        return refuse(reason::BAD_CLIENT_ID, "a client that wants its session kept needs a client id");
    }
    let takes = Takes { packet_max_bytes: hello.packet_max_bytes, messages: usize::from(hello.receive_max) };
    let user = hello.user.as_deref();
    if user.is_none() && hello.password.is_empty() {
        let is_open = !adapter.config.authentication_required;
        let is_trusted = || certificate.is_some_and(|certificate| adapter.logins.is_trusted(certificate));
        if is_open && !is_trusted() {
            let client = Client::anonymous(Arc::clone(adapter), cipher_suite, hello.version, takes);
            entrance.count_for(client.uplink.tenant())?;
            return Ok((client, false));
        }
        if certificate.is_none() {
            let why = "log in with the user name auth-id@tenant and a password, a JSON Web Token as password, or a \
                       client certificate";
            return refuse(reason::BAD_LOGIN, why);
        }
    }
    let claim = MqttClaim {
        certificate,
        user,
        password: &hello.password,
        client_id: &hello.client_id,
        address: peer.address.ip(),
    };
    let verified = adapter.logins.log_in(claim).await.map_err(|problem| {
        let code = match problem.status() {
            StatusCode::UNAUTHORIZED => reason::BAD_LOGIN,
            StatusCode::FORBIDDEN => reason::NOT_AUTHORISED,
            StatusCode::TOO_MANY_REQUESTS => reason::CONNECTION_RATE,
            StatusCode::SERVICE_UNAVAILABLE => reason::BUSY,
            _ => reason::UNAVAILABLE,
        };
        ConnectRefusal(code, problem.text())
    })?;
    let who = Arc::clone(&verified.identity.principal);
    adapter.check(&who).map_err(|problem| ConnectRefusal(reason::NOT_AUTHORISED, problem.text()))?;
    entrance.count_for(&who.tenant)?;
    let Some(seat) = adapter.admit(&who, &hello.client_id) else {
        adapter.connections.refused(user, "tenant-connections-exceeded", cipher_suite);
        return refuse(reason::QUOTA, "the tenant has as many connections as max-connections allows");
    };
    let streams = adapter.uplink.streams.of(&verified.tenant).await;
    let streams = streams.map_err(|error| ConnectRefusal(reason::UNAVAILABLE, error.to_string()))?;
    let connection = adapter.connections.open(&who, &streams, &hello.client_id, cipher_suite);
    let connection = connection.map_err(|problem| ConnectRefusal(reason::QUOTA, problem.text()))?;
    let (known, counted) = (Some((verified, Arc::clone(&streams))), Counted::Device(seat, connection));
    let mut client = Client::new(Arc::clone(adapter), who, known, hello.version, takes, counted);
    let Some((broker_client, is_present)) = broker_client(hello, adapter, &client, &streams).await? else {
        return Ok((client, false));
    };
    client.figures.follow(broker_client.link.view());
    client.broker_client = Some(broker_client);
    if let Some(will) = hello.will.as_ref().filter(|will| !is_reserved(&will.topic)) {
        client.may_publish(&will.topic).map_err(|fault| {
            ConnectRefusal(fault.reason().unwrap_or(reason::NOT_AUTHORISED), format!("the will: {fault}"))
        })?;
    }
    // Another connection may have taken the session over already.
    client
        .resume_reserved()
        .map_err(|fault| ConnectRefusal(fault.reason().unwrap_or(reason::BUSY), fault.to_string()))?;
    Ok((client, is_present))
}

/// The outcome of a connection attempt in Hono's words; a refusal by a tenant's limit was counted before.
fn outcome(code: u8) -> Option<&'static str> {
    Some(match code {
        reason::BAD_LOGIN => "unauthorized",
        reason::NOT_AUTHORISED => "adapter-disabled",
        reason::ANOTHER_SERVER => "adapter-connections-exceeded",
        reason::QUOTA => return None,
        reason::UNAVAILABLE | reason::BUSY | reason::CONNECTION_RATE => "unavailable",
        _ => "unknown",
    })
}

/// The client's place in its tenant's private space.
async fn broker_client(
    hello: &Hello,
    adapter: &MqttAdapter,
    client: &Client,
    streams: &TenantStreams,
) -> Result<Option<(BrokerClient, bool)>, ConnectRefusal> {
    let snapshot = adapter.registry.snapshot(client.uplink.tenant());
    let tenant = snapshot.state.tenant(client.uplink.tenant()).and_then(|known| known.tenant.clone());
    let Some(tenant) = tenant.filter(|stored| has_broker(&stored.value.ext)) else { return Ok(None) };
    let broker = adapter.brokers.of(client.uplink.tenant(), tenant.born).await;
    let broker = broker.map_err(|error| ConnectRefusal(reason::UNAVAILABLE, error.to_string()))?;
    streams.usage.follow(&broker.partition);
    let claim = Claim {
        client: &hello.client_id.as_str().into(),
        device: &client.uplink.who().name,
        clean_start: hello.clean_start,
        expiry_s: hello.session_expiry_s,
        window: usize::from(hello.receive_max.min(adapter.config.in_flight_max)),
    };
    let (link, is_present) = broker.attach(&claim).await.map_err(|refusal| match refusal {
        NoSession::OfAnother => {
            let why = format!("client id '{}' belongs to another device; choose one of your own", claim.client);
            ConnectRefusal(reason::BAD_CLIENT_ID, why)
        }
        NoSession::TooMany => {
            let why = format!("connect.mqtt.broker.sessions_max = {}", adapter.config.broker.sessions_max);
            ConnectRefusal(reason::QUOTA, why)
        }
        NoSession::NotKept => {
            ConnectRefusal(reason::UNAVAILABLE, "the session could not be written down; connect again later".to_owned())
        }
        NoSession::Gone => ConnectRefusal(reason::BUSY, "the tenant's topic was deleted; connect again".to_owned()),
    })?;
    let alias_max = hello.alias_max.min(adapter.config.aliases_max);
    let is_durable = hello.session_expiry_s.min(adapter.config.broker.session_expiry_max_s) > 0;
    Ok(Some((BrokerClient::new(link, alias_max, is_durable), is_present)))
}
