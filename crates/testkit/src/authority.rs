//! An authority that signs certificates for tests.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair, date_time_ymd,
};

/// An authority that clients may trust.
#[derive(Debug)]
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key, in PEM.
#[derive(Debug)]
pub struct Signed {
    /// The certificate.
    pub certificate: String,
    /// Its private key.
    pub key: String,
}

impl Authority {
    /// An authority of this name, which has signed itself.
    pub fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// An authority below this one.
    pub fn authority(&self, name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::signed_by(params, KeyPair::generate().unwrap(), &self.0).unwrap())
    }

    /// Its certificate, in PEM.
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// A server's certificate for these names.
    pub fn server(&self, names: &[&str]) -> Signed {
        self.sign(names, |params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth])
    }

    /// A certificate of a client with this name.
    pub fn client(&self, name: &str) -> Signed {
        self.sign(&[], |params| {
            params.distinguished_name.push(DnType::CommonName, name);
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        })
    }

    /// A certificate of either kind that has ended in 2001.
    pub fn expired(&self, names: &[&str]) -> Signed {
        self.sign(names, |params| {
            (params.not_before, params.not_after) = (date_time_ymd(2000, 1, 1), date_time_ymd(2001, 1, 1));
        })
    }

    /// A certificate of a client with this name that has ended in 2001.
    pub fn expired_client(&self, name: &str) -> Signed {
        self.sign(&[], |params| {
            params.distinguished_name.push(DnType::CommonName, name);
            (params.not_before, params.not_after) = (date_time_ymd(2000, 1, 1), date_time_ymd(2001, 1, 1));
        })
    }

    fn sign(&self, names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> Signed {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        Signed { certificate: params.signed_by(&key, &self.0).unwrap().pem(), key: key.serialize_pem() }
    }
}

impl Signed {
    /// Writes `NAME.crt` and `NAME.key`, each by a rename, as tools do that renew certificates.
    pub fn write(&self, dir: &Path, name: &str) -> [PathBuf; 2] {
        [("crt", &self.certificate), ("key", &self.key)].map(|(extension, text)| {
            let path = dir.join(format!("{name}.{extension}"));
            let new = dir.join(format!("{name}.{extension}.new"));
            std::fs::write(&new, text).unwrap();
            std::fs::rename(&new, &path).unwrap();
            path
        })
    }
}
