//! The table of request handlers: kinds of requests, their versions and the functions that serve them.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use kafka_protocol::messages::{ApiKey, DescribeAclsRequest, FetchRequest, FetchResponse, RequestHeader};
use kafka_protocol::protocol::{Decodable, Request};

use crate::error::ConnectionError;
use crate::request_context::{ClientConnection, RequestContext};
use crate::response::{LENGTH_BYTES, Response, encode, put_length, start};
use crate::supported_apis::{ApiVersionRange, SupportedApis};
use crate::{
    acls, api_versions, client_quotas, cluster, configs, create_topics, delete_records, delete_topics,
    describe_producers, fetch, leader_epochs, list_offsets, log_dirs, metadata, produce, quorum, sasl, scram_users,
    topic_partitions, transaction_apis, unsupported_api,
};

/// The response to a request that has begun.
pub(crate) type PendingResponse = Pin<Box<dyn Future<Output = Result<Response, ConnectionError>> + Send>>;
type Handler = Box<dyn Fn(ApiRequest) -> Result<PendingResponse, ConnectionError> + Send + Sync>;

/// A request with a decoded header.
struct ApiRequest {
    context: RequestContext,
    correlation_id: i32,
    body: Bytes,
}

/// A kind of request and its handler.
struct Api {
    versions: ApiVersionRange,
    handler: Handler,
}

/// The requests that a client may send before its login.
const BEFORE_LOGIN: [i16; 3] =
    [ApiKey::ApiVersions as i16, ApiKey::SaslHandshake as i16, ApiKey::SaslAuthenticate as i16];

/// All kinds of requests that are served.
pub(crate) struct ApiTable(Vec<Api>);

impl ApiTable {
    pub(crate) fn new() -> Self {
        Self(vec![
            api(0, 1, |request, context| {
                let answer = sasl::handshake(&request, &context);
                ok(async move { answer })
            }),
            api(0, 2, |request, context| ok(sasl::answer(request, context))),
            api(3, 12, produce::produce),
            fetch_api(4, 16),
            api(1, 10, |request, context| ok(list_offsets::list_offsets(request, context))),
            api(0, 12, |request, context| ok(metadata::metadata(request, context))),
            api(0, 4, |request, context| ok(api_versions::api_versions(request, context))),
            api(2, 7, |request, context| ok(create_topics::create_topics(request, context))),
            api(1, 6, |request, context| ok(delete_topics::delete_topics(request, context))),
            api(0, 3, |request, context| ok(create_topics::create_partitions(request, context))),
            api(0, 2, |request, context| ok(delete_records::delete_records(request, context))),
            api(1, 4, |request, context| ok(configs::describe_configs(request, context))),
            api(0, 1, |request, context| ok(configs::incremental_alter_configs(request, context))),
            api(0, 2, |request, context| ok(configs::alter_configs(request, context))),
            api(0, 1, |request, context| ok(cluster::describe_cluster(request, context))),
            api(0, 4, |request, context| ok(cluster::find_coordinator(request, context))),
            api(0, 9, |request, context: RequestContext| {
                ok(async move { context.groups().join_group(request, context.version, &context.member()).await })
            }),
            api(0, 5, |request, context: RequestContext| {
                ok(async move { context.groups().sync_group(request, &context.member()).await })
            }),
            api(0, 4, |request, context: RequestContext| {
                ok(async move { context.groups().heartbeat(request, &context.member()).await })
            }),
            api(0, 5, |request, context: RequestContext| {
                ok(async move { context.groups().leave_group(request, context.version, &context.member()).await })
            }),
            api(2, 9, |request, context: RequestContext| {
                ok(async move { context.groups().offset_commit(request, context.version, &context.member()).await })
            }),
            api(1, 9, |request, context: RequestContext| {
                ok(async move {
                    let pending = |group: &str| context.broker.transactions.pending_positions(group);
                    context.groups().offset_fetch(request, context.version, &context.member(), &pending).await
                })
            }),
            api(0, 1, |request, context: RequestContext| {
                ok(async move {
                    context.groups().consumer_group_heartbeat(request, context.version, &context.member()).await
                })
            }),
            api(0, 1, |request, context: RequestContext| {
                ok(async move { context.groups().describe_consumer_groups(request, &context.member()).await })
            }),
            api(0, 0, |request, context: RequestContext| {
                ok(async move { context.groups().offset_delete(request, &context.member()).await })
            }),
            api(0, 5, |request, context: RequestContext| {
                ok(async move { context.groups().list_groups(request, context.version, &context.member()).await })
            }),
            api(0, 6, |request, context: RequestContext| {
                ok(async move { context.groups().describe_groups(request, context.version, &context.member()).await })
            }),
            api(0, 2, |request, context: RequestContext| {
                ok(async move { context.groups().delete_groups(request, &context.member()).await })
            }),
            api(0, 5, |request, context| ok(transaction_apis::init_producer_id(request, context))),
            api(0, 3, |request, context| ok(transaction_apis::add_partitions(request, context))),
            api(0, 4, |request, context| ok(transaction_apis::add_offsets(request, context))),
            api(0, 5, |request, context| ok(transaction_apis::commit_offsets(request, context))),
            api(0, 5, |request, context| ok(transaction_apis::end(request, context))),
            api(0, 1, |request, context| ok(transaction_apis::list(request, context))),
            api(0, 0, |request, context| ok(transaction_apis::describe(request, context))),
            api(0, 0, |request, context| ok(describe_producers::describe_producers(request, context))),
            api(1, 4, |request, context| ok(log_dirs::describe_log_dirs(request, context))),
            api(0, 0, |request, context| ok(topic_partitions::describe(request, context))),
            api(0, 1, |request, context| ok(configs::list_resources(request, context))),
            api(2, 4, |request, context| ok(leader_epochs::offset_for_leader_epoch(request, context))),
            api(0, 2, |request, context| ok(quorum::describe_quorum(request, context))),
            api(0, 0, |request, context| ok(scram_users::describe(request, context))),
            api(0, 0, |request, context| ok(scram_users::alter(request, context))),
            api(0, 1, |request, context| ok(client_quotas::describe(request, context))),
            api(0, 1, |request, context| ok(client_quotas::alter(request, context))),
            api(1, 3, |_: DescribeAclsRequest, _| ok(async { acls::describe() })),
            api(1, 3, |request, _| ok(async move { acls::create(&request) })),
            api(1, 3, |request, _| ok(async move { acls::delete(&request) })),
        ])
    }

    /// The kinds of requests in this table.
    pub(crate) fn supported(&self) -> SupportedApis {
        SupportedApis::new(self.0.iter().map(|api| api.versions))
    }

    fn api(&self, key: i16, version: i16) -> Option<&Api> {
        self.0.iter().find(|api| api.versions.contains(key, version))
    }

    /// Begins the request in `frame`. All work that depends on the order of arrival is done when this
    /// returns. For `oversized_bytes` see [`crate::frame::RequestFrame`].
    pub(crate) fn begin(
        &self,
        connection: &Arc<ClientConnection>,
        frame: Bytes,
        oversized_bytes: Option<usize>,
    ) -> Result<PendingResponse, ConnectionError> {
        if connection.has_login_ended() {
            return Err(ConnectionError::LoginEnded);
        }
        let (principal, broker) = connection.session();
        let mut start = frame.clone();
        let (key, version, correlation_id) = match (start.try_get_i16(), start.try_get_i16(), start.try_get_i32()) {
            (Ok(key), Ok(version), Ok(correlation_id)) => (key, version, correlation_id),
            _ => return Err(ConnectionError::Undersized { size_bytes: frame.len() as i64 }),
        };
        let Some(api) = self.api(key, version) else {
            if key == ApiKey::ApiVersions as i16 {
                let response = api_versions::unsupported(&broker);
                return Ok(Box::pin(async move { encode(&response, key, 0, correlation_id) }));
            }
            let answer = unsupported_api::response(key, version, correlation_id).filter(|_| principal.is_some());
            let answer = answer.ok_or(ConnectionError::Unsupported { key, version })?;
            return Ok(Box::pin(async move { Ok(answer) }));
        };
        if !BEFORE_LOGIN.contains(&api.versions.key) {
            if principal.is_none() {
                return Err(ConnectionError::NotLoggedIn { key });
            }
            if connection.has_session_expired() {
                return Err(ConnectionError::SessionExpired);
            }
        }
        let malformed = |why: String| ConnectionError::Malformed { key, version, why };
        let mut body = frame;
        let header_version = ApiKey::try_from(key).map_or(1, |api| api.request_header_version(version));
        let header = RequestHeader::decode(&mut body, header_version).map_err(|e| malformed(e.to_string()))?;
        let context = RequestContext {
            broker: Arc::clone(&broker),
            connection: Arc::clone(connection),
            principal,
            client_id: header.client_id.unwrap_or_default(),
            version,
            oversized_bytes,
        };
        (api.handler)(ApiRequest { context, correlation_id, body })
    }
}

/// A kind of request. The work of `handler` before it returns its future happens in the order of arrival. Its future runs
/// when all earlier requests of the connection are answered; `None` sends no response.
fn api<R, F, A>(min: i16, max: i16, handler: F) -> Api
where
    R: Request,
    R::Response: Send,
    F: Fn(R, RequestContext) -> A + Send + Sync + 'static,
    A: Future<Output = Result<Option<R::Response>, ConnectionError>> + Send + 'static,
{
    let handler = move |call: ApiRequest| -> Result<PendingResponse, ConnectionError> {
        let (version, correlation_id) = (call.context.version, call.correlation_id);
        let answer = handler(decode(call.body, version)?, call.context);
        Ok(Box::pin(async move {
            match answer.await? {
                Some(response) => encode(&response, R::KEY, version, correlation_id),
                None => Ok(Response::Nothing),
            }
        }))
    };
    Api { versions: ApiVersionRange { key: R::KEY, min, max }, handler: Box::new(handler) }
}

/// Fetch: its response is not copied into its frame.
fn fetch_api(min: i16, max: i16) -> Api {
    let handler = move |call: ApiRequest| -> Result<PendingResponse, ConnectionError> {
        let (key, version, correlation_id) = (FetchRequest::KEY, call.context.version, call.correlation_id);
        let answer = fetch::fetch(decode(call.body, version)?, call.context);
        Ok(Box::pin(async move {
            let unwritable = |why: String| ConnectionError::Unwritable { key, version, why };
            let mut parts = answer.await?.encode(version).map_err(unwritable)?;
            let mut start = start::<FetchResponse>(version, correlation_id, 0);
            let length = start.len() - LENGTH_BYTES + parts.size_bytes();
            put_length(&mut start, length).map_err(unwritable)?;
            parts.push_front(start.freeze());
            Ok(Response::Frame(parts))
        }))
    };
    Api { versions: ApiVersionRange { key: FetchRequest::KEY, min, max }, handler: Box::new(handler) }
}

fn decode<R: Request>(body: Bytes, version: i16) -> Result<R, ConnectionError> {
    millstream_kafka_wire::decode(body, version).map_err(|why| ConnectionError::Malformed { key: R::KEY, version, why })
}

/// Wraps a handler that always responds.
async fn ok<T>(answer: impl Future<Output = T>) -> Result<Option<T>, ConnectionError> {
    Ok(Some(answer.await))
}
