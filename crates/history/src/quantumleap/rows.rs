//! Makes rows of series: one for each moment or period, with a value of each attribute, or none.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::request::RowPage;
use crate::page::TemporalResult;
use crate::query::AggregateMethod;
use crate::render::number;

/// A row: its time, and which one of those with that time.
type RowKey = (i64, u32);

/// The values of an entity as JSON text, by attribute, in the order of time.
type KeyedSeries = BTreeMap<String, Vec<(RowKey, Arc<str>)>>;

/// The rows of one entity.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct EntityRows {
    /// In the order of time.
    keys: Vec<RowKey>,
    series: KeyedSeries,
    /// The rows on the page.
    page: Range<usize>,
}

impl EntityRows {
    /// Returns the times of the rows on the page.
    pub(crate) fn times(&self) -> impl Iterator<Item = i64> {
        self.keys[self.page.clone()].iter().map(|(ms, _)| *ms)
    }

    /// Returns the values of an attribute on the page, none where the row has none; `None` for an attribute that the entity
    /// never had.
    pub(crate) fn values(&self, attribute: &str) -> Option<impl Iterator<Item = Option<&str>>> {
        let points = self.series.get(attribute)?;
        let keys = &self.keys[self.page.clone()];
        let begin = keys.first().map_or(0, |first| points.partition_point(|(key, _)| key < first));
        let mut rest = points[begin..].iter().peekable();
        Some(keys.iter().map(move |key| rest.next_if(|(of, _)| of == key).map(|(_, value)| &**value)))
    }

    /// True if the entity ever had the attribute.
    pub(crate) fn has(&self, attribute: &str) -> bool {
        self.series.contains_key(attribute)
    }

    pub(crate) fn attributes(&self) -> impl Iterator<Item = &str> {
        self.series.keys().map(String::as_str)
    }

    /// Returns the number of rows, also of those beside the page.
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    /// True if no row is on the page.
    pub(crate) fn is_empty(&self) -> bool {
        self.page.is_empty()
    }

    /// Returns the approximate memory of the rows, values included.
    pub(crate) fn size_bytes(&self) -> usize {
        let point = |(_, value): &(RowKey, Arc<str>)| size_of::<(RowKey, Arc<str>)>() + value.len();
        self.keys.len() * size_of::<RowKey>() + self.series.values().flatten().map(point).sum::<usize>()
    }

    fn new(series: KeyedSeries) -> Self {
        let mut keys: Vec<RowKey> = series.values().flatten().map(|(key, _)| *key).collect();
        keys.sort_unstable();
        keys.dedup();
        let page = 0..keys.len();
        Self { keys, series, page }
    }
}

/// Makes rows of what was read of `entities` entities. Aggregates are those of `method`; an attribute without numbers has none.
pub(crate) fn rows(entities: usize, found: TemporalResult, method: Option<AggregateMethod>) -> Vec<EntityRows> {
    let mut all: Vec<KeyedSeries> = vec![BTreeMap::new(); entities];
    match found {
        TemporalResult::Points(points) => {
            for (entity, attribute, points) in points.series {
                let mut last: Option<RowKey> = None;
                let keyed = points.into_iter().map(|(ms, point)| {
                    let number = last.filter(|(last_ms, _)| *last_ms == ms).map_or(0, |(_, number)| number + 1);
                    last = Some((ms, number));
                    ((ms, number), point.value)
                });
                all[entity].insert(attribute, keyed.collect());
            }
        }
        TemporalResult::Periods(series) => {
            for (entity, attribute, periods) in series {
                let value = |sums: &crate::aggregate::Sums| method.and_then(|method| sums.value(method));
                let values = periods.iter().filter_map(|(ends, sums)| {
                    let start_ms = ends.map_or(0, |(start, _)| start);
                    value(sums).map(|value| ((start_ms, 0), Arc::from(number(value))))
                });
                all[entity].insert(attribute, values.collect());
            }
        }
    }
    all.iter_mut().for_each(|series| series.retain(|_, points| !points.is_empty()));
    all.into_iter().map(EntityRows::new).collect()
}

/// Chooses the page of the rows of entities of one type: by time, and of `by_entity` rows by entity first.
pub(crate) fn choose(entities: &mut [EntityRows], page: RowPage, by_entity: bool) {
    let mut order: Vec<(usize, RowKey)> = entities
        .iter()
        .enumerate()
        .flat_map(|(entity, rows)| rows.keys.iter().map(move |key| (entity, *key)))
        .collect();
    match (by_entity, page.is_last) {
        (false, false) => order.sort_unstable_by_key(|(entity, key)| (key.0, *entity, key.1)),
        (false, true) => order.sort_unstable_by_key(|(entity, key)| Reverse((key.0, *entity, key.1))),
        (true, false) => {}
        (true, true) => order.sort_unstable_by_key(|(entity, key)| (*entity, Reverse(*key))),
    }
    // The rows of an entity are in the order of time, or in the opposite one, so what is chosen of them is one range.
    let mut chosen = vec![0; entities.len()];
    let mut skipped = vec![0; entities.len()];
    order.iter().take(page.offset).for_each(|(entity, _)| skipped[*entity] += 1);
    order.iter().skip(page.offset).take(page.limit).for_each(|(entity, _)| chosen[*entity] += 1);
    for ((rows, skipped), chosen) in entities.iter_mut().zip(skipped).zip(chosen) {
        let first = if page.is_last { rows.keys.len() - skipped - chosen } else { skipped };
        rows.page = first..first + chosen;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn entity(series: &[(&str, &[i64])]) -> EntityRows {
        let points = |times: &[i64]| times.iter().map(|ms| ((*ms, 0), Arc::from(ms.to_string()))).collect();
        EntityRows::new(series.iter().map(|(name, times)| ((*name).to_owned(), points(times))).collect())
    }

    #[test]
    fn a_row_has_a_value_of_each_attribute_or_none() {
        let rows = entity(&[("a", &[1, 3]), ("b", &[2, 3, 4])]);
        assert_eq!(rows.times().collect::<Vec<_>>(), [1, 2, 3, 4]);
        let text = |name| rows.values(name).unwrap().map(|value| value.unwrap_or("-")).collect::<String>();
        assert_eq!((text("a"), text("b")), ("1-3-".into(), "-234".into()));
        assert!(rows.values("c").is_none());
    }

    #[test]
    fn a_page_counts_rows_of_all_entities_of_a_type() {
        for (offset, limit, is_last, by_entity, expected) in [
            (0, 10, false, false, [vec![1, 4, 5], vec![2, 3, 5]]),
            (1, 3, false, false, [vec![4], vec![2, 3]]),
            (0, 2, true, false, [vec![5], vec![5]]),
            (1, 2, true, false, [vec![4, 5], vec![]]),
            (2, 2, false, true, [vec![5], vec![2]]),
            (1, 3, true, true, [vec![1, 4], vec![5]]),
            (9, 3, false, false, [vec![], vec![]]),
        ] {
            let mut entities = [entity(&[("a", &[1, 4, 5])]), entity(&[("a", &[2]), ("b", &[3, 5])])];
            choose(&mut entities, RowPage { offset, limit, is_last }, by_entity);
            let found = entities.map(|rows| {
                let times: Vec<i64> = rows.times().collect();
                // Each point has its time as its value.
                let values: BTreeSet<String> = rows
                    .attributes()
                    .flat_map(|name| rows.values(name).unwrap().flatten().map(str::to_owned))
                    .collect();
                assert_eq!(values, times.iter().map(i64::to_string).collect());
                times
            });
            assert_eq!(found, expected, "{offset} {limit} {is_last} {by_entity}");
        }
    }
}
