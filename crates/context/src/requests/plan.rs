//! The query plan of a list: chooses the index with the fewest candidates.
//!
//! An index yields candidates; the whole filter is tested on each of them. If an index yields many more than a page
//! needs, the plan scans entities in order of creation until the page is full, which saves sorting.

use std::ops::Bound;

use geo::Rect;
use serde_json::{Value as Json, json};

use crate::entities::state::Entities;
use crate::index::IndexValue;
use crate::index::places::Places;
use crate::model::entity::{ListPosition, US_PER_MS};
use crate::model::scalar::Scalar;
use crate::query::filter::{EntityFilter, Pagination, TotalCount};
use crate::query::{Choice, Expression, Statement, Test};

/// Candidates that are counted in each partition; a larger number is only estimated.
const COUNTED_MAX: usize = 512;

/// The time between two checks.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum CandidateSource {
    Ids(Vec<String>),
    Kinds(Vec<String>),
    Paths,
    All,
    /// Entities that have an attribute.
    Attribute(String),
    /// Entities that have one of these attributes.
    AnyAttribute(Vec<String>),
    /// Entities with a value of `attribute` in one of these ranges; needs a value index.
    Value {
        attribute: String,
        ranges: Vec<Range>,
    },
    /// Entities created between these times.
    Created(i64, i64),
    /// Entities modified between these times.
    Modified(i64, i64),
    /// Entities that may lie in these rectangles.
    Areas(Vec<Rect>),
    /// Entities that have a location.
    Located,
    /// Entities of any of these.
    Union(Vec<CandidateSource>),
}

type Range = (IndexValue, Bound<IndexValue>);

/// The chosen source and its cost.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct QueryPlan {
    pub(crate) source: CandidateSource,
    /// Number of candidates over all partitions.
    candidates: usize,
    /// The number is exact, not a lower bound.
    is_exact: bool,
    /// Attributes whose value index would serve the filter but is not built.
    pub(crate) wanted: Vec<String>,
    entities: usize,
}

impl QueryPlan {
    /// Chooses the source for a filter.
    pub(crate) fn new(
        filter: &EntityFilter,
        partitions: &[&Entities],
        page: Pagination,
        count: TotalCount,
        by_creation: bool,
    ) -> Self {
        let entities: usize = partitions.iter().map(|entities| entities.places().len()).sum();
        let base = base(filter);
        let (base_candidates, _) = base.estimate(filter, partitions);
        let sources = sources(filter, partitions);
        let mut best = (base.clone(), base_candidates, true);
        for source in &sources {
            let (candidates, is_exact) = source.estimate(filter, partitions);
            if candidates < best.1
                || (candidates == best.1 && *source != CandidateSource::All && best.0 == CandidateSource::All)
            {
                best = (source.clone(), candidates, is_exact);
            }
        }
        let (mut source, mut candidates, mut is_exact) = best;
        // Estimated number of entities to scan until the page is full; all of them if the list is counted or sorted.
        let page_end = page.offset.saturating_add(page.limit);
        let passed = page_end.saturating_mul(base_candidates / candidates.max(1));
        if !is_exact && count == TotalCount::Unwanted && by_creation && passed < candidates {
            (source, candidates, is_exact) = (base, base_candidates, true);
        }
        Self { source, candidates, is_exact, wanted: wanted(&sources, partitions), entities }
    }

    /// The candidates are few enough to examine without the background threads.
    pub(crate) fn is_small(&self, limit: usize) -> bool {
        self.is_exact && self.candidates <= limit
    }

    /// Renders the reply to a request with `options=explain`.
    pub(crate) fn explained(&self, filter: &EntityFilter) -> Json {
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

/// The source that lists all possible matches in order of creation.
fn base(filter: &EntityFilter) -> CandidateSource {
    match filter.named_kinds() {
        Some(kinds) => CandidateSource::Kinds(kinds.into_iter().map(str::to_owned).collect()),
        None => CandidateSource::All,
    }
}

/// All sources that serve a part of the filter.
fn sources(filter: &EntityFilter, partitions: &[&Entities]) -> Vec<CandidateSource> {
    let mut sources = Vec::new();
    sources.extend(filter.named_ids().map(|ids| CandidateSource::Ids(ids.into_iter().map(str::to_owned).collect())));
    if !filter.paths.are_all() {
        sources.push(CandidateSource::Paths);
    }
    let criteria = &filter.criteria;
    sources.extend((!criteria.has_any.is_empty()).then(|| CandidateSource::AnyAttribute(criteria.has_any.clone())));
    let of_expressions = criteria.q.iter().chain(&criteria.mq);
    sources.extend(of_expressions.flat_map(|expression| of_expression(expression, filter, partitions)));
    sources
        .extend(criteria.geo.as_ref().map(|geo| geo.areas().map_or(CandidateSource::Located, CandidateSource::Areas)));
    sources
}

/// All sources that serve a statement, or a list of alternatives of which each has a source.
fn of_expression(expression: &Expression, filter: &EntityFilter, partitions: &[&Entities]) -> Vec<CandidateSource> {
    let cheapest = |one: &Expression| {
        let sources = of_expression(one, filter, partitions).into_iter();
        sources.min_by_key(|source| source.estimate(filter, partitions).0)
    };
    let unions = expression.alternatives.iter().filter_map(|any| any.iter().map(cheapest).collect());
    expression.statements.iter().filter_map(of_statement).chain(unions.map(CandidateSource::Union)).collect()
}

fn of_statement(Statement { path, test }: &Statement) -> Option<CandidateSource> {
    if matches!(test, Test::Absent) {
        return None;
    }
    let name = path.attribute.as_str();
    if path.metadata.is_none() && crate::model::entity::is_built_in(name) {
        return dates(test).and_then(|(from, to)| match name {
            "dateCreated" => Some(CandidateSource::Created(from, to)),
            "dateModified" => Some(CandidateSource::Modified(from, to)),
            _ => None,
        });
    }
    let ranges = if path.metadata.is_none() && path.keys.is_empty() { ranges(test) } else { None };
    Some(match ranges {
        Some(ranges) => CandidateSource::Value { attribute: name.to_owned(), ranges },
        None => CandidateSource::Attribute(name.to_owned()),
    })
}

/// The value ranges that pass a test; `None` if the test needs no value index.
fn ranges(test: &Test) -> Option<Vec<Range>> {
    let one = |scalar: &Scalar<'_>| IndexValue::of(scalar);
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

/// The time range that passes a test.
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

/// Attributes whose values are not indexed yet in every partition that has them.
fn wanted(sources: &[CandidateSource], partitions: &[&Entities]) -> Vec<String> {
    let lacks = |name: &str| {
        partitions.iter().any(|entities| entities.with_attribute(name).is_some() && entities.values(name).is_none())
    };
    let names = sources.iter().flat_map(|source| match source {
        CandidateSource::Value { attribute, .. } if lacks(attribute) => vec![attribute.clone()],
        CandidateSource::Union(sources) => wanted(sources, partitions),
        _ => Vec::new(),
    });
    names.collect()
}

impl CandidateSource {
    /// The source lists positions in order of creation, in any number.
    pub(crate) fn is_ordered(&self) -> bool {
        matches!(self, Self::Kinds(_) | Self::All)
    }

    /// The number of candidates, and whether it is exact.
    fn estimate(&self, filter: &EntityFilter, partitions: &[&Entities]) -> (usize, bool) {
        let (mut sum, mut is_exact) = (0, true);
        for entities in partitions {
            let whole = match self {
                Self::Kinds(kinds) => {
                    kinds.iter().filter_map(|kind| entities.of_kind(kind)).map(|kind| kind.places.len()).sum()
                }
                Self::All => entities.places().len(),
                Self::Paths => of_paths(filter, entities).map(Places::len).sum(),
                Self::Attribute(name) => entities.with_attribute(name).map_or(0, Places::len),
                Self::AnyAttribute(names) => {
                    names.iter().filter_map(|name| entities.with_attribute(name)).map(Places::len).sum()
                }
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

    /// Positions in one partition, by creation, without duplicates.
    pub(crate) fn gathered(&self, filter: &EntityFilter, entities: &Entities) -> Vec<ListPosition> {
        let mut places = Vec::new();
        self.each(filter, entities, &mut |place| {
            places.push(place.clone());
            true
        });
        places.sort_unstable();
        places.dedup();
        places
    }

    /// Passes positions to `found` until it returns false; returns true if it never did.
    pub(crate) fn each(
        &self,
        filter: &EntityFilter,
        entities: &Entities,
        found: &mut impl FnMut(&ListPosition) -> bool,
    ) -> bool {
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
            Self::AnyAttribute(names) => {
                let places = names.iter().filter_map(|name| entities.with_attribute(name));
                places.flat_map(|places| places.blocks().flatten()).all(found)
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
            Self::Union(sources) => sources.iter().all(|source| source.each(filter, entities, found)),
        }
    }

    /// The source serves every test of `name`.
    fn serves_all(&self, filter: &EntityFilter, name: &str) -> bool {
        let criteria = &filter.criteria;
        let statements = criteria.q.iter().chain(&criteria.mq).flat_map(Expression::all_statements);
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
            Self::AnyAttribute(names) => (format!("attribute {}", names.join(" or ")), None),
            Self::Value { attribute, .. } => (format!("value of {attribute}"), Some(attribute.clone())),
            Self::Created(..) => ("creation".into(), Some("dateCreated".into())),
            Self::Modified(..) => ("modification".into(), Some("dateModified".into())),
            Self::Areas(_) | Self::Located => ("location".into(), Some("georel".into())),
            Self::Union(sources) => {
                let names: Vec<String> = sources.iter().map(|source| source.named().0).collect();
                (names.join(" or "), None)
            }
        }
    }
}

fn of_paths<'a>(filter: &EntityFilter, entities: &'a Entities) -> impl Iterator<Item = &'a Places> {
    entities.paths().filter(|(path, _)| filter.paths.have(path)).map(|(_, places)| places)
}
