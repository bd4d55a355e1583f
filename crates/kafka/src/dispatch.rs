//! Which requests are served, in which versions, and by whom: one table.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use kafka_protocol::messages::{ApiKey, FetchRequest, FetchResponse, RequestHeader};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Request};

use crate::caller::{Caller, Connection};
use crate::error::Fault;
use crate::parts::{Part, Parts};
use crate::{
    api_versions, cluster, configs, create_topics, delete_records, delete_topics, describe_producers, fetch,
    list_offsets, log_dirs, login, metadata, probe, produce, transaction,
};

/// The field at the start of a frame that says how long the rest of it is.
const LENGTH_BYTES: usize = 4;

/// What goes to the client.
pub(crate) enum Answer {
    /// One whole frame.
    Frame(Parts),
    /// Nothing: the client has asked for no answer.
    Nothing,
}

/// A request that was begun.
pub(crate) type Pending = Pin<Box<dyn Future<Output = Result<Answer, Fault>> + Send>>;
type Handler = Box<dyn Fn(Call) -> Result<Pending, Fault> + Send + Sync>;

/// A request whose header was read.
struct Call {
    caller: Caller,
    correlation_id: i32,
    body: Bytes,
}

/// One kind of request.
pub(crate) struct Row {
    pub(crate) key: i16,
    pub(crate) min: i16,
    pub(crate) max: i16,
    handler: Handler,
}

/// What is served to a client that has not logged in.
const BEFORE_LOGIN: [i16; 3] =
    [ApiKey::ApiVersions as i16, ApiKey::SaslHandshake as i16, ApiKey::SaslAuthenticate as i16];

/// All kinds of requests that are served.
pub(crate) struct Table(Vec<Row>);

impl Table {
    pub(crate) fn new() -> Self {
        Self(vec![
            row(0, 1, |request, caller| {
                let answer = login::handshake(&request, &caller);
                ok(async move { answer })
            }),
            row(0, 2, |request, caller| {
                let answer = login::authenticate(&request, &caller);
                ok(async move { answer })
            }),
            row(3, 11, produce::produce),
            fetch_row(4, 12),
            row(1, 10, |request, caller| ok(list_offsets::list_offsets(request, caller))),
            row(0, 12, |request, caller| ok(metadata::metadata(request, caller))),
            row(0, 4, |request, caller| ok(api_versions::api_versions(request, caller))),
            row(2, 7, |request, caller| ok(create_topics::create_topics(request, caller))),
            row(1, 6, |request, caller| ok(delete_topics::delete_topics(request, caller))),
            row(0, 3, |request, caller| ok(create_topics::create_partitions(request, caller))),
            row(0, 2, |request, caller| ok(delete_records::delete_records(request, caller))),
            row(1, 4, |request, caller| ok(configs::describe_configs(request, caller))),
            row(0, 1, |request, caller| ok(configs::incremental_alter_configs(request, caller))),
            row(0, 2, |request, caller| ok(configs::alter_configs(request, caller))),
            row(0, 1, |request, caller| ok(cluster::describe_cluster(request, caller))),
            row(0, 4, |request, caller| ok(cluster::find_coordinator(request, caller))),
            row(0, 9, |request, caller: Caller| {
                ok(async move { caller.groups().join_group(request, caller.version, &caller.member()).await })
            }),
            row(0, 5, |request, caller: Caller| {
                ok(async move { caller.groups().sync_group(request, &caller.member()).await })
            }),
            row(0, 4, |request, caller: Caller| {
                ok(async move { caller.groups().heartbeat(request, &caller.member()).await })
            }),
            row(0, 5, |request, caller: Caller| {
                ok(async move { caller.groups().leave_group(request, caller.version, &caller.member()).await })
            }),
            row(2, 9, |request, caller: Caller| {
                ok(async move { caller.groups().offset_commit(request, &caller.member()).await })
            }),
            row(1, 8, |request, caller: Caller| {
                ok(async move {
                    let pending = |group: &str| caller.node.transactions.pending_positions(group);
                    caller.groups().offset_fetch(request, caller.version, &caller.member(), &pending).await
                })
            }),
            row(0, 0, |request, caller: Caller| {
                ok(async move { caller.groups().offset_delete(request, &caller.member()).await })
            }),
            row(0, 5, |request, caller: Caller| {
                ok(async move { caller.groups().list_groups(request, caller.version, &caller.member()).await })
            }),
            row(0, 6, |request, caller: Caller| {
                ok(async move { caller.groups().describe_groups(request, caller.version, &caller.member()).await })
            }),
            row(0, 2, |request, caller: Caller| {
                ok(async move { caller.groups().delete_groups(request, &caller.member()).await })
            }),
            row(0, 4, |request, caller| ok(transaction::init_producer_id(request, caller))),
            row(0, 3, |request, caller| ok(transaction::add_partitions(request, caller))),
            row(0, 3, |request, caller| ok(transaction::add_offsets(request, caller))),
            row(0, 3, |request, caller| ok(transaction::commit_offsets(request, caller))),
            row(0, 3, |request, caller| ok(transaction::end(request, caller))),
            row(0, 1, |request, caller| ok(transaction::list(request, caller))),
            row(0, 0, |request, caller| ok(transaction::describe(request, caller))),
            row(0, 0, |request, caller| ok(describe_producers::describe_producers(request, caller))),
            row(1, 4, |request, caller| ok(log_dirs::describe_log_dirs(request, caller))),
        ])
    }

    pub(crate) fn rows(&self) -> &[Row] {
        &self.0
    }

    fn row(&self, key: i16, version: i16) -> Option<&Row> {
        self.0.iter().find(|row| row.key == key && (row.min..=row.max).contains(&version))
    }
}

/// Begins the request in `frame`. What must happen in the order of arrival has happened when this returns.
pub(crate) fn begin(connection: &Arc<Connection>, frame: Bytes) -> Result<Pending, Fault> {
    let (principal, node) = connection.session();
    let mut start = frame.clone();
    let (key, version, correlation_id) = match (start.try_get_i16(), start.try_get_i16(), start.try_get_i32()) {
        (Ok(key), Ok(version), Ok(correlation_id)) => (key, version, correlation_id),
        _ => return Err(Fault::Undersized { size_bytes: frame.len() as i64 }),
    };
    let Some(row) = node.table.row(key, version) else {
        if key == ApiKey::ApiVersions as i16 {
            let response = api_versions::unsupported(&node);
            return Ok(Box::pin(async move { encode(&response, key, 0, correlation_id) }));
        }
        return Err(Fault::Unsupported { key, version });
    };
    if principal.is_none() && !BEFORE_LOGIN.contains(&row.key) {
        return Err(Fault::NotLoggedIn { key });
    }
    let malformed = |why: String| Fault::Malformed { key, version, why };
    let mut body = frame;
    let header_version = ApiKey::try_from(key).map_or(1, |api| api.request_header_version(version));
    let header = RequestHeader::decode(&mut body, header_version).map_err(|e| malformed(e.to_string()))?;
    let caller = Caller {
        node: Arc::clone(&node),
        connection: Arc::clone(connection),
        principal,
        client_id: header.client_id.unwrap_or_default(),
        version,
    };
    (row.handler)(Call { caller, correlation_id, body })
}

/// A kind of request. What `handler` does before it returns its future happens in the order of arrival; its future is
/// run when all earlier requests of the connection are answered, and `None` answers nothing.
fn row<R, F, A>(min: i16, max: i16, handler: F) -> Row
where
    R: Request,
    R::Response: Send,
    F: Fn(R, Caller) -> A + Send + Sync + 'static,
    A: Future<Output = Result<Option<R::Response>, Fault>> + Send + 'static,
{
    let handler = move |call: Call| -> Result<Pending, Fault> {
        let (version, correlation_id) = (call.caller.version, call.correlation_id);
        let answer = handler(decode(call.body, version)?, call.caller);
        Ok(Box::pin(async move {
            match answer.await? {
                Some(response) => encode(&response, R::KEY, version, correlation_id),
                None => Ok(Answer::Nothing),
            }
        }))
    };
    Row { key: R::KEY, min, max, handler: Box::new(handler) }
}

/// Fetch, whose answer is not copied into its frame.
fn fetch_row(min: i16, max: i16) -> Row {
    let handler = move |call: Call| -> Result<Pending, Fault> {
        let (key, version, correlation_id) = (FetchRequest::KEY, call.caller.version, call.correlation_id);
        let answer = fetch::fetch(decode(call.body, version)?, call.caller);
        Ok(Box::pin(async move {
            let unwritable = |why: String| Fault::Unwritable { key, version, why };
            let mut parts = answer.await?.encode(version).map_err(unwritable)?;
            let mut start = start::<FetchResponse>(version, correlation_id, 0);
            let length = start.len() - LENGTH_BYTES + parts.size_bytes();
            put_length(&mut start, length).map_err(unwritable)?;
            parts.push_front(start.freeze());
            Ok(Answer::Frame(parts))
        }))
    };
    Row { key: FetchRequest::KEY, min, max, handler: Box::new(handler) }
}

fn decode<R: Request>(body: Bytes, version: i16) -> Result<R, Fault> {
    probe::decode(body, version).map_err(|why| Fault::Malformed { key: R::KEY, version, why })
}

/// For handlers that always answer.
async fn ok<T>(answer: impl Future<Output = T>) -> Result<Option<T>, Fault> {
    Ok(Some(answer.await))
}

/// One frame that carries `response`.
fn encode<T: Encodable + HeaderVersion>(response: &T, key: i16, version: i16, id: i32) -> Result<Answer, Fault> {
    let unwritable = |why: String| Fault::Unwritable { key, version, why };
    let size = response.compute_size(version).map_err(|e| unwritable(e.to_string()))?;
    let mut frame = start::<T>(version, id, size);
    response.encode(&mut frame, version).map_err(|e| unwritable(e.to_string()))?;
    let length = frame.len() - LENGTH_BYTES;
    put_length(&mut frame, length).map_err(unwritable)?;
    let mut parts = Parts::default();
    parts.push(Part::Bytes(frame.freeze()));
    Ok(Answer::Frame(parts))
}

/// What stands in a frame before the answer itself, with room for as many bytes as that takes. The length is to be set.
fn start<T: HeaderVersion>(version: i16, id: i32, size: usize) -> BytesMut {
    let mut frame = BytesMut::with_capacity(size + 16);
    frame.put_i32(0);
    frame.put_i32(id);
    if T::header_version(version) > 0 {
        // No tagged fields.
        frame.put_u8(0);
    }
    frame
}

fn put_length(frame: &mut [u8], length: usize) -> Result<(), String> {
    let length = i32::try_from(length).map_err(|e| e.to_string())?;
    frame[..LENGTH_BYTES].copy_from_slice(&length.to_be_bytes());
    Ok(())
}
