//! COMMAND: the table of commands, told to clients.

use bytes::Bytes;

use super::RespSession;
use crate::resp::codec::ReplyWriter;
use crate::resp::command::{Category, CommandId, Flag, RedisCommand, Registry};
use crate::resp::context::{Fault, Outcome, is};
use crate::resp::glob;

pub(crate) fn help(session: &mut RespSession, _: &[Bytes]) -> Outcome {
    super::help::reply(
        session,
        "COMMAND",
        &[
            ("(no subcommand)", "Return details about all commands."),
            ("COUNT", "Return the number of commands."),
            ("LIST [FILTERBY (MODULE <name>|ACLCAT <category>|PATTERN <pattern>)]", "Return the names of commands."),
            ("INFO [<command> ...]", "Return details about commands."),
            ("DOCS [<command> ...]", "Return descriptions of commands."),
            ("GETKEYS <full-command>", "Return the keys in a command."),
            ("GETKEYSANDFLAGS <full-command>", "Return the keys in a command, and what it does to them."),
        ],
    );
    Ok(())
}

pub(crate) fn all(session: &mut RespSession, _: &[Bytes]) -> Outcome {
    reply_info(session, Registry::commands().map(Some).collect());
    Ok(())
}

pub(crate) fn count(session: &mut RespSession, _: &[Bytes]) -> Outcome {
    session.reply().count(Registry::commands().count());
    Ok(())
}

pub(crate) fn info(session: &mut RespSession, arguments: &[Bytes]) -> Outcome {
    match &arguments[2..] {
        [] => return all(session, arguments),
        names => reply_info(session, names.iter().map(|name| Registry::find_full(name)).collect()),
    }
    Ok(())
}

fn reply_info(session: &mut RespSession, commands: Vec<Option<CommandId>>) {
    let mut reply = session.reply();
    reply.array(commands.len());
    for command in commands {
        match command {
            Some(command) => command_info(&mut reply, command),
            None => reply.null(),
        }
    }
}

fn command_info(reply: &mut ReplyWriter<'_>, id: CommandId) {
    let command = id.command();
    reply.array(10);
    reply.bulk(id.full_name().as_bytes());
    reply.integer(command.arity.into());
    reply.set(command.flags.len());
    command.flags.iter().for_each(|flag| reply.simple(flag.word()));
    let (first, last, step) = command.keys;
    [first, last, step].into_iter().for_each(|place| reply.integer(place.into()));
    let categories = Category::ALL.iter().filter(|category| command.is_in(**category));
    reply.set(categories.clone().count());
    categories.for_each(|category| reply.simple(&format!("@{}", category.word())));
    // Tips for routers of clusters.
    reply.array(0);
    key_specifications(reply, command);
    reply.array(id.children().count());
    id.children().for_each(|child| command_info(reply, child));
}

/// The keys as one range behind a fixed place, which all commands here have.
fn key_specifications(reply: &mut ReplyWriter<'_>, command: &RedisCommand) {
    let (first, last, step) = command.keys;
    if first == 0 {
        return reply.array(0);
    }
    reply.array(1);
    reply.map(3);
    reply.bulk(b"flags");
    let flags = key_flags(command);
    reply.set(flags.len());
    flags.iter().for_each(|flag| reply.simple(flag));
    reply.bulk(b"begin_search");
    reply.map(2);
    reply.bulk(b"type");
    reply.bulk(b"index");
    reply.bulk(b"spec");
    reply.map(1);
    reply.bulk(b"index");
    reply.integer(first.into());
    reply.bulk(b"find_keys");
    reply.map(2);
    reply.bulk(b"type");
    reply.bulk(b"range");
    reply.bulk(b"spec");
    reply.map(3);
    // Counted from the first key on, if it is not counted from the end.
    let last = if last > 0 { last - first } else { last };
    for (name, number) in [("lastkey", last), ("keystep", step), ("limit", 0)] {
        reply.bulk(name.as_bytes());
        reply.integer(number.into());
    }
}

/// The flags by which COMMAND says what a command does to its keys.
fn key_flags(command: &RedisCommand) -> &'static [&'static str] {
    match command.name {
        _ if !command.has(Flag::Write) => &["RO", "access"],
        "del" | "unlink" => &["RM", "delete"],
        "delifeq" | "getdel" => &["RW", "access", "delete"],
        "mset" | "msetnx" | "setex" | "psetex" => &["OW", "update"],
        "setnx" => &["OW", "insert"],
        "expire" | "pexpire" | "expireat" | "pexpireat" | "persist" | "append" | "setrange" => &["RW", "update"],
        _ => &["RW", "access", "update"],
    }
}

pub(crate) fn list(session: &mut RespSession, arguments: &[Bytes]) -> Outcome {
    let names = Registry::all().map(CommandId::full_name);
    let names: Vec<&str> = match &arguments[2..] {
        [] => names.collect(),
        [filter, kind, value] if is(filter, "filterby") => match kind {
            // There are no modules.
            kind if is(kind, "module") => Vec::new(),
            kind if is(kind, "aclcat") => {
                let category = Category::ALL.iter().find(|category| is(value, category.word()));
                let in_it = |id: &CommandId| category.is_some_and(|category| id.command().is_in(*category));
                Registry::all().filter(in_it).map(CommandId::full_name).collect()
            }
            kind if is(kind, "pattern") => {
                names.filter(|name| glob::matches_ignoring_case(value, name.as_bytes())).collect()
            }
            _ => return Err(Fault::SYNTAX),
        },
        _ => return Err(Fault::SYNTAX),
    };
    let mut reply = session.reply();
    reply.set(names.len());
    names.iter().for_each(|name| reply.bulk(name.as_bytes()));
    Ok(())
}

pub(crate) fn docs(session: &mut RespSession, arguments: &[Bytes]) -> Outcome {
    let commands: Vec<CommandId> = match &arguments[2..] {
        [] => Registry::commands().collect(),
        names => names.iter().filter_map(|name| Registry::find_full(name)).collect(),
    };
    let mut reply = session.reply();
    reply.map(commands.len());
    commands.into_iter().for_each(|command| command_docs(&mut reply, command));
    Ok(())
}

fn command_docs(reply: &mut ReplyWriter<'_>, id: CommandId) {
    let command = id.command();
    let children = id.children().count();
    reply.bulk(id.full_name().as_bytes());
    reply.map(if children > 0 { 5 } else { 4 });
    for (name, value) in [
        ("summary", command.summary),
        ("since", command.since),
        ("group", command.group.word()),
        ("complexity", command.complexity),
    ] {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    }
    if children > 0 {
        reply.bulk(b"subcommands");
        reply.map(children);
        id.children().for_each(|child| command_docs(reply, child));
    }
}

pub(crate) fn get_keys(session: &mut RespSession, arguments: &[Bytes]) -> Outcome {
    let (_, keys) = keys_of(&arguments[2..])?;
    let mut reply = session.reply();
    reply.array(keys.len());
    keys.iter().for_each(|key| reply.bulk(key));
    Ok(())
}

pub(crate) fn get_keys_and_flags(session: &mut RespSession, arguments: &[Bytes]) -> Outcome {
    let (command, keys) = keys_of(&arguments[2..])?;
    let mut reply = session.reply();
    reply.array(keys.len());
    for key in keys {
        reply.array(2);
        reply.bulk(&key);
        // SET reads its key only with GET.
        let has_get = arguments[3..].iter().skip(2).any(|argument| is(argument, "get"));
        let flags = if command.name == "set" && !has_get { &["OW", "update"] } else { key_flags(command) };
        reply.set(flags.len());
        flags.iter().for_each(|flag| reply.simple(flag));
    }
    Ok(())
}

fn keys_of(arguments: &[Bytes]) -> Result<(&'static RedisCommand, Vec<Bytes>), Fault> {
    let found = Registry::find(&arguments[0]).ok_or(Fault::error("ERR Invalid command specified"))?;
    let command = arguments.get(1).and_then(|name| found.child(name)).unwrap_or(found).command();
    if command.keys.0 == 0 {
        return Err(Fault::error("ERR The command has no key arguments"));
    }
    if !command.takes(arguments.len()) {
        return Err(Fault::error("ERR Invalid number of arguments specified for command"));
    }
    Ok((command, command.key_places(arguments.len()).map(|place| arguments[place].clone()).collect()))
}
