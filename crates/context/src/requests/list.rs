//! Lists of entities in pages, merged over the partitions' snapshots in order of creation.
//!
//! An index serves id and type; skipped entities are passed a block at a time, and entities are read only to be
//! rendered. Lists work on snapshots; large pages are rendered in the background, so that no list delays an update.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::sync::Arc;

use millstream_http::AnswerMemory;
use millstream_types::TenantId;
use millstream_view::Snapshot;

use crate::entities::state::Entities;
use crate::entities::view::EntityView;
use crate::index::places::{PositionRun, skip_blocks};
use crate::model::entity::{Entity, ListPosition};
use crate::model::render::{self, AttributeSelection, Head};
use crate::model::request_body::Representation;
use crate::query::filter::{EntityFilter, Pagination, TotalCount};
use crate::query::{Expression, NameFilter, Order, Selector, Standing};
use crate::refusal::{ErrorName, Refusal, RequestFailure};
use crate::requests::plan::{CandidateSource, QueryPlan};

/// Entities of a page that is rendered at once; a larger page goes to the background.
const SMALL_PAGE: usize = 64;
/// Entities that a page rendered at once may examine.
const SMALL_LOOK: usize = 1_000;
/// Entities that a sorted list holds before it drops those beyond its page.
const SORTED_MIN: usize = 4_096;

/// Format and size limit of a page.
#[derive(Debug)]
pub(crate) struct RenderOptions {
    pub(crate) form: Representation,
    pub(crate) selection: AttributeSelection,
    pub(crate) max_bytes: usize,
}

pub(crate) struct ListRequest {
    pub(crate) snapshots: Snapshots,
    pub(crate) tenant: TenantId,
    pub(crate) filter: EntityFilter,
    pub(crate) order: Order,
    pub(crate) page: Pagination,
    pub(crate) count: TotalCount,
    pub(crate) shape: RenderOptions,
    /// Memory account of the page.
    pub(crate) memory: AnswerMemory,
}

/// A page as JSON, and the total if it was requested.
pub(crate) struct ListPage {
    pub(crate) json: String,
    pub(crate) total: Option<usize>,
    /// Memory account of the page.
    pub(crate) memory: AnswerMemory,
}

/// The snapshots of all partitions.
pub(crate) type Snapshots = Vec<Arc<Snapshot<EntityView>>>;

impl ListRequest {
    pub(crate) fn plan(&self) -> QueryPlan {
        QueryPlan::new(&self.filter, &self.partitions(), self.page, self.count, self.order.is_creation())
    }

    pub(crate) fn partitions(&self) -> Vec<&Entities> {
        partitions(&self.snapshots, &self.tenant)
    }

    /// The page is cheap enough to render without the background threads.
    pub(crate) fn is_small(&self, plan: &QueryPlan) -> bool {
        let is_passed = plan.source.is_ordered() && self.filter.is_served() && self.order.is_creation();
        self.page.limit <= SMALL_PAGE && (is_passed || plan.is_small(SMALL_LOOK))
    }
}

fn partitions<'a>(snapshots: &'a Snapshots, tenant: &TenantId) -> Vec<&'a Entities> {
    snapshots.iter().filter_map(|snapshot| snapshot.state.of(tenant)).collect()
}

/// Renders a page.
pub(crate) fn list(asked: ListRequest, plan: &QueryPlan) -> Result<ListPage, RequestFailure> {
    let ListRequest { snapshots, tenant, filter, order, page, count, shape, mut memory } = asked;
    let partitions = partitions(&snapshots, &tenant);
    let mut json = String::from("[");
    let total = walk(&partitions, plan, &filter, &order, page, count, |entity| {
        push(entity, &shape, &mut json)?;
        Ok(memory.cover(json.capacity())?)
    })?;
    json.push(']');
    Ok(ListPage { json, total: (count == TotalCount::Wanted).then_some(total), memory })
}

/// The entities of a page, to be merged with those of providers.
pub(crate) struct LocalPage {
    pub(crate) entities: Vec<Arc<Entity>>,
    /// All entities that match.
    pub(crate) total: usize,
}

/// Gathers the entities of a page, and counts all that match.
pub(crate) fn gather(asked: &ListRequest, plan: &QueryPlan) -> Result<LocalPage, RequestFailure> {
    let mut entities = Vec::new();
    let (partitions, count) = (asked.partitions(), TotalCount::Wanted);
    let total = walk(&partitions, plan, &asked.filter, &asked.order, asked.page, count, |entity| {
        entities.push(entity.clone());
        Ok(())
    })?;
    Ok(LocalPage { entities, total })
}

/// Gathers all entities that match.
pub(crate) fn gather_all(asked: &mut ListRequest, plan: &QueryPlan) -> Result<Vec<Arc<Entity>>, RequestFailure> {
    let ListRequest { snapshots, tenant, filter, order, page, memory, .. } = asked;
    let mut entities: Vec<Arc<Entity>> = Vec::new();
    walk(&partitions(snapshots, tenant), plan, filter, order, *page, TotalCount::Unwanted, |entity| {
        entities.push(entity.clone());
        Ok(memory.cover(entities.capacity() * size_of::<Arc<Entity>>())?)
    })?;
    Ok(entities)
}

/// Renders entities as a page.
pub(crate) fn render<'a>(
    entities: impl Iterator<Item = &'a Entity>,
    shape: &RenderOptions,
    memory: &mut AnswerMemory,
) -> Result<String, RequestFailure> {
    let mut json = String::from("[");
    for entity in entities {
        push(entity, shape, &mut json)?;
        memory.cover(json.capacity())?;
    }
    json.push(']');
    Ok(json)
}

/// Passes the entities of a page to `visit`, in order; returns the number of all that match, if it is wanted.
fn walk(
    partitions: &[&Entities],
    plan: &QueryPlan,
    filter: &EntityFilter,
    order: &Order,
    page: Pagination,
    count: TotalCount,
    mut visit: impl FnMut(&Arc<Entity>) -> Result<(), RequestFailure>,
) -> Result<usize, RequestFailure> {
    let gathered: Vec<Vec<ListPosition>> = match plan.source.is_ordered() {
        true => Vec::new(),
        false => partitions.iter().map(|entities| plan.source.gathered(filter, entities)).collect(),
    };
    let mut runs = runs(partitions, &gathered, plan);
    let end = page.offset.saturating_add(page.limit);
    let whole_count = filter.total(partitions);
    if !order.is_creation() {
        let (sorted, matched) = sorted(Merge::new(runs), filter, order, end);
        sorted.into_iter().skip(page.offset).try_for_each(visit)?;
        return Ok(matched);
    }
    let mut matched = if whole_count.is_some() { skip_blocks(&mut runs, page.offset) } else { 0 };
    let mut merge = Merge::new(runs);
    let wants_more = |matched: usize| matched < end || (count == TotalCount::Wanted && whole_count.is_none());
    while wants_more(matched)
        && let Some((place, entities)) = merge.next()
    {
        let Some(entity) = filter.find(place, entities) else { continue };
        matched += 1;
        if matched > page.offset && matched <= end {
            visit(entity)?;
        }
    }
    Ok(whole_count.unwrap_or(matched))
}

/// The first `end` entities in a sort order, and the number of all matches.
fn sorted<'a>(mut merge: Merge<'a>, filter: &EntityFilter, order: &Order, end: usize) -> (Vec<&'a Arc<Entity>>, usize) {
    let mut standing: Vec<(Standing, &Arc<Entity>)> = Vec::new();
    let compare = |a: &(Standing, &Arc<Entity>), b: &(Standing, &Arc<Entity>)| order.compare(&a.0, &b.0);
    let room = end.saturating_mul(2).max(SORTED_MIN);
    let mut matched = 0;
    while let Some((place, entities)) = merge.next() {
        let Some(entity) = filter.find(place, entities) else { continue };
        matched += 1;
        standing.push((order.standing(entity, filter.criteria.geo.as_ref()), entity));
        if standing.len() > room {
            standing.select_nth_unstable_by(end, compare);
            standing.truncate(end);
        }
    }
    standing.sort_unstable_by(compare);
    standing.truncate(end);
    (standing.into_iter().map(|(_, entity)| entity).collect(), matched)
}

fn push(entity: &Entity, shape: &RenderOptions, json: &mut String) -> Result<(), Refusal> {
    if json.len() > 1 {
        json.push(',');
    }
    render::push_entity(entity, Head::Shown, shape.form, &shape.selection, json);
    if json.len() <= shape.max_bytes {
        return Ok(());
    }
    let (size, limit) = (json.len(), shape.max_bytes);
    Err(Refusal::new(
        ErrorName::NoResourcesAvailable,
        format!(
            "the page would have more than {size} bytes: context.page_max_bytes = {limit}; ask for fewer with limit, \
             or for some attributes with attrs"
        ),
    ))
}

impl EntityFilter {
    /// The entity at `place`, if it matches.
    pub(crate) fn find<'a>(&self, place: &ListPosition, entities: &'a Entities) -> Option<&'a Arc<Entity>> {
        let fits = self.selectors.is_empty() || self.selectors.iter().any(|selector| selector.has(&place.key));
        if !fits || !self.paths.have(&place.key.path) {
            return None;
        }
        let entity = entities.get(&place.key)?;
        (!entity.has_expired(self.now_ms) && self.criteria.matches(entity)).then_some(entity)
    }

    /// The ids of a filter that selects by id only.
    pub(crate) fn named_ids(&self) -> Option<Vec<&str>> {
        named(&self.selectors, |selector| &selector.ids)
    }

    /// The types of a filter that selects by type only.
    pub(crate) fn named_kinds(&self) -> Option<Vec<&str>> {
        named(&self.selectors, |selector| &selector.kinds)
    }

    /// Descriptions of the filter's parts, for `options=explain`.
    pub(crate) fn tests(&self) -> Vec<String> {
        let given = |of: fn(&Selector) -> &NameFilter, one: &str, pattern: &str| {
            let names = self.selectors.iter().map(of);
            let name = |names: &NameFilter| match names {
                NameFilter::Any => None,
                NameFilter::Of(_) => Some(one.to_owned()),
                NameFilter::Like(_) => Some(pattern.to_owned()),
            };
            names.filter_map(name).collect::<Vec<_>>()
        };
        let statements = self.criteria.q.iter().chain(&self.criteria.mq).flat_map(Expression::all_statements);
        let mut tests = given(|selector| &selector.ids, "id", "idPattern");
        tests.extend(given(|selector| &selector.kinds, "type", "typePattern"));
        tests.extend((!self.paths.are_all()).then(|| "servicePath".to_owned()));
        tests.extend(self.criteria.has_any.iter().cloned());
        tests.extend(statements.map(|statement| statement.path.attribute.clone()));
        tests.extend(self.criteria.geo.is_some().then(|| "georel".to_owned()));
        tests.dedup();
        tests
    }

    /// An index of types or of all entities lists exactly the matches.
    fn is_served(&self) -> bool {
        let has_any_id = self.selectors.iter().all(|selector| selector.ids == NameFilter::Any);
        let by_kind =
            self.named_kinds().is_some() || self.selectors.iter().all(|selector| selector.kinds == NameFilter::Any);
        self.paths.are_all() && self.criteria.is_empty() && has_any_id && by_kind
    }

    /// The number of matches, if an index knows it.
    fn total(&self, partitions: &[&Entities]) -> Option<usize> {
        let have_expired = || partitions.iter().any(|entities| entities.expired(self.now_ms).next().is_some());
        if !self.is_served() || have_expired() {
            return None;
        }
        let kind_count = |entities: &Entities, kind| entities.of_kind(kind).map_or(0, |kind| kind.places.len());
        Some(match self.named_kinds() {
            None => partitions.iter().map(|entities| entities.places().len()).sum(),
            Some(kinds) => {
                let each = |entities: &&Entities| kinds.iter().map(|kind| kind_count(entities, kind)).sum::<usize>();
                partitions.iter().map(each).sum()
            }
        })
    }
}

/// The names that `of` returns for all selectors, without duplicates; `None` if a selector has none.
fn named<'a>(selectors: &'a [Selector], of: impl Fn(&'a Selector) -> &'a NameFilter) -> Option<Vec<&'a str>> {
    let mut all: Vec<&str> = Vec::new();
    for selector in selectors {
        let NameFilter::Of(names) = of(selector) else { return None };
        all.extend(names.iter().map(String::as_str));
    }
    all.sort_unstable();
    all.dedup();
    (!selectors.is_empty()).then_some(all)
}

/// The sorted runs of positions of the plan's source.
fn runs<'a>(
    partitions: &[&'a Entities],
    gathered: &'a [Vec<ListPosition>],
    plan: &QueryPlan,
) -> Vec<PositionRun<'a, &'a Entities>> {
    let mut runs = Vec::new();
    for (at, entities) in partitions.iter().enumerate() {
        match &plan.source {
            CandidateSource::All => runs.push(PositionRun::new(entities.places().blocks(), *entities)),
            CandidateSource::Kinds(kinds) => {
                let of_kinds = kinds.iter().filter_map(|kind| entities.of_kind(kind));
                runs.extend(of_kinds.map(|kind| PositionRun::new(kind.places.blocks(), *entities)));
            }
            _ => runs.push(PositionRun::new(std::iter::once(gathered[at].as_slice()), *entities)),
        }
    }
    runs
}

/// Merges sorted runs of positions in order of creation.
struct Merge<'a> {
    runs: Vec<PositionRun<'a, &'a Entities>>,
    /// The head of each run that is not empty, with the run's index.
    heads: BinaryHeap<Reverse<(&'a ListPosition, usize)>>,
}

impl<'a> Merge<'a> {
    fn new(mut runs: Vec<PositionRun<'a, &'a Entities>>) -> Self {
        let heads = runs.iter_mut().enumerate().filter_map(|(run, places)| Some(Reverse((places.next()?, run))));
        let heads = heads.collect();
        Self { runs, heads }
    }

    fn next(&mut self) -> Option<(&'a ListPosition, &'a Entities)> {
        let mut first = self.heads.peek_mut()?;
        let Reverse((place, run)) = *first;
        match self.runs[run].next() {
            Some(next) => *first = Reverse((next, run)),
            None => drop(PeekMut::pop(first)),
        }
        Some((place, self.runs[run].of))
    }
}
