//! Logins by client certificate: the tenant whose authority has signed it, and the device with its subject.
//!
//! The tenant is the one that trusts an issuer in the chain. If several do, the first label of the server name that the
//! client has asked for (SNI) says which: a tenant's id or alias. It also names the tenant if no issuer leads to one.

use std::sync::Arc;

use millstream_http::Problem;
use millstream_net::{CertificateFields, ClientCertificate, Untrusted};
use millstream_types::{LoginSource, TenantId, iso_time};

use super::refusal::LoginRefusal;
use super::{LoginParts, NewLogin};
use crate::credential_cache::CachedLogin;
use crate::provisioning::NewDevice;
use crate::registry::{Anchor, CredentialType};

/// The result of a look at a certificate.
pub(super) enum CertificateVerdict {
    LoggedIn(Arc<CachedLogin>),
    /// No tenant's authority vouches for it: the client may show a password or token instead.
    NotTrusted(LoginRefusal),
    Refused(LoginRefusal),
    /// Too many logins from the client's address have failed.
    Throttled(Problem),
    /// The device is unknown, and its authority wants it to be registered.
    Unknown(NewDevice),
}

/// A certificate that an anchor of a tenant makes count.
struct TrustedCertificate {
    tenant: TenantId,
    anchor: Anchor,
    ends_ms: i64,
}

impl LoginParts {
    /// True if an authority of a tenant makes a certificate count at `now_s`.
    pub(super) fn trusts(&self, certificate: &ClientCertificate, now_s: i64) -> bool {
        self.trusted(certificate, now_s).is_ok()
    }

    /// Logs in the device that has shown this certificate.
    pub(super) fn by_certificate(&self, certificate: &ClientCertificate, source: LoginSource) -> CertificateVerdict {
        let name = certificate.server_name().unwrap_or_default();
        let chain = certificate.chain().iter().map(|certificate| &**certificate);
        let head = [b"x509\0", name.as_bytes(), b"\0"];
        let fingerprint = self.credential_cache.fingerprint_of(head.into_iter().chain(chain));
        if let Some(verified) = self.remembered(&fingerprint) {
            return CertificateVerdict::LoggedIn(verified);
        }
        if let Err(throttled) = self.throttle.check(source) {
            return CertificateVerdict::Throttled(throttled.into());
        }
        let trusted = match self.trusted(certificate, self.wall.now_ms().div_euclid(1_000)) {
            Ok(trusted) => trusted,
            Err(refusal) => return CertificateVerdict::NotTrusted(refusal),
        };
        let TrustedCertificate { tenant, anchor, ends_ms } = trusted;
        let refuse = |reason, detail: &str, value: String, rule| {
            CertificateVerdict::Refused(LoginRefusal {
                tenant: Some(tenant.clone()),
                reason,
                detail: detail.to_owned(),
                value,
                rule,
                remedy: "check the device's credentials in the registry, or the certificate that it shows",
            })
        };
        let Some(auth_id) = anchor.auth_id(certificate.fields()) else {
            let rule = "auth-id-template of the tenant's trusted-ca names attributes that the subject has";
            return refuse(
                "certificate-subject",
                "the certificate has no auth-id",
                certificate.subject().to_owned(),
                rule,
            );
        };
        let snapshot = self.registry.snapshot(&tenant);
        let known = snapshot.state.tenant(&tenant);
        let login = known.and_then(|known| known.login(CredentialType::Certificate, &auth_id));
        let Some(login) = login else {
            if let Some(provisioning) = anchor.provisioning.clone() {
                let certificate = certificate.fields().clone();
                return CertificateVerdict::Unknown(NewDevice { tenant, auth_id, provisioning, certificate });
            }
            let rule = "a device of the tenant has a credential of type x509-cert with this auth-id";
            return refuse("certificate-unknown", "no device logs in with this certificate", auth_id, rule);
        };
        let now_ms = self.wall.now_ms();
        let secret = login.credential.secrets.iter().position(|secret| secret.is_valid_at(now_ms));
        let Some(secret) = secret.filter(|_| login.credential.enabled) else {
            let rule = "the credential and its secret are enabled, and valid now";
            return refuse("certificate-disabled", "the device's credential does not count now", auth_id, rule);
        };
        let found = NewLogin { login: login.clone(), secret, anchor: Some(anchor.clone()), proof_ends_ms: ends_ms };
        match self.enter(&tenant, found, fingerprint) {
            Some(verified) => CertificateVerdict::LoggedIn(verified),
            None => {
                let rule = "the device's credentials stay the same while it logs in";
                refuse("certificate-disabled", "the device's credential has just been changed", auth_id, rule)
            }
        }
    }

    fn trusted(&self, certificate: &ClientCertificate, now_s: i64) -> Result<TrustedCertificate, LoginRefusal> {
        let tenant = self.tenant_of_certificate(certificate)?;
        let snapshot = self.registry.snapshot(&tenant);
        let anchors = snapshot.state.tenant(&tenant).map(|known| &*known.anchors).unwrap_or_default();
        let mut reason = None;
        for anchor in anchors {
            match anchor.trust.check(certificate, now_s) {
                Ok(until_s) => {
                    let ends_ms = until_s.saturating_mul(1_000).saturating_add(999);
                    return Ok(TrustedCertificate { anchor: anchor.clone(), ends_ms, tenant });
                }
                // Of several, a date says more than that another authority has signed it.
                Err(found) => match &reason {
                    Some(Untrusted::OutOfDate { .. } | Untrusted::AnchorOutOfDate { .. }) => {}
                    _ => reason = Some(found),
                },
            }
        }
        let range = |from_s: i64, until_s: i64| {
            let [from, until] = [from_s, until_s].map(|at| iso_time(at.saturating_mul(1_000)));
            format!("{from} to {until}")
        };
        let subject = certificate.subject();
        let (reason, detail, rule) = match reason {
            None => (
                "certificate-no-anchor",
                "the tenant trusts no authority".to_owned(),
                "trusted-ca of the tenant has the authority that signs its devices' certificates",
            ),
            Some(Untrusted::OutOfDate { from_s, until_s }) => (
                "certificate-expired",
                format!("the certificate is valid from {}", range(from_s, until_s)),
                "a certificate is valid when its device logs in",
            ),
            Some(Untrusted::AnchorOutOfDate { from_s, until_s }) => (
                "certificate-anchor-expired",
                format!("the authority of the certificate is valid from {}", range(from_s, until_s)),
                "an entry of trusted-ca is valid when a device logs in",
            ),
            Some(refusal @ Untrusted::NotSigned(_)) => (
                "certificate-not-signed",
                refusal.to_string(),
                "an authority in trusted-ca of the tenant has signed the certificate, for a client",
            ),
        };
        let remedy =
            "use a certificate that the tenant's authority has signed and that is valid, or correct trusted-ca";
        Err(LoginRefusal { tenant: Some(tenant), reason, detail, value: subject.to_owned(), rule, remedy })
    }

    fn tenant_of_certificate(&self, certificate: &ClientCertificate) -> Result<TenantId, LoginRefusal> {
        let fields = certificate.chain().iter().filter_map(|certificate| CertificateFields::read(certificate));
        let issuers: Vec<String> = fields.map(|fields| fields.issuer).collect();
        // A client's own certificate may be its anchor.
        let mut subjects: Vec<&str> = issuers.iter().map(String::as_str).collect();
        subjects.push(certificate.subject());
        let mut candidates = self.registry.trusting(&subjects);
        let label = certificate.server_name().and_then(|name| name.split_once('.')).map(|(label, _)| label);
        let named = label.and_then(|label| self.registry.called(label));
        if candidates.len() == 1 {
            return Ok(candidates.swap_remove(0));
        }
        let refuse = |reason, detail: &str, rule| LoginRefusal {
            tenant: None,
            reason,
            detail: detail.to_owned(),
            value: format!(
                "issuer {}, server name {}",
                certificate.issuer(),
                certificate.server_name().unwrap_or("none")
            ),
            rule,
            remedy: "add the authority to trusted-ca of the tenant, or connect to TENANT.HOST, by the tenant's id or alias",
        };
        match named {
            Some(tenant) if candidates.is_empty() || candidates.contains(&tenant) => Ok(tenant),
            _ if candidates.is_empty() => Err(refuse(
                "certificate-no-tenant",
                "no tenant trusts the authority of this certificate",
                "a tenant's trusted-ca has the issuer, or the first label of the server name is a tenant",
            )),
            _ => Err(refuse(
                "certificate-ambiguous",
                "several tenants trust the authority of this certificate",
                "of the tenants in a trust-anchor-group, the first label of the server name says which",
            )),
        }
    }
}
