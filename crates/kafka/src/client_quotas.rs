//! DescribeClientQuotas and AlterClientQuotas: the rates of the settings `quota.client_…`, which hold for every client alike.
//!
//! They are those of Kafka's default user or, where nobody logs in, of its default client id. Clients do not change settings.

use kafka_protocol::ResponseError;
use kafka_protocol::messages::alter_client_quotas_request::EntryData as AlteredEntry;
use kafka_protocol::messages::describe_client_quotas_request::ComponentData;
use kafka_protocol::messages::describe_client_quotas_response::{EntityData, EntryData, ValueData};
use kafka_protocol::messages::{
    AlterClientQuotasRequest, AlterClientQuotasResponse, DescribeClientQuotasRequest, DescribeClientQuotasResponse,
    alter_client_quotas_response as altered,
};
use kafka_protocol::protocol::StrBytes;
use millstream_types::{QuotaConfig, Role};

use crate::api_error::ApiError;
use crate::request_context::RequestContext;

const USER: &str = "user";
const CLIENT_ID: &str = "client-id";
const IP: &str = "ip";
const ENTITY_TYPES: [&str; 3] = [USER, CLIENT_ID, IP];
const PRODUCE: &str = "producer_byte_rate";
const FETCH: &str = "consumer_byte_rate";
/// Rates that Kafka knows and that are not limited here.
const UNLIMITED: [&str; 3] = ["request_percentage", "controller_mutation_rate", "connection_creation_rate"];

/// The way in which a component of a filter matches names.
const EXACT: i8 = 0;
const ANY: i8 = 2;

/// DescribeClientQuotas.
pub(crate) async fn describe(
    request: DescribeClientQuotasRequest,
    context: RequestContext,
) -> DescribeClientQuotasResponse {
    let checked = context
        .check_or(Role::Admin, ResponseError::ClusterAuthorizationFailed)
        .and_then(|()| check_filter(&request.components));
    if let Err(refusal) = checked {
        return DescribeClientQuotasResponse::default()
            .with_error_code(refusal.code())
            .with_error_message(refusal.message())
            .with_entries(None);
    }
    let entity = if context.broker.requires_logins() { USER } else { CLIENT_ID };
    let rates = rates(context.broker.quotas.config());
    let is_wanted = !rates.is_empty() && matches(&request.components, request.strict, entity);
    let entry = EntryData::default()
        .with_entity(vec![EntityData::default().with_entity_type(text(entity)).with_entity_name(None)])
        .with_values(rates);
    DescribeClientQuotasResponse::default().with_entries(Some(is_wanted.then_some(entry).into_iter().collect()))
}

fn rates(config: &QuotaConfig) -> Vec<ValueData> {
    let settings = [(PRODUCE, config.client_produce_bytes_per_second), (FETCH, config.client_fetch_bytes_per_second)];
    let set = settings.into_iter().filter(|(_, rate)| *rate > 0);
    set.map(|(key, rate)| ValueData::default().with_key(text(key)).with_value(rate as f64)).collect()
}

/// True if the filter matches the default of this type of entity.
fn matches(components: &[ComponentData], strict: bool, entity: &str) -> bool {
    let of_entity = components.iter().find(|component| *component.entity_type == *entity);
    // Exact names match no default, and other types match no entity without them.
    let others = components.len() - usize::from(of_entity.is_some());
    others == 0 && of_entity.map_or(!strict, |component| component.match_type != EXACT)
}

fn check_filter(components: &[ComponentData]) -> Result<(), ApiError> {
    let invalid = |why: String| Err(ApiError::new(ResponseError::InvalidRequest, why));
    for (at, component) in components.iter().enumerate() {
        let kind = component.entity_type.as_str();
        if !ENTITY_TYPES.contains(&kind) {
            return Err(unknown_type(kind));
        }
        if components[..at].iter().any(|earlier| *earlier.entity_type == *kind) {
            return invalid(format!("type '{kind}' is filtered twice; name it once"));
        }
        if !(EXACT..=ANY).contains(&component.match_type) {
            return invalid(format!("match type {} is not known; use 0 to 2", component.match_type));
        }
        if (component.match_type == EXACT) != component._match.is_some() {
            return invalid(format!("a filter of '{kind}' has a name if it matches exactly, and only then"));
        }
    }
    Ok(())
}

/// AlterClientQuotas: refused, with the setting that does it.
pub(crate) async fn alter(request: AlterClientQuotasRequest, context: RequestContext) -> AlterClientQuotasResponse {
    let entries = request.entries.into_iter().map(|entry| {
        let may = context.check_or(Role::Admin, ResponseError::ClusterAuthorizationFailed);
        let refusal = may.err().unwrap_or_else(|| refusal(&entry));
        let names = entry.entity.iter().map(|entity| entity.entity_name.as_deref().unwrap_or("<default>"));
        let object = names.collect::<Vec<_>>().join(" ");
        context.audit("AlterClientQuotas", &object, &Err::<(), _>(refusal.clone()));
        let entity = entry.entity.into_iter().map(|entity| {
            altered::EntityData::default().with_entity_type(entity.entity_type).with_entity_name(entity.entity_name)
        });
        altered::EntryData::default()
            .with_entity(entity.collect())
            .with_error_code(refusal.code())
            .with_error_message(refusal.message())
    });
    AlterClientQuotasResponse::default().with_entries(entries.collect())
}

fn refusal(entry: &AlteredEntry) -> ApiError {
    let invalid = |why: String| ApiError::new(ResponseError::InvalidRequest, why);
    if entry.entity.is_empty() {
        return invalid("a quota is that of a user or a client id; name one".to_owned());
    }
    if let Some(other) = entry.entity.iter().find(|entity| !ENTITY_TYPES.contains(&entity.entity_type.as_str())) {
        return unknown_type(&other.entity_type);
    }
    let policy = |why: String| ApiError::new(ResponseError::PolicyViolation, why);
    for op in &entry.ops {
        match op.key.as_str() {
            PRODUCE | FETCH => {}
            key if UNLIMITED.contains(&key) => {
                return policy(format!("{key} is not limited here; leave it out"));
            }
            key => return invalid(format!("'{key}' is no quota; use {PRODUCE} or {FETCH}")),
        }
    }
    policy(
        "rates are settings, and hold for every client alike; set quota.client_produce_bytes_per_second and quota.client_fetch_bytes_per_second and restart the server"
            .to_owned(),
    )
}

fn unknown_type(kind: &str) -> ApiError {
    let why = format!("type '{kind}' has no quotas; use {}", ENTITY_TYPES.join(", "));
    ApiError::new(ResponseError::UnsupportedVersion, why)
}

fn text(value: &'static str) -> StrBytes {
    StrBytes::from_static_str(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_matches_the_default_by_default_and_by_any_name() {
        let component = |kind: &'static str, match_type| {
            ComponentData::default().with_entity_type(text(kind)).with_match_type(match_type)
        };
        for (components, strict, expected) in [
            (vec![], false, true),
            (vec![], true, false),
            (vec![component(USER, 0)], false, false),
            (vec![component(USER, 1)], false, true),
            (vec![component(USER, 2)], true, true),
            (vec![component(CLIENT_ID, 2)], false, false),
            (vec![component(USER, 2), component(CLIENT_ID, 2)], false, false),
        ] {
            assert_eq!(matches(&components, strict, USER), expected, "{components:?}, {strict}");
        }
    }
}
