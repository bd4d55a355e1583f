//! Aggregations: `{"type", "size", "fields", "attributes"}`.

use millstream_columns::{Aggregate, Expr, Item, Points, Statistic, Summary};
use serde_json::{Map, Value};

use super::{Wrong, field, keyword, known, list, object, renamed};
use crate::{QueryPlan, Select};

pub(super) fn apply(aggregation: &Map<String, Value>, plan: &mut QueryPlan) -> Result<(), Wrong> {
    known(aggregation, "aggregation", &["type", "size", "fields", "attributes"])?;
    let size = match aggregation.get("size") {
        None | Some(Value::Null) => None,
        Some(size) => match size.as_u64().filter(|size| *size > 0) {
            Some(size) => Some(size),
            None => return Err("aggregation.size: a whole number from 1".to_owned()),
        },
    };
    let fields = match aggregation.get("fields") {
        None | Some(Value::Null) => Vec::new(),
        Some(fields) => renamed(fields, "aggregation.fields")?,
    };
    let none = Map::new();
    let attributes = match aggregation.get("attributes") {
        None | Some(Value::Null) => &none,
        Some(attributes) => object(attributes, "aggregation.attributes")?,
    };
    let kind = keyword(aggregation.get("type"));
    if !matches!(kind.as_deref(), None | Some("RAW" | "LIMIT")) && plan.select != Select::All {
        return Err("projection: an aggregation names its own fields; leave the projection out".to_owned());
    }
    plan.limit = size;
    match kind.as_deref() {
        None | Some("RAW" | "LIMIT") => {}
        Some("GROUP" | "DISTINCT") => group(fields, attributes, plan)?,
        Some("COUNT DISTINCT") => {
            let values = fields.into_iter().map(|item| item.value).collect::<Vec<_>>();
            if values.is_empty() {
                return Err("aggregation.fields: COUNT DISTINCT needs at least one".to_owned());
            }
            let item = Item { value: Expr::Aggregate(Aggregate::CountDistinct(values)), alias: name(attributes) };
            plan.limit = None;
            plan.select = Select::Items(vec![item]);
        }
        Some("TOP K") => {
            if fields.is_empty() {
                return Err("aggregation.fields: TOP K needs at least one".to_owned());
            }
            let threshold = attributes.get("threshold").and_then(Value::as_u64).filter(|threshold| *threshold > 0);
            let k = plan.limit.take().ok_or_else(|| "aggregation.size: TOP K needs to know K".to_owned())?;
            summary(plan, Summary::Top { k, threshold, values: fields }, name(attributes));
        }
        Some("DISTRIBUTION") => {
            plan.limit = None;
            let value = match <[Item; 1]>::try_from(fields) {
                Ok([item]) => item.value,
                Err(_) => return Err("aggregation.fields: DISTRIBUTION is of exactly one".to_owned()),
            };
            let points = points(attributes)?;
            let distribution = match keyword(attributes.get("type")).as_deref() {
                Some("QUANTILE") => Summary::Quantile { value, points },
                Some("PMF") => Summary::Frequency { value, points },
                Some("CDF") => Summary::CumulativeFrequency { value, points },
                _ => return Err("aggregation.attributes.type: QUANTILE, PMF or CDF".to_owned()),
            };
            summary(plan, distribution, None);
        }
        Some(other) => {
            let known = "RAW, LIMIT, GROUP, DISTINCT, COUNT DISTINCT, TOP K and DISTRIBUTION";
            return Err(format!("aggregation.type: there is no '{other}'; there are {known}"));
        }
    }
    Ok(())
}

fn summary(plan: &mut QueryPlan, summary: Summary, alias: Option<String>) {
    let value = Expr::Aggregate(Aggregate::Summary(Box::new(summary)));
    plan.select = Select::Items(vec![Item { value, alias }]);
}

fn name(attributes: &Map<String, Value>) -> Option<String> {
    attributes.get("newName").and_then(Value::as_str).map(str::to_owned)
}

fn group(fields: Vec<Item>, attributes: &Map<String, Value>, plan: &mut QueryPlan) -> Result<(), Wrong> {
    plan.group_by = fields.iter().map(|item| item.value.clone()).collect();
    let mut items = fields;
    let operations = match attributes.get("operations") {
        None | Some(Value::Null) => &[][..],
        Some(operations) => list(operations, "aggregation.attributes.operations")?,
    };
    for (i, operation) in operations.iter().enumerate() {
        let path = format!("aggregation.attributes.operations[{i}]");
        let operation = object(operation, &path)?;
        let statistic = match keyword(operation.get("type")).as_deref() {
            Some("COUNT") => None,
            Some("SUM") => Some(Statistic::Sum),
            Some("AVG") => Some(Statistic::Average),
            Some("MIN") => Some(Statistic::Min),
            Some("MAX") => Some(Statistic::Max),
            _ => return Err(format!("{path}.type: COUNT, SUM, AVG, MIN or MAX")),
        };
        let aggregate = match statistic {
            None => Aggregate::Count,
            Some(statistic) => {
                let of = operation.get("field").and_then(Value::as_str).unwrap_or_default();
                Aggregate::Of { statistic, value: Box::new(field(of, &format!("{path}.field"))?) }
            }
        };
        items.push(Item { value: Expr::Aggregate(aggregate), alias: name(operation) });
    }
    if items.is_empty() {
        return Err("aggregation: GROUP needs fields or operations".to_owned());
    }
    plan.select = Select::Items(items);
    Ok(())
}

/// The first of the three ways to say it that is there.
fn points(attributes: &Map<String, Value>) -> Result<Points, Wrong> {
    if let Some(count) = attributes.get("numberOfPoints").and_then(Value::as_u64).filter(|count| *count > 0) {
        return Ok(Points::Linear(count));
    }
    if let Some(points) = attributes.get("points").and_then(Value::as_array).filter(|points| !points.is_empty()) {
        let points: Option<Vec<f64>> = points.iter().map(Value::as_f64).collect();
        if let Some(points) = points {
            return Ok(Points::Manual(points));
        }
    }
    let number = |name: &str| attributes.get(name).and_then(Value::as_f64);
    match (number("start"), number("end"), number("increment")) {
        (Some(start), Some(end), Some(step)) => Ok(Points::Region { start, end, step }),
        _ => Err("aggregation.attributes: numberOfPoints, points, or start, end and increment".to_owned()),
    }
}
