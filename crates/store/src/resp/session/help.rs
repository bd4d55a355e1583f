//! The replies to HELP.

use bytes::Bytes;

use super::RespSession;
use crate::resp::context::Outcome;

/// Replies a line for the container, and two for each subcommand.
pub(super) fn reply(session: &mut RespSession, container: &str, subcommands: &[(&str, &str)]) {
    let mut reply = session.reply();
    let head = format!("{container} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:");
    reply.array(3 + 2 * subcommands.len());
    reply.simple(&head);
    for (form, meaning) in subcommands.iter().chain(&[("HELP", "Print this help.")]) {
        reply.simple(form);
        reply.simple(&format!("    {meaning}"));
    }
}

pub(crate) fn object(session: &mut RespSession, _: &[Bytes]) -> Outcome {
    reply(
        session,
        "OBJECT",
        &[
            ("ENCODING <key>", "Return how Redis would keep the value of a key."),
            ("FREQ <key>", "Return how often a key of a cache with an LFU policy is used."),
            ("IDLETIME <key>", "Return the seconds since the last use of a key of a cache with another policy."),
            ("REFCOUNT <key>", "Return the number of references to a value."),
        ],
    );
    Ok(())
}

pub(crate) fn memory(session: &mut RespSession, _: &[Bytes]) -> Outcome {
    reply(
        session,
        "MEMORY",
        &[("USAGE <key> [SAMPLES <count>]", "Return the memory of a key in bytes, as an estimate.")],
    );
    Ok(())
}

pub(crate) fn pubsub(session: &mut RespSession, _: &[Bytes]) -> Outcome {
    reply(
        session,
        "PUBSUB",
        &[
            ("CHANNELS [<pattern>]", "Return the channels with subscribers."),
            ("NUMPAT", "Return the number of patterns that clients listen to."),
            ("NUMSUB [<channel> ...]", "Return the number of subscribers of channels."),
        ],
    );
    Ok(())
}

pub(crate) fn function(session: &mut RespSession, _: &[Bytes]) -> Outcome {
    reply(
        session,
        "FUNCTION",
        &[
            ("FLUSH [ASYNC|SYNC]", "Delete all functions; there are none."),
            ("LIST", "Return all functions; there are none."),
        ],
    );
    Ok(())
}
