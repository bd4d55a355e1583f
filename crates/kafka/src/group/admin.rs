//! Looking at groups and deleting them: ListGroups, DescribeGroups, DeleteGroups.

use std::collections::BTreeMap;
use std::sync::Arc;

use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::delete_groups_response::DeletableGroupResult;
use kafka_protocol::messages::describe_groups_response::{DescribedGroup, DescribedGroupMember};
use kafka_protocol::messages::list_groups_response::ListedGroup;
use kafka_protocol::messages::{
    DeleteGroupsRequest, DeleteGroupsResponse, DescribeGroupsRequest, DescribeGroupsResponse, GroupId,
    ListGroupsRequest, ListGroupsResponse,
};
use kafka_protocol::protocol::StrBytes;
use millstream_types::Role;

use super::coordinator::{Caller, GroupCoordinator};
use super::errors::to_client;
use super::machine::{ClassicGroup, GroupState};
use super::membership::{code, text};
use super::protocol::Group;
use crate::authorized_operations::{self, NOT_ASKED};

/// The answer of ListGroups for a group.
struct Listing {
    state: &'static str,
    group_type: &'static str,
    protocol_type: String,
}

/// A group that has positions and was not used since the start.
const STORED: Listing = Listing { state: "Empty", group_type: "classic", protocol_type: String::new() };

impl GroupCoordinator {
    /// ListGroups: groups with members, and groups with positions only.
    pub async fn list_groups(&self, request: ListGroupsRequest, version: i16, caller: &Caller) -> ListGroupsResponse {
        if !caller.roles.has(Role::Reader) {
            return ListGroupsResponse::default().with_error_code(ResponseError::GroupAuthorizationFailed.code());
        }
        let stored = self.log.groups().into_iter();
        let mut groups: BTreeMap<String, Listing> = stored.map(|group| (group.name, STORED)).collect();
        let in_memory = self.look(|name, group| {
            let (state, group_type) = (group.state_name(), group.type_name());
            let listing = Listing { state, group_type, protocol_type: group.protocol_type().to_owned() };
            (!group.is_dead()).then(|| (name.to_owned(), listing))
        });
        groups.extend(in_memory.into_iter().flatten());
        let is_named = |filter: &[StrBytes], name: &str| {
            filter.is_empty() || filter.iter().any(|wanted| wanted.eq_ignore_ascii_case(name))
        };
        let listed = groups.into_iter().filter_map(|(name, Listing { state, group_type, protocol_type })| {
            let id = caller.id_of(&name)?.to_owned();
            let is_wanted = is_named(&request.states_filter, state) && is_named(&request.types_filter, group_type);
            let mut listed =
                ListedGroup::default().with_group_id(GroupId(text(id))).with_protocol_type(text(protocol_type));
            if version >= 4 {
                listed.group_state = StrBytes::from_static_str(state);
            }
            if version >= 5 {
                listed.group_type = StrBytes::from_static_str(group_type);
            }
            is_wanted.then_some(listed)
        });
        ListGroupsResponse::default().with_groups(listed.collect())
    }

    /// DescribeGroups. A group that does not exist, or is no classic one, is dead, or (version 6 and later) an error.
    pub async fn describe_groups(
        &self,
        request: DescribeGroupsRequest,
        version: i16,
        caller: &Caller,
    ) -> DescribeGroupsResponse {
        let operations = match request.include_authorized_operations {
            true => authorized_operations::of_group(caller.roles),
            false => NOT_ASKED,
        };
        let groups = request.groups.into_iter().map(|id| {
            let described = caller.group(&id).and_then(|name| {
                if let Some(described) = self.within(&name, |entry, _| describe(&entry.group)) {
                    return Ok(described);
                }
                let positions = self.log.positions(&name).map_err(|error| to_client(&error))?;
                let empty = || DescribedGroup::default().with_group_state(StrBytes::from_static_str("Empty"));
                Ok((!positions.is_empty()).then(empty))
            });
            let described = match described {
                Ok(Some(described)) => described.with_authorized_operations(operations),
                Ok(None) => missing(&id, version),
                Err(error) => DescribedGroup::default().with_error_code(error.code()),
            };
            described.with_group_id(id)
        });
        DescribeGroupsResponse::default().with_groups(groups.collect())
    }

    /// DeleteGroups: their positions, if they have no members.
    pub async fn delete_groups(
        self: &Arc<Self>,
        request: DeleteGroupsRequest,
        caller: &Caller,
    ) -> DeleteGroupsResponse {
        let mut results = Vec::new();
        for id in request.groups_names {
            let deleted = self.delete_group(&id, caller).await;
            results.push(DeletableGroupResult::default().with_group_id(id).with_error_code(code(deleted)));
        }
        DeleteGroupsResponse::default().with_results(results)
    }

    async fn delete_group(self: &Arc<Self>, id: &str, caller: &Caller) -> Result<(), ResponseError> {
        let name = caller.group_to_change(id)?;
        self.delete(&name).await
    }
}

/// `None` if the group is no classic one, of which this request tells nothing.
fn describe(group: &Group) -> Option<DescribedGroup> {
    let Group::Classic(group) = group else { return None };
    Some(describe_classic(group))
}

fn describe_classic(group: &ClassicGroup) -> DescribedGroup {
    let members = group.members().iter().map(|(id, member)| {
        DescribedGroupMember::default()
            .with_member_id(text(id.clone()))
            .with_group_instance_id(member.instance.clone().map(text))
            .with_client_id(text(member.client_id.clone()))
            .with_client_host(text(member.client_host.clone()))
            .with_member_metadata(member.metadata(group.protocol()))
            .with_member_assignment(member.assignment.clone())
    });
    DescribedGroup::default()
        .with_group_state(StrBytes::from_static_str(group.state().name()))
        .with_protocol_type(text(group.protocol_type().to_owned()))
        .with_protocol_data(text(group.protocol().to_owned()))
        .with_members(members.collect())
}

fn missing(id: &GroupId, version: i16) -> DescribedGroup {
    let missing = DescribedGroup::default().with_group_state(StrBytes::from_static_str(GroupState::Dead.name()));
    if version < 6 {
        return missing;
    }
    let message = format!(
        "group '{}' is no classic group: it has neither members nor positions, or its members use the consumer protocol; describe those with ConsumerGroupDescribe",
        id.as_str()
    );
    missing.with_error_code(ResponseError::GroupIdNotFound.code()).with_error_message(Some(text(message)))
}
