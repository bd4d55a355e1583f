//! A registration: the entities and attributes that a context provider has, and its address.

use std::sync::Arc;

use millstream_outgoing::HttpUrl;
use millstream_types::TenantId;
use serde_json::{Map, Value, json};

use super::outcomes::ForwardOutcomes;
use crate::model::datetime;
use crate::model::entity::Key;
use crate::model::member::Member;
use crate::model::syntax::{IDENTIFIER_MAX_CHARS, check_identifier, has_forbidden};
use crate::query::{NameFilter, Selector};
use crate::refusal::Refusal;

const DESCRIPTION_MAX_CHARS: usize = 1_024;
/// The only pattern of ids.
pub(crate) const ANY_ID: &str = ".*";

/// The place of a registration, which the request gives.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub(crate) tenant: TenantId,
    /// 24 hexadecimal digits, ascending by creation.
    pub(crate) id: Arc<str>,
    pub(crate) path: Arc<str>,
}

/// A registration of a context provider.
#[derive(Debug)]
pub(crate) struct Registration {
    pub(crate) identity: Identity,
    /// The document for GET, without the id. It is read again when it is stored.
    pub(crate) document: Map<String, Value>,
    pub(crate) claims: Vec<EntityClaim>,
    /// Attributes that the provider has; empty for all.
    pub(crate) attrs: Vec<String>,
    /// The base of the provider's URLs; `/op/query` and `/op/update` are below it.
    url: String,
    pub(crate) mode: ForwardingMode,
    expires_ms: Option<i64>,
    pub(super) outcomes: ForwardOutcomes,
}

/// Entities that a provider has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EntityClaim {
    /// `None` for any id.
    pub(crate) id: Option<Arc<str>>,
    /// `None` for any type.
    pub(crate) kind: Option<Arc<str>>,
}

/// An entity, or all entities of any id, in a request to a provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ForwardedEntity {
    /// `None` for any id.
    pub(crate) id: Option<Arc<str>>,
    /// `None` if neither the client nor the registration names a type.
    pub(crate) kind: Option<Arc<str>>,
}

impl ForwardedEntity {
    /// `true` if it stands for the entity of this key.
    pub(crate) fn is_met_by(&self, key: &Key) -> bool {
        self.id.as_ref().is_none_or(|id| *id == key.id) && self.kind.as_ref().is_none_or(|kind| *kind == key.kind)
    }
}

/// The requests that are forwarded to a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ForwardingMode {
    All,
    Query,
    Update,
    None,
}

/// An operation that is forwarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ForwardedOperation {
    Query,
    Update,
}

impl ForwardedOperation {
    /// The end of its URL.
    pub(crate) const fn path(self) -> &'static str {
        match self {
            Self::Query => "/op/query",
            Self::Update => "/op/update",
        }
    }
}

impl ForwardingMode {
    const NAMES: [(&str, Self); 4] =
        [("all", Self::All), ("query", Self::Query), ("update", Self::Update), ("none", Self::None)];

    pub(crate) fn has(self, operation: ForwardedOperation) -> bool {
        match self {
            Self::All => true,
            Self::Query => operation == ForwardedOperation::Query,
            Self::Update => operation == ForwardedOperation::Update,
            Self::None => false,
        }
    }
}

impl EntityClaim {
    /// The entities that `selector` asks of the provider; a claim with a type meets only requests that name one.
    pub(crate) fn forwarded(&self, selector: &Selector) -> Vec<ForwardedEntity> {
        let ids = asked(self.id.as_ref(), &selector.ids);
        // `Any` asks for no type, so that only a claim without one meets it.
        let kinds = match (&self.kind, &selector.kinds) {
            (Some(_), NameFilter::Any) => Vec::new(),
            (kind, kinds) => asked(kind.as_ref(), kinds),
        };
        let with_kind = |id: &Option<Arc<str>>| {
            let id = id.clone();
            kinds.iter().map(move |kind| ForwardedEntity { id: id.clone(), kind: kind.clone() }).collect::<Vec<_>>()
        };
        ids.iter().flat_map(with_kind).collect()
    }

    /// `true` if the provider has this entity.
    pub(crate) fn has(&self, id: &str, kind: Option<&str>) -> bool {
        self.id.as_ref().is_none_or(|own| **own == *id)
            && self.kind.as_ref().is_none_or(|own| kind.is_some_and(|kind| **own == *kind))
    }
}

/// The names that both a claim and a filter have; a `None` among them stands for any.
fn asked(claimed: Option<&Arc<str>>, filter: &NameFilter) -> Vec<Option<Arc<str>>> {
    match (claimed, filter) {
        (Some(name), filter) => filter.have(name).then(|| Some(name.clone())).into_iter().collect(),
        (None, NameFilter::Of(names)) => names.iter().map(|name| Some(name.as_str().into())).collect(),
        (None, NameFilter::Any | NameFilter::Like(_)) => vec![None],
    }
}

impl Registration {
    /// Reads a client's document, or a stored one.
    ///
    /// # Errors
    /// A refusal that names the member, its value and the rule.
    pub(crate) fn read(identity: Identity, document: Map<String, Value>) -> Result<Self, Refusal> {
        if document.is_empty() {
            return Err(Refusal::bad("the body {} registers nothing: it needs dataProvided and provider; add them"));
        }
        let mut top = Member::of("the registration", Value::Object(document))?;
        let description = description(&mut top)?;
        let expires_ms = expires(&mut top)?;
        let status = choice(&mut top, "status", &["active", "inactive"])?;
        let mut provided = required(&mut top, "dataProvided")?;
        let claims = claims(&mut provided)?;
        let attrs = attrs(&mut provided)?;
        let mut provider = required(&mut top, "provider")?;
        let mut http = required(&mut provider, "http")?;
        let Some(url) = http.text("url")? else { return Err(missing(&http, "url")) };
        let names = ForwardingMode::NAMES.map(|(name, _)| name);
        let mode_name = choice(&mut provider, "supportedForwardingMode", &names)?;
        let mode =
            ForwardingMode::NAMES.iter().find(|(name, _)| *name == mode_name).map_or(ForwardingMode::All, |it| it.1);
        let is_legacy = provider.flag("legacyForwarding")?.unwrap_or(false);
        let mut document = Map::new();
        document.extend(description.map(|text| ("description".to_owned(), text.into())));
        document.extend(expires_ms.map(|at_ms| ("expires".to_owned(), millstream_types::iso_time(at_ms).into())));
        let entities: Vec<Value> = claims.iter().map(EntityClaim::shown).collect();
        document.insert("dataProvided".to_owned(), json!({"entities": entities, "attrs": attrs}));
        let provider =
            json!({"http": {"url": url}, "supportedForwardingMode": mode_name, "legacyForwarding": is_legacy});
        document.insert("provider".to_owned(), provider);
        document.insert("status".to_owned(), status.into());
        let outcomes = ForwardOutcomes::default();
        let registration = Self { identity, document, claims, attrs, url, mode, expires_ms, outcomes };
        match registration.target(ForwardedOperation::Query) {
            Some(_) => Ok(registration),
            None => Err(http.wrong(
                "url",
                &registration.url,
                "it must be http://host[:port][/path] or https://host[:port][/path]; correct it",
            )),
        }
    }

    /// The URL of an operation of the provider, without a query. A base without a path counts as one with the path `/`.
    fn target(&self, operation: ForwardedOperation) -> Option<HttpUrl> {
        HttpUrl::read(&self.url_of(operation, ""))
    }

    /// The URL of an operation, with `query` behind it.
    pub(crate) fn url_of(&self, operation: ForwardedOperation, query: &str) -> String {
        let has_path = self.url.find("://").is_some_and(|scheme| self.url[scheme + 3..].contains('/'));
        [self.url.as_str(), if has_path { "" } else { "/" }, operation.path(), query].concat()
    }

    /// Both have the same provider, which takes one request for both.
    pub(crate) fn is_at_provider_of(&self, other: &Self) -> bool {
        self.url == other.url && self.identity.path == other.identity.path
    }

    /// The provider's host.
    pub(crate) fn host(&self) -> Option<String> {
        self.target(ForwardedOperation::Query).map(|url| url.host().to_owned())
    }

    pub(crate) fn is_expired(&self, now_ms: i64) -> bool {
        self.expires_ms.is_some_and(|at_ms| at_ms <= now_ms)
    }

    /// The document for GET.
    pub(crate) fn shown(&self) -> Value {
        let id = ("id".to_owned(), Value::from(&*self.identity.id));
        Value::Object(std::iter::once(id).chain(self.document.clone()).collect())
    }

    /// The document with the outcomes of forwards.
    pub(crate) fn shown_with_outcomes(&self) -> Value {
        let mut shown = self.shown();
        shown["forwardingInformation"] = self.outcomes.shown();
        shown
    }
}

impl EntityClaim {
    fn read(item: &Value) -> Result<Self, Refusal> {
        let mut given = Member::of("an item of entities", item.clone())?;
        let id = match (given.has("id"), given.has("idPattern")) {
            (true, true) => {
                return Err(Refusal::bad(format!("{item} in entities has id and idPattern; give one of them")));
            }
            (false, false) => {
                return Err(Refusal::bad(format!("{item} in entities has no id; give id, or idPattern '.*'")));
            }
            (true, false) => Some(identifier(&mut given, "id")?),
            (false, true) => {
                let pattern = pattern(&mut given, "idPattern")?;
                if pattern != ANY_ID {
                    return Err(Refusal::later("idPattern other than '.*' in a registration", &pattern));
                }
                None
            }
        };
        let kind = match (given.has("type"), given.has("typePattern")) {
            (true, true) => {
                return Err(Refusal::bad(format!("{item} in entities has type and typePattern; give one of them")));
            }
            (true, false) => Some(identifier(&mut given, "type")?),
            (false, true) => {
                return Err(Refusal::later("typePattern in a registration", &pattern(&mut given, "typePattern")?));
            }
            (false, false) => None,
        };
        Ok(Self { id, kind })
    }

    fn shown(&self) -> Value {
        let mut shown = Map::new();
        match &self.id {
            Some(id) => shown.insert("id".to_owned(), Value::from(&**id)),
            None => shown.insert("idPattern".to_owned(), ANY_ID.into()),
        };
        shown.extend(self.kind.as_ref().map(|kind| ("type".to_owned(), Value::from(&**kind))));
        Value::Object(shown)
    }
}

fn missing(of: &Member, name: &str) -> Refusal {
    of.wrong(name, "missing", "it is required; add it")
}

/// An object that must be there, and must have a member.
fn required(of: &mut Member, name: &'static str) -> Result<Member, Refusal> {
    match of.object(name)? {
        Some(empty) if empty.is_empty() => Err(of.wrong(name, "{}", "it must not be empty; fill it")),
        Some(given) => Ok(given),
        None => Err(missing(of, name)),
    }
}

fn description(top: &mut Member) -> Result<Option<String>, Refusal> {
    match top.take("description") {
        None => Ok(None),
        Some(Value::String(text)) if text.chars().count() > DESCRIPTION_MAX_CHARS => {
            let chars = text.chars().count().to_string();
            Err(top.wrong(
                "description",
                &chars,
                &format!("it has at most {DESCRIPTION_MAX_CHARS} characters; shorten it"),
            ))
        }
        Some(Value::String(text)) if has_forbidden(&text) => {
            Err(top.wrong("description", &text, "the characters < > \" ' = ; ( ) are forbidden; leave them out"))
        }
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(top.wrong("description", &other.to_string(), "it must be a text; send one")),
    }
}

fn expires(top: &mut Member) -> Result<Option<i64>, Refusal> {
    match top.take("expires") {
        None => Ok(None),
        Some(Value::String(text)) if text.is_empty() => Ok(None),
        Some(value) => match value.as_str().and_then(datetime::parse).filter(|at_ms| *at_ms >= 0) {
            Some(at_ms) => Ok(Some(at_ms)),
            None => Err(top.wrong("expires", &value.to_string(), "write YYYY-MM-DDThh:mm:ss.sssZ, or \"\" for never")),
        },
    }
}

/// One of some texts; the first if the member is missing.
fn choice<'a>(given: &mut Member, name: &'static str, texts: &[&'a str]) -> Result<&'a str, Refusal> {
    let Some(value) = given.take(name) else { return Ok(texts.first().copied().unwrap_or_default()) };
    let known = value.as_str().and_then(|text| texts.iter().find(|known| **known == text));
    known.copied().ok_or_else(|| given.wrong(name, &value.to_string(), &format!("use one of {}", texts.join(", "))))
}

fn claims(provided: &mut Member) -> Result<Vec<EntityClaim>, Refusal> {
    match provided.take("entities") {
        None => Ok(Vec::new()),
        Some(Value::Array(items)) => items.iter().map(EntityClaim::read).collect(),
        Some(other) => Err(provided.wrong("entities", &other.to_string(), "it must be a list; send one")),
    }
}

fn attrs(provided: &mut Member) -> Result<Vec<String>, Refusal> {
    let items = match provided.take("attrs") {
        None => return Ok(Vec::new()),
        Some(Value::Array(items)) => items,
        Some(other) => return Err(provided.wrong("attrs", &other.to_string(), "it must be a list; send one")),
    };
    let name = |item: &Value| match item.as_str() {
        Some(name) => check_identifier("an attribute in attrs", name).map(|()| name.to_owned()),
        None => Err(provided.wrong("attrs", &item.to_string(), "each is a text; send names")),
    };
    items.iter().map(name).collect()
}

fn identifier(given: &mut Member, name: &'static str) -> Result<Arc<str>, Refusal> {
    let text = given.text(name)?.unwrap_or_default();
    check_identifier(format_args!("{name} of an item of entities"), &text)?;
    Ok(text.into())
}

fn pattern(given: &mut Member, name: &'static str) -> Result<String, Refusal> {
    let text = given.text(name)?.unwrap_or_default();
    if has_forbidden(&text) || text.chars().count() > IDENTIFIER_MAX_CHARS {
        let rule = format!("it has at most {IDENTIFIER_MAX_CHARS} characters, none of < > \" ' = ; ( ); correct it");
        return Err(given.wrong(name, &text, &rule));
    }
    Ok(text)
}
