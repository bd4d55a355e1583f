//! CONFIG: settings of the tenant's connections, and those that the host shows.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::RespSession;
use crate::resp::context::{Fault, Outcome, shown};
use crate::resp::glob;
use crate::resp::settings::{ProtocolSettings, Setting};

pub(crate) fn help(session: &mut RespSession, _: &[Bytes]) -> Outcome {
    super::help::reply(
        session,
        "CONFIG",
        &[
            ("GET <pattern> [<pattern> ...]", "Return settings whose name matches."),
            ("SET <directive> <value> [...]", "Change settings."),
            ("RESETSTAT", "Set statistics to zero."),
            ("REWRITE", "Refused: there is no configuration file of Redis."),
        ],
    );
    Ok(())
}

impl RespSession {
    /// All settings, with those of the host.
    fn all_settings(&self) -> BTreeMap<&'static str, String> {
        let own = Setting::ALL.iter().map(|(name, setting)| (*name, self.settings().get(*setting)));
        let databases = self.shared.host.databases().to_string();
        let host = self.user.as_ref().map(|user| self.shared.host.settings(user)).unwrap_or_default();
        own.chain([("databases", databases)]).chain(host).collect()
    }
}

pub(crate) fn get(session: &mut RespSession, arguments: &[Bytes]) -> Outcome {
    let mut settings = session.all_settings();
    let patterns = &arguments[2..];
    settings.retain(|name, _| patterns.iter().any(|pattern| glob::matches_ignoring_case(pattern, name.as_bytes())));
    let mut reply = session.reply();
    reply.map(settings.len());
    for (name, value) in settings {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    }
    Ok(())
}

pub(crate) fn set(session: &mut RespSession, arguments: &[Bytes]) -> Outcome {
    if !arguments.len().is_multiple_of(2) {
        return Err(Fault::arity("config|set"));
    }
    let Some(user) = session.user.clone() else { return Err(Fault::error("NOAUTH Authentication required.")) };
    let known = session.all_settings();
    let (mut changes, mut host_changes, mut names) = (Vec::new(), Vec::new(), Vec::new());
    for pair in arguments[2..].chunks_exact(2) {
        let name = shown(&pair[0]).to_ascii_lowercase();
        if names.contains(&name) {
            return Err(failed(&name, "duplicate parameter"));
        }
        match Setting::named(&name) {
            Some(setting) => {
                changes.push(ProtocolSettings::check(setting, &pair[1]).map_err(|why| failed(&name, why))?);
            }
            None if name == "databases" => return Err(failed(&name, "can't set immutable config")),
            None if known.contains_key(&*name) => host_changes.push((name.clone(), &pair[1])),
            None => {
                return Err(Fault::from(format!(
                    "ERR Unknown option or number of arguments for CONFIG SET - '{}'",
                    shown(&pair[0])
                )));
            }
        }
        names.push(name);
    }
    // A smaller size evicts, by the policy that is set together with it.
    host_changes.sort_by_key(|(name, _)| name == "maxmemory");
    // The host may still refuse a value, so its settings come first, and are put back if a later one is refused.
    let mut done: Vec<&str> = Vec::new();
    for (name, value) in &host_changes {
        if let Err(why) = session.shared.host.set(&user, name, value) {
            for name in done {
                if let Some(old) = known.get(name) {
                    // It was in force a moment ago.
                    let _ = session.shared.host.set(&user, name, old.as_bytes());
                }
            }
            return Err(failed(name, &why));
        }
        done.push(name);
    }
    changes.into_iter().for_each(|change| session.settings().apply(change));
    session.reply().ok();
    Ok(())
}

fn failed(name: &str, why: &str) -> Fault {
    Fault::from(format!("ERR CONFIG SET failed (possibly related to argument '{name}') - {why}"))
}

pub(crate) fn reset_statistics(session: &mut RespSession, _: &[Bytes]) -> Outcome {
    session.shared.statistics.reset();
    session.reply().ok();
    Ok(())
}

pub(crate) fn rewrite(_: &mut RespSession, _: &[Bytes]) -> Outcome {
    Err(Fault::error("ERR The server is running without a config file"))
}
