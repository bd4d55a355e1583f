//! Parses and checks the headers and query parameters of requests.

use axum::http::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderName};
pub(crate) use millstream_types::ServicePaths as Paths;
use millstream_types::header::SERVICE_PATH;
use millstream_types::{ServicePathError, service_path};
use percent_encoding::percent_decode_str;
use std::sync::Arc;

use crate::ignored;
use crate::model::entity::ROOT_PATH;
use crate::model::names::shared;
use crate::model::render::AttributeSelection;
use crate::model::request_body::{BodyForm, BodyOptions, Representation};
use crate::model::syntax::{check_identifier, has_forbidden, is_service, without_repeats};
use crate::query::filter::{Pagination, TotalCount};
use crate::query::{Criteria, NameFilter, Order, Pattern, Rules, Selector};
use crate::refusal::{ErrorName, Refusal};

pub(crate) const SERVICE: HeaderName = HeaderName::from_static("fiware-service");

pub(crate) const PATH: HeaderName = HeaderName::from_static(SERVICE_PATH);

/// A client's token for receivers.
pub(crate) const AUTH_TOKEN: HeaderName = HeaderName::from_static("x-auth-token");

const LIMIT_DEFAULT: usize = 20;
const LIMIT_MAX: usize = 1_000;

/// Parameters that say which entities are meant.
pub(crate) const FILTER_PARAMETERS: [&str; 9] =
    ["id", "type", "idPattern", "typePattern", "q", "mq", "georel", "geometry", "coords"];

/// All parameters of an NGSI list.
pub(crate) const LIST_PARAMETERS: [&str; 14] = [
    "id",
    "type",
    "idPattern",
    "typePattern",
    "q",
    "mq",
    "georel",
    "geometry",
    "coords",
    "attrs",
    "metadata",
    "orderBy",
    "limit",
    "offset",
];

/// Options for the representation of entities; they exclude each other.
const FORMS: [(&str, Representation); 3] =
    [("keyValues", Representation::KeyValues), ("values", Representation::Values), ("unique", Representation::Unique)];

/// The other options of NGSI. An option is ignored on routes where it has no meaning.
const OPTIONS: [&str; 12] = [
    "normalized",
    "count",
    "noAttrDetail",
    "append",
    "upsert",
    "overrideMetadata",
    "forcedUpdate",
    "flowControl",
    "skipForwarding",
    "fullCounters",
    "dateCreated",
    "dateModified",
];

/// Options of other versions of Orion, which libraries still send.
const FORMER_OPTIONS: [&str; 2] = ["skipInitialNotification", "libVersions"];

/// The query parameters that the route supports; others are ignored.
#[derive(Debug)]
pub(crate) struct RequestParameters {
    values: Vec<(String, String)>,
    options: Vec<String>,
}

impl RequestParameters {
    /// Parses `query`. `parameters` and `options` are those of the route.
    pub(crate) fn read(query: Option<&str>, parameters: &[&str], options: &[&str]) -> Result<Self, Refusal> {
        let mut read = Self { values: Vec::new(), options: Vec::new() };
        for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (name, value) = (decoded(name)?, decoded(value)?);
            if name == "options" {
                read.options = read_options(&value, options)?;
                continue;
            }
            if value.is_empty() {
                return Err(Refusal::bad(format!("parameter '{name}' is empty: give it a value, or leave it out")));
            }
            if !parameters.contains(&name.as_str()) {
                check_ignored(&name, &value)?;
                continue;
            }
            if read.value(&name).is_some() {
                return Err(Refusal::bad(format!("parameter '{name}' is given twice: give it once")));
            }
            read.values.push((name, value));
        }
        Ok(read)
    }

    pub(crate) fn has_option(&self, option: &str) -> bool {
        self.options.iter().any(|given| given == option)
    }

    pub(crate) fn form(&self) -> Representation {
        FORMS.into_iter().find(|(name, _)| self.has_option(name)).map_or(Representation::Normalized, |(_, form)| form)
    }

    /// The options for reading a body.
    pub(crate) fn how(&self) -> BodyOptions {
        let form = if self.has_option("keyValues") { BodyForm::KeyValues } else { BodyForm::Normalized };
        BodyOptions { form, override_metadata: self.has_option("overrideMetadata") }
    }

    /// The selected attributes and metadata.
    pub(crate) fn selection(&self) -> Result<AttributeSelection, Refusal> {
        let mut attributes = self.identifiers("attrs")?;
        // Deprecated options with the effect of attrs.
        for name in ["dateCreated", "dateModified"].into_iter().filter(|name| self.has_option(name)) {
            if attributes.is_empty() {
                attributes.push("*".to_owned());
            }
            attributes.push(name.to_owned());
        }
        Ok(AttributeSelection::new(attributes, self.identifiers("metadata")?))
    }

    /// The order of a list; `None` for creation.
    pub(crate) fn order(&self, is_near: bool) -> Result<Option<Order>, Refusal> {
        self.value("orderBy").map(|text| Order::read(text, is_near)).transpose()
    }

    pub(crate) fn count(&self) -> TotalCount {
        if self.has_option("count") { TotalCount::Wanted } else { TotalCount::Unwanted }
    }

    pub(crate) fn identifiers(&self, name: &str) -> Result<Vec<String>, Refusal> {
        let items: Vec<&str> = self.value(name).into_iter().flat_map(|list| list.split(',')).collect();
        items.iter().try_for_each(|item| check_identifier(format_args!("parameter {name}:"), item))?;
        Ok(without_repeats(items.into_iter().map(str::to_owned).collect()))
    }

    /// The type that identifies one of several entities with the same id.
    pub(crate) fn kind(&self) -> Result<Option<String>, Refusal> {
        let kind = self.value("type");
        kind.map_or(Ok(()), |kind| check_identifier("parameter type:", kind))?;
        Ok(kind.map(str::to_owned))
    }

    /// The ids and types of a list.
    pub(crate) fn selector(&self) -> Result<Selector, Refusal> {
        Ok(Selector { ids: self.names("id", "idPattern")?, kinds: self.names("type", "typePattern")? })
    }

    fn names(&self, list: &str, pattern: &str) -> Result<NameFilter, Refusal> {
        match (self.value(list), self.value(pattern)) {
            (Some(_), Some(_)) => Err(Refusal::bad(format!(
                "parameters {list} and {pattern} are given together: one excludes the other; send one of them"
            ))),
            (Some(_), None) => Ok(NameFilter::Of(self.identifiers(list)?)),
            (None, Some(text)) => Ok(NameFilter::Like(Pattern::new(&format!("parameter {pattern}"), text)?)),
            (None, None) => Ok(NameFilter::Any),
        }
    }

    /// The filter criteria of a list.
    pub(crate) fn criteria(&self) -> Result<Criteria, Refusal> {
        Criteria::read(Rules::Sent, |name| self.value(name))
    }

    pub(crate) fn page(&self) -> Result<Pagination, Refusal> {
        let limit = self.number("limit", LIMIT_DEFAULT)?;
        if limit > LIMIT_MAX {
            return Err(Refusal::bad(format!(
                "limit = {limit}: a page has at most {LIMIT_MAX}; ask for several pages"
            )));
        }
        Ok(Pagination { limit, offset: self.number("offset", 0)? })
    }

    fn number(&self, name: &str, default: usize) -> Result<usize, Refusal> {
        let Some(text) = self.value(name) else { return Ok(default) };
        let digits = text.bytes().all(|c| c.is_ascii_digit());
        digits.then(|| text.parse().ok()).flatten().ok_or_else(|| {
            Refusal::bad(format!("{name} = '{text}': it must be a whole number, not negative; correct it"))
        })
    }

    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        self.values.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// Logs a parameter that is ignored; refuses characters that no parameter may have. Those of other routes may have them.
fn check_ignored(name: &str, value: &str) -> Result<(), Refusal> {
    let is_known = LIST_PARAMETERS.contains(&name);
    if !is_known && (has_forbidden(name) || has_forbidden(value)) {
        return Err(Refusal::bad(format!(
            "parameter '{name}' = '{value}': the characters < > \" ' = ; ( ) are forbidden; leave them out"
        )));
    }
    ignored::warn("parameter of a URL", name);
    Ok(())
}

/// The options in `list` that the route supports.
fn read_options(list: &str, served: &[&str]) -> Result<Vec<String>, Refusal> {
    let mut options: Vec<String> = Vec::new();
    for option in list.split(',') {
        if served.contains(&option) {
            options.push(option.to_owned());
        } else if FORMER_OPTIONS.contains(&option) {
            ignored::warn("option of a URL", option);
        } else if !OPTIONS.contains(&option) && !FORMS.iter().any(|(form, _)| *form == option) {
            return Err(not_here(option, served));
        }
    }
    let forms: Vec<&str> =
        FORMS.iter().map(|(form, _)| *form).filter(|form| options.iter().any(|one| one == form)).collect();
    if forms.len() > 1 {
        return Err(Refusal::bad(format!(
            "options {}: each is a form of its own; send one of them",
            forms.join(" and ")
        )));
    }
    Ok(options)
}

/// The refusal of an option that NGSI does not know.
fn not_here(option: &str, served: &[&str]) -> Refusal {
    let served = if served.is_empty() { "none".to_owned() } else { served.join(", ") };
    Refusal::bad(format!("option '{option}' is not known here: this request takes {served}; remove it"))
}

fn decoded(text: &str) -> Result<String, Refusal> {
    let text = text.replace('+', " ");
    percent_decode_str(&text)
        .decode_utf8()
        .map(Into::into)
        .map_err(|_| Refusal::bad(format!("'{text}' in the query is not UTF-8 once decoded; encode UTF-8")))
}

/// The service paths in a read's header.
pub(crate) fn read_paths(headers: &HeaderMap) -> Result<Paths, Refusal> {
    path_header(headers)?.map_or(Ok(Paths::default()), |list| Paths::parse(list).map_err(illegal_path))
}

/// The single service path in a write's header.
pub(crate) fn write_path(headers: &HeaderMap) -> Result<Arc<str>, Refusal> {
    match path_header(headers)? {
        None => Ok(shared(ROOT_PATH)),
        Some(text) => service_path(text).map(|path| shared(&path)).map_err(illegal_path),
    }
}

/// The service path header, if there is one.
pub(crate) fn path_header(headers: &HeaderMap) -> Result<Option<&str>, Refusal> {
    let mut given = headers.get_all(&PATH).iter();
    match (given.next().map(|value| value.to_str()), given.next()) {
        (_, Some(_)) => Err(Refusal::bad("Fiware-ServicePath is given twice: send one header, a read's with a list")),
        (None, None) => Ok(None),
        (Some(Ok("")), None) => Ok(None),
        (Some(Ok(text)), None) => Ok(Some(text)),
        (Some(Err(_)), None) => Err(Refusal::bad("Fiware-ServicePath is not ASCII text: use /[A-Za-z0-9_] levels")),
    }
}

pub(crate) fn illegal_path(error: ServicePathError) -> Refusal {
    Refusal::bad(error.to_string())
}

/// Checks the tenant's name by NGSI's rule; the HTTP layer has already folded it to lower case.
pub(crate) fn check_service(headers: &HeaderMap) -> Result<(), Refusal> {
    let Some(value) = headers.get(&SERVICE).filter(|value| !is_service(value.as_bytes())) else { return Ok(()) };
    Err(Refusal::bad(format!(
        "Fiware-Service '{}': use up to 50 letters, digits and underscores; choose another tenant",
        String::from_utf8_lossy(value.as_bytes())
    )))
}

pub(crate) fn check_accept(headers: &HeaderMap) -> Result<(), Refusal> {
    let mut given = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()).peekable();
    if given.peek().is_none() {
        return Ok(());
    }
    let listed: Vec<&str> = given.flat_map(|list| list.split(',')).map(str::trim).collect();
    let takes_json = |range: &&str| {
        let mut parts = range.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default().to_ascii_lowercase();
        let refused = parts.any(|part| part.strip_prefix("q=").is_some_and(|q| q.parse() == Ok(0.0)));
        !refused && matches!(media.as_str(), "application/json" | "application/*" | "*/*")
    };
    if listed.iter().any(takes_json) {
        return Ok(());
    }
    Err(Refusal::new(
        ErrorName::NotAcceptable,
        format!("Accept: {}: answers are application/json; accept that", listed.join(", ")),
    ))
}

/// The query has the option `wanted`.
pub(crate) fn has_option(query: Option<&str>, wanted: &str) -> bool {
    let lists = query.unwrap_or_default().split('&').filter_map(|pair| pair.strip_prefix("options="));
    lists.filter_map(|list| decoded(list).ok()).any(|list| list.split(',').any(|option| option == wanted))
}

/// The path is that of an attribute's value, which also has other media types than JSON.
pub(crate) fn is_of_value(path: &str) -> bool {
    let rest = path.strip_prefix("/v2/entities/").and_then(|rest| rest.strip_suffix("/value"));
    rest.is_some_and(|rest| {
        let mut segments = rest.split('/');
        let of_attribute = (segments.next(), segments.next(), segments.next(), segments.next());
        matches!(of_attribute, (Some(_), Some("attrs"), Some(_), None))
    })
}

/// The body's media type is plain text.
pub(crate) fn is_text(headers: &HeaderMap) -> bool {
    let given = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    given.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("text/plain")
}

/// Refuses a body with another media type than JSON.
pub(crate) fn check_type(headers: &HeaderMap) -> Result<(), Refusal> {
    let given = headers.get(CONTENT_TYPE).map_or("none".into(), |value| String::from_utf8_lossy(value.as_bytes()));
    let media = given.split(';').next().unwrap_or_default().trim();
    if media.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    Err(Refusal::new(
        ErrorName::UnsupportedMediaType,
        format!("Content-Type: {given}: bodies are application/json here; send that header, and JSON"),
    ))
}

/// Refuses a body without a length or with length 0.
pub(crate) fn check_length(headers: &HeaderMap) -> Result<(), Refusal> {
    let length = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()).unwrap_or("none");
    match length.parse::<u64>() {
        Ok(bytes) if bytes > 0 => Ok(()),
        _ => Err(Refusal::new(
            ErrorName::ContentLengthRequired,
            format!("Content-Length: {length}: POST, PUT and PATCH need a body with its length; send both"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: &'static str, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(axum::http::HeaderName::from_static(name), value.parse().unwrap())])
    }

    #[test]
    fn a_write_names_one_path_and_a_read_several() {
        let write = |value: &str| write_path(&headers(SERVICE_PATH, value));
        let deepest = "/a".repeat(10);
        for (given, expected) in [("/", "/"), ("/a/", "/a"), ("/a/b_1", "/a/b_1"), (&deepest, &deepest)] {
            assert_eq!(&*write(given).unwrap(), expected);
        }
        let (too_deep, too_long) = ("/a".repeat(11), format!("/{}", "x".repeat(51)));
        for given in ["a", "/a/#", "/#", "/a,/b", "/a//b", "/a-b", "//", &too_deep, &too_long] {
            assert!(write(given).unwrap_err().description.contains(given), "{given}");
        }
        let read = |value: &str| read_paths(&headers(SERVICE_PATH, value));
        for (given, path, expected) in [
            ("/#", "/", true),
            ("/#", "/a/b", true),
            ("/", "/a", false),
            ("/a", "/a", true),
            ("/a", "/a/b", false),
            ("/a/#", "/a", true),
            ("/a/#", "/a/b/c", true),
            ("/a/#", "/ab", false),
            ("/a, /b/#", "/b/c", true),
        ] {
            assert_eq!(read(given).unwrap().have(path), expected, "{given} {path}");
        }
        assert!(read(&["/a"; 11].join(",")).is_err());
        assert!(read_paths(&HeaderMap::new()).unwrap().have("/any"));
    }

    #[test]
    fn each_request_checks_the_parameters_that_it_takes() {
        let read =
            |query| RequestParameters::read(Some(query), &["id", "type", "limit", "offset"], &["count", "keyValues"]);
        let given = read("id=a,b,a&limit=5&offset=7&options=count,keyValues&type=T%3A1").unwrap();
        assert_eq!(given.identifiers("id").unwrap(), ["a", "b"]);
        assert_eq!(given.kind().unwrap().as_deref(), Some("T:1"));
        assert_eq!(given.page().unwrap(), Pagination { limit: 5, offset: 7 });
        assert_eq!((given.form(), given.count()), (Representation::KeyValues, TotalCount::Wanted));
        assert_eq!(read("").unwrap().page().unwrap(), Pagination { limit: 20, offset: 0 });
        let elsewhere = read("options=values,flowControl,count").unwrap();
        assert_eq!((elsewhere.form(), elsewhere.count()), (Representation::Normalized, TotalCount::Wanted));
        let ignored = read("q=a==1&colour=red&colour=blue&id=a").unwrap();
        assert_eq!((ignored.value("q"), ignored.value("colour"), ignored.value("id")), (None, None, Some("a")));
        for query in [
            "options=fast",
            "options=count,",
            "id=",
            "id=a&id=b",
            "id=%ff",
            "colour",
            "colour=",
            "colour=a%3Cb",
            "col%28our=a",
        ] {
            assert_eq!(read(query).unwrap_err().name, ErrorName::BadRequest, "{query}");
        }
        for query in ["limit=1001", "limit=-1", "limit=x", "offset=1.5", "offset=99999999999999999999999"] {
            assert!(read(query).unwrap().page().is_err(), "{query}");
        }
        for query in ["id=a%3Cb", "id=a,,b", "id=%20"] {
            assert!(read(query).unwrap().identifiers("id").is_err(), "{query}");
        }
    }

    #[test]
    fn only_a_client_that_reads_json_is_answered() {
        for (accept, expected) in [
            ("application/json", true),
            ("*/*", true),
            ("text/html, application/*;q=0.5", true),
            ("text/plain", false),
            ("application/json;q=0", false),
        ] {
            assert_eq!(check_accept(&headers("accept", accept)).is_ok(), expected, "{accept}");
        }
        assert!(check_accept(&HeaderMap::new()).is_ok());
    }
}
