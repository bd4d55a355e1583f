//! Being a member: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

use std::sync::Arc;
use std::time::Duration;

use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::join_group_response::JoinGroupResponseMember;
use kafka_protocol::messages::leave_group_response::MemberResponse;
use kafka_protocol::messages::{
    HeartbeatRequest, HeartbeatResponse, JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest, LeaveGroupResponse,
    SyncGroupRequest, SyncGroupResponse,
};
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use super::coordinator::{Caller, GroupCoordinator};
use super::entry::GroupEntry;
use super::machine::{JoinError, JoinResult, MemberIdentity, SyncResult};
use super::member::JoinRequest;

/// Longest part of a client's name that its member ids begin with.
const ID_PREFIX_MAX_CHARS: usize = 100;

impl GroupCoordinator {
    /// JoinGroup: answered when the group has come together.
    pub async fn join_group(
        self: &Arc<Self>,
        request: JoinGroupRequest,
        version: i16,
        caller: &Caller,
    ) -> JoinGroupResponse {
        let member_id = request.member_id.to_string();
        let group = match caller.group(&request.group_id) {
            Ok(group) => group,
            Err(error) => return refused(JoinError { error, member_id }, version),
        };
        let call_id = self.next_call_id();
        let mut join = to_join(request, version, caller);
        let may_return = self.may_be_from_before(&member_id);
        let joining = |entry: &mut GroupEntry, out: &mut Vec<_>| {
            let group = entry.group.become_classic(&self.config, self.now())?;
            let has_place = join.instance.as_deref().is_some_and(|instance| group.has_instance(instance));
            if may_return && !group.knows(&join.member_id) && !has_place {
                join.new_id = std::mem::take(&mut join.member_id);
                join.must_come_back = false;
                group.wait_for_returning(self.config.return_delay);
            }
            group.join(self.now(), call_id, join, out);
            Ok(entry.await_join(call_id))
        };
        // A group begins only with an id that was handed out.
        let receiver = if member_id.is_empty() || may_return {
            self.within_new(&group, joining).await.and_then(|joining| joining)
        } else {
            self.within(&group, joining).unwrap_or(Err(ResponseError::UnknownMemberId))
        };
        match receiver {
            Ok(_) if self.is_stopped() => {
                refused(JoinError { error: ResponseError::CoordinatorNotAvailable, member_id }, version)
            }
            Ok(receiver) => match receiver.await {
                Ok(Ok(answer)) => joined(answer, version),
                Ok(Err(answer)) => refused(answer, version),
                Err(_) => refused(JoinError { error: ResponseError::CoordinatorNotAvailable, member_id }, version),
            },
            Err(error) => refused(JoinError { error, member_id }, version),
        }
    }

    /// SyncGroup: answered when the leader has assigned.
    pub async fn sync_group(&self, request: SyncGroupRequest, caller: &Caller) -> SyncGroupResponse {
        match self.synced(request, caller).await {
            Ok(answer) => SyncGroupResponse::default()
                .with_protocol_type(Some(text(answer.protocol_type)))
                .with_protocol_name(Some(text(answer.protocol)))
                .with_assignment(answer.assignment),
            Err(error) => SyncGroupResponse::default().with_error_code(error.code()),
        }
    }

    async fn synced(&self, request: SyncGroupRequest, caller: &Caller) -> Result<SyncResult, ResponseError> {
        let group = caller.group(&request.group_id)?;
        let call_id = self.next_call_id();
        let named = (request.protocol_type.as_deref(), request.protocol_name.as_deref());
        let assignments = request.assignments.iter().map(|of| (of.member_id.to_string(), of.assignment.clone()));
        let speaker = MemberIdentity {
            member_id: &request.member_id,
            instance: request.group_instance_id.as_deref(),
            generation: request.generation_id,
        };
        let receiver = self.within(&group, |entry, out| {
            let group = entry.group.classic()?;
            group.sync(self.now(), call_id, speaker, named, assignments.collect(), out);
            Ok(entry.await_sync(call_id))
        });
        let unknown = self.to_returning(&request.member_id, ResponseError::UnknownMemberId);
        let receiver = receiver.unwrap_or(Err(unknown))?;
        if self.is_stopped() {
            return Err(ResponseError::CoordinatorNotAvailable);
        }
        let synced = receiver.await.unwrap_or(Err(ResponseError::CoordinatorNotAvailable));
        synced.map_err(|error| self.to_returning(&request.member_id, error))
    }

    /// Heartbeat: extends the session of one member.
    pub async fn heartbeat(&self, request: HeartbeatRequest, caller: &Caller) -> HeartbeatResponse {
        let speaker = MemberIdentity {
            member_id: &request.member_id,
            instance: request.group_instance_id.as_deref(),
            generation: request.generation_id,
        };
        let beat = caller.group(&request.group_id).and_then(|group| {
            let beat = self.within(&group, |entry, _| entry.group.classic()?.heartbeat(self.now(), speaker));
            let beat = beat.unwrap_or(Err(ResponseError::UnknownMemberId));
            beat.map_err(|error| self.to_returning(&request.member_id, error))
        });
        HeartbeatResponse::default().with_error_code(code(beat))
    }

    /// LeaveGroup: one member, or (version 3 and later) several.
    pub async fn leave_group(&self, request: LeaveGroupRequest, version: i16, caller: &Caller) -> LeaveGroupResponse {
        let group = match caller.group(&request.group_id) {
            Ok(group) => group,
            Err(error) => return LeaveGroupResponse::default().with_error_code(error.code()),
        };
        let leaving: Vec<_> = if version < 3 {
            vec![(request.member_id.to_string(), None)]
        } else {
            let named = |id: &StrBytes| id.to_string();
            request.members.iter().map(|m| (named(&m.member_id), m.group_instance_id.as_ref().map(named))).collect()
        };
        let results =
            self.within(&group, |entry, out| Some(entry.group.classic().ok()?.leave(self.now(), &leaving, out)));
        let results = results.flatten().unwrap_or_else(|| vec![Err(ResponseError::UnknownMemberId); leaving.len()]);
        if version < 3 {
            let result = results.into_iter().next().unwrap_or(Ok(()));
            return LeaveGroupResponse::default().with_error_code(code(result));
        }
        let members = leaving.into_iter().zip(results).map(|((member_id, instance), result)| {
            MemberResponse::default()
                .with_member_id(text(member_id))
                .with_group_instance_id(instance.map(text))
                .with_error_code(code(result))
        });
        LeaveGroupResponse::default().with_members(members.collect())
    }
}

fn to_join(request: JoinGroupRequest, version: i16, caller: &Caller) -> JoinRequest {
    let ms = |ms: i32| Duration::from_millis(u64::try_from(ms).unwrap_or(0));
    let instance = request.group_instance_id.map(|instance| instance.to_string());
    let prefix: String = instance.as_deref().unwrap_or(&caller.client_id).chars().take(ID_PREFIX_MAX_CHARS).collect();
    JoinRequest {
        member_id: request.member_id.to_string(),
        new_id: format!("{prefix}-{}", Uuid::new_v4()),
        instance,
        client_id: caller.client_id.clone(),
        client_host: caller.client_host.clone(),
        session_timeout: ms(request.session_timeout_ms),
        // Version 0 has one timeout for both.
        rebalance_timeout: ms(if version == 0 { request.session_timeout_ms } else { request.rebalance_timeout_ms }),
        protocol_type: request.protocol_type.to_string(),
        protocols: request.protocols.into_iter().map(|spoken| (spoken.name.to_string(), spoken.metadata)).collect(),
        must_come_back: version >= 4,
        may_skip_assignment: version >= 9,
    }
}

fn joined(answer: JoinResult, version: i16) -> JoinGroupResponse {
    let members = answer.members.into_iter().map(|(id, instance, metadata)| {
        JoinGroupResponseMember::default()
            .with_member_id(text(id))
            .with_group_instance_id(instance.map(text))
            .with_metadata(metadata)
    });
    let mut response = JoinGroupResponse::default()
        .with_generation_id(answer.generation)
        .with_protocol_name(Some(text(answer.protocol)))
        .with_leader(text(answer.leader))
        .with_member_id(text(answer.member_id))
        .with_skip_assignment(answer.skip_assignment)
        .with_members(members.collect());
    if version >= 7 {
        response.protocol_type = Some(text(answer.protocol_type));
    }
    response
}

fn refused(answer: JoinError, version: i16) -> JoinGroupResponse {
    JoinGroupResponse::default()
        .with_error_code(answer.error.code())
        .with_generation_id(-1)
        // Before version 7 the name may not be missing.
        .with_protocol_name((version < 7).then(StrBytes::default))
        .with_member_id(text(answer.member_id))
}

pub(crate) fn text(value: String) -> StrBytes {
    StrBytes::from_string(value)
}

/// The protocol's number for how it went.
pub(crate) fn code(result: Result<(), ResponseError>) -> i16 {
    result.err().map_or(0, |error| error.code())
}
