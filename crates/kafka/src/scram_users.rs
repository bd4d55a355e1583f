//! DescribeUserScramCredentials and AlterUserScramCredentials: API tokens as the users of SCRAM.
//!
//! A token has both mechanisms of one secret, which the server makes. So they are shown, and no password is taken from outside.

use std::collections::BTreeMap;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::alter_user_scram_credentials_response::AlterUserScramCredentialsResult;
use kafka_protocol::messages::describe_user_scram_credentials_response::{
    CredentialInfo, DescribeUserScramCredentialsResult,
};
use kafka_protocol::messages::{
    AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse, DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
};
use kafka_protocol::protocol::StrBytes;
use millstream_net::{ScramMechanism, ScramUser};
use millstream_types::Role;

use crate::api_error::ApiError;
use crate::request_context::RequestContext;

/// The numbers of the mechanisms in requests.
const MECHANISMS: [(i8, ScramMechanism); 2] = [(1, ScramMechanism::Sha256), (2, ScramMechanism::Sha512)];

/// DescribeUserScramCredentials: the tokens that the caller manages, by name.
pub(crate) async fn describe(
    request: DescribeUserScramCredentialsRequest,
    context: RequestContext,
) -> DescribeUserScramCredentialsResponse {
    let answer = DescribeUserScramCredentialsResponse::default();
    let users = match managed(&context) {
        Ok(users) => users,
        Err(refusal) => return answer.with_error_code(refusal.code()).with_error_message(refusal.message()),
    };
    let wanted = request.users.unwrap_or_default();
    if wanted.is_empty() {
        return answer.with_results(users.iter().map(|(name, user)| shown(name, user)).collect());
    }
    let mut asked: BTreeMap<StrBytes, usize> = BTreeMap::new();
    wanted.into_iter().for_each(|user| *asked.entry(user.name).or_default() += 1);
    let results = asked.into_iter().map(|(name, times)| match users.get(name.as_str()) {
        _ if times > 1 => undescribed(&name, ResponseError::DuplicateResource, "is asked for twice"),
        Some(user) => shown(&name, user),
        None => undescribed(&name, ResponseError::ResourceNotFound, "is no API token; see 'millstream token list'"),
    });
    answer.with_results(results.collect())
}

fn shown(name: &str, user: &ScramUser) -> DescribeUserScramCredentialsResult {
    let infos = MECHANISMS.map(|(number, mechanism)| {
        let iterations = i32::try_from(user.iterations(mechanism)).unwrap_or(i32::MAX);
        CredentialInfo::default().with_mechanism(number).with_iterations(iterations)
    });
    DescribeUserScramCredentialsResult::default()
        .with_user(StrBytes::from_string(name.to_owned()))
        .with_credential_infos(infos.to_vec())
}

fn undescribed(name: &str, error: ResponseError, why: &str) -> DescribeUserScramCredentialsResult {
    DescribeUserScramCredentialsResult::default()
        .with_user(StrBytes::from_string(name.to_owned()))
        .with_error_code(error.code())
        .with_error_message(Some(StrBytes::from_string(format!("'{name}' {why}"))))
}

/// AlterUserScramCredentials: refused for each user, with the command that does it.
pub(crate) async fn alter(
    request: AlterUserScramCredentialsRequest,
    context: RequestContext,
) -> AlterUserScramCredentialsResponse {
    let users = managed(&context);
    let mut refusals: BTreeMap<StrBytes, ApiError> = BTreeMap::new();
    let deletions = request.deletions.into_iter().map(|deletion| (deletion.name, deletion.mechanism, false));
    let upsertions = request.upsertions.into_iter().map(|upsertion| (upsertion.name, upsertion.mechanism, true));
    for (name, mechanism, is_upsertion) in deletions.chain(upsertions) {
        let refusal = match &users {
            Err(refusal) => refusal.clone(),
            Ok(users) => refusal(&name, mechanism, is_upsertion, users),
        };
        context.audit("AlterUserScramCredentials", &name, &Err::<(), _>(refusal.clone()));
        refusals.entry(name).or_insert(refusal);
    }
    let results = refusals.into_iter().map(|(user, refusal)| {
        AlterUserScramCredentialsResult::default()
            .with_user(user)
            .with_error_code(refusal.code())
            .with_error_message(refusal.message())
    });
    AlterUserScramCredentialsResponse::default().with_results(results.collect())
}

fn refusal(name: &str, mechanism: i8, is_upsertion: bool, users: &BTreeMap<String, ScramUser>) -> ApiError {
    let (error, why) = if MECHANISMS.iter().all(|(number, _)| *number != mechanism) {
        let why = format!("mechanism {mechanism} is not known; use 1 (SCRAM-SHA-256) or 2 (SCRAM-SHA-512)");
        (ResponseError::UnsupportedSaslMechanism, why)
    } else if is_upsertion {
        let why = format!(
            "the server makes the secrets of API tokens and takes no password for '{name}'; make a token with 'millstream token create {name} --role ROLE', whose secret is good for both mechanisms"
        );
        (ResponseError::UnacceptableCredential, why)
    } else if users.contains_key(name) {
        let why = format!(
            "API token '{name}' has both mechanisms of one secret and keeps them; revoke it with 'millstream token revoke {name}'"
        );
        (ResponseError::UnacceptableCredential, why)
    } else {
        (ResponseError::ResourceNotFound, format!("'{name}' is no API token; see 'millstream token list'"))
    };
    ApiError::new(error, why)
}

/// The tokens that the caller manages: those of its tenant, or all.
fn managed(context: &RequestContext) -> Result<BTreeMap<String, ScramUser>, ApiError> {
    context.check_or(Role::Admin, ResponseError::ClusterAuthorizationFailed)?;
    let namespace = &context.broker.namespace;
    if namespace.is_limited() {
        let why = "the API token is limited to a part of its tenant; use one without limits";
        return Err(ApiError::new(ResponseError::ClusterAuthorizationFailed, why));
    }
    let tenant = (!namespace.in_every_tenant).then_some(&namespace.tenant);
    let users = context.broker.logins.as_ref().map(|logins| logins.scram_users(tenant)).unwrap_or_default();
    Ok(users.into_iter().map(|user| (user.name.clone(), user)).collect())
}
