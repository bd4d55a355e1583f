//! The beginning of a connection: the headers of the protocols, and the login by SASL (AMQP 1.0, section 5.3).

use std::net::SocketAddr;
use std::time::Duration;

use millstream_amqp::{
    Body, Framed, HEADER_BYTES, ProtocolHeader, Sasl, SaslChallenge, SaslInit, SaslMechanisms, SaslOutcome, Symbol,
    SymbolsBuilder, condition, frame, protocol_header, write_sasl,
};
use millstream_net::{
    ClientFirst, Login, LoginProtocol, LoginSource, PendingLogin, RefusedLogin, Revocation, ScramExchange,
    ScramMechanism, bearer_message, plain_message,
};
use millstream_types::{AccessScope, Principal, Roles, TenantId};
use tokio::io::{AsyncRead, AsyncWrite};

use super::adapter::AmqpAdapter;
use super::fault::Fault;
use super::framing::AmqpIo;
use crate::framed_io::Read;

/// Largest frame of a login: a token of an identity provider fits.
pub(super) const LOGIN_FRAME_MAX_BYTES: usize = 16 << 10;
/// The delay of a failed login, so that a client that retries at once does so less often.
const FAILED_LOGIN_DELAY: Duration = Duration::from_millis(100);
const ANONYMOUS: &str = "ANONYMOUS";
/// The name of a client that did not have to log in.
const ANONYMOUS_NAME: &str = "anonymous";
const PLAIN: &str = "PLAIN";
const OAUTHBEARER: &str = "OAUTHBEARER";
const UNKNOWN: &str = "no API token has this name and this secret";

/// Codes of the end of a login (section 5.3.3.6).
const OK: u8 = 0;
const REFUSED: u8 = 1;
const TEMPORARY: u8 = 4;

/// Lets a client in; it has seen our header of AMQP then.
pub(super) async fn log_in<S: AsyncRead + AsyncWrite + Unpin>(
    io: &mut AmqpIo<S>,
    adapter: &AmqpAdapter,
    peer: SocketAddr,
    pending: &PendingLogin,
) -> Result<Login, Fault> {
    let open = adapter.logins.open_access();
    let mut header = read_header(io).await?;
    let mut login = open.clone().map(anonymous);
    if header == Some(ProtocolHeader::Sasl) {
        pending.heard();
        login = Some(by_sasl(io, adapter, peer, open).await?);
        header = read_header(io).await?;
    }
    match (header, login) {
        (Some(ProtocolHeader::Amqp), Some(login)) => {
            pending.succeeded(&login.principal.tenant).map_err(|full| Fault::NoLogin(full.to_string()))?;
            io.out.extend_from_slice(&ProtocolHeader::Amqp.bytes());
            Ok(login)
        }
        (_, login) => {
            // The header that is taken here (section 2.2).
            let taken = if login.is_some() { ProtocolHeader::Amqp } else { ProtocolHeader::Sasl };
            io.out.extend_from_slice(&taken.bytes());
            io.flush(adapter.write_limit()).await?;
            Err(Fault::NoLogin("the client begins with the header of another protocol".to_owned()))
        }
    }
}

/// True if the client did not have to log in.
pub(super) fn is_anonymous(login: &Login) -> bool {
    login.principal.name == ANONYMOUS_NAME && login.in_every_tenant
}

/// The login of a client where nobody has to log in.
fn anonymous(revocation: Revocation) -> Login {
    let principal = Principal {
        tenant: TenantId::default(),
        name: ANONYMOUS_NAME.to_owned(),
        roles: Roles::APPLICATION,
        scope: AccessScope::default(),
    };
    Login { principal: principal.into(), in_every_tenant: true, revocation: Some(revocation), expires_ms: None }
}

/// Reads the header of a protocol; `None` if the bytes are none of ours.
async fn read_header<S: AsyncRead + AsyncWrite + Unpin>(io: &mut AmqpIo<S>) -> Result<Option<ProtocolHeader>, Fault> {
    let bytes = next(io, |bytes| match protocol_header(bytes) {
        Ok(None) => Ok(0),
        Ok(Some(_)) => Ok(HEADER_BYTES),
        Err(_) => Ok(bytes.len()),
    });
    Ok(protocol_header(&bytes.await?).unwrap_or(None))
}

/// Reads a frame of the login and hands it to `read`.
async fn read_step<S, T>(io: &mut AmqpIo<S>, read: impl FnOnce(Sasl<'_>) -> Option<T>) -> Result<T, Fault>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let bytes = next(io, |bytes| match frame(bytes, LOGIN_FRAME_MAX_BYTES)? {
        Framed::Whole(whole) => Ok(whole.size),
        Framed::Partial { .. } => Ok(0),
    });
    let bytes = bytes.await?;
    let Framed::Whole(whole) = frame(&bytes, LOGIN_FRAME_MAX_BYTES)? else {
        return Err(Fault::NoLogin("a part of a frame".to_owned()));
    };
    let step = match whole.body()? {
        Body::Sasl(step) => read(step),
        _ => None,
    };
    step.ok_or_else(|| Fault::refused(condition::NOT_ALLOWED, "another frame than that of the login that is due"))
}

/// Waits until `size` finds something at the beginning of what has come, and takes so many bytes.
async fn next<S: AsyncRead + AsyncWrite + Unpin>(
    io: &mut AmqpIo<S>,
    size: impl Fn(&[u8]) -> Result<usize, Fault>,
) -> Result<Vec<u8>, Fault> {
    let mut is_held = true;
    loop {
        let mut found = None;
        let mut take = |bytes: &[u8], _: &mut Vec<u8>| {
            if found.is_some() || bytes.is_empty() {
                return Ok(0);
            }
            let size = size(bytes)?;
            found = bytes.get(..size).filter(|found| !found.is_empty()).map(<[u8]>::to_vec);
            Ok(size)
        };
        let has_left = if std::mem::take(&mut is_held) {
            io.take_held(&mut take)?;
            false
        } else {
            io.read(&mut take).await? == Read::End
        };
        match found {
            Some(found) => return Ok(found),
            None if has_left => return Err(Fault::NoLogin("the client has left".to_owned())),
            None => {}
        }
    }
}

async fn by_sasl<S: AsyncRead + AsyncWrite + Unpin>(
    io: &mut AmqpIo<S>,
    adapter: &AmqpAdapter,
    peer: SocketAddr,
    open: Option<Revocation>,
) -> Result<Login, Fault> {
    let mut names = vec![PLAIN, OAUTHBEARER];
    names.extend(ScramMechanism::ALL.map(ScramMechanism::as_str));
    if open.is_some() {
        names = vec![ANONYMOUS];
    }
    let names = SymbolsBuilder::of(&names);
    io.out.extend_from_slice(&ProtocolHeader::Sasl.bytes());
    write_sasl(&mut io.out, &Sasl::Mechanisms(SaslMechanisms { mechanisms: names.as_multiple() }));
    io.flush(adapter.write_limit()).await?;
    let (mechanism, first) = read_step(io, |step| match step {
        Sasl::Init(SaslInit { mechanism: Symbol(name), initial_response, .. }) => {
            Some((name.to_owned(), initial_response.map(<[u8]>::to_vec)))
        }
        _ => None,
    })
    .await?;
    let source = LoginSource { address: peer.ip(), protocol: LoginProtocol::Amqp };
    let checked = check(io, adapter, &mechanism, first, open).await?;
    let refused = match checked {
        Ok((login, last)) => {
            let outcome = SaslOutcome { code: OK, additional_data: last.as_deref() };
            write_sasl(&mut io.out, &Sasl::Outcome(outcome));
            io.flush(adapter.write_limit()).await?;
            return Ok(login);
        }
        Err(refused) => refused,
    };
    let (code, why) = match refused {
        RefusedLogin::Unchecked(why) => (TEMPORARY, why),
        RefusedLogin::Unknown => (REFUSED, UNKNOWN.to_owned()),
        RefusedLogin::Wrong(why) => (REFUSED, why),
    };
    let why = match adapter.throttle.check(source) {
        Ok(()) => {
            if code == REFUSED {
                adapter.throttle.fail(source);
            }
            why
        }
        Err(throttled) => throttled.to_string(),
    };
    tokio::time::sleep(FAILED_LOGIN_DELAY).await;
    write_sasl(&mut io.out, &Sasl::Outcome(SaslOutcome { code, additional_data: None }));
    io.flush(adapter.write_limit()).await?;
    Err(Fault::NoLogin(why))
}

/// A login with the last message of its mechanism, or the refusal.
type Checked = Result<(Login, Option<Vec<u8>>), RefusedLogin>;

async fn check<S: AsyncRead + AsyncWrite + Unpin>(
    io: &mut AmqpIo<S>,
    adapter: &AmqpAdapter,
    mechanism: &str,
    first: Option<Vec<u8>>,
    open: Option<Revocation>,
) -> Result<Checked, Fault> {
    let wrong = |why: &str| Ok(Err(RefusedLogin::Wrong(why.to_owned())));
    if let (ANONYMOUS, Some(revocation)) = (mechanism, &open) {
        return Ok(Ok((anonymous(revocation.clone()), None)));
    }
    let scram = ScramMechanism::ALL.into_iter().find(|known| known.as_str() == mechanism);
    if open.is_some() || (scram.is_none() && !matches!(mechanism, PLAIN | OAUTHBEARER)) {
        return wrong("the mechanism is none of those that were offered");
    }
    // Each mechanism begins with a message of the client, which may come by itself.
    let first = match first {
        Some(first) => first,
        None => challenge(io, adapter, b"").await?,
    };
    let Some(scram) = scram else {
        let (name, secret) = match mechanism {
            PLAIN => match plain_message(&first) {
                Some((name, secret)) => (Some(name), secret),
                None => return wrong("the mechanism PLAIN takes a name and a password"),
            },
            _ => match bearer_message(&first) {
                Some(token) => (None, token),
                None => return wrong("the mechanism OAUTHBEARER takes n,, and auth=Bearer TOKEN (RFC 7628)"),
            },
        };
        return Ok(adapter.logins.log_in(name, secret).await.map(|login| (login, None)));
    };
    let Some(begun) = ClientFirst::parse(&first) else {
        return wrong("SCRAM begins with n,,n=NAME,r=NONCE; channel binding is not supported");
    };
    let Some((credential, login)) = adapter.logins.scram(&begun.name, scram) else {
        return Ok(Err(RefusedLogin::Unknown));
    };
    let (exchange, answer) = ScramExchange::begin(scram, &begun, credential);
    let proof = challenge(io, adapter, answer.as_bytes()).await?;
    Ok(match exchange.finish(&proof) {
        Some(last) => Ok((login, Some(last.into_bytes()))),
        None => Err(RefusedLogin::Unknown),
    })
}

/// Sends a message of the mechanism and returns the client's answer.
async fn challenge<S: AsyncRead + AsyncWrite + Unpin>(
    io: &mut AmqpIo<S>,
    adapter: &AmqpAdapter,
    message: &[u8],
) -> Result<Vec<u8>, Fault> {
    write_sasl(&mut io.out, &Sasl::Challenge(SaslChallenge { challenge: message }));
    io.flush(adapter.write_limit()).await?;
    read_step(io, |step| match step {
        Sasl::Response(answer) => Some(answer.response.to_vec()),
        _ => None,
    })
    .await
}
