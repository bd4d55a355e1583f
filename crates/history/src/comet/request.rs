//! Parses and checks the parameters of a request.

use axum::http::HeaderMap;
use millstream_http::Problem;
use millstream_types::TenantId;
use serde::Deserialize;

use crate::change::moment;
use crate::period::Periods;
use crate::query::{AggregateMethod, EntitySelection, PointExtent, ResultForm, SeriesQuery, TimeProperty, TimeWindow};
use crate::request::{bad, missing, paths, whole};

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct ValueParameters {
    #[serde(rename = "type")]
    kind: Option<String>,
    #[serde(rename = "lastN")]
    last_n: Option<String>,
    h_limit: Option<String>,
    h_offset: Option<String>,
    date_from: Option<String>,
    date_to: Option<String>,
    filetype: Option<String>,
    count: Option<String>,
    aggr_method: Option<String>,
    aggr_period: Option<String>,
}

/// The attribute that a path names.
#[derive(Debug, Clone)]
pub(crate) struct NamedAttribute {
    pub(crate) id: String,
    /// The entity's type; `None` if the path does not name it.
    pub(crate) kind: Option<String>,
    pub(crate) attribute: String,
}

/// A validated read.
#[derive(Debug)]
pub(crate) struct ValueQuery {
    pub(crate) series: SeriesQuery,
    pub(crate) named: NamedAttribute,
    pub(crate) form: ValueForm,
    /// True if the number of all values in the asked time is requested.
    pub(crate) counts: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ValueForm {
    /// The values on a page, as JSON or as CSV.
    Values { page: ValuePage, is_csv: bool },
    /// Sums by period.
    Sums { method: SumMethod, resolution: Resolution },
}

/// A section of the values: of the last so many, or of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ValuePage {
    pub(crate) last: Option<usize>,
    pub(crate) offset: usize,
    pub(crate) limit: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SumMethod {
    Numbers(&'static [(AggregateMethod, &'static str)]),
    /// How often each text occurs.
    Occurrences,
}

const MAX: (AggregateMethod, &str) = (AggregateMethod::Greatest, "max");
const MIN: (AggregateMethod, &str) = (AggregateMethod::Least, "min");
const SUM: (AggregateMethod, &str) = (AggregateMethod::Sum, "sum");
const SUM2: (AggregateMethod, &str) = (AggregateMethod::SumOfSquares, "sum2");

/// The length of a period, which also decides on how periods are grouped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Resolution {
    Month,
    Day,
    Hour,
    Minute,
    Second,
}

impl Resolution {
    const ALL: [(Self, &str, &str); 5] = [
        (Self::Month, "month", "P1M"),
        (Self::Day, "day", "P1D"),
        (Self::Hour, "hour", "PT1H"),
        (Self::Minute, "minute", "PT1M"),
        (Self::Second, "second", "PT1S"),
    ];

    pub(crate) fn name(self) -> &'static str {
        Self::ALL.iter().find(|(resolution, ..)| *resolution == self).map_or("", |(_, name, _)| name)
    }
}

impl ValueParameters {
    /// Parses a read of `tenant`; a page has at most `values_max` values.
    pub(crate) fn read(
        self,
        tenant: &TenantId,
        headers: &HeaderMap,
        named: NamedAttribute,
        values_max: usize,
    ) -> Result<ValueQuery, Problem> {
        let form = self.form(values_max)?;
        let series_form = match form {
            ValueForm::Values { page, .. } => ResultForm::Points(match page.last {
                Some(last) => PointExtent::Last(last),
                None => PointExtent::First(page.offset.saturating_add(page.limit)),
            }),
            ValueForm::Sums { method, resolution } => aggregated(method, resolution)?,
        };
        let counts = match self.count.as_deref() {
            None | Some("false") => false,
            Some("true") => true,
            Some(other) => return Err(bad("count", other, "true or false", "use one of them")),
        };
        let from_ms = self.date_from.as_deref().map(|text| time("dateFrom", text)).transpose()?;
        let to_ms = self.date_to.as_deref().map(|text| time("dateTo", text)).transpose()?;
        // Both ends are in the window.
        let window = TimeWindow {
            property: TimeProperty::Observed,
            from_ms: from_ms.unwrap_or(i64::MIN),
            to_ms: to_ms.map_or(i64::MAX, |ms| ms.saturating_add(1)),
        };
        let selection = EntitySelection {
            tenant: tenant.clone(),
            ids: vec![named.id.clone()],
            id_pattern: None,
            kinds: named.kind.iter().chain(&self.kind).cloned().collect(),
            paths: paths(headers)?,
            attributes: vec![named.attribute.clone()],
        };
        let series = SeriesQuery { selection, window, form: series_form, skips_deletions: true };
        let named = NamedAttribute { kind: named.kind.or(self.kind), ..named };
        Ok(ValueQuery { series, named, form, counts })
    }

    fn form(&self, values_max: usize) -> Result<ValueForm, Problem> {
        match (self.aggr_method.as_deref(), self.aggr_period.as_deref()) {
            (None, None) => self.values(values_max),
            (Some(_), None) => {
                Err(missing("aggrPeriod", "aggrMethod requires it", "add month, day, hour, minute or second"))
            }
            (None, Some(_)) => {
                Err(missing("aggrMethod", "aggrPeriod requires it", "add max, min, sum, sum2, all or occur"))
            }
            (Some(method), Some(period)) => {
                let method = match method {
                    "max" => SumMethod::Numbers(&[MAX]),
                    "min" => SumMethod::Numbers(&[MIN]),
                    "sum" => SumMethod::Numbers(&[SUM]),
                    "sum2" => SumMethod::Numbers(&[SUM2]),
                    "all" => SumMethod::Numbers(&[MAX, MIN, SUM, SUM2]),
                    "occur" => SumMethod::Occurrences,
                    other => {
                        return Err(bad("aggrMethod", other, "max, min, sum, sum2, all or occur", "use one of them"));
                    }
                };
                let known = Resolution::ALL.iter().find(|(_, name, _)| *name == period);
                let (resolution, ..) = known.ok_or_else(|| {
                    bad("aggrPeriod", period, "month, day, hour, minute or second", "use one of them")
                })?;
                Ok(ValueForm::Sums { method, resolution: *resolution })
            }
        }
    }

    fn values(&self, values_max: usize) -> Result<ValueForm, Problem> {
        let is_csv = match self.filetype.as_deref() {
            None => false,
            Some("csv") => true,
            Some(other) => return Err(bad("filetype", other, "only csv is there", "leave it out for JSON")),
        };
        let number = |name, text: &Option<String>| text.as_deref().map(|text| whole(name, text)).transpose();
        let last = number("lastN", &self.last_n)?;
        let (limit, offset) = (number("hLimit", &self.h_limit)?, number("hOffset", &self.h_offset)?);
        if last.is_none() && !is_csv && (limit.is_none() || offset.is_none()) {
            return Err(missing("lastN", "a request gives lastN, or hLimit and hOffset", "add one of these"));
        }
        for (name, given) in [("lastN", last), ("hLimit", limit)] {
            if let Some(given) = given.filter(|given| *given > values_max) {
                let rule = format!("history.page_max_points = {values_max}");
                return Err(bad(name, &given.to_string(), rule, "ask for fewer, and for the others with hOffset"));
            }
        }
        let page = ValuePage { last, offset: offset.unwrap_or(0), limit: limit.unwrap_or(values_max) };
        Ok(ValueForm::Values { page, is_csv })
    }
}

fn aggregated(method: SumMethod, resolution: Resolution) -> Result<ResultForm, Problem> {
    let methods = match method {
        SumMethod::Numbers(methods) => methods.iter().map(|(method, _)| *method).collect(),
        SumMethod::Occurrences => vec![AggregateMethod::DistinctCount],
    };
    let duration = Resolution::ALL.iter().find(|(known, ..)| *known == resolution).map_or("P0D", |(.., text)| text);
    let periods = Periods::read(duration, None)
        .ok_or_else(|| bad("aggrPeriod", resolution.name(), "a length of time", "use another one"))?;
    Ok(ResultForm::Aggregated { methods, periods })
}

/// Parses a date, or a number of milliseconds since 1970.
fn time(name: &'static str, text: &str) -> Result<i64, Problem> {
    moment(text).or_else(|| text.parse().ok()).ok_or_else(|| {
        bad(
            name,
            text,
            "an ISO 8601 date, or date and time, or milliseconds since 1970",
            "write it like 2026-01-31T12:00:00Z",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(query: &str) -> Result<ValueQuery, Problem> {
        let uri = format!("/x?{query}").parse().unwrap();
        let axum::extract::Query(given) = axum::extract::Query::<ValueParameters>::try_from_uri(&uri)
            .map_err(|error| Problem::invalid(error.body_text()))?;
        let named = NamedAttribute { id: "r".into(), kind: None, attribute: "t".into() };
        given.read(&TenantId::default(), &HeaderMap::new(), named, 100)
    }

    #[test]
    fn a_request_is_read() {
        let asked = read("type=Room&lastN=3&dateFrom=1970-01-01&dateTo=5&count=true").unwrap();
        assert_eq!((asked.series.window.from_ms, asked.series.window.to_ms, asked.counts), (0, 6, true));
        assert_eq!(
            (&*asked.series.selection.kinds, asked.named.kind.as_deref()),
            (&["Room".to_owned()][..], Some("Room"))
        );
        assert_eq!(asked.series.form, ResultForm::Points(PointExtent::Last(3)));
        let paged = read("hLimit=4&hOffset=6").unwrap();
        assert_eq!(paged.series.form, ResultForm::Points(PointExtent::First(10)));
        let page = ValuePage { last: None, offset: 6, limit: 4 };
        assert_eq!(paged.form, ValueForm::Values { page, is_csv: false });
        let csv = ValuePage { last: None, offset: 0, limit: 100 };
        assert_eq!(read("filetype=csv").unwrap().form, ValueForm::Values { page: csv, is_csv: true });
        let sums = read("aggrMethod=occur&aggrPeriod=day").unwrap().form;
        assert_eq!(sums, ValueForm::Sums { method: SumMethod::Occurrences, resolution: Resolution::Day });
    }

    #[test]
    fn an_invalid_request_is_refused() {
        for (query, named) in [
            ("", "lastN"),
            ("hLimit=3", "lastN"),
            ("hOffset=3", "lastN"),
            ("lastN=-1", "lastN"),
            ("lastN=101", "history.page_max_points = 100"),
            ("hLimit=101&hOffset=0", "history.page_max_points = 100"),
            ("hLimit=x&hOffset=0", "hLimit"),
            ("lastN=1&dateFrom=today", "today"),
            ("lastN=1&dateTo=tomorrow", "tomorrow"),
            ("lastN=1&count=maybe", "maybe"),
            ("lastN=1&filetype=xml", "xml"),
            ("lastN=1&colour=red", "colour"),
            ("aggrMethod=max", "aggrPeriod"),
            ("aggrPeriod=day", "aggrMethod"),
            ("aggrMethod=median&aggrPeriod=day", "median"),
            ("aggrMethod=max&aggrPeriod=week", "week"),
        ] {
            let problem = read(query).expect_err(query);
            assert_eq!(problem.status().as_u16(), 400, "{query}");
            assert!(problem.text().contains(named), "{query}: {}", problem.text());
        }
    }
}
