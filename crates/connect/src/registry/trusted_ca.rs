//! The certificate authorities whose clients are a tenant's devices.

use millstream_http::Problem;
use millstream_net::{CertificateFields, TrustAnchor, normalized_name};
use serde::{Deserialize, Serialize};

use super::certificate::{der, read_certificate};
use super::{PublicKey, template};
use crate::timestamp::Timestamp;

/// An entry of a tenant's `trusted-ca`: an authority, or a client's own certificate or key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct TrustedCa {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    subject_dn: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cert: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    public_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    algorithm: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    not_before: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    not_after: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    auth_id_template: Option<String>,
    #[serde(default)]
    auto_provisioning_enabled: bool,
    #[serde(default)]
    auto_provision_as_gateway: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    auto_provisioning_device_id_template: Option<String>,
    #[serde(default)]
    ocsp_revocation_enabled: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    ocsp_responder_uri: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ocsp_responder_cert: Option<String>,
    #[serde(default)]
    ocsp_nonce_enabled: bool,
}

/// An entry of `trusted-ca` as logins use it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Anchor {
    pub(crate) trust: TrustAnchor,
    auth_id_template: Option<String>,
    /// The rules of unknown devices, if they are registered at their first login.
    pub(crate) provisioning: Option<DeviceProvisioning>,
}

/// The registration of devices at their first login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeviceProvisioning {
    pub(crate) is_gateway: bool,
    id_template: Option<String>,
}

impl Anchor {
    /// True if this anchor lets in the same certificates under the same auth-ids.
    pub(crate) fn admits_like(&self, other: &Self) -> bool {
        self.trust == other.trust && self.auth_id_template == other.auth_id_template
    }

    /// The auth-id of a device with this certificate; `None` if the subject lacks what the template names.
    pub(crate) fn auth_id(&self, certificate: &CertificateFields) -> Option<String> {
        match &self.auth_id_template {
            Some(wanted) => template::apply(wanted, certificate),
            None => Some(certificate.subject.clone()),
        }
    }
}

impl DeviceProvisioning {
    /// The id of a new device; `None` if any will do, and an error if the subject lacks what the template names.
    pub(crate) fn device_id(&self, certificate: &CertificateFields) -> Result<Option<String>, ()> {
        let made = |wanted: &String| template::apply(wanted, certificate).ok_or(());
        self.id_template.as_ref().map(made).transpose()
    }
}

impl TrustedCa {
    /// The entry as logins use it; `None` if it cannot be read.
    pub(crate) fn anchor(&self) -> Option<Anchor> {
        let trust = match (&self.cert, &self.public_key) {
            (Some(cert), _) => TrustAnchor::of_certificate(&der(cert)?)?,
            (None, Some(key)) => {
                let seconds = |moment: Option<Timestamp>| moment.map(|moment| moment.0.div_euclid(1_000));
                let (from_s, until_s) = (seconds(self.not_before)?, seconds(self.not_after)?);
                let subject = normalized_name(self.subject_dn.as_ref()?).ok()?;
                TrustAnchor::of_key(subject, PublicKey::read(key)?.der().to_vec(), from_s, until_s)
            }
            (None, None) => return None,
        };
        let provisioning = self.auto_provisioning_enabled.then(|| DeviceProvisioning {
            is_gateway: self.auto_provision_as_gateway,
            id_template: self.auto_provisioning_device_id_template.clone(),
        });
        Some(Anchor { trust, auth_id_template: self.auth_id_template.clone(), provisioning })
    }

    /// The subject of the authority, in the form that names are compared in.
    pub(super) fn subject(&self) -> Option<String> {
        match &self.cert {
            Some(cert) => read_certificate(cert).map(|fields| fields.subject),
            None => self.subject_dn.as_ref().and_then(|name| normalized_name(name).ok()),
        }
    }

    /// Refuses an invalid certificate authority.
    pub(crate) fn check(&self) -> Result<(), Problem> {
        let refuse = |value: &str, rule: &str| {
            let shown: String = value.chars().take(64).collect();
            Err(Problem::invalid("an entry of trusted-ca is no certificate authority")
                .value(shown)
                .rule(rule.to_owned())
                .remedy("send {\"cert\": \"...\"} with the authority's certificate as base64 of its DER, or as PEM"))
        };
        let fields = self.cert.as_deref().map(read_certificate);
        if let (Some(cert), Some(None)) = (&self.cert, &fields) {
            return refuse(cert, "cert is an X.509 certificate");
        }
        let key = self.public_key.as_deref().map(PublicKey::read);
        if let (Some(text), Some(None)) = (&self.public_key, &key) {
            return refuse(
                text,
                "public-key is base64 of the DER of a public key (SubjectPublicKeyInfo) of RSA, P-256, P-384 or P-521",
            );
        }
        let key_of_cert = fields.iter().flatten().filter_map(|fields| PublicKey::of_der(fields.public_key.clone()));
        if key_of_cert.chain(key.iter().flatten().cloned()).any(|key| key.is_too_short()) {
            return refuse("a short key of RSA", "the key of an authority of RSA has 2048 bits or more");
        }
        if let Some(algorithm) = self.algorithm.as_deref().filter(|name| !matches!(*name, "RSA" | "EC")) {
            return refuse(algorithm, "algorithm is RSA or EC");
        }
        if let (Some(algorithm), Some(Some(key))) = (&self.algorithm, &key)
            && algorithm != key.algorithm()
        {
            return refuse(algorithm, "algorithm is that of public-key");
        }
        let name = self.subject_dn.as_deref().map(normalized_name).transpose();
        let name = name.or_else(|error| {
            let rule = error.to_string();
            refuse(self.subject_dn.as_deref().unwrap_or_default(), &rule).map(|()| None)
        })?;
        if let (Some(name), Some(Some(fields))) = (&name, &fields)
            && *name != fields.subject
        {
            return refuse(name, "subject-dn is the subject of cert");
        }
        let has_key = self.public_key.is_some() && self.not_before.is_some() && self.not_after.is_some();
        if self.cert.is_none() && !(self.subject_dn.is_some() && has_key) {
            let rule = "an entry has cert, or subject-dn, public-key, not-before and not-after";
            return refuse(self.subject_dn.as_deref().unwrap_or("no cert"), rule);
        }
        self.check_templates()?;
        self.check_revocation()
    }

    fn check_templates(&self) -> Result<(), Problem> {
        let named = [
            ("auth-id-template", &self.auth_id_template),
            ("auto-provisioning-device-id-template", &self.auto_provisioning_device_id_template),
        ];
        for (name, text) in named {
            if let Some(wrong) = text.as_deref().filter(|text| !template::is_template(text)) {
                return Err(Problem::invalid(format!("{name} of an entry of trusted-ca cannot be this"))
                    .value(wrong)
                    .rule(template::RULE)
                    .remedy("write for example {{subject-cn}}, or leave it out"));
            }
        }
        if self.auto_provision_as_gateway && !self.auto_provisioning_enabled {
            return Err(Problem::invalid("an entry of trusted-ca registers gateways without registering devices")
                .value("auto-provision-as-gateway = true")
                .rule("auto-provision-as-gateway goes with auto-provisioning-enabled = true")
                .remedy("set auto-provisioning-enabled, too, or leave both out"));
        }
        Ok(())
    }

    /// Refuses what would not be obeyed.
    fn check_revocation(&self) -> Result<(), Problem> {
        let given = [
            (self.ocsp_revocation_enabled, "ocsp-revocation-enabled"),
            (self.ocsp_nonce_enabled, "ocsp-nonce-enabled"),
            (self.ocsp_responder_uri.is_some(), "ocsp-responder-uri"),
            (self.ocsp_responder_cert.is_some(), "ocsp-responder-cert"),
        ];
        match given.into_iter().find(|(is_given, _)| *is_given) {
            Some((_, name)) => Err(Problem::invalid("no responder is asked whether a certificate is revoked")
                .value(name)
                .rule("OCSP is not supported; a setting that would not be obeyed is refused")
                .remedy("leave the ocsp members out; disable the credential of a device, or remove the authority")),
            None => Ok(()),
        }
    }
}
