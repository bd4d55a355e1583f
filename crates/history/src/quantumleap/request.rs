//! Parses and checks the parameters of a request.

use axum::http::{HeaderMap, StatusCode};
use millstream_http::Problem;
use millstream_types::{ServicePaths, TenantId};
use serde::Deserialize;

use crate::change::moment;
use crate::period::Periods;
use crate::query::{AggregateMethod, EntitySelection, PointExtent, ResultForm, SeriesQuery, TimeProperty, TimeWindow};
use crate::request::{bad, list, missing, paths, pattern, whole};

/// Parameters that are not of QuantumLeap's API are ignored, as it ignores them.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct RowParameters {
    id: Option<String>,
    id_pattern: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
    attrs: Option<String>,
    aggr_method: Option<String>,
    aggr_period: Option<String>,
    aggr_scope: Option<String>,
    options: Option<String>,
    from_date: Option<String>,
    to_date: Option<String>,
    #[serde(rename = "lastN")]
    last_n: Option<String>,
    limit: Option<String>,
    offset: Option<String>,
    georel: Option<String>,
    geometry: Option<String>,
    coords: Option<String>,
}

/// The entities and attributes that the path of a request names.
#[derive(Debug, Clone, Default)]
pub(crate) struct RowScope {
    /// One entity.
    pub(crate) id: Option<String>,
    /// The entities of one type.
    pub(crate) kind: Option<String>,
    /// One attribute.
    pub(crate) attribute: Option<String>,
    /// The names of what was asked for are left out.
    pub(crate) is_value: bool,
}

/// A validated read.
#[derive(Debug)]
pub(crate) struct RowQuery {
    pub(crate) series: SeriesQuery,
    pub(crate) scope: RowScope,
    pub(crate) page: RowPage,
    pub(crate) method: Option<AggregateMethod>,
    /// Rows are periods of the asked length; a method without it has one row for all times.
    pub(crate) has_periods: bool,
    /// The asked times as they were given: the index of an aggregate of several entities over all times.
    pub(crate) given_times: Vec<String>,
}

/// A section of the rows of each type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RowPage {
    pub(crate) offset: usize,
    pub(crate) limit: usize,
    /// Counts from the last row backwards.
    pub(crate) is_last: bool,
}

impl RowPage {
    /// Returns the points of each attribute that rows up to the end of the page may need.
    fn extent(self) -> PointExtent {
        let rows = self.offset.saturating_add(self.limit);
        if self.is_last { PointExtent::Last(rows) } else { PointExtent::First(rows) }
    }
}

impl RowParameters {
    /// Returns the parameters of a request that gives nothing but a type.
    pub(crate) fn of_kind(kind: Option<String>) -> Self {
        Self { kind, ..Self::default() }
    }

    /// Parses a read of `tenant`; a page has at most `rows_max` rows.
    pub(crate) fn read(
        self,
        tenant: &TenantId,
        headers: &HeaderMap,
        scope: RowScope,
        rows_max: usize,
    ) -> Result<RowQuery, Problem> {
        self.refuse_what_is_missing_here()?;
        let window = self.window()?;
        let page = self.page(rows_max)?;
        let method = self.method()?;
        let form = match method {
            Some(method) => ResultForm::Aggregated { methods: vec![method], periods: self.periods()? },
            None => ResultForm::Points(page.extent()),
        };
        let given_times = [&self.from_date, &self.to_date].into_iter().flatten().cloned().collect();
        let has_periods = self.aggr_period.is_some();
        let selection = self.selection(tenant, headers, &scope)?;
        let series = SeriesQuery { selection, window, form, skips_deletions: true };
        Ok(RowQuery { series, scope, page, method, has_periods, given_times })
    }

    fn refuse_what_is_missing_here(&self) -> Result<(), Problem> {
        let scope = self.aggr_scope.as_ref().filter(|scope| *scope != "entity");
        let given = [
            ("georel", self.georel.as_ref()),
            ("geometry", self.geometry.as_ref()),
            ("coords", self.coords.as_ref()),
            ("options", self.options.as_ref()),
            ("aggrScope", scope),
        ];
        match given.into_iter().find_map(|(name, value)| value.map(|value| (name, value))) {
            Some((name, value)) => {
                Err(bad(name, value, "history cannot be asked so", "leave it out")
                    .with_status(StatusCode::NOT_IMPLEMENTED))
            }
            None => Ok(()),
        }
    }

    /// Both ends are in the window.
    fn window(&self) -> Result<TimeWindow, Problem> {
        let from_ms = self.from_date.as_deref().map(|text| time("fromDate", text)).transpose()?;
        let to_ms = self.to_date.as_deref().map(|text| time("toDate", text)).transpose()?;
        Ok(TimeWindow {
            property: TimeProperty::Observed,
            from_ms: from_ms.unwrap_or(i64::MIN),
            to_ms: to_ms.map_or(i64::MAX, |ms| ms.saturating_add(1)),
        })
    }

    fn page(&self, rows_max: usize) -> Result<RowPage, Problem> {
        let last = self.last_n.as_deref().map(|text| whole("lastN", text)).transpose()?;
        if last == Some(0) {
            return Err(bad("lastN", "0", "it is at least 1", "leave it out for all"));
        }
        let limit = self.limit.as_deref().map_or(Ok(rows_max), |text| whole("limit", text))?;
        let offset = self.offset.as_deref().map_or(Ok(0), |text| whole("offset", text))?;
        let limit = limit.min(rows_max).min(last.unwrap_or(usize::MAX));
        Ok(RowPage { offset, limit, is_last: last.is_some() })
    }

    fn method(&self) -> Result<Option<AggregateMethod>, Problem> {
        let Some(name) = &self.aggr_method else {
            return match &self.aggr_period {
                Some(_) => Err(missing("aggrMethod", "aggrPeriod requires it", "add it, or leave aggrPeriod out")),
                None => Ok(None),
            };
        };
        match name.as_str() {
            "count" => Ok(Some(AggregateMethod::TotalCount)),
            "sum" => Ok(Some(AggregateMethod::Sum)),
            "avg" => Ok(Some(AggregateMethod::Average)),
            "min" => Ok(Some(AggregateMethod::Least)),
            "max" => Ok(Some(AggregateMethod::Greatest)),
            other => Err(bad("aggrMethod", other, "count, sum, avg, min or max", "use one of them")),
        }
    }

    fn periods(&self) -> Result<Periods, Problem> {
        let length = match self.aggr_period.as_deref() {
            None => "P0D",
            Some("year") => "P1Y",
            Some("month") => "P1M",
            Some("day") => "P1D",
            Some("hour") => "PT1H",
            Some("minute") => "PT1M",
            Some("second") => "PT1S",
            Some(other) => {
                return Err(bad("aggrPeriod", other, "year, month, day, hour, minute or second", "use one of them"));
            }
        };
        Periods::read(length, None)
            .ok_or_else(|| bad("aggrPeriod", length, "a length of time", "use one of QuantumLeap's"))
    }

    fn selection(self, tenant: &TenantId, headers: &HeaderMap, scope: &RowScope) -> Result<EntitySelection, Problem> {
        if let (Some(_), Some(pattern)) = (&self.id, &self.id_pattern) {
            return Err(bad("idPattern", pattern, "it excludes id", "use one of them"));
        }
        let kinds = match &scope.kind {
            Some(kind) => vec![kind.clone()],
            None => list("type", self.kind.as_deref())?,
        };
        let ids = scope.id.clone().map_or_else(|| list("id", self.id.as_deref()), |id| Ok(vec![id]))?;
        let attributes =
            scope.attribute.clone().map_or_else(|| list("attrs", self.attrs.as_deref()), |name| Ok(vec![name]))?;
        let id_pattern = self.id_pattern.as_deref().map(pattern).transpose()?;
        let paths = paths_below(headers)?;
        Ok(EntitySelection { tenant: tenant.clone(), ids, id_pattern, kinds, paths, attributes })
    }
}

/// QuantumLeap takes a service path as the beginning of those that are asked for.
pub(super) fn paths_below(headers: &HeaderMap) -> Result<ServicePaths, Problem> {
    let paths = paths(headers)?;
    if paths.are_all() {
        return Ok(paths);
    }
    let listed = paths.to_string();
    let below = listed.split(',').map(|path| match path.strip_suffix("/#") {
        Some(_) => path.to_owned(),
        None => format!("{}/#", path.trim_end_matches('/')),
    });
    let below = below.collect::<Vec<_>>().join(",");
    ServicePaths::parse(&below).map_err(|error| Problem::invalid(error.to_string()))
}

fn time(name: &'static str, text: &str) -> Result<i64, Problem> {
    moment(text)
        .ok_or_else(|| bad(name, text, "an ISO 8601 date, or date and time", "write it like 2026-01-31T12:00:00Z"))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn read(query: &str) -> Result<RowQuery, Problem> {
        let uri = format!("/x?{query}").parse().unwrap();
        let axum::extract::Query(given) = axum::extract::Query::<RowParameters>::try_from_uri(&uri)
            .map_err(|error| Problem::invalid(error.body_text()))?;
        given.read(&TenantId::default(), &HeaderMap::new(), RowScope::default(), 100)
    }

    #[test]
    fn times_are_inclusive_and_pages_have_limits() {
        let asked = read("fromDate=1970-01-01&toDate=1970-01-01T00:00:00.005&aggr_scope=entity").unwrap();
        assert_eq!((asked.series.window.from_ms, asked.series.window.to_ms), (0, 6));
        for (query, offset, limit, is_last) in [
            ("", 0, 100, false),
            ("limit=10000&offset=3", 3, 100, false),
            ("limit=7", 0, 7, false),
            ("limit=7&lastN=3", 0, 3, true),
            ("limit=2&lastN=3&offset=1", 1, 2, true),
        ] {
            assert_eq!(read(query).unwrap().page, RowPage { offset, limit, is_last }, "{query}");
        }
    }

    #[test]
    fn an_invalid_request_is_refused() {
        for (query, status, named) in [
            ("fromDate=today", 400, "today"),
            ("toDate=2026-13-01", 400, "2026-13-01"),
            ("lastN=0", 400, "lastN"),
            ("lastN=x", 400, "lastN"),
            ("limit=-1", 400, "limit"),
            ("offset=-1", 400, "offset"),
            ("aggrPeriod=day", 400, "aggrMethod"),
            ("aggrMethod=median", 400, "median"),
            ("aggrMethod=avg&aggrPeriod=week", 400, "week"),
            ("id=a&idPattern=b", 400, "idPattern"),
            ("idPattern=(", 400, "idPattern"),
            ("id=a,,b", 400, "id"),
            ("georel=coveredBy", 501, "georel"),
            ("options=keyValues", 501, "options"),
            ("aggrMethod=avg&aggrScope=global", 501, "aggrScope"),
        ] {
            let problem = read(query).expect_err(query);
            assert_eq!(problem.status().as_u16(), status, "{query}");
            assert!(problem.text().contains(named), "{query}: {}", problem.text());
        }
    }

    #[test]
    fn a_service_path_covers_what_is_below_it() {
        for (given, expected) in [("/", "/#"), ("/a", "/a/#"), ("/a/#,/b", "/a/#,/b/#"), ("", "")] {
            let header = (millstream_types::header::SERVICE_PATH.parse().unwrap(), HeaderValue::from_static(given));
            assert_eq!(paths_below(&HeaderMap::from_iter([header])).unwrap().to_string(), expected);
        }
    }
}
