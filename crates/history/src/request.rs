//! Parses and checks the parameters and headers of a request.

use axum::http::HeaderMap;
use axum::http::header::ACCEPT;
use millstream_http::{FromPath, Params, Problem};
use millstream_types::{ErrorCode, ServicePaths, TenantId};
use regex::RegexBuilder;
use serde::Deserialize;

use crate::change::moment;
use crate::period::Periods;
use crate::query::{
    AggregateMethod, EntityPage, EntitySelection, PointExtent, ResultForm, SeriesQuery, TimeProperty, TimeWindow,
};
use crate::render::{MediaType, ResponseFormat};

const LIMIT_DEFAULT: usize = 20;
const LIMIT_MAX: usize = 1_000;
/// Limit of ids, types or attributes per request.
const NAMES_MAX: usize = 1_000;
const PATTERN_MAX_CHARS: usize = 1_024;
/// Memory limit of a compiled pattern.
const PATTERN_MAX_BYTES: usize = 1 << 20;

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct ReadParameters {
    id: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
    id_pattern: Option<String>,
    attrs: Option<String>,
    timerel: Option<String>,
    time_at: Option<String>,
    end_time_at: Option<String>,
    timeproperty: Option<String>,
    #[serde(rename = "lastN")]
    last_n: Option<String>,
    options: Option<String>,
    aggr_methods: Option<String>,
    aggr_period_duration: Option<String>,
    limit: Option<String>,
    offset: Option<String>,
    count: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct DeleteParameters {
    #[serde(rename = "type")]
    pub(crate) kind: Option<String>,
}

#[derive(Debug)]
pub(crate) struct TemporalQuery {
    pub(crate) series: SeriesQuery,
    pub(crate) page: EntityPage,
    pub(crate) shape: ResponseFormat,
}

/// The entity and attribute in the path of the request.
#[derive(Debug, Default)]
pub(crate) struct PathParameters {
    pub(crate) id: Option<String>,
    pub(crate) attribute: Option<String>,
}

/// The path of an attribute.
pub(crate) struct AttributePath {
    /// The entity's id.
    pub(crate) id: String,
    /// The attribute's name.
    pub(crate) attribute: String,
}

impl FromPath for AttributePath {
    fn from_path(params: &Params<'_>) -> Result<Self, Problem> {
        let (id, attribute) = FromPath::from_path(params)?;
        Ok(Self { id, attribute })
    }
}

impl ReadParameters {
    /// Parses a read of `tenant`; `max_points` limits the points of an answer.
    pub(crate) fn read(
        self,
        tenant: &TenantId,
        headers: &HeaderMap,
        named: PathParameters,
        max_points: usize,
    ) -> Result<TemporalQuery, Problem> {
        let media = media(headers)?;
        let window = self.window()?;
        let (form, is_brief) = self.form(&window, max_points)?;
        let is_single = named.id.is_some();
        let page = self.page(is_single)?;
        let selection = self.selection(tenant, headers, named)?;
        let methods = match &form {
            ResultForm::Aggregated { methods, .. } => methods.clone(),
            ResultForm::Points(_) => Vec::new(),
        };
        let shape = ResponseFormat { media, is_brief, property: window.property, methods, is_single };
        let series = SeriesQuery { selection, window, form, skips_deletions: false };
        Ok(TemporalQuery { series, page, shape })
    }

    fn selection(
        self,
        tenant: &TenantId,
        headers: &HeaderMap,
        named: PathParameters,
    ) -> Result<EntitySelection, Problem> {
        if named.id.is_some()
            && let Some((name, value)) = [("id", &self.id), ("idPattern", &self.id_pattern)]
                .into_iter()
                .find_map(|(name, value)| value.as_ref().map(|value| (name, value)))
        {
            return Err(bad(name, value, "the path names the entity", "leave it out"));
        }
        if named.attribute.is_some()
            && let Some(value) = &self.attrs
        {
            return Err(bad("attrs", value, "the path names the attribute", "leave it out"));
        }
        let ids = named.id.map_or_else(|| list("id", self.id.as_deref()), |id| Ok(vec![id]))?;
        let attributes = named.attribute.map_or_else(|| list("attrs", self.attrs.as_deref()), |name| Ok(vec![name]))?;
        let kinds = list("type", self.kind.as_deref())?;
        let id_pattern = self.id_pattern.as_deref().map(pattern).transpose()?;
        Ok(EntitySelection { tenant: tenant.clone(), ids, id_pattern, kinds, paths: paths(headers)?, attributes })
    }

    fn window(&self) -> Result<TimeWindow, Problem> {
        let property = match self.timeproperty.as_deref() {
            None | Some("observedAt") => TimeProperty::Observed,
            Some("createdAt" | "modifiedAt") => TimeProperty::Modified,
            Some(other) => {
                return Err(bad("timeproperty", other, "observedAt, createdAt or modifiedAt", "use one of them"));
            }
        };
        let at = |name, text: &Option<String>| match text {
            None => Err(missing(name, "timerel requires it", "add it, or leave timerel out")),
            Some(text) => moment(text).ok_or_else(|| {
                bad(name, text, "an ISO 8601 date, or date and time", "write it like 2026-01-31T12:00:00Z")
            }),
        };
        let unused = |name, value: &Option<String>| match value {
            None => Ok(()),
            Some(value) => {
                Err(bad(name, value, "only some values of timerel use it", "leave it out, or change timerel"))
            }
        };
        let window = TimeWindow { property, ..TimeWindow::default() };
        match self.timerel.as_deref() {
            None => {
                unused("timeAt", &self.time_at)?;
                unused("endTimeAt", &self.end_time_at)?;
                Ok(window)
            }
            Some("before") => {
                unused("endTimeAt", &self.end_time_at)?;
                Ok(TimeWindow { to_ms: at("timeAt", &self.time_at)?, ..window })
            }
            Some("after") => {
                unused("endTimeAt", &self.end_time_at)?;
                Ok(TimeWindow { from_ms: at("timeAt", &self.time_at)?.saturating_add(1), ..window })
            }
            Some("between") => {
                let (from_ms, to_ms) = (at("timeAt", &self.time_at)?, at("endTimeAt", &self.end_time_at)?);
                if from_ms >= to_ms {
                    let given = self.end_time_at.as_deref().unwrap_or_default();
                    return Err(bad("endTimeAt", given, "it must be later than timeAt", "swap them"));
                }
                Ok(TimeWindow { from_ms, to_ms, ..window })
            }
            Some(other) => Err(bad("timerel", other, "before, after or between", "use one of them")),
        }
    }

    fn form(&self, window: &TimeWindow, max_points: usize) -> Result<(ResultForm, bool), Problem> {
        let options: Vec<&str> = self.options.iter().flat_map(|list| list.split(',')).collect();
        if let Some(other) = options.iter().find(|option| !["temporalValues", "aggregatedValues"].contains(option)) {
            return Err(bad("options", other, "temporalValues or aggregatedValues", "use one of them"));
        }
        let is_brief = options.contains(&"temporalValues");
        let last = self.last_n.as_deref().map(|text| last(text, max_points)).transpose()?;
        if !options.contains(&"aggregatedValues") {
            for (name, value) in
                [("aggrMethods", &self.aggr_methods), ("aggrPeriodDuration", &self.aggr_period_duration)]
            {
                if let Some(value) = value {
                    return Err(bad(
                        name,
                        value,
                        "it belongs to options=aggregatedValues",
                        "add that option, or leave it out",
                    ));
                }
            }
            return Ok((ResultForm::Points(last.map_or(PointExtent::All, PointExtent::Last)), is_brief));
        }
        if is_brief {
            let value = self.options.as_deref().unwrap_or_default();
            return Err(bad("options", value, "these exclude each other", "use one of them"));
        }
        if let Some(value) = &self.last_n {
            return Err(bad("lastN", value, "aggregation uses all points", "choose the time with timerel"));
        }
        Ok((ResultForm::Aggregated { methods: self.methods()?, periods: self.periods(window)? }, false))
    }

    fn methods(&self) -> Result<Vec<AggregateMethod>, Problem> {
        let names = list("aggrMethods", self.aggr_methods.as_deref())?;
        let rule = "totalCount, distinctCount, sum, avg, min, max, stddev or sumsq";
        if names.is_empty() {
            return Err(missing("aggrMethods", rule, "name those that you want, separated by commas"));
        }
        let method = |name: &String| {
            let known = AggregateMethod::ALL.iter().find(|(_, known)| known == name);
            known.map(|(method, _)| *method).ok_or_else(|| bad("aggrMethods", name, rule, "use one of them"))
        };
        names.iter().map(method).collect()
    }

    /// Periods start at the start of the window.
    fn periods(&self, window: &TimeWindow) -> Result<Periods, Problem> {
        let origin = match self.timerel.as_deref() {
            Some("between") => Some(window.from_ms),
            Some("after") => Some(window.from_ms - 1),
            _ => None,
        };
        let text = self.aggr_period_duration.as_deref().unwrap_or("P0D");
        Periods::read(text, origin).ok_or_else(|| {
            let rule = "an ISO 8601 duration that is not negative and does not mix months with days";
            bad("aggrPeriodDuration", text, rule, "write it like PT1H, P1D or P1M")
        })
    }

    fn page(&self, is_single: bool) -> Result<EntityPage, Problem> {
        let counts = match self.count.as_deref() {
            None | Some("false") => false,
            Some("true") => true,
            Some(other) => return Err(bad("count", other, "true or false", "use one of them")),
        };
        if is_single {
            let paging = [("limit", &self.limit), ("offset", &self.offset), ("count", &self.count)];
            return match paging.into_iter().find_map(|(name, value)| value.as_ref().map(|value| (name, value))) {
                Some((name, value)) => {
                    Err(bad(name, value, "it pages a list, but the path names one entity", "leave it out"))
                }
                // Two, so that an ambiguous id is detected.
                None => Ok(EntityPage { offset: 0, limit: 2, counts: false }),
            };
        }
        let limit = self.limit.as_deref().map_or(Ok(LIMIT_DEFAULT), |text| whole("limit", text))?;
        if limit > LIMIT_MAX {
            return Err(bad("limit", &limit.to_string(), "a page has at most 1000 entities", "ask for several pages"));
        }
        let offset = self.offset.as_deref().map_or(Ok(0), |text| whole("offset", text))?;
        Ok(EntityPage { offset, limit, counts })
    }
}

fn last(text: &str, max_points: usize) -> Result<usize, Problem> {
    match whole("lastN", text)? {
        0 => Err(bad("lastN", text, "it is at least 1", "leave it out for all")),
        last if last > max_points => {
            let rule = format!("history.page_max_points = {max_points}");
            Err(bad("lastN", text, rule, "ask for fewer, or page by time with timerel"))
        }
        last => Ok(last),
    }
}

pub(crate) fn pattern(text: &str) -> Result<regex::Regex, Problem> {
    let compiled = RegexBuilder::new(text).size_limit(PATTERN_MAX_BYTES).build();
    match compiled {
        Ok(pattern) if text.len() <= PATTERN_MAX_CHARS => Ok(pattern),
        _ => Err(bad("idPattern", text, "a regular expression of at most 1024 characters", "correct it")),
    }
}

/// Parses a whole number of a parameter.
pub(crate) fn whole(name: &'static str, text: &str) -> Result<usize, Problem> {
    let is_number = text.bytes().all(|c| c.is_ascii_digit());
    is_number
        .then(|| text.parse().ok())
        .flatten()
        .ok_or_else(|| bad(name, text, "a whole number, not negative", "correct it"))
}

/// Splits a list at commas and removes duplicates.
pub(crate) fn list(name: &'static str, text: Option<&str>) -> Result<Vec<String>, Problem> {
    let mut names: Vec<String> = Vec::new();
    for item in text.into_iter().flat_map(|text| text.split(',')) {
        if item.is_empty() {
            return Err(bad(name, text.unwrap_or_default(), "a name between commas is empty", "remove it"));
        }
        if !names.iter().any(|known| known == item) {
            names.push(item.to_owned());
        }
    }
    if names.len() > NAMES_MAX {
        return Err(bad(name, &names.len().to_string(), "at most 1000 names", "send several requests"));
    }
    Ok(names)
}

/// Parses the service paths of a request.
pub(crate) fn paths(headers: &HeaderMap) -> Result<ServicePaths, Problem> {
    match headers.get(millstream_types::header::SERVICE_PATH).map(|value| value.to_str()) {
        None | Some(Ok("")) => Ok(ServicePaths::default()),
        Some(Ok(text)) => ServicePaths::parse(text).map_err(|error| Problem::invalid(error.to_string())),
        Some(Err(_)) => Err(Problem::invalid("Fiware-ServicePath is not ASCII text: use /[A-Za-z0-9_] levels")),
    }
}

/// Returns the first supported media type of the `Accept` header.
fn media(headers: &HeaderMap) -> Result<MediaType, Problem> {
    let listed: Vec<&str> = headers
        .get_all(ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|list| list.split(','))
        .map(str::trim)
        .collect();
    let media = |range: &&str| {
        let mut parts = range.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default().to_ascii_lowercase();
        let is_refused = parts.any(|part| part.strip_prefix("q=").is_some_and(|q| q.parse() == Ok(0.0)));
        match name.as_str() {
            _ if is_refused => None,
            "application/json" | "application/ld+json" | "application/*" | "*/*" => Some(MediaType::Json),
            "text/csv" | "text/*" => Some(MediaType::Csv),
            _ => None,
        }
    };
    if listed.is_empty() {
        return Ok(MediaType::Json);
    }
    listed.iter().find_map(media).ok_or_else(|| {
        Problem::invalid("Accept has no supported media type")
            .value(listed.join(", "))
            .rule("answers are application/json or text/csv")
            .remedy("accept one of them")
            .with_status(axum::http::StatusCode::NOT_ACCEPTABLE)
    })
}

pub(crate) fn bad(
    name: &'static str,
    value: &str,
    rule: impl Into<std::borrow::Cow<'static, str>>,
    remedy: &'static str,
) -> Problem {
    Problem::from_error(ErrorCode::Invalid, &BadParameter(name)).value(value).rule(rule).remedy(remedy)
}

pub(crate) fn missing(name: &'static str, rule: &'static str, remedy: &'static str) -> Problem {
    Problem::invalid(format!("parameter '{name}' is missing")).rule(rule).remedy(remedy)
}

#[derive(Debug, thiserror::Error)]
#[error("parameter '{0}' cannot be used")]
struct BadParameter(&'static str);

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn read(query: &str, accept: Option<&str>, id: Option<&str>) -> Result<TemporalQuery, Problem> {
        let uri = format!("/x?{query}").parse().unwrap();
        let axum::extract::Query(given) = axum::extract::Query::<ReadParameters>::try_from_uri(&uri)
            .map_err(|error| Problem::invalid(error.body_text()))?;
        let accept = accept.map(|value| (ACCEPT, HeaderValue::from_str(value).unwrap()));
        let named = PathParameters { id: id.map(str::to_owned), attribute: None };
        given.read(&TenantId::default(), &HeaderMap::from_iter(accept), named, 100)
    }

    #[test]
    fn a_request_is_read() {
        let asked = read(
            "type=Room,Car&id=a,b,a&attrs=t&timerel=between&timeAt=2026-01-01&endTimeAt=2026-02-01T00:00:00Z&lastN=5\
             &options=temporalValues&limit=3&offset=4&count=true&timeproperty=modifiedAt",
            Some("text/csv"),
            None,
        )
        .unwrap();
        assert_eq!(
            (asked.series.selection.ids, asked.series.selection.kinds),
            (vec!["a".into(), "b".into()], vec!["Room".into(), "Car".into()])
        );
        assert_eq!(
            asked.series.window,
            TimeWindow { property: TimeProperty::Modified, from_ms: 1_767_225_600_000, to_ms: 1_769_904_000_000 }
        );
        assert_eq!(asked.series.form, ResultForm::Points(PointExtent::Last(5)));
        assert_eq!(asked.page, EntityPage { offset: 4, limit: 3, counts: true });
        assert!(asked.shape.is_brief && asked.shape.media == MediaType::Csv);
        let after = read("timerel=after&timeAt=1970-01-01T00:00:00Z", None, None).unwrap();
        assert_eq!((after.series.window.from_ms, after.series.window.to_ms), (1, i64::MAX));
        let before = read("timerel=before&timeAt=1970-01-01T00:00:00Z", None, None).unwrap();
        assert_eq!((before.series.window.from_ms, before.series.window.to_ms), (i64::MIN, 0));
        let aggregated =
            read("options=aggregatedValues&aggrMethods=avg,max&aggrPeriodDuration=PT1H", None, None).unwrap();
        let ResultForm::Aggregated { methods, .. } = aggregated.series.form else { panic!("{aggregated:?}") };
        assert_eq!(methods, [AggregateMethod::Average, AggregateMethod::Greatest]);
    }

    #[test]
    fn an_invalid_request_is_refused_with_its_rule_and_a_remedy() {
        for (query, named) in [
            ("colour=red", "colour"),
            ("timerel=near&timeAt=2026-01-01", "near"),
            ("timerel=after", "timeAt"),
            ("timerel=after&timeAt=today", "today"),
            ("timerel=between&timeAt=2026-01-01", "endTimeAt"),
            ("timerel=between&timeAt=2026-01-01&endTimeAt=2026-01-01", "endTimeAt"),
            ("timerel=before&timeAt=2026-01-01&endTimeAt=2026-01-02", "endTimeAt"),
            ("timeAt=2026-01-01", "timeAt"),
            ("timeproperty=measuredAt", "measuredAt"),
            ("lastN=0", "lastN"),
            ("lastN=-1", "lastN"),
            ("lastN=101", "history.page_max_points = 100"),
            ("options=sideways", "sideways"),
            ("options=temporalValues,aggregatedValues&aggrMethods=avg", "options"),
            ("options=aggregatedValues", "aggrMethods"),
            ("options=aggregatedValues&aggrMethods=median", "median"),
            ("options=aggregatedValues&aggrMethods=avg&lastN=3", "lastN"),
            ("options=aggregatedValues&aggrMethods=avg&aggrPeriodDuration=1h", "1h"),
            ("options=aggregatedValues&aggrMethods=avg&aggrPeriodDuration=P1M1D", "P1M1D"),
            ("aggrMethods=avg", "aggrMethods"),
            ("aggrPeriodDuration=PT1H", "aggrPeriodDuration"),
            ("limit=1001", "1001"),
            ("limit=x", "limit"),
            ("offset=-1", "offset"),
            ("count=maybe", "maybe"),
            ("id=a,,b", "id"),
            ("idPattern=(", "idPattern"),
            ("type=a&type=b", "type"),
        ] {
            let problem = read(query, None, None).expect_err(query);
            assert_eq!(problem.status().as_u16(), 400, "{query}");
            assert!(problem.text().contains(named), "{query}: {}", problem.text());
        }
        for query in ["id=a", "idPattern=a", "limit=3", "offset=3", "count=true"] {
            assert!(read(query, None, Some("room1")).is_err(), "{query}");
        }
        assert_eq!(read("", Some("image/png"), None).unwrap_err().status().as_u16(), 406);
    }
}
