//! Changes of all entities that match.
//!
//! The matches are looked up as for a list. The owner of each changes it if it is still the version that matched; one that somebody
//! else has changed meanwhile is looked at again. So no entity is changed that does not match at that moment.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use millstream_http::AnswerMemory;
use tokio::time::sleep;

use crate::entities::condition::Versions;
use crate::entities::partition_key;
use crate::entities::view::WriteAction;
use crate::model::entity::{Entity, Key};
use crate::model::render::AttributeSelection;
use crate::model::request_body::Representation;
use crate::query::Order;
use crate::query::filter::{EntityFilter, Pagination, TotalCount};
use crate::refusal::{ErrorName, Refusal, RequestFailure};
use crate::requests::batch::BatchWrite;
use crate::requests::list::{self, ListRequest, RenderOptions};
use crate::requests::op_update;
use crate::requests::service::{NgsiRequest, Service};

/// Looks at an entity that others change meanwhile.
const LOOKS_MAX: usize = 10;
/// Pause between two of them.
const LOOK_PAUSE: Duration = Duration::from_millis(5);

/// The entities that were changed.
pub(crate) struct ChangedEntities {
    pub(crate) count: usize,
    /// Memory account of the request.
    pub(crate) memory: AnswerMemory,
}

impl Service {
    /// Changes all entities that match.
    pub(crate) async fn change_all(
        self: &Arc<Self>,
        ask: &NgsiRequest,
        filter: EntityFilter,
        memory: AnswerMemory,
        change: impl Fn(&Key) -> WriteAction,
    ) -> Result<ChangedEntities, RequestFailure> {
        ask.check_selectors(&filter.selectors)?;
        ask.check_no_version()?;
        let mut asked = self.list_of_all(ask, filter, memory)?;
        let plan = asked.plan();
        let gathered = self.in_background(&ask.tenant, move || {
            let gathered = list::gather_all(&mut asked, &plan);
            (asked, gathered)
        });
        let (asked, gathered) = gathered.await?;
        let (filter, mut entities) = (&asked.filter, gathered?);
        let (count, flow, mut refused) = (entities.len(), self.flow(ask), Vec::new());
        let mut gone = 0;
        for look in 1..=LOOKS_MAX {
            let check = |entity: &Arc<Entity>| self.check_places(&ask.tenant, &entity.key.path, &change(&entity.key));
            entities.iter().try_for_each(check)?;
            let write = |entity: &Arc<Entity>| BatchWrite {
                named: name(&entity.key),
                path: entity.key.path.clone(),
                versions: Some(Versions::Of(vec![entity.tag()])),
                action: change(&entity.key),
            };
            let others = self.send_all(ask, flow.as_ref(), entities.iter().map(write)).await?;
            let is_changed = |(_, why): &(String, Refusal)| why.name == ErrorName::PreconditionFailed;
            let (changed, others): (Vec<_>, Vec<_>) = others.into_iter().partition(is_changed);
            refused.extend(others);
            if changed.is_empty() || look == LOOKS_MAX {
                refused.extend(changed.into_iter().map(|(named, _)| (named, never_at_rest())));
                break;
            }
            sleep(LOOK_PAUSE).await;
            let changed: HashSet<String> = changed.into_iter().map(|(named, _)| named).collect();
            let again: Vec<_> = entities.iter().filter(|entity| changed.contains(&name(&entity.key))).collect();
            let still = again.iter().filter_map(|entity| self.still_matching(ask, filter, entity).transpose());
            let still: Vec<Arc<Entity>> = still.collect::<Result<_, _>>()?;
            gone += again.len() - still.len();
            entities = still;
        }
        let count = count - gone;
        if let Some(flow) = flow.filter(|_| refused.is_empty()) {
            self.flows.wait(flow, count).await;
        }
        op_update::combined(count, refused)?;
        Ok(ChangedEntities { count, memory: asked.memory })
    }

    fn list_of_all(
        &self,
        ask: &NgsiRequest,
        filter: EntityFilter,
        memory: AnswerMemory,
    ) -> Result<ListRequest, RequestFailure> {
        Ok(ListRequest {
            snapshots: self.views.snapshots()?,
            tenant: ask.tenant.clone(),
            filter,
            order: Order::default(),
            page: Pagination { limit: usize::MAX, offset: 0 },
            count: TotalCount::Unwanted,
            shape: RenderOptions {
                form: Representation::Normalized,
                selection: AttributeSelection::new(Vec::new(), Vec::new()),
                max_bytes: 0,
            },
            memory,
        })
    }

    /// The present version of an entity, if it matches.
    fn still_matching(
        &self,
        ask: &NgsiRequest,
        filter: &EntityFilter,
        entity: &Entity,
    ) -> Result<Option<Arc<Entity>>, RequestFailure> {
        let owner = self.views.partition_of(&partition_key(&ask.tenant, &entity.key.id));
        let snapshot = self.views.snapshot(owner)?;
        let present = snapshot.state.of(&ask.tenant).and_then(|entities| filter.find(&entity.place(), entities));
        Ok(present.cloned())
    }
}

fn never_at_rest() -> Refusal {
    let why = format!("others changed it {LOOKS_MAX} times meanwhile; repeat the request");
    Refusal::new(ErrorName::Unprocessable, why)
}

/// The entity, as errors name it.
fn name(key: &Key) -> String {
    match &*key.path {
        "/" => format!("{}/{}", key.id, key.kind),
        path => format!("{}/{} of {path}", key.id, key.kind),
    }
}
