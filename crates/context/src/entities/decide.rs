//! Decides the commands to the owner of a partition's entities.
//!
//! One atomic append carries an entity's full new value to the state topic and the change to its tenant's change topic.
//! Requests, measurements and records of updates meet here; the last one in the owner's order wins.

use std::cell::Cell;
use std::sync::Arc;

use millstream_types::{TenantId, TopicPartition};
use millstream_view::{DecodeError, Draft, Encoded, InState, Publish, View};

use crate::entities::change_details::ChangeOrigin;
use crate::entities::change_record;
use crate::entities::change_topics::{self, KEPT_OBSERVATION_TIMES};
use crate::entities::condition::Versions;
use crate::entities::expiry;
use crate::entities::measurement;
use crate::entities::state::State;
use crate::entities::state_record;
use crate::entities::topic_update;
use crate::entities::value_index;
use crate::entities::view::{
    APPEND_MAX_BYTES, EntityChange, EntityCommand, EntityReply, EntityTarget, EntityView, WriteAction, WriteRequest,
};
use crate::index::Built;
use crate::model::content::AttributeContent;
use crate::model::entity::{Entity, Key, Metadata};
use crate::model::request_body::{BodyAttribute, BodyEntity, DEFAULT_ENTITY_KIND};
use crate::model::update::{self, AttributeDifference, Differs, UpdateMode, UpdateOutcome};
use crate::refusal::{ErrorName, Refusal};

/// Largest size of a change beside its values: keys, and what records take in an append.
const CHANGE_OVERHEAD_BYTES: usize = 2 << 10;

impl View for EntityView {
    type State = State;
    type Storage = InState;
    type Change = EntityChange;
    type Command = EntityCommand;
    type Answer = EntityReply;
    const NAME: &'static str = "context";

    fn decide(&self, draft: &mut Draft<'_, Self>, command: EntityCommand) -> EntityReply {
        match command {
            EntityCommand::Request(request) => {
                self.request(draft, *request, &Cell::new(0)).unwrap_or_else(EntityReply::Refused)
            }
            EntityCommand::Measured { source, next, measurements } => {
                let applied = draft.applied(source);
                let new = measurements.into_iter().filter(|(offset, _)| *offset >= applied);
                let answer = measurement::apply(self, draft, new.map(|(_, one)| one));
                draft.advance(source, next);
                answer
            }
            EntityCommand::TopicUpdates { source, next, records } => {
                topic_update::apply(self, draft, source, next, records)
            }
            EntityCommand::Index { tenant, attribute } => value_index::step(self, draft, tenant, attribute),
            EntityCommand::Expire => expiry::step(self, draft),
        }
    }

    fn owned_bytes(command: &EntityCommand) -> usize {
        match command {
            EntityCommand::Request(request) => request.action.owned_bytes(),
            EntityCommand::Index { attribute, .. } => attribute.len(),
            EntityCommand::Expire => 0,
            EntityCommand::Measured { measurements, .. } => {
                let each = measurements.iter().map(|(_, measurement)| measurement.owned_bytes());
                size_of_val(measurements.as_slice()) + each.sum::<usize>()
            }
            EntityCommand::TopicUpdates { records, .. } => {
                size_of_val(records.as_slice()) + records.iter().map(|(_, update)| update.owned_bytes()).sum::<usize>()
            }
        }
    }

    fn apply(state: &mut State, change: &EntityChange) {
        match change {
            EntityChange::Put { tenant, entity } => state.put(tenant, entity.clone()),
            EntityChange::Remove { tenant, key } => state.remove(tenant, key),
            EntityChange::Index { tenant, attribute, built } => state.index(tenant, attribute, built),
        }
    }

    fn encode(change: &EntityChange, key: &mut Vec<u8>, value: &mut Vec<u8>) -> Encoded {
        match change {
            EntityChange::Put { tenant, entity } => {
                state_record::encode_key(tenant, &entity.key, key);
                state_record::encode_value(entity, value);
                Encoded::Value
            }
            EntityChange::Remove { tenant, key: gone } => {
                state_record::encode_key(tenant, gone, key);
                Encoded::Tombstone
            }
            EntityChange::Index { tenant, attribute, built } => {
                state_record::encode_index_key(tenant, attribute, key);
                state_record::encode_built(built, value);
                Encoded::Value
            }
        }
    }

    fn decode(key: &[u8], value: Option<&[u8]>) -> Result<EntityChange, DecodeError> {
        if let Some((tenant, attribute)) = state_record::decode_index_key(key)? {
            let built = value.map_or(Ok(Built::Not), state_record::decode_built)?;
            return Ok(EntityChange::Index { tenant, attribute, built });
        }
        let (tenant, key) = state_record::decode_key(key)?;
        match value {
            Some(value) => Ok(EntityChange::Put { tenant, entity: Arc::new(state_record::decode_value(key, value)?) }),
            None => Ok(EntityChange::Remove { tenant, key }),
        }
    }
}

impl EntityView {
    /// Decides one write. `spent_bytes` is the size of the changes that the command has made so far.
    pub(super) fn request(
        &self,
        draft: &mut Draft<'_, Self>,
        request: WriteRequest,
        spent_bytes: &Cell<usize>,
    ) -> Result<EntityReply, Refusal> {
        let WriteRequest { tenant, path, tell, versions, origin, at_us, action } = request;
        let write = Write { view: self, tenant, path, tell, versions, origin, at_us, spent_bytes };
        match action {
            WriteAction::Create(given) => match write.existing(draft, &given)? {
                Some(before) => Err(exists(&before)),
                None => write.create(draft, given),
            },
            WriteAction::Upsert { given, manner } => {
                let before = write.existing(draft, &given)?;
                write.check_version(before.as_deref(), &given.id)?;
                match before {
                    Some(before) => write.set(draft, before, given.attributes, manner),
                    None => write.create(draft, given),
                }
            }
            WriteAction::Set { target, given, manner } => {
                let before = write.target(draft, &target)?;
                write.set(draft, before, given, manner)
            }
            WriteAction::SetOne { target, given } => {
                let before = write.target_attribute(draft, &target, &given.name)?;
                write.set(draft, before, vec![given], UpdateMode::Update)
            }
            WriteAction::RemoveAttribute { target, name } => {
                let before = write.target_attribute(draft, &target, &name)?;
                let mut after = (*before).clone();
                after.attributes.retain(|attribute| *attribute.name != *name);
                write.put(draft, Some(&before), after, RequestedAttributes::default())
            }
            WriteAction::RemoveAttributes { target, names } => {
                let before = write.target(draft, &target)?;
                write.remove_attributes(draft, &before, &names)
            }
            WriteAction::Delete(target) => {
                let before = write.target(draft, &target)?;
                write.delete(draft, &before)
            }
        }
    }
}

/// The attributes that a request sets.
#[derive(Clone, Copy, Default)]
struct RequestedAttributes<'a> {
    names: &'a [Arc<str>],
    /// The attributes with an observation time.
    timed: &'a [Arc<str>],
    /// The attributes that it sets by an operator.
    operated: &'a [Arc<str>],
}

/// The attributes whose value differs but whose observation time is that of the value before,
/// because the request has none.
fn kept_times(after: &Entity, differences: &[AttributeDifference], timed: &[Arc<str>]) -> Vec<Arc<str>> {
    let has_time = |name: &str| {
        after.attribute(name).is_some_and(|attribute| attribute.metadata.iter().any(Metadata::is_observation_time))
    };
    let changed = differences.iter().filter(|difference| difference.what == Differs::Value);
    let kept = changed.filter(|changed| has_time(&changed.name) && !timed.contains(&changed.name));
    kept.map(|kept| kept.name.clone()).collect()
}

/// The state of one write while its owner decides it.
struct Write<'a> {
    view: &'a EntityView,
    tenant: TenantId,
    path: Arc<str>,
    tell: TopicPartition,
    origin: ChangeOrigin,
    versions: Option<Versions>,
    at_us: i64,
    /// Size of the changes that the command has made so far; they must fit into one append.
    spent_bytes: &'a Cell<usize>,
}

impl Write<'_> {
    /// The existing entity, if there is one. Without a type the id must be unique.
    fn existing(&self, draft: &Draft<'_, EntityView>, given: &BodyEntity) -> Result<Option<Arc<Entity>>, Refusal> {
        match only(self.here(draft, &given.id), &given.id, given.kind.as_deref()) {
            Ok(entity) => Ok(Some(entity.clone())),
            Err(refusal) if refusal.name == ErrorName::NotFound => Ok(None),
            Err(refusal) => Err(refusal),
        }
    }

    /// Unexpired entities with this id in the path of the request.
    fn here<'d>(&'d self, draft: &'d Draft<'_, EntityView>, id: &'d str) -> impl Iterator<Item = &'d Arc<Entity>> {
        let now_ms = draft.now_ms();
        let same = draft.state().of(&self.tenant).into_iter().flat_map(|entities| entities.with_id(id));
        same.filter(move |entity| entity.key.path == self.path && !entity.has_expired(now_ms))
    }

    fn target(&self, draft: &Draft<'_, EntityView>, target: &EntityTarget) -> Result<Arc<Entity>, Refusal> {
        let entity = only(self.here(draft, &target.id), &target.id, target.kind.as_deref())?;
        self.check_version(Some(entity), &entity.key.id)?;
        Ok(entity.clone())
    }

    /// Refuses a write that requires another version.
    fn check_version(&self, entity: Option<&Entity>, id: &str) -> Result<(), Refusal> {
        self.versions.as_ref().map_or(Ok(()), |versions| versions.check(entity, id))
    }

    fn target_attribute(
        &self,
        draft: &Draft<'_, EntityView>,
        target: &EntityTarget,
        name: &str,
    ) -> Result<Arc<Entity>, Refusal> {
        let entity = self.target(draft, target)?;
        if entity.attribute(name).is_none() {
            return Err(no_attribute(&entity, name));
        }
        Ok(entity)
    }

    fn create(&self, draft: &mut Draft<'_, EntityView>, given: BodyEntity) -> Result<EntityReply, Refusal> {
        let kind = given.kind.unwrap_or_else(|| DEFAULT_ENTITY_KIND.into());
        let key = Key { id: given.id, kind, path: self.path.clone() };
        let mut entity = Entity::new(key.into(), self.at_us);
        entity.attributes.reserve_exact(given.attributes.len());
        for attribute in given.attributes {
            entity.attributes.extend(update::create(attribute)?);
        }
        self.put(draft, None, entity, RequestedAttributes::default()).map(|_| EntityReply::Created)
    }

    fn set(
        &self,
        draft: &mut Draft<'_, EntityView>,
        before: Arc<Entity>,
        given: Vec<BodyAttribute>,
        manner: UpdateMode,
    ) -> Result<EntityReply, Refusal> {
        let mut after = (*before).clone();
        let asked: Vec<Arc<str>> = given.iter().map(|attribute| attribute.name.clone()).collect();
        let names = |wanted: &dyn Fn(&BodyAttribute) -> bool| -> Vec<Arc<str>> {
            given.iter().filter(|attribute| wanted(attribute)).map(|attribute| attribute.name.clone()).collect()
        };
        let timed = names(&|attribute| attribute.metadata.has_observation_time());
        let operated = names(&|attribute| matches!(attribute.content, AttributeContent::Operator { .. }));
        let outcome = update::set(&mut after, given, manner);
        if outcome.has_effect() {
            let asked = RequestedAttributes { names: &asked, timed: &timed, operated: &operated };
            self.put(draft, Some(&before), after, asked)?;
        }
        match outcome {
            UpdateOutcome::Done => Ok(EntityReply::Updated),
            UpdateOutcome::Refused(refusal) => Err(refusal),
        }
    }

    fn remove_attributes(
        &self,
        draft: &mut Draft<'_, EntityView>,
        before: &Entity,
        names: &[Arc<str>],
    ) -> Result<EntityReply, Refusal> {
        let mut after = before.clone();
        after.attributes.retain(|attribute| !names.contains(&attribute.name));
        let missing: Vec<&str> =
            names.iter().filter(|name| before.attribute(name).is_none()).map(|name| &**name).collect();
        if missing.len() < names.len() {
            self.put(draft, Some(before), after, RequestedAttributes { names, ..Default::default() })?;
        }
        if missing.is_empty() {
            return Ok(EntityReply::Updated);
        }
        let name = if missing.len() < names.len() { ErrorName::PartialUpdate } else { ErrorName::Unprocessable };
        let id = &before.key.id;
        Err(Refusal::new(
            name,
            format!("attributes {} of entity '{id}' do not exist; check their names", missing.join(", ")),
        ))
    }

    fn put(
        &self,
        draft: &mut Draft<'_, EntityView>,
        before: Option<&Entity>,
        mut after: Entity,
        asked: RequestedAttributes<'_>,
    ) -> Result<EntityReply, Refusal> {
        let now_ms = before.map_or(after.created_ms(), |_| draft.now_ms());
        let differences = update::settle(before, &mut after, asked.operated, now_ms);
        after.keep_exactly();
        check_locations(&after)?;
        let mut told = change_record::of(before, &after, &differences, asked.names, &self.origin, now_ms);
        let kept = kept_times(&after, &differences, asked.timed);
        if !kept.is_empty() {
            told.headers.push((KEPT_OBSERVATION_TIMES.into(), change_topics::listed(&kept).into_bytes()));
        }
        let (size, limit) = (told.value.as_ref().map_or(0, Vec::len), self.view.entity_max_bytes);
        if size > limit {
            return Err(Refusal::new(
                ErrorName::RequestEntityTooLarge,
                format!(
                    "entity '{}' would have {size} bytes of JSON: context.entity_max_bytes = {limit}; \
                     spread it over several entities, or raise the limit",
                    after.key.id
                ),
            ));
        }
        self.spend(&told, size, &after.key.id)?;
        draft.publish(self.tell.clone(), told);
        draft.change(EntityChange::Put { tenant: self.tenant.clone(), entity: Arc::new(after) });
        Ok(EntityReply::Updated)
    }

    fn delete(&self, draft: &mut Draft<'_, EntityView>, before: &Entity) -> Result<EntityReply, Refusal> {
        let told = change_record::of_removal(before, "entityDelete", &self.origin, draft.now_ms());
        self.spend(&told, 0, &before.key.id)?;
        draft.publish(self.tell.clone(), told);
        draft.change(EntityChange::Remove { tenant: self.tenant.clone(), key: before.key.clone() });
        Ok(EntityReply::Updated)
    }

    /// Refuses a change that does not fit into one append with those before it. The first one of a command always fits.
    fn spend(&self, told: &Publish, state_bytes: usize, id: &str) -> Result<(), Refusal> {
        let headers: usize = told.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        let told_bytes = told.value.as_ref().map_or(0, Vec::len) + headers;
        let spent = self.spent_bytes.get();
        let spends = spent + told_bytes + state_bytes + CHANGE_OVERHEAD_BYTES;
        if spent > 0 && spends > APPEND_MAX_BYTES {
            return Err(Refusal::new(
                ErrorName::RequestEntityTooLarge,
                format!(
                    "the change of entity '{id}' makes {spends} bytes of changes with those before it: a record may make \
                     {APPEND_MAX_BYTES}; send its entities in several records"
                ),
            ));
        }
        self.spent_bytes.set(spends);
        Ok(())
    }
}

/// The only entity with this id and, if given, this type.
pub(crate) fn only<'a>(
    same: impl Iterator<Item = &'a Arc<Entity>>,
    id: &str,
    kind: Option<&str>,
) -> Result<&'a Arc<Entity>, Refusal> {
    let mut fitting = same.filter(|entity| kind.is_none_or(|kind| &*entity.key.kind == kind));
    let Some(entity) = fitting.next() else {
        let of_kind = kind.map_or_else(String::new, |kind| format!(" of type '{kind}'"));
        return Err(Refusal::new(
            ErrorName::NotFound,
            format!("there is no entity '{id}'{of_kind} in this tenant and service path; create it, or check the name"),
        ));
    };
    if fitting.next().is_some() {
        return Err(Refusal::new(
            ErrorName::TooManyResults,
            format!(
                "several entities have the id '{id}': a request names one; add the parameter type, or a service path"
            ),
        ));
    }
    Ok(entity)
}

/// The refusal for an attribute that the entity does not have.
pub(crate) fn no_attribute(entity: &Entity, name: &str) -> Refusal {
    let id = &entity.key.id;
    Refusal::new(ErrorName::NotFound, format!("entity '{id}' has no attribute '{name}'; append it, or check the name"))
}

/// Refuses an entity with more than one location.
fn check_locations(entity: &Entity) -> Result<(), Refusal> {
    let names: Vec<&str> = entity.locations().map(|attribute| &*attribute.name).collect();
    if names.len() < 2 {
        return Ok(());
    }
    Err(Refusal::new(
        ErrorName::NoResourcesAvailable,
        format!(
            "entity '{}' would have the locations {}: one is allowed; give the others the metadata ignoreType = true",
            entity.key.id,
            names.join(", ")
        ),
    ))
}

fn exists(entity: &Entity) -> Refusal {
    let (id, kind) = (&entity.key.id, &entity.key.kind);
    Refusal::new(
        ErrorName::Unprocessable,
        format!(
            "entity '{id}' of type '{kind}' exists already: an entity is created once; update it, or use options=upsert"
        ),
    )
}
