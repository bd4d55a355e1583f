//! Lists of entities: by creation, merged over the partitions' snapshots, a page at a time.
//!
//! An index serves id and type; what a page skips is passed a block at a time, entities are looked at only to be shown.
//! It works on snapshots; a page that is bulky is rendered in the background, so that no list holds up an update.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::sync::Arc;

use millstream_http::AnswerMemory;
use millstream_types::TenantId;
use millstream_view::Snapshot;

use crate::entities::EntityView;
use crate::entity::{Entity, Place};
use crate::given::Form;
use crate::places::{Run, skip_blocks};
use crate::plan::{Plan, Source};
use crate::query::{Criteria, Names, Order, Selector, Standing};
use crate::refusal::{Failure, Name, Refusal};
use crate::request::Paths;
use crate::show::{self, Head, Selection};
use crate::state::Entities;

/// Entities on a page that is rendered where it was asked for; a larger one goes to the background.
const SMALL_PAGE: usize = 64;
/// Entities that such a page may look at.
const SMALL_LOOK: usize = 1_000;
/// Entities that a sorted list holds at least before it lets go of those beyond its page.
const SORTED_MIN: usize = 4_096;

/// What a list asks for.
#[derive(Debug, Default)]
pub(crate) struct Filter {
    /// One of these must fit; none lets everything pass.
    pub(crate) selectors: Vec<Selector>,
    pub(crate) paths: Paths,
    pub(crate) criteria: Criteria,
    /// What has come to its end by now is not listed.
    pub(crate) now_ms: i64,
}

/// Which part of the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Page {
    pub(crate) limit: usize,
    pub(crate) offset: usize,
}

/// How entities are shown, and how many bytes of them.
#[derive(Debug)]
pub(crate) struct Shape {
    pub(crate) form: Form,
    pub(crate) selection: Selection,
    pub(crate) max_bytes: usize,
}

/// A list as it was asked for.
pub(crate) struct Asked {
    pub(crate) snapshots: Snapshots,
    pub(crate) tenant: TenantId,
    pub(crate) filter: Filter,
    pub(crate) order: Order,
    pub(crate) page: Page,
    pub(crate) count: Count,
    pub(crate) shape: Shape,
    /// For the page while it is rendered.
    pub(crate) memory: AnswerMemory,
}

/// A page of a list as JSON, and how many there are in all if that was asked for.
pub(crate) struct Listed {
    pub(crate) json: String,
    pub(crate) total: Option<usize>,
    /// What the page takes.
    pub(crate) memory: AnswerMemory,
}

/// Whether the total is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Count {
    /// All that match are counted.
    Wanted,
    /// The page is enough.
    Unwanted,
}

/// Where a page is looked for: the snapshots of all partitions.
pub(crate) type Snapshots = Vec<Arc<Snapshot<EntityView>>>;

impl Asked {
    /// How the list is found.
    pub(crate) fn plan(&self) -> Plan {
        Plan::new(&self.filter, &self.partitions(), self.page, self.count, self.order.is_creation())
    }

    pub(crate) fn partitions(&self) -> Vec<&Entities> {
        partitions(&self.snapshots, &self.tenant)
    }

    /// Whether rendering it takes no longer than any other request.
    pub(crate) fn is_small(&self, plan: &Plan) -> bool {
        let is_passed = plan.source.is_ordered() && self.filter.is_served() && self.order.is_creation();
        self.page.limit <= SMALL_PAGE && (is_passed || plan.is_small(SMALL_LOOK))
    }
}

fn partitions<'a>(snapshots: &'a Snapshots, tenant: &TenantId) -> Vec<&'a Entities> {
    snapshots.iter().filter_map(|snapshot| snapshot.state.of(tenant)).collect()
}

/// Renders the page.
pub(crate) fn list(asked: Asked, plan: &Plan) -> Result<Listed, Failure> {
    let Asked { snapshots, tenant, filter, order, page, count, shape, mut memory } = asked;
    let partitions = partitions(&snapshots, &tenant);
    let gathered: Vec<Vec<Place>> = match plan.source.is_ordered() {
        true => Vec::new(),
        false => partitions.iter().map(|entities| plan.source.gathered(&filter, entities)).collect(),
    };
    let mut runs = runs(&partitions, &gathered, plan);
    let mut json = String::from("[");
    let end = page.offset.saturating_add(page.limit);
    let whole_count = filter.total(&partitions);
    if !order.is_creation() {
        let (sorted, matched) = sorted(Merge::new(runs), &filter, &order, end);
        for entity in sorted.into_iter().skip(page.offset) {
            push(entity, &shape, &mut json)?;
            memory.cover(json.capacity())?;
        }
        json.push(']');
        return Ok(Listed { json, total: (count == Count::Wanted).then_some(matched), memory });
    }
    let mut matched = if whole_count.is_some() { skip_blocks(&mut runs, page.offset) } else { 0 };
    let mut merge = Merge::new(runs);
    let wants_more = |matched: usize| matched < end || (count == Count::Wanted && whole_count.is_none());
    while wants_more(matched)
        && let Some((place, entities)) = merge.next()
    {
        let Some(entity) = filter.find(place, entities) else { continue };
        matched += 1;
        if matched > page.offset && matched <= end {
            push(entity, &shape, &mut json)?;
            memory.cover(json.capacity())?;
        }
    }
    json.push(']');
    let total = (count == Count::Wanted).then(|| whole_count.unwrap_or(matched));
    Ok(Listed { json, total, memory })
}

/// The first `end` entities in an order that is not that of creation, and how many match in all.
fn sorted<'a>(mut merge: Merge<'a>, filter: &Filter, order: &Order, end: usize) -> (Vec<&'a Entity>, usize) {
    let mut standing: Vec<(Standing, &Entity)> = Vec::new();
    let compare = |a: &(Standing, &Entity), b: &(Standing, &Entity)| order.compare(&a.0, &b.0);
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

fn push(entity: &Entity, shape: &Shape, json: &mut String) -> Result<(), Refusal> {
    if json.len() > 1 {
        json.push(',');
    }
    show::push_entity(entity, Head::Shown, shape.form, &shape.selection, json);
    if json.len() <= shape.max_bytes {
        return Ok(());
    }
    let (size, limit) = (json.len(), shape.max_bytes);
    Err(Refusal::new(
        Name::NoResourcesAvailable,
        format!(
            "the page would have more than {size} bytes: context.page_max_bytes = {limit}; ask for fewer with limit, \
             or for some attributes with attrs"
        ),
    ))
}

impl Filter {
    /// The entity at `place`, if it is asked for.
    pub(crate) fn find<'a>(&self, place: &Place, entities: &'a Entities) -> Option<&'a Entity> {
        let fits = self.selectors.is_empty() || self.selectors.iter().any(|selector| selector.has(&place.key));
        if !fits || !self.paths.have(&place.key.path) {
            return None;
        }
        let entity = entities.get(&place.key)?;
        (!entity.has_expired(self.now_ms) && self.criteria.matches(entity)).then_some(&**entity)
    }

    /// The ids that are asked for, if nothing else is.
    pub(crate) fn named_ids(&self) -> Option<Vec<&str>> {
        named(&self.selectors, |selector| &selector.ids)
    }

    /// The types that are asked for, if nothing else is.
    pub(crate) fn named_kinds(&self) -> Option<Vec<&str>> {
        named(&self.selectors, |selector| &selector.kinds)
    }

    /// What each part of it is about.
    pub(crate) fn tests(&self) -> Vec<String> {
        let given = |of: fn(&Selector) -> &Names, one: &str, pattern: &str| {
            let names = self.selectors.iter().map(of);
            let name = |names: &Names| match names {
                Names::Any => None,
                Names::Of(_) => Some(one.to_owned()),
                Names::Like(_) => Some(pattern.to_owned()),
            };
            names.filter_map(name).collect::<Vec<_>>()
        };
        let statements = self.criteria.q.iter().chain(&self.criteria.mq).flat_map(|expression| &expression.statements);
        let mut tests = given(|selector| &selector.ids, "id", "idPattern");
        tests.extend(given(|selector| &selector.kinds, "type", "typePattern"));
        tests.extend((!self.paths.are_all()).then(|| "servicePath".to_owned()));
        tests.extend(self.criteria.has.iter().cloned());
        tests.extend(statements.map(|statement| statement.path.attribute.clone()));
        tests.extend(self.criteria.geo.is_some().then(|| "georel".to_owned()));
        tests.dedup();
        tests
    }

    /// Whether what an index of types or of all entities lists is what is asked for.
    fn is_served(&self) -> bool {
        let has_any_id = self.selectors.iter().all(|selector| selector.ids == Names::Any);
        let by_kind =
            self.named_kinds().is_some() || self.selectors.iter().all(|selector| selector.kinds == Names::Any);
        self.paths.are_all() && self.criteria.is_empty() && has_any_id && by_kind
    }

    /// How many match, where an index knows without looking at them.
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

/// The names that `of` has in all selectors, each once; none if a selector names none.
fn named<'a>(selectors: &'a [Selector], of: impl Fn(&'a Selector) -> &'a Names) -> Option<Vec<&'a str>> {
    let mut all: Vec<&str> = Vec::new();
    for selector in selectors {
        let Names::Of(names) = of(selector) else { return None };
        all.extend(names.iter().map(String::as_str));
    }
    all.sort_unstable();
    all.dedup();
    (!selectors.is_empty()).then_some(all)
}

/// The runs of places, each sorted, that the plan's index names.
fn runs<'a>(partitions: &[&'a Entities], gathered: &'a [Vec<Place>], plan: &Plan) -> Vec<Run<'a, &'a Entities>> {
    let mut runs = Vec::new();
    for (at, entities) in partitions.iter().enumerate() {
        match &plan.source {
            Source::All => runs.push(Run::new(entities.places().blocks(), *entities)),
            Source::Kinds(kinds) => {
                let of_kinds = kinds.iter().filter_map(|kind| entities.of_kind(kind));
                runs.extend(of_kinds.map(|kind| Run::new(kind.places.blocks(), *entities)));
            }
            _ => runs.push(Run::new(std::iter::once(gathered[at].as_slice()), *entities)),
        }
    }
    runs
}

/// Places in order of creation, from several sorted runs.
struct Merge<'a> {
    runs: Vec<Run<'a, &'a Entities>>,
    /// The first place of each run that has one, and the run's index.
    heads: BinaryHeap<Reverse<(&'a Place, usize)>>,
}

impl<'a> Merge<'a> {
    fn new(mut runs: Vec<Run<'a, &'a Entities>>) -> Self {
        let heads = runs.iter_mut().enumerate().filter_map(|(run, places)| Some(Reverse((places.next()?, run))));
        let heads = heads.collect();
        Self { runs, heads }
    }

    fn next(&mut self) -> Option<(&'a Place, &'a Entities)> {
        let mut first = self.heads.peek_mut()?;
        let Reverse((place, run)) = *first;
        match self.runs[run].next() {
            Some(next) => *first = Reverse((next, run)),
            None => drop(PeekMut::pop(first)),
        }
        Some((place, self.runs[run].of))
    }
}
