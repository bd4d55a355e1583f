//! Members that targets of several kinds have.

use millstream_outgoing::is_host;
use serde_json::Value;

use super::template::MacroTemplate;
use crate::model::member::Member;
use crate::refusal::Refusal;

pub(crate) fn required(given: &mut Member, name: &'static str) -> Result<String, Refusal> {
    let missing = given.wrong(name, "missing", "it is required; add it");
    given.text(name)?.ok_or(missing)
}

pub(crate) fn template(what: &str, text: &str, has_macros: bool) -> Result<MacroTemplate, Refusal> {
    if has_macros { MacroTemplate::read(what, text) } else { Ok(MacroTemplate::literal(text)) }
}

pub(crate) fn check_host(host: &str) -> Result<(), Refusal> {
    if is_host(host) {
        return Ok(());
    }
    Err(Refusal::bad(format!(
        "host '{host}' of url: a name has letters, digits, '-' and '_', in parts of 1 to 63 between points that do not \
         begin or end with '-'; correct it"
    )))
}

/// Names and values of a member of a custom target; names without macros must be legal.
pub(crate) fn pairs(
    given: &mut Member,
    name: &'static str,
    is_legal: fn(&str) -> bool,
) -> Result<Vec<(MacroTemplate, MacroTemplate)>, Refusal> {
    let Some(object) = given.full_object(name)? else { return Ok(Vec::new()) };
    let pair = |(key, value): (String, Value)| {
        let Value::String(text) = &value else {
            return Err(Refusal::bad(format!("'{key}' of {name} = {value}: it must be a text; send one")));
        };
        if key.is_empty() || !(key.contains("${") || is_legal(&key)) {
            return Err(Refusal::bad(format!("'{key}' of {name} is no header's name; correct it")));
        }
        Ok((MacroTemplate::read(name, &key)?, MacroTemplate::read(name, text)?.decoded()))
    };
    object.into_all().into_iter().map(pair).collect()
}

/// The host and the port of `host:port`.
pub(crate) fn host_and_port(text: &str) -> Option<(String, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let port: u16 = port.parse().ok().filter(|port| *port > 0)?;
    let is_host = !host.is_empty() && !host.contains(['/', '?', '#', '@', '$']);
    is_host.then(|| (host.trim_matches(['[', ']']).to_owned(), port))
}
