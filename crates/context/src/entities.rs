//! The view: what is asked of entities, how their owner decides it, what becomes of it.
//!
//! One atomic append carries an entity's full new value to the state topic and the change to its tenant's change topic.
//! Changes by HTTP and by measurements meet here; the last one in the owner's order wins.

use std::sync::Arc;

use millstream_types::{Offset, TenantId, TopicPartition};
use millstream_view::{DecodeError, Draft, Encoded, Publish, Source, View};

use crate::change_details::{self, Origin};
use crate::change_topics::{self, ALTERATION_TYPE, CHANGE_DETAILS, CHANGED_ATTRIBUTES, ChangeTopics, SERVICE_PATH};
use crate::condition::Versions;
use crate::entity::{Entity, Key};
use crate::given::{AttributeGiven, DEFAULT_ENTITY_KIND, EntityGiven};
use crate::index::Built;
use crate::measurement::{self, Measurement};
use crate::refusal::{Name, Refusal};
use crate::state::State;
use crate::stats::Counters;
use crate::troubles::Troubles;
use crate::update::{self, Difference, Differs, Manner, Outcome};
use crate::{owner_work, show, state_record};

/// The view of entities, with its limits.
pub(crate) struct EntityView {
    pub(crate) entity_max_bytes: usize,
    pub(crate) measured_entity_max_bytes: usize,
    pub(crate) indexed_attributes_max: usize,
    pub(crate) topics: Arc<ChangeTopics>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) troubles: Arc<Troubles>,
}

/// What is asked of an owner.
pub(crate) enum Command {
    /// By a client, of one entity.
    Request(Box<Request>),
    /// By a source of measurements: apply those that are not yet, then note that everything before `next` is.
    Measured { source: Source, next: Offset, measurements: Vec<(Offset, Measurement)> },
    /// By a query: index the values of an attribute a step further.
    Index { tenant: TenantId, attribute: Arc<str> },
    /// By the clock: let go of some entities that have come to their end.
    Expire,
}

/// What a client asks.
pub(crate) struct Request {
    pub(crate) tenant: TenantId,
    /// The service path that it writes to.
    pub(crate) path: Arc<str>,
    /// Where the change is told.
    pub(crate) tell: TopicPartition,
    pub(crate) origin: Origin,
    /// The versions that the entity may have, if the client demands any.
    pub(crate) versions: Option<Versions>,
    /// When it was taken in: what it creates stands there in lists.
    pub(crate) at_us: i64,
    pub(crate) action: Action,
}

pub(crate) enum Action {
    Create(EntityGiven),
    /// Creates, or appends to the one that exists.
    Upsert {
        given: EntityGiven,
        manner: Manner,
    },
    Set {
        target: Target,
        given: Vec<AttributeGiven>,
        manner: Manner,
    },
    SetOne {
        target: Target,
        given: AttributeGiven,
    },
    RemoveAttribute {
        target: Target,
        name: String,
    },
    /// As many as there are.
    RemoveAttributes {
        target: Target,
        names: Vec<Arc<str>>,
    },
    Delete(Target),
}

impl Action {
    /// Which entity it is about.
    pub(crate) fn id(&self) -> &Arc<str> {
        match self {
            Self::Create(given) | Self::Upsert { given, .. } => &given.id,
            Self::Set { target, .. }
            | Self::SetOne { target, .. }
            | Self::RemoveAttribute { target, .. }
            | Self::RemoveAttributes { target, .. }
            | Self::Delete(target) => &target.id,
        }
    }

    /// What it sets.
    pub(crate) fn attributes(&self) -> &[AttributeGiven] {
        match self {
            Self::Create(given) | Self::Upsert { given, .. } => &given.attributes,
            Self::Set { given, .. } => given,
            Self::SetOne { given, .. } => std::slice::from_ref(given),
            Self::RemoveAttribute { .. } | Self::RemoveAttributes { .. } | Self::Delete(_) => &[],
        }
    }

    /// Bytes that it owns beside itself, about.
    fn owned_bytes(&self) -> usize {
        match self {
            Self::RemoveAttribute { name, .. } => name.len(),
            Self::RemoveAttributes { names, .. } => names.iter().map(|name| size_of_val(name) + name.len()).sum(),
            _ => self.attributes().iter().map(AttributeGiven::size_bytes).sum(),
        }
    }
}

/// An existing entity, as a request names it.
pub(crate) struct Target {
    pub(crate) id: Arc<str>,
    /// Makes an id unambiguous that several entities share.
    pub(crate) kind: Option<String>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Created,
    Updated,
    /// A step was made, others are to follow.
    MoreToDo,
    Refused(Refusal),
}

/// An entity's new version, or its end; or how far an index has come.
pub(crate) enum Change {
    Put { tenant: TenantId, entity: Arc<Entity> },
    Remove { tenant: TenantId, key: Arc<Key> },
    Index { tenant: TenantId, attribute: Arc<str>, built: Built },
}

impl View for EntityView {
    type State = State;
    type Change = Change;
    type Command = Command;
    type Answer = Answer;
    const NAME: &'static str = "context";

    fn decide(&self, draft: &mut Draft<'_, Self>, command: Command) -> Answer {
        match command {
            Command::Request(request) => self.request(draft, *request).unwrap_or_else(Answer::Refused),
            Command::Measured { source, next, measurements } => {
                let applied = draft.applied(source);
                let new = measurements.into_iter().filter(|(offset, _)| *offset >= applied);
                let answer = measurement::apply(self, draft, new.map(|(_, one)| one));
                draft.advance(source, next);
                answer
            }
            Command::Index { tenant, attribute } => owner_work::index(self, draft, tenant, attribute),
            Command::Expire => owner_work::expire(self, draft),
        }
    }

    fn owned_bytes(command: &Command) -> usize {
        match command {
            Command::Request(request) => request.action.owned_bytes(),
            Command::Index { attribute, .. } => attribute.len(),
            Command::Expire => 0,
            Command::Measured { measurements, .. } => {
                let each = measurements.iter().map(|(_, measurement)| measurement.owned_bytes());
                size_of_val(measurements.as_slice()) + each.sum::<usize>()
            }
        }
    }

    fn apply(state: &mut State, change: &Change) {
        match change {
            Change::Put { tenant, entity } => state.put(tenant, entity.clone()),
            Change::Remove { tenant, key } => state.remove(tenant, key),
            Change::Index { tenant, attribute, built } => state.index(tenant, attribute, built),
        }
    }

    fn encode(change: &Change, key: &mut Vec<u8>, value: &mut Vec<u8>) -> Encoded {
        match change {
            Change::Put { tenant, entity } => {
                state_record::encode_key(tenant, &entity.key, key);
                state_record::encode_value(entity, value);
                Encoded::Value
            }
            Change::Remove { tenant, key: gone } => {
                state_record::encode_key(tenant, gone, key);
                Encoded::Tombstone
            }
            Change::Index { tenant, attribute, built } => {
                state_record::encode_index_key(tenant, attribute, key);
                state_record::encode_built(built, value);
                Encoded::Value
            }
        }
    }

    fn decode(key: &[u8], value: Option<&[u8]>) -> Result<Change, DecodeError> {
        if let Some((tenant, attribute)) = state_record::decode_index_key(key)? {
            let built = value.map_or(Ok(Built::Not), state_record::decode_built)?;
            return Ok(Change::Index { tenant, attribute, built });
        }
        let (tenant, key) = state_record::decode_key(key)?;
        match value {
            Some(value) => Ok(Change::Put { tenant, entity: Arc::new(state_record::decode_value(key, value)?) }),
            None => Ok(Change::Remove { tenant, key }),
        }
    }
}

impl EntityView {
    fn request(&self, draft: &mut Draft<'_, Self>, request: Request) -> Result<Answer, Refusal> {
        let Request { tenant, path, tell, versions, origin, at_us, action } = request;
        let write = Write { view: self, tenant, path, tell, versions, origin, at_us };
        match action {
            Action::Create(given) => match write.existing(draft, &given)? {
                Some(before) => Err(exists(&before)),
                None => write.create(draft, given),
            },
            Action::Upsert { given, manner } => {
                let before = write.existing(draft, &given)?;
                write.check_version(before.as_deref(), &given.id)?;
                match before {
                    Some(before) => write.set(draft, before, given.attributes, manner),
                    None => write.create(draft, given),
                }
            }
            Action::Set { target, given, manner } => {
                let before = write.target(draft, &target)?;
                write.set(draft, before, given, manner)
            }
            Action::SetOne { target, given } => {
                let before = write.target_attribute(draft, &target, &given.name)?;
                write.set(draft, before, vec![given], Manner::Update)
            }
            Action::RemoveAttribute { target, name } => {
                let before = write.target_attribute(draft, &target, &name)?;
                let mut after = (*before).clone();
                after.attributes.retain(|attribute| *attribute.name != *name);
                write.put(draft, Some(&before), after, &[])
            }
            Action::RemoveAttributes { target, names } => {
                let before = write.target(draft, &target)?;
                write.remove_attributes(draft, &before, &names)
            }
            Action::Delete(target) => {
                let before = write.target(draft, &target)?;
                write.delete(draft, &before);
                Ok(Answer::Updated)
            }
        }
    }
}

/// One client's write, at its owner.
struct Write<'a> {
    view: &'a EntityView,
    tenant: TenantId,
    path: Arc<str>,
    tell: TopicPartition,
    origin: Origin,
    versions: Option<Versions>,
    at_us: i64,
}

impl Write<'_> {
    /// The entity that exists already, if it does. Without a type it is the only one with its id.
    fn existing(&self, draft: &Draft<'_, EntityView>, given: &EntityGiven) -> Result<Option<Arc<Entity>>, Refusal> {
        match only(self.here(draft, &given.id), &given.id, given.kind.as_deref()) {
            Ok(entity) => Ok(Some(entity.clone())),
            Err(refusal) if refusal.name == Name::NotFound => Ok(None),
            Err(refusal) => Err(refusal),
        }
    }

    /// Entities with this id in the path that is written to, but for those that have come to their end.
    fn here<'d>(&'d self, draft: &'d Draft<'_, EntityView>, id: &'d str) -> impl Iterator<Item = &'d Arc<Entity>> {
        let now_ms = draft.now_ms();
        let same = draft.state().of(&self.tenant).into_iter().flat_map(|entities| entities.with_id(id));
        same.filter(move |entity| entity.key.path == self.path && !entity.has_expired(now_ms))
    }

    fn target(&self, draft: &Draft<'_, EntityView>, target: &Target) -> Result<Arc<Entity>, Refusal> {
        let entity = only(self.here(draft, &target.id), &target.id, target.kind.as_deref())?;
        self.check_version(Some(entity), &entity.key.id)?;
        Ok(entity.clone())
    }

    /// Refuses a write that demands another version.
    fn check_version(&self, entity: Option<&Entity>, id: &str) -> Result<(), Refusal> {
        self.versions.as_ref().map_or(Ok(()), |versions| versions.check(entity, id))
    }

    fn target_attribute(
        &self,
        draft: &Draft<'_, EntityView>,
        target: &Target,
        name: &str,
    ) -> Result<Arc<Entity>, Refusal> {
        let entity = self.target(draft, target)?;
        if entity.attribute(name).is_none() {
            return Err(no_attribute(&entity, name));
        }
        Ok(entity)
    }

    fn create(&self, draft: &mut Draft<'_, EntityView>, given: EntityGiven) -> Result<Answer, Refusal> {
        let kind = given.kind.unwrap_or_else(|| DEFAULT_ENTITY_KIND.into());
        let key = Key { id: given.id, kind, path: self.path.clone() };
        let mut entity = Entity::new(key.into(), self.at_us);
        entity.attributes.reserve_exact(given.attributes.len());
        for attribute in given.attributes {
            entity.attributes.extend(update::create(attribute)?);
        }
        self.put(draft, None, entity, &[]).map(|_| Answer::Created)
    }

    fn set(
        &self,
        draft: &mut Draft<'_, EntityView>,
        before: Arc<Entity>,
        given: Vec<AttributeGiven>,
        manner: Manner,
    ) -> Result<Answer, Refusal> {
        let mut after = (*before).clone();
        let asked: Vec<Arc<str>> = given.iter().map(|attribute| attribute.name.clone()).collect();
        let outcome = update::set(&mut after, given, manner);
        if outcome.has_effect() {
            self.put(draft, Some(&before), after, &asked)?;
        }
        match outcome {
            Outcome::Done => Ok(Answer::Updated),
            Outcome::Refused(refusal) => Err(refusal),
        }
    }

    fn remove_attributes(
        &self,
        draft: &mut Draft<'_, EntityView>,
        before: &Entity,
        names: &[Arc<str>],
    ) -> Result<Answer, Refusal> {
        let mut after = before.clone();
        after.attributes.retain(|attribute| !names.contains(&attribute.name));
        let missing: Vec<&str> =
            names.iter().filter(|name| before.attribute(name).is_none()).map(|name| &**name).collect();
        if missing.len() < names.len() {
            self.put(draft, Some(before), after, names)?;
        }
        if missing.is_empty() {
            return Ok(Answer::Updated);
        }
        let name = if missing.len() < names.len() { Name::PartialUpdate } else { Name::Unprocessable };
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
        asked: &[Arc<str>],
    ) -> Result<Answer, Refusal> {
        let now_ms = before.map_or(after.created_ms(), |_| draft.now_ms());
        let differences = update::settle(before, &mut after, now_ms);
        after.keep_exactly();
        check_locations(&after)?;
        let told = tell(before, &after, (&differences, asked), &self.origin, now_ms);
        let (size, limit) = (told.value.as_ref().map_or(0, Vec::len), self.view.entity_max_bytes);
        if size > limit {
            return Err(Refusal::new(
                Name::RequestEntityTooLarge,
                format!(
                    "entity '{}' would have {size} bytes of JSON: context.entity_max_bytes = {limit}; \
                     spread it over several entities, or raise the limit",
                    after.key.id
                ),
            ));
        }
        draft.publish(self.tell.clone(), told);
        draft.change(Change::Put { tenant: self.tenant.clone(), entity: Arc::new(after) });
        Ok(Answer::Updated)
    }

    fn delete(&self, draft: &mut Draft<'_, EntityView>, before: &Entity) {
        draft.publish(self.tell.clone(), tell_end(before, "entityDelete", &self.origin, draft.now_ms()));
        draft.change(Change::Remove { tenant: self.tenant.clone(), key: before.key.clone() });
    }
}

/// The change record for a new version of an entity: in what it differs, and which attributes were part of the request.
pub(crate) fn tell(
    before: Option<&Entity>,
    after: &Entity,
    (differences, asked): (&[Difference], &[Arc<str>]),
    origin: &Origin,
    timestamp_ms: i64,
) -> Publish {
    let changed: Vec<Arc<str>> = differences.iter().map(|difference| difference.name.clone()).collect();
    let alteration = match before {
        None => "entityCreate",
        Some(_) if changed.is_empty() && !origin.is_forced => "entityUpdate",
        Some(_) => "entityChange",
    };
    let details = change_details::text(before, after, differences, asked, origin);
    record(after, alteration, changed, details, timestamp_ms)
}

/// The change record for the end of an entity.
pub(crate) fn tell_end(before: &Entity, alteration: &str, origin: &Origin, timestamp_ms: i64) -> Publish {
    let changed: Vec<Arc<str>> = before.attributes.iter().map(|attribute| attribute.name.clone()).collect();
    let gone = |name: &Arc<str>| Difference { name: name.clone(), what: Differs::Removed };
    let differences: Vec<Difference> = changed.iter().map(gone).collect();
    let details = change_details::text(Some(before), before, &differences, &[], origin);
    record(before, alteration, changed, details, timestamp_ms)
}

fn record(entity: &Entity, alteration: &str, changed: Vec<Arc<str>>, details: Vec<u8>, timestamp_ms: i64) -> Publish {
    Publish {
        timestamp_ms,
        key: Some(entity.key.id.as_bytes().to_vec()),
        value: Some(show::normalized(entity).into_bytes()),
        headers: vec![
            (ALTERATION_TYPE.into(), alteration.as_bytes().to_vec()),
            (CHANGED_ATTRIBUTES.into(), change_topics::listed(&changed).into_bytes()),
            (SERVICE_PATH.into(), entity.key.path.as_bytes().to_vec()),
            (CHANGE_DETAILS.into(), details),
        ],
    }
}

/// The one entity that an id and perhaps a type name.
pub(crate) fn only<'a>(
    same: impl Iterator<Item = &'a Arc<Entity>>,
    id: &str,
    kind: Option<&str>,
) -> Result<&'a Arc<Entity>, Refusal> {
    let mut fitting = same.filter(|entity| kind.is_none_or(|kind| &*entity.key.kind == kind));
    let Some(entity) = fitting.next() else {
        let of_kind = kind.map_or_else(String::new, |kind| format!(" of type '{kind}'"));
        return Err(Refusal::new(
            Name::NotFound,
            format!("there is no entity '{id}'{of_kind} in this tenant and service path; create it, or check the name"),
        ));
    };
    if fitting.next().is_some() {
        return Err(Refusal::new(
            Name::TooManyResults,
            format!(
                "several entities have the id '{id}': a request names one; add the parameter type, or a service path"
            ),
        ));
    }
    Ok(entity)
}

/// The entity is there, the attribute is not.
pub(crate) fn no_attribute(entity: &Entity, name: &str) -> Refusal {
    let id = &entity.key.id;
    Refusal::new(Name::NotFound, format!("entity '{id}' has no attribute '{name}'; append it, or check the name"))
}

/// An entity is in one place.
fn check_locations(entity: &Entity) -> Result<(), Refusal> {
    let names: Vec<&str> = entity.locations().map(|attribute| &*attribute.name).collect();
    if names.len() < 2 {
        return Ok(());
    }
    Err(Refusal::new(
        Name::NoResourcesAvailable,
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
        Name::Unprocessable,
        format!(
            "entity '{id}' of type '{kind}' exists already: an entity is created once; update it, or use options=upsert"
        ),
    )
}
