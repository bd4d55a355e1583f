//! Lists of entities: by creation, merged over the partitions' snapshots, a page at a time.
//!
//! An index serves id and type; a page looks at as many places as it skips and shows, at entities only to show them.
//! It works on snapshots and lets others run now and then, so that no list holds up an update.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use imbl::OrdSet;
use millstream_types::TenantId;
use millstream_view::Snapshot;

use crate::entities::EntityView;
use crate::entity::{Entity, Place};
use crate::given::Form;
use crate::request::Paths;
use crate::show::{self, Head, Selection};
use crate::state::Entities;

/// Places passed, and entities shown, before others run.
const PLACES_PER_TURN: usize = 4_096;
const ENTITIES_PER_TURN: usize = 64;

/// What a list asks for. Empty filters let everything pass.
#[derive(Debug, Default)]
pub(crate) struct Filter {
    pub(crate) ids: Vec<String>,
    pub(crate) kinds: Vec<String>,
    pub(crate) paths: Paths,
}

/// Which part of the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Page {
    pub(crate) limit: usize,
    pub(crate) offset: usize,
}

/// A page of a list as JSON, and how many there are in all if that was asked for.
pub(crate) struct Listed {
    pub(crate) json: String,
    pub(crate) total: Option<usize>,
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

/// Renders the page.
pub(crate) async fn list(
    snapshots: &Snapshots,
    tenant: &TenantId,
    filter: &Filter,
    page: Page,
    count: Count,
    shape: (Form, &Selection),
) -> Listed {
    let partitions: Vec<&Entities> = snapshots.iter().filter_map(|snapshot| snapshot.state.of(tenant)).collect();
    let mut merge = Merge::new(&partitions, filter);
    let mut json = String::from("[");
    let mut matched = 0;
    let end = page.offset.saturating_add(page.limit);
    let whole_count = filter.total(&partitions);
    let wants_more = |matched: usize| matched < end || (count == Count::Wanted && whole_count.is_none());
    let mut passed = 0;
    while wants_more(matched)
        && let Some((place, entities)) = merge.next()
    {
        passed += 1;
        if passed % PLACES_PER_TURN == 0 {
            tokio::task::yield_now().await;
        }
        if !filter.paths.have(&place.key.path) {
            continue;
        }
        matched += 1;
        if matched > page.offset && matched <= end {
            if let Some(entity) = entities.get(&place.key) {
                push(entity, shape, &mut json);
            }
            if matched % ENTITIES_PER_TURN == 0 {
                tokio::task::yield_now().await;
            }
        }
    }
    json.push(']');
    let total = (count == Count::Wanted).then(|| whole_count.unwrap_or(matched));
    Listed { json, total }
}

fn push(entity: &Entity, (form, selection): (Form, &Selection), json: &mut String) {
    if json.len() > 1 {
        json.push(',');
    }
    show::push_entity(entity, Head::Shown, form, selection, json);
}

impl Filter {
    /// How many match, where an index knows without looking at them.
    fn total(&self, partitions: &[&Entities]) -> Option<usize> {
        if !self.ids.is_empty() || !self.paths.are_all() {
            return None;
        }
        let kind_count = |entities: &Entities, kind| entities.places_of(kind).map_or(0, OrdSet::len);
        Some(match self.kinds.is_empty() {
            true => partitions.iter().map(|entities| entities.places().len()).sum(),
            false => partitions
                .iter()
                .map(|entities| self.kinds.iter().map(|kind| kind_count(entities, kind)).sum::<usize>())
                .sum(),
        })
    }
}

/// Places in order of creation, from several sorted runs.
struct Merge<'a> {
    runs: Vec<(Run<'a>, &'a Entities)>,
    /// The first place of each run that has one, and the run's index.
    heads: BinaryHeap<Reverse<(Head1<'a>, usize)>>,
}

/// A place by reference where an index holds it.
type Head1<'a> = std::borrow::Cow<'a, Place>;

enum Run<'a> {
    Indexed(imbl::ordset::Iter<'a, Place, imbl::shared_ptr::DefaultSharedPtr>),
    Few(std::vec::IntoIter<Place>),
}

impl<'a> Run<'a> {
    fn next(&mut self) -> Option<Head1<'a>> {
        match self {
            Self::Indexed(places) => places.next().map(Head1::Borrowed),
            Self::Few(places) => places.next().map(Head1::Owned),
        }
    }
}

impl<'a> Merge<'a> {
    fn new(partitions: &[&'a Entities], filter: &Filter) -> Self {
        let mut runs: Vec<(Run<'a>, &'a Entities)> = Vec::new();
        for entities in partitions {
            if !filter.ids.is_empty() {
                runs.push((Run::Few(by_id(entities, filter).into_iter()), entities));
            } else if filter.kinds.is_empty() {
                runs.push((Run::Indexed(entities.places().iter()), entities));
            } else {
                let of_kinds = filter.kinds.iter().filter_map(|kind| entities.places_of(kind));
                runs.extend(of_kinds.map(|places| (Run::Indexed(places.iter()), *entities)));
            }
        }
        let mut merge = Self { runs, heads: BinaryHeap::new() };
        (0..merge.runs.len()).for_each(|run| merge.refill(run));
        merge
    }

    fn refill(&mut self, run: usize) {
        if let Some(head) = self.runs[run].0.next() {
            self.heads.push(Reverse((head, run)));
        }
    }

    fn next(&mut self) -> Option<(Head1<'a>, &'a Entities)> {
        let Reverse((place, run)) = self.heads.pop()?;
        self.refill(run);
        Some((place, self.runs[run].1))
    }
}

/// The places of the entities with the ids that are asked for.
fn by_id(entities: &Entities, filter: &Filter) -> Vec<Place> {
    let mut places: Vec<Place> = filter
        .ids
        .iter()
        .flat_map(|id| entities.with_id(id))
        .filter(|entity| filter.kinds.is_empty() || filter.kinds.iter().any(|kind| **kind == *entity.key.kind))
        .map(|entity| entity.place())
        .collect();
    places.sort_unstable();
    places.dedup();
    places
}
