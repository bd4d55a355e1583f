//! Commands about the server as a whole.

use bytes::Bytes;

use super::RespSession;
use super::login::REDIS_VERSION;
use crate::resp::context::{Fault, Outcome, is};

pub(crate) fn time(session: &mut RespSession, _: &[Bytes]) -> Outcome {
    let now_ms = session.now_ms();
    let mut reply = session.reply();
    reply.array(2);
    reply.bulk_of(now_ms.div_euclid(1_000));
    reply.bulk_of(now_ms.rem_euclid(1_000) * 1_000);
    Ok(())
}

/// The log has its own replication, which clients of this protocol do not see.
pub(crate) fn role(session: &mut RespSession, _: &[Bytes]) -> Outcome {
    let mut reply = session.reply();
    reply.array(3);
    reply.bulk(b"master");
    reply.integer(0);
    reply.array(0);
    Ok(())
}

pub(crate) fn lolwut(session: &mut RespSession, _: &[Bytes]) -> Outcome {
    session.reply().verbatim(&format!("Redis ver. {REDIS_VERSION}\n"));
    Ok(())
}

pub(crate) fn debug(_: &mut RespSession, _: &[Bytes]) -> Outcome {
    Err(Fault::error(
        "ERR DEBUG command not allowed. If the enable-debug-command option is set to \"local\", you can run it from a local \
         connection, otherwise you need to set this option in the configuration file, and then restart the server.",
    ))
}

pub(crate) fn cluster(_: &mut RespSession, _: &[Bytes]) -> Outcome {
    Err(Fault::error("ERR This instance has cluster support disabled"))
}

pub(crate) fn swapdb(_: &mut RespSession, _: &[Bytes]) -> Outcome {
    Err(Fault::error("ERR databases are buckets and cannot be swapped; copy their keys instead"))
}

pub(crate) fn shutdown(session: &mut RespSession, arguments: &[Bytes]) -> Outcome {
    let known = ["nosave", "save", "now", "force"];
    if !arguments[1..].iter().all(|option| known.iter().any(|known| is(option, known))) {
        return Err(Fault::SYNTAX);
    }
    let Some(user) = &session.user else { return Err(Fault::error("NOAUTH Authentication required.")) };
    session.shared.host.shutdown(user)?;
    // As in Redis, the end of the connection is the answer.
    session.is_closing = true;
    Ok(())
}

/// There are no functions, and tools that clean a server up ask for it.
pub(crate) fn function_flush(session: &mut RespSession, arguments: &[Bytes]) -> Outcome {
    match &arguments[2..] {
        [] => {}
        [mode] if is(mode, "sync") || is(mode, "async") => {}
        _ => return Err(Fault::error("ERR FUNCTION FLUSH only supports SYNC|ASYNC option")),
    }
    session.reply().ok();
    Ok(())
}

pub(crate) fn function_list(session: &mut RespSession, _: &[Bytes]) -> Outcome {
    session.reply().array(0);
    Ok(())
}
