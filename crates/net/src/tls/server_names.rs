//! The certificate for the server name that a client asks for (SNI).

use std::collections::HashMap;
use std::sync::Arc;

use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

/// Certificates by the host names in them, and one for all other names and for clients that name none.
#[derive(Debug)]
pub(super) struct CertificatesByName {
    default: Arc<CertifiedKey>,
    /// Names in lower case; `*.example.org` stands for all names with one more label.
    by_name: HashMap<String, Arc<CertifiedKey>>,
}

impl CertificatesByName {
    pub(super) fn new(default: CertifiedKey) -> Self {
        Self { default: Arc::new(default), by_name: HashMap::new() }
    }

    /// Adds a certificate under the names in it; the first one of a name keeps it. False if it names no host.
    pub(super) fn insert(&mut self, certificate: CertifiedKey) -> bool {
        let certificate = Arc::new(certificate);
        let Some(der) = certificate.cert.first() else { return false };
        let Ok(parsed) = webpki::EndEntityCert::try_from(der) else { return false };
        let mut has_name = false;
        for name in parsed.valid_dns_names() {
            has_name = true;
            self.by_name.entry(name.to_ascii_lowercase()).or_insert_with(|| Arc::clone(&certificate));
        }
        has_name
    }

    /// The certificates, that for all other names first. One with several names comes as often.
    pub(super) fn keys(&self) -> impl Iterator<Item = &CertifiedKey> {
        std::iter::once(&*self.default).chain(self.by_name.values().map(|key| &**key))
    }

    fn of(&self, name: &str) -> &Arc<CertifiedKey> {
        let name = name.to_ascii_lowercase();
        let wildcard = || name.split_once('.').and_then(|(_, rest)| self.by_name.get(&format!("*.{rest}")));
        self.by_name.get(&name).or_else(wildcard).unwrap_or(&self.default)
    }
}

impl ResolvesServerCert for CertificatesByName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(hello.server_name().map_or(&self.default, |name| self.of(name))))
    }
}

#[cfg(test)]
mod tests {
    use rcgen::KeyPair;
    use rustls::crypto::ring;
    use rustls::pki_types::PrivateKeyDer;

    use super::*;

    fn certificate(names: &[&str]) -> CertifiedKey {
        let key = KeyPair::generate().unwrap();
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let params = rcgen::CertificateParams::new(names).unwrap();
        let der = params.self_signed(&key).unwrap().der().clone();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        CertifiedKey::from_der(vec![der], key, &ring::default_provider()).unwrap()
    }

    #[test]
    fn a_name_gets_its_certificate_or_that_of_its_wildcard_or_else_the_default() {
        let mut certificates = CertificatesByName::new(certificate(&["default.example.org"]));
        assert!(certificates.insert(certificate(&["a.example.org", "*.b.example.org"])));
        assert!(certificates.insert(certificate(&["c.example.org", "a.example.org"])));
        assert!(!certificates.insert(certificate(&[])), "no name leads to it");
        let default = Arc::clone(&certificates.default);
        let (first, second) = (certificates.of("a.example.org").clone(), certificates.of("c.example.org").clone());
        let rows = [
            ("A.Example.org", &first),
            ("x.b.example.org", &first),
            ("c.example.org", &second),
            ("b.example.org", &default),
            ("y.x.b.example.org", &default),
            ("elsewhere", &default),
        ];
        assert!(!Arc::ptr_eq(&first, &second) && !Arc::ptr_eq(&first, &default));
        for (name, expected) in rows {
            assert!(Arc::ptr_eq(certificates.of(name), expected), "{name}");
        }
        assert_eq!(certificates.keys().count(), 4);
    }
}
