//! ACL: who the users are and what they may do. They are managed outside, so it only tells.

use bytes::Bytes;

use super::RespSession;
use super::dispatch::required_role;
use crate::resp::command::{Category, Registry, Run};
use crate::resp::context::{Fault, Outcome, is, shown};
use crate::resp::host::{User, UserRole};

pub(crate) fn help(session: &mut RespSession, _: &[Bytes]) -> Outcome {
    super::help::reply(
        session,
        "ACL",
        &[
            ("CAT [<category>]", "List categories, or the commands of one."),
            ("DRYRUN <username> <command> [<arg> ...]", "Tell whether a user may run a command."),
            ("GETUSER <username>", "Describe a user."),
            ("LIST", "List users as rules."),
            ("LOG [<count>|RESET]", "List refused commands; none are kept."),
            ("USERS", "List the names of users."),
            ("WHOAMI", "Return the name of the user."),
        ],
    );
    Ok(())
}

pub(crate) fn who_am_i(session: &mut RespSession, _: &[Bytes]) -> Outcome {
    let name = session.user.as_ref().map(|user| user.name.clone());
    session.reply().bulk_or_null(name.as_ref().map(|name| name.as_bytes()));
    Ok(())
}

pub(crate) fn cat(session: &mut RespSession, arguments: &[Bytes]) -> Outcome {
    let names: Vec<&str> = match &arguments[2..] {
        [] => Category::ALL.iter().map(|category| category.word()).collect(),
        [name] => {
            let category = Category::ALL.iter().find(|category| is(name, category.word()));
            let category = category.ok_or_else(|| Fault::from(format!("ERR Unknown category '{}'", shown(name))))?;
            let commands = Registry::all().filter(|id| !matches!(id.command().run, Run::Container(_)));
            commands.filter(|id| id.command().is_in(*category)).map(|id| id.full_name()).collect()
        }
        _ => return Err(Fault::arity("acl|cat")),
    };
    let mut reply = session.reply();
    reply.array(names.len());
    names.iter().for_each(|name| reply.bulk(name.as_bytes()));
    Ok(())
}

impl UserRole {
    /// The commands that the role may run, as a rule of access control.
    fn rule(self) -> &'static str {
        match self {
            Self::Read => "+@all -@admin -@write -publish",
            Self::Write => "+@all -@admin",
            Self::Admin => "+@all",
        }
    }
}

impl RespSession {
    fn users(&self) -> Vec<User> {
        self.user.as_ref().map(|user| self.shared.host.users(user)).unwrap_or_default()
    }

    /// `true` if a user needs no password.
    fn is_open(&self, user: &User) -> bool {
        self.shared.host.default_user().is_some_and(|default| default.name == user.name)
    }
}

pub(crate) fn list(session: &mut RespSession, _: &[Bytes]) -> Outcome {
    let users = session.users();
    let lines = users.iter().map(|user| {
        let password = if session.is_open(user) { "nopass " } else { "" };
        format!("user {} on {password}~* &* {}", user.name, user.role.rule())
    });
    let lines: Vec<String> = lines.collect();
    let mut reply = session.reply();
    reply.array(lines.len());
    lines.iter().for_each(|line| reply.bulk(line.as_bytes()));
    Ok(())
}

pub(crate) fn users(session: &mut RespSession, _: &[Bytes]) -> Outcome {
    let users = session.users();
    let mut reply = session.reply();
    reply.array(users.len());
    users.iter().for_each(|user| reply.bulk(user.name.as_bytes()));
    Ok(())
}

pub(crate) fn get_user(session: &mut RespSession, arguments: &[Bytes]) -> Outcome {
    let user = session.users().into_iter().find(|user| *user.name.as_bytes() == *arguments[2]);
    let Some(user) = user else {
        session.reply().null();
        return Ok(());
    };
    let is_open = session.is_open(&user);
    let mut reply = session.reply();
    reply.map(6);
    reply.bulk(b"flags");
    let flags: &[&[u8]] = if is_open { &[b"on", b"nopass"] } else { &[b"on"] };
    reply.set(flags.len());
    flags.iter().for_each(|flag| reply.bulk(flag));
    reply.bulk(b"passwords");
    reply.array(0);
    for (name, value) in [("commands", user.role.rule()), ("keys", "~*"), ("channels", "&*")] {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    }
    reply.bulk(b"selectors");
    reply.array(0);
    Ok(())
}

pub(crate) fn dry_run(session: &mut RespSession, arguments: &[Bytes]) -> Outcome {
    let user = session.users().into_iter().find(|user| *user.name.as_bytes() == *arguments[2]);
    let user = user.ok_or_else(|| Fault::from(format!("ERR User '{}' not found", shown(&arguments[2]))))?;
    let wanted = &arguments[3..];
    let found = Registry::find(&wanted[0])
        .ok_or_else(|| Fault::from(format!("ERR Command '{}' not found", shown(&wanted[0]))))?;
    let command = wanted.get(1).and_then(|name| found.child(name)).unwrap_or(found);
    if !command.command().takes(wanted.len()) {
        return Err(Fault::arity(command.full_name()));
    }
    if user.role >= required_role(command) {
        session.reply().ok();
    } else {
        let text = format!("This user has no permissions to run the '{}' command", command.full_name());
        session.reply().bulk(text.as_bytes());
    }
    Ok(())
}

pub(crate) fn log(session: &mut RespSession, arguments: &[Bytes]) -> Outcome {
    match &arguments[2..] {
        [reset] if is(reset, "reset") => session.reply().ok(),
        _ => session.reply().array(0),
    }
    Ok(())
}

pub(crate) fn managed(_: &mut RespSession, _: &[Bytes]) -> Outcome {
    Err(Fault::error(
        "ERR users are tokens of the server and are not managed over this protocol; change its configuration",
    ))
}
