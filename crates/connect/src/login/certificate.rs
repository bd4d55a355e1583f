//! Logins by client certificate: the tenant whose authority has signed it, and the device with its subject.
//!
//! The tenant is the one that trusts the nearest issuer in the chain. If several do, the first label of the server name that
//! the client has asked for (SNI) says which: a tenant's id or alias. It also names the tenant if no issuer leads to one.

use std::sync::Arc;

use millstream_net::{ClientCertificate, Untrusted};
use millstream_types::{TenantId, iso_time};

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
    pub(super) fn by_certificate(&self, certificate: &ClientCertificate) -> CertificateVerdict {
        let name = certificate.server_name().unwrap_or_default();
        let chain = certificate.chain().iter().map(|certificate| &**certificate);
        let head = [b"x509\0", name.as_bytes(), b"\0"];
        let fingerprint = self.credential_cache.fingerprint_of(head.into_iter().chain(chain));
        if let Some(verified) = self.remembered(&fingerprint) {
            return CertificateVerdict::LoggedIn(verified);
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

    /// The tenant and the anchor that make the certificate count: those of the nearest issuer on the way to a root, so that
    /// a tenant that trusts a root has no part in what another one trusts below it.
    fn trusted(&self, certificate: &ClientCertificate, now_s: i64) -> Result<TrustedCertificate, LoginRefusal> {
        let mut failed: Option<(TenantId, Untrusted)> = None;
        for names in certificate.names_upwards() {
            let mut vouching: Vec<TrustedCertificate> = Vec::new();
            for tenant in self.registry.trusting(&names) {
                match self.check_anchors(&tenant, Some(&names), certificate, now_s) {
                    Ok(trusted) => vouching.push(trusted),
                    Err(Some(found)) if says_more(&found, failed.as_ref().map(|(_, known)| known)) => {
                        failed = Some((tenant, found));
                    }
                    Err(_) => {}
                }
            }
            match vouching.len() {
                0 => {}
                1 => return Ok(vouching.swap_remove(0)),
                _ => {
                    let named = self.named_tenant(certificate);
                    let chosen = vouching.into_iter().find(|trusted| Some(&trusted.tenant) == named.as_ref());
                    return chosen.ok_or_else(|| is_ambiguous(certificate));
                }
            }
        }
        match (failed, self.named_tenant(certificate)) {
            (Some((tenant, found)), _) => Err(not_trusted(tenant, Some(found), certificate)),
            (None, Some(tenant)) => {
                let found = self.check_anchors(&tenant, None, certificate, now_s).err().flatten();
                Err(not_trusted(tenant, found, certificate))
            }
            (None, None) => Err(is_unknown(certificate)),
        }
    }

    /// Checks the certificate against the anchors of a tenant that have one of these names, or against all. The error
    /// says the most of those of its anchors; `None` if there is none.
    fn check_anchors(
        &self,
        tenant: &TenantId,
        names: Option<&[String]>,
        certificate: &ClientCertificate,
        now_s: i64,
    ) -> Result<TrustedCertificate, Option<Untrusted>> {
        let snapshot = self.registry.snapshot(tenant);
        let anchors = snapshot.state.tenant(tenant).map(|known| &*known.anchors).unwrap_or_default();
        let is_named =
            |anchor: &&Anchor| names.is_none_or(|names| names.iter().any(|name| *name == anchor.trust.subject()));
        let mut failed = None;
        for anchor in anchors.iter().filter(is_named) {
            match anchor.trust.check(certificate, now_s) {
                Ok(until_s) => {
                    let ends_ms = until_s.saturating_mul(1_000).saturating_add(999);
                    return Ok(TrustedCertificate { tenant: tenant.clone(), anchor: anchor.clone(), ends_ms });
                }
                Err(found) if says_more(&found, failed.as_ref()) => failed = Some(found),
                Err(_) => {}
            }
        }
        Err(failed)
    }

    /// The tenant in the first label of the server name.
    fn named_tenant(&self, certificate: &ClientCertificate) -> Option<TenantId> {
        let (label, _) = certificate.server_name()?.split_once('.')?;
        self.registry.called(label)
    }
}

/// A date says more than that another authority has signed the certificate.
fn says_more(found: &Untrusted, known: Option<&Untrusted>) -> bool {
    match known {
        None => true,
        Some(Untrusted::NotSigned(_)) => !matches!(found, Untrusted::NotSigned(_)),
        Some(Untrusted::OutOfDate { .. } | Untrusted::AnchorOutOfDate { .. }) => false,
    }
}

/// The refusal of a certificate that the tenant's anchors do not make count; `None` if it has no anchor.
fn not_trusted(tenant: TenantId, found: Option<Untrusted>, certificate: &ClientCertificate) -> LoginRefusal {
    let range = |from_s: i64, until_s: i64| {
        let [from, until] = [from_s, until_s].map(|at| iso_time(at.saturating_mul(1_000)));
        format!("{from} to {until}")
    };
    let (reason, detail, rule) = match found {
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
    let remedy = "use a certificate that the tenant's authority has signed and that is valid, or correct trusted-ca";
    let value = certificate.subject().to_owned();
    LoginRefusal { tenant: Some(tenant), reason, detail, value, rule, remedy }
}

fn is_ambiguous(certificate: &ClientCertificate) -> LoginRefusal {
    of_no_tenant(
        certificate,
        "certificate-ambiguous",
        "several tenants trust the authority of this certificate",
        "of the tenants in a trust-anchor-group, the first label of the server name says which",
    )
}

fn is_unknown(certificate: &ClientCertificate) -> LoginRefusal {
    of_no_tenant(
        certificate,
        "certificate-no-tenant",
        "no tenant trusts the authority of this certificate",
        "a tenant's trusted-ca has the issuer, or the first label of the server name is a tenant",
    )
}

fn of_no_tenant(
    certificate: &ClientCertificate,
    reason: &'static str,
    detail: &str,
    rule: &'static str,
) -> LoginRefusal {
    let server_name = certificate.server_name().unwrap_or("none");
    LoginRefusal {
        tenant: None,
        reason,
        detail: detail.to_owned(),
        value: format!("issuer {}, server name {server_name}", certificate.issuer()),
        rule,
        remedy: "add the authority to trusted-ca of the tenant, or connect to TENANT.HOST, by the tenant's id or alias",
    }
}
