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
use crate::places::{Places, Run, skip_blocks};
use crate::query::{Criteria, Names, Selector};
use crate::refusal::{Failure, Name, Refusal};
use crate::request::Paths;
use crate::show::{self, Head, Selection};
use crate::state::Entities;

/// Entities on a page that is rendered where it was asked for; a larger one goes to the background.
const SMALL_PAGE: usize = 64;

/// What a list asks for.
#[derive(Debug, Default)]
pub(crate) struct Filter {
    /// One of these must fit; none lets everything pass.
    pub(crate) selectors: Vec<Selector>,
    pub(crate) paths: Paths,
    pub(crate) criteria: Criteria,
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
    /// Whether rendering it takes no longer than any other request.
    pub(crate) fn is_small(&self) -> bool {
        let named = self.filter.named_ids();
        let looks_at_few = named.as_ref().map_or(self.filter.is_served(), |ids| ids.len() <= SMALL_PAGE);
        self.page.limit <= SMALL_PAGE && looks_at_few
    }
}

/// Renders the page.
pub(crate) fn list(asked: Asked) -> Result<Listed, Failure> {
    let Asked { snapshots, tenant, filter, page, count, shape, mut memory } = asked;
    let partitions: Vec<&Entities> = snapshots.iter().filter_map(|snapshot| snapshot.state.of(&tenant)).collect();
    let named: Vec<Vec<Place>> = partitions.iter().map(|entities| by_id(entities, &filter)).collect();
    let mut runs = runs(&partitions, &named, &filter);
    let mut matched = if filter.is_served() { skip_blocks(&mut runs, page.offset) } else { 0 };
    let mut merge = Merge::new(runs);
    let mut json = String::from("[");
    let end = page.offset.saturating_add(page.limit);
    let whole_count = filter.total(&partitions);
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
    fn find<'a>(&self, place: &Place, entities: &'a Entities) -> Option<&'a Entity> {
        let fits = self.selectors.is_empty() || self.selectors.iter().any(|selector| selector.has(&place.key));
        if !fits || !self.paths.have(&place.key.path) {
            return None;
        }
        entities.get(&place.key).map(|entity| &**entity).filter(|entity| self.criteria.matches(entity))
    }

    /// The ids that are asked for, if nothing else is.
    fn named_ids(&self) -> Option<Vec<&str>> {
        named(&self.selectors, |selector| &selector.ids)
    }

    /// The types that are asked for, if nothing else is.
    fn named_kinds(&self) -> Option<Vec<&str>> {
        named(&self.selectors, |selector| &selector.kinds)
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
        if !self.is_served() {
            return None;
        }
        let kind_count = |entities: &Entities, kind| entities.places_of(kind).map_or(0, Places::len);
        Some(match self.named_kinds() {
            None => partitions.iter().map(|entities| entities.places().len()).sum(),
            Some(kinds) => partitions
                .iter()
                .map(|entities| kinds.iter().map(|kind| kind_count(entities, kind)).sum::<usize>())
                .sum(),
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

/// The runs of places, each sorted, that the filter's indexes name.
fn runs<'a>(partitions: &[&'a Entities], named: &'a [Vec<Place>], filter: &Filter) -> Vec<Run<'a, &'a Entities>> {
    let mut runs = Vec::new();
    let kinds = filter.named_kinds();
    for (entities, named) in partitions.iter().zip(named) {
        if filter.named_ids().is_some() {
            runs.push(Run::new(std::iter::once(named.as_slice()), *entities));
        } else if let Some(kinds) = &kinds {
            let of_kinds = kinds.iter().filter_map(|kind| entities.places_of(kind));
            runs.extend(of_kinds.map(|places| Run::new(places.blocks(), *entities)));
        } else {
            runs.push(Run::new(entities.places().blocks(), *entities));
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

/// The places of the entities with the ids that are asked for.
fn by_id(entities: &Entities, filter: &Filter) -> Vec<Place> {
    let ids = filter.named_ids().unwrap_or_default();
    let mut places: Vec<Place> = ids.iter().flat_map(|id| entities.with_id(id)).map(|entity| entity.place()).collect();
    places.sort_unstable();
    places
}
