//! The callers of Rift's routes: the users of a bucket, who sign their requests, beside those of the listener.

use std::sync::Arc;

use axum::http::HeaderValue;
use millstream_http::{Authenticator, Claim, Identity, Problem, Reach, Reason, Verdict};
use millstream_net::{LoginProtocol, LoginSource, LoginThrottle};
use millstream_types::{AccessScope, ErrorCode, Principal, Role, Roles, TenantId};

use super::signature::{is_signature, signed_text};
use crate::{BucketConfig, Error, RiftUser, Store};

/// Routes of which the second part of the path is a bucket.
const ROUTES: [&str; 5] = ["upload", "get", "download-info", "delete", "list"];
const SCHEME: &str = "riftv1";
const CHALLENGE: HeaderValue = HeaderValue::from_static(SCHEME);

/// Authenticates the callers of a listener that serves Rift's routes.
///
/// A bucket with users of its own (`rift_access`) takes their signatures, and anyone without one if it lists `*`. All
/// else, and every other route, is the listener's own authenticator's. A listener without credentials keeps its checks
/// (this machine only, no pages of other sites) in any case.
pub struct RiftAccess {
    listener: Arc<dyn Authenticator>,
    store: Arc<Store>,
    throttle: Arc<LoginThrottle>,
}

impl std::fmt::Debug for RiftAccess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RiftAccess")
    }
}

impl RiftAccess {
    /// Authenticates by the users of buckets, else by `listener`.
    pub fn over(listener: Arc<dyn Authenticator>, store: Arc<Store>) -> Self {
        Self { listener, store, throttle: Arc::default() }
    }

    /// Limits requests with a wrong signature by `throttle`; without it there is no limit. Right signatures always pass.
    #[must_use]
    pub fn throttled_by(self, throttle: Arc<LoginThrottle>) -> Self {
        Self { throttle, ..self }
    }

    /// The tenant and settings of the bucket that the request is about; `None` if it is another
    /// route or an unknown bucket.
    fn bucket(&self, claim: &Claim<'_>, is_signed: bool) -> Result<Option<(TenantId, Arc<BucketConfig>)>, Problem> {
        let route = claim.path.split('/').nth(1).unwrap_or_default();
        if !ROUTES.contains(&route) {
            return Ok(None);
        }
        let Some(name) = claim.param("bucket")? else { return Ok(None) };
        let tenant = claim.tenant()?.unwrap_or_default();
        match self.store.bucket(&tenant, &name) {
            Ok(bucket) => Ok(Some((tenant, bucket.config()))),
            Err(error @ Error::UnknownBucket { .. }) if is_signed => Err(crate::http::problem(&error)),
            Err(_) => Ok(None),
        }
    }

    /// The user of the bucket; `None` if the listener's own authenticator has to tell.
    fn user(&self, claim: &Claim<'_>, is_open: bool) -> Result<Option<Identity>, Problem> {
        let header = claim.headers.get("authorization").and_then(|value| std::str::from_utf8(value).ok());
        let signature = header.and_then(|value| value.trim().strip_prefix(SCHEME)?.strip_prefix(' '));
        let Some((tenant, config)) = self.bucket(claim, signature.is_some())? else { return Ok(None) };
        let users = &config.rift_access;
        if users.is_empty() {
            return Ok(None);
        }
        if let Some(signature) = signature {
            let (name, hex) = signature.trim().split_once(':').unwrap_or((signature.trim(), ""));
            let user = signed_by(users, name, hex, claim).or_else(|refusal| {
                let source = LoginSource { address: claim.peer.ip(), protocol: LoginProtocol::Http };
                self.throttle.check(source)?;
                self.throttle.fail(source);
                Err(refusal)
            });
            return user.map(|user| Some(identity(user, tenant)));
        }
        if header.is_some() && !is_open {
            return Ok(None);
        }
        let everyone = users.iter().find(|user| user.user == RiftUser::EVERYONE);
        everyone.map(|user| Some(identity(user, tenant))).ok_or_else(|| {
            Problem::unauthenticated(CHALLENGE, "the bucket takes signed requests only")
                .rule("its rift_access lists users, and not '*'")
                .remedy("send 'Authorization: riftv1 USER:HEX', HEX being HMAC-SHA512 by the user's secret")
        })
    }
}

fn signed_by<'a>(users: &'a [RiftUser], name: &str, hex: &str, claim: &Claim<'_>) -> Result<&'a RiftUser, Problem> {
    let user = users.iter().find(|user| user.user == name);
    let is_proven = |user: &&RiftUser| user.is_unsigned() || is_signature(hex, &user.secret, &signed_text(claim));
    user.filter(is_proven).ok_or_else(|| {
        Problem::new(Reason::Code(ErrorCode::Forbidden), "the bucket has no such user, or the signature is wrong")
            .value(name)
            .rule("HEX is HMAC-SHA512 by the user's secret of: method, line feed, path with the query sorted by name, line feed, and each header x-ell-* in lower case, sorted, as NAME:VALUE and a line feed")
            .remedy("check the user's name and secret in the bucket's rift_access")
    })
}

fn identity(user: &RiftUser, tenant: TenantId) -> Identity {
    let mut roles = Roles::NONE.with(Role::Reader);
    if user.may_write() {
        roles = roles.with(Role::Writer);
    }
    if user.may_administer() {
        roles = roles.with(Role::Admin);
    }
    let principal = Principal { tenant, name: user.user.clone(), roles, scope: AccessScope::default() };
    Identity { principal: Arc::new(principal), reach: Reach::OneTenant, revocation: None, expires_ms: None }
}

impl Authenticator for RiftAccess {
    fn authenticate<'a>(&'a self, claim: Claim<'a>) -> Verdict<'a> {
        let is_open = self.listener.open_remedy().is_some();
        let of_listener = is_open.then(|| self.listener.authenticate(claim));
        match of_listener {
            Some(refused @ (Verdict::Now(Err(_)) | Verdict::Later(_))) => return refused,
            Some(Verdict::Now(Ok(_))) | None => {}
        }
        match self.user(&claim, is_open) {
            Ok(Some(user)) => Verdict::Now(Ok(user)),
            Ok(None) => self.listener.authenticate(claim),
            Err(problem) => Verdict::Now(Err(problem)),
        }
    }

    fn open_remedy(&self) -> Option<&'static str> {
        self.listener.open_remedy()
    }
}
