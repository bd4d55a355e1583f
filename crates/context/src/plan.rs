//! How a list finds its entities: by the index that leaves the fewest to be looked at.
//!
//! What an index gives are candidates; the whole filter is tested on each of them. An index that gives more than a page
//! needs is not worth sorting: then entities are passed in the order of creation until the page is full.

use std::ops::Bound;

use geo::Rect;
use serde_json::{Value as Json, json};

use crate::entity::{Place, US_PER_MS};
use crate::index::Value;
use crate::list::{Count, Filter, Page};
use crate::places::Places;
use crate::query::{Choice, Expression, Scalar, Statement, Test};
use crate::state::Entities;

/// Candidates that are counted in each partition; what has more is taken to have many.
const COUNTED_MAX: usize = 512;

/// What names candidates.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Source {
    /// Entities with these ids.
    Ids(Vec<String>),
    /// Entities of these types.
    Kinds(Vec<String>),
    /// Entities in these service paths.
    Paths,
    /// All entities.
    All,
    /// Those that have an attribute.
    Attribute(String),
    /// Those that have it with a value in one of these ranges, if its values are indexed.
    Value { attribute: String, ranges: Vec<Range> },
    /// Those created at these times.
    Created(i64, i64),
    /// Those modified at these times.
    Modified(i64, i64),
    /// Those that may be in these rectangles.
    Areas(Vec<Rect>),
    /// Those that are anywhere.
    Located,
}

type Range = (Value, Bound<Value>);

/// The way that was chosen.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Plan {
    pub(crate) source: Source,
    /// How many it names, over all partitions.
    candidates: usize,
    /// Whether there are no more.
    is_exact: bool,
    /// Attributes whose values an index would serve and does not yet.
    pub(crate) wanted: Vec<String>,
    entities: usize,
}

impl Plan {
    /// Chooses the way for a filter.
    pub(crate) fn new(filter: &Filter, partitions: &[&Entities], page: Page, count: Count, by_creation: bool) -> Self {
        let entities: usize = partitions.iter().map(|entities| entities.places().len()).sum();
        let base = base(filter);
        let (base_candidates, _) = base.estimate(filter, partitions);
        let sources = sources(filter);
        let mut best = (base.clone(), base_candidates, true);
        for source in &sources {
            let (candidates, is_exact) = source.estimate(filter, partitions);
            if candidates < best.1 || (candidates == best.1 && *source != Source::All && best.0 == Source::All) {
                best = (source.clone(), candidates, is_exact);
            }
        }
        let (mut source, mut candidates, mut is_exact) = best;
        // Passed over until the page is full, as far as can be told; all, if all are to be counted or sorted.
        let page_end = page.offset.saturating_add(page.limit);
        let passed = page_end.saturating_mul(base_candidates / candidates.max(1));
        if !is_exact && count == Count::Unwanted && by_creation && passed < candidates {
            (source, candidates, is_exact) = (base, base_candidates, true);
        }
        Self { source, candidates, is_exact, wanted: wanted(&sources, partitions), entities }
    }

    /// Whether looking at its candidates takes no longer than any other request.
    pub(crate) fn is_small(&self, limit: usize) -> bool {
        self.is_exact && self.candidates <= limit
    }

    /// As `options=explain` shows it.
    pub(crate) fn explained(&self, filter: &Filter) -> Json {
        let (index, of) = self.source.named();
        let is_served = |test: &String| Some(test) == of.as_ref() && self.source.serves_all(filter, test);
        let residual: Vec<String> = filter.tests().into_iter().filter(|test| !is_served(test)).collect();
        json!({
            "index": index,
            "serves": of,
            "candidates": self.candidates,
            "exact": self.is_exact,
            "entities": self.entities,
            "residual": residual,
            "building": self.wanted,
        })
    }
}

/// What lists all that may fit in order of creation.
fn base(filter: &Filter) -> Source {
    match filter.named_kinds() {
        Some(kinds) => Source::Kinds(kinds.into_iter().map(str::to_owned).collect()),
        None => Source::All,
    }
}

/// All that serves a part of the filter.
fn sources(filter: &Filter) -> Vec<Source> {
    let mut sources = Vec::new();
    sources.extend(filter.named_ids().map(|ids| Source::Ids(ids.into_iter().map(str::to_owned).collect())));
    if !filter.paths.are_all() {
        sources.push(Source::Paths);
    }
    let criteria = &filter.criteria;
    sources.extend(criteria.has.iter().cloned().map(Source::Attribute));
    sources.extend(criteria.q.iter().flat_map(of_expression));
    sources.extend(criteria.mq.iter().flat_map(of_expression));
    sources.extend(criteria.geo.as_ref().map(|geo| geo.areas().map_or(Source::Located, Source::Areas)));
    sources
}

fn of_expression(expression: &Expression) -> impl Iterator<Item = Source> {
    expression.statements.iter().filter_map(|statement| {
        let (path, test) = (&statement.path, &statement.test);
        if matches!(test, Test::Absent) {
            return None;
        }
        let name = path.attribute.as_str();
        if path.metadata.is_none() && crate::entity::is_built_in(name) {
            return dates(test).and_then(|(from, to)| match name {
                "dateCreated" => Some(Source::Created(from, to)),
                "dateModified" => Some(Source::Modified(from, to)),
                _ => None,
            });
        }
        let ranges = if path.metadata.is_none() && path.keys.is_empty() { ranges(test) } else { None };
        Some(match ranges {
            Some(ranges) => Source::Value { attribute: name.to_owned(), ranges },
            None => Source::Attribute(name.to_owned()),
        })
    })
}

/// The values that pass a test, if they are some among all.
fn ranges(test: &Test) -> Option<Vec<Range>> {
    let one = |scalar: &Scalar<'_>| Value::of(scalar);
    match test {
        Test::Equal(Choice::Any(values)) => {
            Some(values.iter().map(|value| (one(value), Bound::Included(one(value)))).collect())
        }
        Test::Equal(Choice::Range(from, to)) => Some(vec![(one(from), Bound::Included(one(to)))]),
        Test::Above(bound, _) => {
            let bound = one(bound);
            let (_, end) = bound.of_kind();
            Some(vec![(bound, Bound::Excluded(end))])
        }
        Test::Below(bound, _) => {
            let bound = one(bound);
            let (begin, _) = bound.of_kind();
            Some(vec![(begin, Bound::Included(bound))])
        }
        Test::Exists | Test::Absent | Test::NotEqual(_) | Test::Like(_) => None,
    }
}

/// Between which points in time a test passes.
fn dates(test: &Test) -> Option<(i64, i64)> {
    match test {
        Test::Equal(Choice::Range(Scalar::Date(from), Scalar::Date(to))) => Some((*from, *to)),
        Test::Equal(Choice::Any(values)) => match values[..] {
            [Scalar::Date(at_ms)] => Some((at_ms, at_ms)),
            _ => None,
        },
        Test::Above(Scalar::Date(from), _) => Some((*from, i64::MAX)),
        Test::Below(Scalar::Date(to), _) => Some((i64::MIN, *to)),
        _ => None,
    }
}

/// Attributes with values that are not indexed yet in every partition that has them.
fn wanted(sources: &[Source], partitions: &[&Entities]) -> Vec<String> {
    let lacks = |name: &str| {
        partitions.iter().any(|entities| entities.with_attribute(name).is_some() && entities.values(name).is_none())
    };
    let names = sources.iter().filter_map(|source| match source {
        Source::Value { attribute, .. } if lacks(attribute) => Some(attribute.clone()),
        _ => None,
    });
    names.collect()
}

impl Source {
    /// Whether it gives places in order of creation, however many.
    pub(crate) fn is_ordered(&self) -> bool {
        matches!(self, Self::Kinds(_) | Self::All)
    }

    /// How many places it names, and whether there are no more.
    fn estimate(&self, filter: &Filter, partitions: &[&Entities]) -> (usize, bool) {
        let (mut sum, mut is_exact) = (0, true);
        for entities in partitions {
            let whole = match self {
                Self::Kinds(kinds) => {
                    kinds.iter().filter_map(|kind| entities.of_kind(kind)).map(|kind| kind.places.len()).sum()
                }
                Self::All => entities.places().len(),
                Self::Paths => of_paths(filter, entities).map(Places::len).sum(),
                Self::Attribute(name) => entities.with_attribute(name).map_or(0, Places::len),
                Self::Located => entities.located().len(),
                Self::Value { attribute, .. } if entities.values(attribute).is_none() => {
                    entities.with_attribute(attribute).map_or(0, Places::len)
                }
                _ => {
                    let mut count = 0;
                    self.each(filter, entities, &mut |_| {
                        count += 1;
                        count < COUNTED_MAX
                    });
                    is_exact &= count < COUNTED_MAX;
                    count
                }
            };
            sum += whole;
        }
        (sum, is_exact)
    }

    /// Its places in one partition, by creation, each once.
    pub(crate) fn gathered(&self, filter: &Filter, entities: &Entities) -> Vec<Place> {
        let mut places = Vec::new();
        self.each(filter, entities, &mut |place| {
            places.push(place.clone());
            true
        });
        places.sort_unstable();
        places.dedup();
        places
    }

    /// Hands its places to `found` until that has had enough; whether it never had.
    pub(crate) fn each(&self, filter: &Filter, entities: &Entities, found: &mut impl FnMut(&Place) -> bool) -> bool {
        match self {
            Self::Ids(ids) => ids.iter().flat_map(|id| entities.with_id(id)).all(|entity| found(&entity.place())),
            Self::Kinds(kinds) => {
                let of_kinds = kinds.iter().filter_map(|kind| entities.of_kind(kind));
                of_kinds.flat_map(|kind| kind.places.blocks().flatten()).all(found)
            }
            Self::All => entities.places().blocks().flatten().all(found),
            Self::Paths => of_paths(filter, entities).flat_map(|places| places.blocks().flatten()).all(found),
            Self::Attribute(name) => {
                entities.with_attribute(name).into_iter().flat_map(|places| places.blocks().flatten()).all(found)
            }
            Self::Value { attribute, ranges } => match entities.values(attribute) {
                Some(values) => ranges.iter().flat_map(|(from, to)| values.between(from, to.as_ref())).all(found),
                None => Self::Attribute(attribute.clone()).each(filter, entities, found),
            },
            Self::Created(from, to) => entities
                .places()
                .since(*from)
                .take_while(|place| place.created_us.div_euclid(US_PER_MS) <= *to)
                .all(found),
            Self::Modified(from, to) => entities.modified(*from, *to).all(|entity| found(&entity.place())),
            Self::Areas(areas) => areas.iter().all(|area| entities.located().within(*area, found)),
            Self::Located => entities.located().all().all(found),
        }
    }

    /// Whether nothing more is demanded of `name` than what it serves.
    fn serves_all(&self, filter: &Filter, name: &str) -> bool {
        let criteria = &filter.criteria;
        let statements = criteria.q.iter().chain(&criteria.mq).flat_map(|expression| &expression.statements);
        statements.filter(|statement| statement.path.attribute == name).all(|Statement { path, test }| {
            path.metadata.is_none()
                && path.keys.is_empty()
                && match self {
                    Self::Attribute(_) => *test == Test::Exists,
                    Self::Value { ranges: own, .. } => ranges(test).is_some_and(|ranges| ranges == *own),
                    Self::Created(from, to) | Self::Modified(from, to) => dates(test) == Some((*from, *to)),
                    _ => true,
                }
        })
    }

    /// The index, and the part of the filter that it serves.
    fn named(&self) -> (String, Option<String>) {
        match self {
            Self::Ids(_) => ("id".into(), Some("id".into())),
            Self::Kinds(_) => ("type".into(), Some("type".into())),
            Self::Paths => ("servicePath".into(), Some("servicePath".into())),
            Self::All => ("creation".into(), None),
            Self::Attribute(name) => (format!("attribute {name}"), Some(name.clone())),
            Self::Value { attribute, .. } => (format!("value of {attribute}"), Some(attribute.clone())),
            Self::Created(..) => ("creation".into(), Some("dateCreated".into())),
            Self::Modified(..) => ("modification".into(), Some("dateModified".into())),
            Self::Areas(_) | Self::Located => ("location".into(), Some("georel".into())),
        }
    }
}

fn of_paths<'a>(filter: &Filter, entities: &'a Entities) -> impl Iterator<Item = &'a Places> {
    entities.paths().filter(|(path, _)| filter.paths.have(path)).map(|(_, places)| places)
}
