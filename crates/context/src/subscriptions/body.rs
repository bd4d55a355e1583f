//! Checks and compiles the body of a subscription.

use serde_json::{Map, Value, json};

use super::patch::{EVAL_PRIORITY, PRIORITIES};
use super::subscription::{
    Alterations, DeliveryOptions, Format, Identity, NotificationContent, Quiet, Retry, Subscription,
    SubscriptionCondition,
};
use super::target::{NotificationTarget, TARGETS};
use super::template::{JexlCondition, without_macros};
use crate::ignored::IgnoredMembers;
use crate::model::datetime;
use crate::model::member::Member;
use crate::model::syntax::{check_identifier, check_once, forbidden_in, without_repeats};
use crate::query::{CRITERIA, Criteria, Rules, Selector};
use crate::refusal::Refusal;
use crate::requests::parameters::{Paths, illegal_path};

const CONDITION: [&str; 5] = ["attrs", "expression", "jexlExpression", "alterationTypes", "notifyOnMetadataChange"];
const DESCRIPTION_MAX_CHARS: usize = 1_024;
const ENTITIES_MAX: usize = 1_000;
/// A year in seconds: the limit of throttling and of a notification's maximum age.
const YEAR_S: u64 = 366 * 24 * 3600;
/// Default maximum age of a notification in memory and of a durable one.
const MAX_AGE_MEMORY_S: u64 = 60;
const MAX_AGE_DURABLE_S: u64 = 24 * 3600;

/// Compiles a client's document; see [`Subscription::compile`].
pub(crate) fn compile(identity: Identity, mut document: Map<String, Value>) -> Result<Subscription, Refusal> {
    let mut ignored = IgnoredMembers::default();
    let mut top = Member::of("the subscription", Value::Object(document.clone()))?;
    check_description(top.take("description"))?;
    let mut subject = required(&mut top, "subject")?;
    let entities = entities(&mut subject, &mut ignored)?;
    let condition = match subject.object_with("condition", &CONDITION)? {
        None => SubscriptionCondition::default(),
        Some(given) => condition(given, &mut ignored)?,
    };
    subject.ignore_rest(&mut ignored);
    let mut notification = required(&mut top, "notification")?;
    let content = content(&mut notification)?;
    let fails_limit = notification.number("maxFailsLimit", 1..=u64::MAX)?;
    let (delivery, keeps_latest) = delivery(&mut notification)?;
    let target = NotificationTarget::read(&mut notification, &mut ignored)?;
    notification.ignore_rest(&mut ignored);
    let throttling_ms = top.number("throttling", 0..=YEAR_S)?.unwrap_or(0) as i64 * 1_000;
    let expires_ms = expires(&mut top)?;
    top.ignore_rest(&mut ignored);
    ignored.strip(&mut document);
    check_texts(&document)?;
    let Identity { tenant, id, path, since } = identity;
    let paths = Paths::parse(&path).map_err(illegal_path)?;
    Ok(Subscription {
        tenant,
        id,
        path,
        paths,
        document,
        since,
        entities,
        condition,
        content,
        target,
        throttling_ms,
        keeps_latest,
        quiet: Quiet::default(),
        expires_ms,
        fails_limit,
        delivery,
    })
}

fn required(given: &mut Member, name: &'static str) -> Result<Member, Refusal> {
    let missing = given.wrong(name, "missing", "it is required; add it");
    given.object(name)?.ok_or(missing)
}

/// Refuses forbidden characters everywhere but in patterns, queries, headers and values of a patch.
fn check_texts(document: &Map<String, Value>) -> Result<(), Refusal> {
    let mut checked = Value::Object(document.clone());
    if let Some(condition) = checked.pointer_mut("/subject/condition").and_then(Value::as_object_mut) {
        condition.shift_remove("expression");
        condition.shift_remove("jexlExpression");
    }
    let entities = checked.pointer_mut("/subject/entities").and_then(Value::as_array_mut);
    for entity in entities.into_iter().flatten().filter_map(Value::as_object_mut) {
        entity.retain(|name, _| !["idPattern", "typePattern"].contains(&name.as_str()));
    }
    for name in TARGETS {
        let Some(target) = checked.pointer_mut(&format!("/notification/{name}")).and_then(Value::as_object_mut) else {
            continue;
        };
        target.shift_remove("ngsi");
        if name.ends_with("Custom") {
            strip_macros(target);
        }
        if let Some(headers) = target.get_mut("headers").and_then(Value::as_object_mut) {
            for value in headers.values_mut() {
                let without_quotes = value.as_str().map(|text| text.replace(['"', '\''], ""));
                *value = without_quotes.map_or(Value::Null, Value::from);
            }
        }
    }
    match forbidden_in(&checked) {
        None => Ok(()),
        Some(text) => Err(Refusal::bad(format!(
            "'{text}' has one of the characters < > \" ' = ; ( ), which are forbidden; leave them out, or encode them as \
             %xx where the text is decoded before it is sent"
        ))),
    }
}

/// Takes macros out of all texts and names.
fn strip_macros(members: &mut Map<String, Value>) {
    let strip = |(name, mut value): (String, Value)| {
        strip_macros_of(&mut value);
        (without_macros(&name), value)
    };
    *members = std::mem::take(members).into_iter().map(strip).collect();
}

fn strip_macros_of(value: &mut Value) {
    match value {
        Value::String(text) => *text = without_macros(text),
        Value::Array(items) => items.iter_mut().for_each(strip_macros_of),
        Value::Object(members) => strip_macros(members),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Refuses a priority out of range.
pub(crate) fn check_priorities(document: &Map<String, Value>) -> Result<(), Refusal> {
    let notification = document.get("notification").and_then(Value::as_object);
    let patches = notification.into_iter().flat_map(Map::values).filter_map(|target| target.get("ngsi")?.as_object());
    for (name, attribute) in patches.flatten() {
        let Some(given) = attribute.get("metadata").and_then(|metadata| metadata.get(EVAL_PRIORITY)) else { continue };
        if !given.get("value").and_then(Value::as_u64).is_some_and(|priority| PRIORITIES.contains(&priority)) {
            return Err(Refusal::bad(format!(
                "evalPriority of '{name}' = {given}: its value must be a whole number from {} to {}; correct it",
                PRIORITIES.start(),
                PRIORITIES.end()
            )));
        }
    }
    Ok(())
}

/// Refuses in a request what only stored subscriptions may have. Other malformed members are left to [`compile`].
pub(crate) fn check_sent(sent: &Map<String, Value>) -> Result<(), Refusal> {
    let condition = sent.get("subject").and_then(|subject| subject.get("condition"));
    let notification = sent.get("notification");
    check_list(condition, "attrs of condition", "attrs")?;
    check_list(notification, "attrs of notification", "attrs")?;
    check_list(notification, "exceptAttrs of notification", "exceptAttrs")?;
    if let Some(expires) = sent.get("expires").and_then(Value::as_str)
        && datetime::parse(expires).is_some_and(|at_ms| at_ms < 0)
    {
        return Err(Refusal::bad(format!("expires '{expires}' is before 1970: send a later time, or \"\" for never")));
    }
    let Some(given) = condition.and_then(|condition| condition.get("expression")?.as_object()) else { return Ok(()) };
    let known: Map<String, Value> = given.clone().into_iter().filter(|(name, _)| CRITERIA.contains(&&**name)).collect();
    if known.is_empty() { Ok(()) } else { Criteria::of_json(Rules::Sent, &known).map(drop) }
}

/// Refuses a list of `parent` that names something twice; `what` names the list in the error.
fn check_list(parent: Option<&Value>, what: &str, list: &str) -> Result<(), Refusal> {
    let items = parent.and_then(|parent| parent.get(list)?.as_array());
    check_once(what, &items.into_iter().flatten().filter_map(Value::as_str).collect::<Vec<_>>())
}

fn check_description(given: Option<Value>) -> Result<(), Refusal> {
    match given {
        None => Ok(()),
        Some(Value::String(text)) if text.chars().count() <= DESCRIPTION_MAX_CHARS => Ok(()),
        Some(Value::String(text)) => Err(Refusal::bad(format!(
            "the description has {} characters: at most {DESCRIPTION_MAX_CHARS} are allowed; shorten it",
            text.chars().count()
        ))),
        Some(other) => Err(Refusal::bad(format!("description = {other}: it must be a text; send one"))),
    }
}

fn entities(subject: &mut Member, ignored: &mut IgnoredMembers) -> Result<Vec<Selector>, Refusal> {
    match subject.take("entities") {
        Some(Value::Array(items)) if (1..=ENTITIES_MAX).contains(&items.len()) => {
            items.into_iter().enumerate().map(|(at, item)| entity(at, item, ignored)).collect()
        }
        given => {
            let shown = match given {
                None => "missing".to_owned(),
                Some(Value::Array(items)) => format!("a list of {}", items.len()),
                Some(other) => other.to_string(),
            };
            Err(subject.wrong("entities", &shown, &format!("it must be a list of 1 to {ENTITIES_MAX}; send one")))
        }
    }
}

/// Reads the entity at index `at` of the list.
fn entity(at: usize, mut item: Value, ignored: &mut IgnoredMembers) -> Result<Selector, Refusal> {
    if let Value::Object(members) = &mut item {
        let unknown: Vec<String> =
            members.keys().filter(|name| !Selector::MEMBERS.contains(&&***name)).cloned().collect();
        for name in unknown {
            members.shift_remove(&name);
            ignored.add(&format!("/subject/entities/{at}"), name);
        }
    }
    Selector::of_json(&item)
}

fn condition(mut given: Member, ignored: &mut IgnoredMembers) -> Result<SubscriptionCondition, Refusal> {
    let attrs = names(&mut given, "attrs")?;
    let expression = match given.object_with("expression", &CRITERIA)? {
        None => None,
        Some(mut expression) => {
            let known = CRITERIA.into_iter().filter_map(|name| Some((name.to_owned(), expression.take(name)?)));
            let known: Map<String, Value> = known.collect();
            expression.ignore_rest(ignored);
            Some(Criteria::of_json(Rules::Stored, &known)?)
        }
    };
    let jexl = given.text("jexlExpression")?.map(|text| JexlCondition::read(&text));
    let alterations = match given.texts("alterationTypes")? {
        None => Alterations::default(),
        Some(kinds) if kinds.is_empty() => Alterations::default(),
        Some(kinds) => alterations(&given, &kinds)?,
    };
    let ignores_metadata = !given.flag("notifyOnMetadataChange")?.unwrap_or(true);
    given.ignore_rest(ignored);
    Ok(SubscriptionCondition { attrs, expression, jexl, alterations, ignores_metadata })
}

fn alterations(given: &Member, kinds: &[String]) -> Result<Alterations, Refusal> {
    let mut wanted = Alterations { create: false, update: false, change: false, delete: false };
    for kind in kinds {
        match kind.as_str() {
            "entityCreate" => wanted.create = true,
            "entityUpdate" => wanted.update = true,
            "entityChange" => wanted.change = true,
            "entityDelete" => wanted.delete = true,
            other => {
                let rule = "use entityCreate, entityUpdate, entityChange and entityDelete";
                return Err(given.wrong("alterationTypes", other, rule));
            }
        }
    }
    Ok(wanted)
}

fn content(notification: &mut Member) -> Result<NotificationContent, Refusal> {
    let has_except = notification.has("exceptAttrs");
    let attrs = names(notification, "attrs")?;
    let except = names(notification, "exceptAttrs")?;
    if has_except && (except.is_empty() || !attrs.is_empty()) {
        let rule = "it must not be empty, nor stand beside attrs; leave it out, or name attributes";
        return Err(notification.wrong("exceptAttrs", &format!("{except:?}"), rule));
    }
    let metadata = names(notification, "metadata")?;
    let only_changed = notification.flag("onlyChangedAttrs")?.unwrap_or(false);
    let covered = notification.flag("covered")?.unwrap_or(false);
    if covered && attrs.is_empty() {
        return Err(notification.wrong("covered", "true", "it needs attrs that are not empty; name attributes"));
    }
    let format = match notification.text("attrsFormat")? {
        None => Format::default(),
        Some(name) => {
            Format::ALL.iter().find(|(known, _)| *known == name).map(|(_, format)| *format).ok_or_else(|| {
                let known = Format::ALL.map(|(name, _)| name).join(", ");
                notification.wrong("attrsFormat", &name, &format!("use {known}"))
            })?
        }
    };
    Ok(NotificationContent { attrs, except, metadata, only_changed, covered, format })
}

/// A list of names; one that is given twice counts once, as stored subscriptions may have it.
fn names(given: &mut Member, list: &'static str) -> Result<Vec<String>, Refusal> {
    let names = without_repeats(given.texts(list)?.unwrap_or_default());
    let what = format!("{list} of {}:", given.what());
    names.iter().filter(|name| *name != "*").try_for_each(|name| check_identifier(&what, name))?;
    Ok(names)
}

/// Retries and queue of deliveries, and whether throttling keeps the latest notification: additions to NGSI.
fn delivery(notification: &mut Member) -> Result<(DeliveryOptions, bool), Refusal> {
    let mut given = match notification.full_object("delivery")? {
        Some(given) => given,
        None => Member::of("delivery", json!({}))?,
    };
    let is_durable = choice(&mut given, "queue", [("memory", false), ("durable", true)])?;
    let retry =
        choice(&mut given, "retry", [("safe", Retry::Safe), ("never", Retry::Never), ("always", Retry::Always)])?;
    let keeps_latest = choice(&mut given, "throttled", [("drop", false), ("latest", true)])?;
    let default_s = if is_durable { MAX_AGE_DURABLE_S } else { MAX_AGE_MEMORY_S };
    let max_age_ms = given.number("maxAge", 1..=YEAR_S)?.unwrap_or(default_s) * 1_000;
    given.nothing_else()?;
    Ok((DeliveryOptions { is_durable, retry, max_age_ms }, keeps_latest))
}

/// One of several words; the first is the default.
fn choice<T: Copy, const N: usize>(
    given: &mut Member,
    name: &'static str,
    words: [(&str, T); N],
) -> Result<T, Refusal> {
    let Some(word) = given.text(name)? else { return Ok(words[0].1) };
    words.iter().find(|(known, _)| *known == word).map(|(_, meaning)| *meaning).ok_or_else(|| {
        let known = words.map(|(known, _)| known).join(" or ");
        given.wrong(name, &word, &format!("use {known}"))
    })
}

fn expires(top: &mut Member) -> Result<Option<i64>, Refusal> {
    match top.take("expires") {
        None => Ok(None),
        Some(Value::String(text)) if text.is_empty() => Ok(None),
        Some(value) => match value.as_str().and_then(datetime::parse) {
            Some(at_ms) => Ok(Some(at_ms)),
            None => Err(top.wrong("expires", &value.to_string(), "write YYYY-MM-DDThh:mm:ss.sssZ, or \"\" for never")),
        },
    }
}
