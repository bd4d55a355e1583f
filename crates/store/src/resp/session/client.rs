//! CLIENT: the connection itself, and the others of the tenant.

use std::sync::Arc;

use bytes::Bytes;

use super::{ReplyMode, RespSession};
use crate::resp::clients::ConnectedClient;
use crate::resp::context::{Fault, Outcome, integer_argument, is, shown};
use crate::resp::number::integer;
use crate::resp::shared::owned;

pub(crate) fn help(session: &mut RespSession, _: &[Bytes]) -> Outcome {
    super::help::reply(
        session,
        "CLIENT",
        &[
            ("GETNAME", "Return the name of the connection."),
            ("GETREDIR", "Return -1: keys are not tracked for clients."),
            ("ID", "Return the number of the connection."),
            ("INFO", "Return a description of the connection."),
            ("KILL <ip:port>", "Close a connection."),
            ("KILL <option> <value> [...]", "Close connections by ID, TYPE, USER, ADDR, LADDR; SKIPME (YES|NO)."),
            ("LIST [TYPE (NORMAL|MASTER|REPLICA|PUBSUB)] [ID <id> ...]", "Return descriptions of connections."),
            ("NO-EVICT (ON|OFF)", "Accepted: clients are not evicted."),
            ("NO-TOUCH (ON|OFF)", "Accepted: the last use of keys is not kept."),
            ("PAUSE <timeout> [WRITE|ALL]", "Hold commands back for a time in milliseconds."),
            ("REPLY (ON|OFF|SKIP)", "Turn replies on or off, or skip one."),
            ("SETINFO (LIB-NAME|LIB-VER) <value>", "Name the library of the client."),
            ("SETNAME <name>", "Name the connection."),
            ("UNPAUSE", "End CLIENT PAUSE."),
        ],
    );
    Ok(())
}

pub(crate) fn id(session: &mut RespSession, _: &[Bytes]) -> Outcome {
    let id = session.client.id.cast_signed();
    session.reply().integer(id);
    Ok(())
}

pub(crate) fn get_name(session: &mut RespSession, _: &[Bytes]) -> Outcome {
    let name = session.client.about.lock().name.clone();
    session.reply().bulk_or_null((!name.is_empty()).then_some(&name[..]));
    Ok(())
}

/// A name is shown in a line of words, so it has no white space.
pub(super) fn check_name(name: &[u8]) -> Outcome {
    check_word(name, "Client names")
}

fn check_word(word: &[u8], what: &str) -> Outcome {
    if word.iter().all(u8::is_ascii_graphic) {
        return Ok(());
    }
    Err(Fault::from(format!("ERR {what} cannot contain spaces, newlines or special characters.")))
}

pub(crate) fn set_name(session: &mut RespSession, arguments: &[Bytes]) -> Outcome {
    check_name(&arguments[2])?;
    session.client.about.lock().name = owned(&arguments[2]);
    session.reply().ok();
    Ok(())
}

pub(crate) fn set_info(session: &mut RespSession, arguments: &[Bytes]) -> Outcome {
    let (attribute, value) = (&arguments[2], &arguments[3]);
    let is_name = is(attribute, "lib-name");
    if !is_name && !is(attribute, "lib-ver") {
        return Err(Fault::from(format!("ERR Unrecognized option '{}'", shown(attribute))));
    }
    check_word(value, if is_name { "lib-name" } else { "lib-ver" })?;
    {
        let mut about = session.client.about.lock();
        let field = if is_name { &mut about.client_library } else { &mut about.client_library_version };
        *field = owned(value);
    }
    session.reply().ok();
    Ok(())
}

pub(crate) fn info(session: &mut RespSession, _: &[Bytes]) -> Outcome {
    let line = session.client.line(session.now_ms(), session.buffered_bytes);
    session.reply().verbatim(&(line + "\n"));
    Ok(())
}

/// The kinds of clients that there are: nobody replicates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClientType {
    Normal,
    PubSub,
    Replication,
}

impl ClientType {
    fn parse(name: &[u8]) -> Result<Self, Fault> {
        match name.to_ascii_lowercase().as_slice() {
            b"normal" => Ok(Self::Normal),
            b"pubsub" => Ok(Self::PubSub),
            b"master" | b"replica" | b"slave" => Ok(Self::Replication),
            _ => Err(Fault::from(format!("ERR Unknown client type '{}'", shown(name)))),
        }
    }

    fn of(client: &ConnectedClient) -> Self {
        if client.subscriptions.lock().count() > 0 { Self::PubSub } else { Self::Normal }
    }
}

impl RespSession {
    /// The connections that this one may see.
    fn others(&self) -> Vec<Arc<ConnectedClient>> {
        self.user.as_ref().map(|user| self.shared.clients.of_tenant(&user.tenant)).unwrap_or_default()
    }
}

pub(crate) fn list(session: &mut RespSession, arguments: &[Bytes]) -> Outcome {
    let mut clients = session.others();
    match &arguments[2..] {
        [] => {}
        [option, kind] if is(option, "type") => {
            let kind = ClientType::parse(kind)?;
            clients.retain(|client| ClientType::of(client) == kind);
        }
        [option, ids @ ..] if is(option, "id") && !ids.is_empty() => {
            let ids = ids.iter().map(|id| integer(id).ok_or(Fault::error("ERR Invalid client ID")));
            let ids = ids.collect::<Result<Vec<i64>, _>>()?;
            let find = |id: &i64| clients.iter().find(|client| client.id.cast_signed() == *id).cloned();
            clients = ids.iter().filter_map(find).collect();
        }
        _ => return Err(Fault::SYNTAX),
    }
    let (now_ms, own) = (session.now_ms(), session.client.id);
    let mut text = String::new();
    for client in clients {
        let buffered = if client.id == own { session.buffered_bytes } else { 0 };
        text.push_str(&client.line(now_ms, buffered));
        text.push('\n');
    }
    session.reply().verbatim(&text);
    Ok(())
}

/// The connections that CLIENT KILL closes.
#[derive(Debug, Default)]
struct KillFilter {
    id: Option<u64>,
    kind: Option<ClientType>,
    peer: Option<Bytes>,
    local: Option<Bytes>,
    user: Option<Bytes>,
    with_self: bool,
}

impl KillFilter {
    fn parse(session: &RespSession, options: &[Bytes]) -> Result<Self, Fault> {
        let mut filter = Self::default();
        let mut rest = options;
        while let [option, after @ ..] = rest {
            let [value, after @ ..] = after else { return Err(Fault::SYNTAX) };
            match option.to_ascii_lowercase().as_slice() {
                b"id" => {
                    let id = integer(value).and_then(|id| u64::try_from(id).ok()).filter(|id| *id > 0);
                    filter.id = Some(id.ok_or(Fault::error("ERR client-id should be greater than 0"))?);
                }
                b"type" => filter.kind = Some(ClientType::parse(value)?),
                b"addr" => filter.peer = Some(value.clone()),
                b"laddr" => filter.local = Some(value.clone()),
                b"user" => {
                    let users = session.user.as_ref().map(|user| session.shared.host.users(user)).unwrap_or_default();
                    if !users.iter().any(|user| *user.name.as_bytes() == **value) {
                        return Err(Fault::from(format!("ERR No such user '{}'", shown(value))));
                    }
                    filter.user = Some(value.clone());
                }
                b"skipme" if is(value, "yes") => filter.with_self = false,
                b"skipme" if is(value, "no") => filter.with_self = true,
                _ => return Err(Fault::SYNTAX),
            }
            rest = after;
        }
        Ok(filter)
    }

    fn matches(&self, client: &ConnectedClient) -> bool {
        let is = |address: &std::net::SocketAddr, wanted: &Bytes| *address.to_string().as_bytes() == **wanted;
        self.id.is_none_or(|id| client.id == id)
            && self.kind.is_none_or(|kind| ClientType::of(client) == kind)
            && self.peer.as_ref().is_none_or(|peer| is(&client.peer, peer))
            && self.local.as_ref().is_none_or(|local| is(&client.local, local))
            && self
                .user
                .as_ref()
                .is_none_or(|user| client.about.lock().user.as_ref().is_some_and(|name| *name.as_bytes() == **user))
    }
}

pub(crate) fn kill(session: &mut RespSession, arguments: &[Bytes]) -> Outcome {
    let (filter, by_address) = match &arguments[2..] {
        // The older form names an address and may close the connection itself.
        [address] => (KillFilter { peer: Some(address.clone()), with_self: true, ..KillFilter::default() }, true),
        options => (KillFilter::parse(session, options)?, false),
    };
    let mut killed = 0;
    for client in session.others() {
        let is_self = client.id == session.client.id;
        if filter.matches(&client) && (filter.with_self || !is_self) {
            killed += 1;
            if is_self {
                session.is_closing = true;
            } else {
                client.kill();
            }
        }
    }
    match (by_address, killed) {
        (true, 0) => return Err(Fault::error("ERR No such client")),
        (true, _) => session.reply().ok(),
        (false, killed) => session.reply().integer(killed),
    }
    Ok(())
}

fn on_or_off(argument: &[u8]) -> Result<bool, Fault> {
    match argument {
        argument if is(argument, "on") => Ok(true),
        argument if is(argument, "off") => Ok(false),
        _ => Err(Fault::SYNTAX),
    }
}

pub(crate) fn no_evict(session: &mut RespSession, arguments: &[Bytes]) -> Outcome {
    session.client.about.lock().no_evict = on_or_off(&arguments[2])?;
    session.reply().ok();
    Ok(())
}

pub(crate) fn no_touch(session: &mut RespSession, arguments: &[Bytes]) -> Outcome {
    session.client.about.lock().no_touch = on_or_off(&arguments[2])?;
    session.reply().ok();
    Ok(())
}

pub(crate) fn reply(session: &mut RespSession, arguments: &[Bytes]) -> Outcome {
    session.reply_mode = match arguments[2].to_ascii_lowercase().as_slice() {
        b"on" => ReplyMode::On,
        b"off" => ReplyMode::Off,
        b"skip" if session.reply_mode == ReplyMode::Off => ReplyMode::Off,
        b"skip" => ReplyMode::Skip,
        _ => return Err(Fault::SYNTAX),
    };
    if session.reply_mode == ReplyMode::On {
        session.reply().ok();
    }
    Ok(())
}

pub(crate) fn pause(session: &mut RespSession, arguments: &[Bytes]) -> Outcome {
    let only_writes = match &arguments[3..] {
        [] => false,
        [mode] if is(mode, "all") => false,
        [mode] if is(mode, "write") => true,
        _ => return Err(Fault::error("ERR CLIENT PAUSE mode must be WRITE or ALL")),
    };
    let timeout_ms = integer(&arguments[2]).ok_or(Fault::error("ERR timeout is not an integer or out of range"))?;
    if timeout_ms < 0 {
        return Err(Fault::error("ERR timeout is negative"));
    }
    let until_ms = session.now_ms().saturating_add(timeout_ms);
    if let Some(tenant) = &session.tenant {
        tenant.pause.begin(until_ms, only_writes);
    }
    session.reply().ok();
    Ok(())
}

pub(crate) fn unpause(session: &mut RespSession, _: &[Bytes]) -> Outcome {
    if let Some(tenant) = &session.tenant {
        tenant.pause.end();
    }
    session.reply().ok();
    Ok(())
}

/// No command waits for a key, so there is nobody to wake.
pub(crate) fn unblock(session: &mut RespSession, arguments: &[Bytes]) -> Outcome {
    match &arguments[3..] {
        [] => {}
        [how] if is(how, "timeout") || is(how, "error") => {}
        _ => return Err(Fault::error("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR")),
    }
    integer_argument(&arguments[2])?;
    session.reply().integer(0);
    Ok(())
}

pub(crate) fn get_redir(session: &mut RespSession, _: &[Bytes]) -> Outcome {
    session.reply().integer(-1);
    Ok(())
}

pub(crate) fn tracking(session: &mut RespSession, arguments: &[Bytes]) -> Outcome {
    if on_or_off(&arguments[2])? {
        return Err(Fault::error("ERR keys are not tracked for clients; use keyspace events instead"));
    }
    session.reply().ok();
    Ok(())
}

pub(crate) fn caching(_: &mut RespSession, _: &[Bytes]) -> Outcome {
    Err(Fault::error(
        "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled",
    ))
}

pub(crate) fn tracking_info(session: &mut RespSession, _: &[Bytes]) -> Outcome {
    let mut reply = session.reply();
    reply.map(3);
    reply.bulk(b"flags");
    reply.set(1);
    reply.bulk(b"off");
    reply.bulk(b"redirect");
    reply.integer(-1);
    reply.bulk(b"prefixes");
    reply.array(0);
    Ok(())
}
