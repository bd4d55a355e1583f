//! PING, ECHO and QUIT.

use bytes::Bytes;

use super::RespSession;
use crate::resp::codec::RespVersion;
use crate::resp::context::{Fault, Outcome};

pub(crate) fn ping(session: &mut RespSession, arguments: &[Bytes]) -> Outcome {
    let listens = session.client.subscriptions.lock().count() > 0;
    let message = match &arguments[1..] {
        [] => None,
        [message] => Some(message),
        _ => return Err(Fault::arity("ping")),
    };
    let is_message = listens && session.protocol == RespVersion::V2;
    let mut reply = session.reply();
    match message {
        // A client that listens can tell it from the messages of channels.
        message if is_message => {
            reply.array(2);
            reply.bulk(b"pong");
            reply.bulk(message.map_or(b"", |message| &message[..]));
        }
        Some(message) => reply.bulk(message),
        None => reply.simple("PONG"),
    }
    Ok(())
}

pub(crate) fn echo(session: &mut RespSession, arguments: &[Bytes]) -> Outcome {
    session.reply().bulk(&arguments[1]);
    Ok(())
}

pub(crate) fn quit(session: &mut RespSession, _: &[Bytes]) -> Outcome {
    session.reply().ok();
    session.is_closing = true;
    Ok(())
}
