//! Asks the provider for its description (OpenID Connect Discovery 1.0) and its keys.

use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::header::{ACCEPT, HOST};
use hyper::{Request, StatusCode};
use millstream_cli::{Authorities, exchange};
use serde::Deserialize;
use tokio::net::TcpStream;

use super::config::{DISCOVERY, url_of_provider};
use super::keys::KeySet;

/// Time that one request to the provider may take.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Largest answer of a provider that is read.
const ANSWER_MAX_BYTES: usize = 1 << 20;

/// The URLs at which a browser logs in.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct LoginEndpoints {
    pub(crate) authorization_endpoint: Option<String>,
    pub(crate) token_endpoint: Option<String>,
    pub(crate) end_session_endpoint: Option<String>,
}

#[derive(Deserialize)]
struct Description {
    issuer: String,
    jwks_uri: String,
    #[serde(flatten)]
    endpoints: LoginEndpoints,
}

/// The provider as it describes itself.
#[derive(Debug)]
pub(super) struct Discovered {
    pub(super) endpoints: LoginEndpoints,
    pub(super) keys: KeySet,
}

/// Asks for the description and the keys of the provider at `issuer`.
pub(super) async fn discover(issuer: &str, authorities: &Authorities) -> anyhow::Result<Discovered> {
    let url = format!("{}{DISCOVERY}", issuer.trim_end_matches('/'));
    let description = get(&url, authorities).await?;
    let described: Description =
        serde_json::from_slice(&description).with_context(|| format!("{url} is no description of a provider"))?;
    ensure!(
        described.issuer == issuer,
        "{url} names the issuer {:?}, and oidc.issuer is {issuer:?}; set it to exactly what the provider says",
        described.issuer
    );
    let keys = KeySet::read(&get(&described.jwks_uri, authorities).await?);
    let keys = keys.map_err(anyhow::Error::msg).with_context(|| format!("{} has no keys", described.jwks_uri))?;
    let LoginEndpoints { authorization_endpoint, token_endpoint, end_session_endpoint } = described.endpoints;
    let usable = |url: Option<String>| url.filter(|url| url_of_provider(url).is_ok());
    let endpoints = LoginEndpoints {
        authorization_endpoint: usable(authorization_endpoint),
        token_endpoint: usable(token_endpoint),
        end_session_endpoint: usable(end_session_endpoint),
    };
    Ok(Discovered { endpoints, keys })
}

/// Gets a document. Redirections are not followed.
async fn get(url: &str, authorities: &Authorities) -> anyhow::Result<Bytes> {
    let answer = tokio::time::timeout(REQUEST_TIMEOUT, get_unbounded(url, authorities)).await;
    answer.with_context(|| format!("no answer from {url} within {REQUEST_TIMEOUT:?}"))?
}

async fn get_unbounded(url: &str, authorities: &Authorities) -> anyhow::Result<Bytes> {
    let uri = url_of_provider(url).map_err(|rule| anyhow::anyhow!("the provider names {url:?}: {rule}"))?;
    let (host, is_tls) = (uri.host().unwrap_or_default(), uri.scheme_str() == Some("https"));
    let address = format!("{host}:{}", uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 }));
    let socket = TcpStream::connect(&address).await.with_context(|| format!("cannot connect to {address}"))?;
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let request = Request::get(path).header(HOST, &address).header(ACCEPT, "application/json");
    let request = request.body(Empty::<Bytes>::new())?;
    let answer = match is_tls {
        true => exchange(authorities.connect(socket, host).await?, request).await,
        false => exchange(socket, request).await,
    };
    let answer = answer.with_context(|| format!("{url} was not answered"))?;
    if answer.status() != StatusCode::OK {
        bail!("{url} was answered with status {}", answer.status().as_u16());
    }
    let body = Limited::new(answer.into_body(), ANSWER_MAX_BYTES).collect().await;
    let body = body.map_err(|error| anyhow::anyhow!("{url}: {error}; at most {ANSWER_MAX_BYTES} bytes are read"))?;
    Ok(body.to_bytes())
}
