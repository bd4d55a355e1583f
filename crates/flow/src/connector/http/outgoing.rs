//! Rules for outgoing requests: allowed targets, and trust in TLS certificates.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use hyper_util::client::legacy::connect::dns::Name;
use millstream_types::{AllowedTargets, InvalidTarget, RemoteCallers};
use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use tower_service::Service;

use crate::Error;

const ALLOWED: &str = "flow.http_allowed_targets";
const CA_FILE: &str = "flow.http_ca_file";

pub(crate) struct HttpAccess {
    pub(crate) targets: Arc<AllowedTargets>,
    /// The operator has named the allowed targets.
    pub(super) is_limited: bool,
    authorities: Vec<CertificateDer<'static>>,
    /// Built with the first HTTPS target: the system has many authorities.
    tls: OnceLock<Result<ClientConfig, String>>,
}

impl HttpAccess {
    /// # Errors
    /// [`Error::InvalidSetting`] names the setting, its value and the rule.
    pub(crate) fn of(allowed: &[String], ca_file: &str, callers: &RemoteCallers) -> Result<Self, Error> {
        let invalid = |InvalidTarget { value, rule }| Error::InvalidSetting { setting: ALLOWED, value, rule };
        let targets = AllowedTargets::read(ALLOWED, allowed, Arc::clone(callers)).map_err(invalid)?;
        let is_limited = !allowed.is_empty();
        Ok(Self { targets: Arc::new(targets), is_limited, authorities: authorities(ca_file)?, tls: OnceLock::new() })
    }

    /// # Errors
    /// The system has no certificates, or TLS cannot be set up.
    pub(super) fn tls(&self) -> Result<ClientConfig, String> {
        self.tls.get_or_init(|| self.build()).clone()
    }

    /// TLS that trusts nobody, for targets without it.
    pub(super) fn no_tls() -> Result<ClientConfig, String> {
        trusting(RootCertStore::empty())
    }

    fn build(&self) -> Result<ClientConfig, String> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        roots.add_parsable_certificates(self.authorities.iter().cloned());
        if roots.is_empty() {
            return Err(format!("this machine trusts nobody; install ca-certificates, or name a file in {CA_FILE}"));
        }
        trusting(roots)
    }
}

fn trusting(roots: RootCertStore) -> Result<ClientConfig, String> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

fn authorities(file: &str) -> Result<Vec<CertificateDer<'static>>, Error> {
    if file.is_empty() {
        return Ok(Vec::new());
    }
    let invalid = |rule| Error::InvalidSetting { setting: CA_FILE, value: file.to_owned(), rule };
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let named = read.map_err(|_| invalid("it must be a readable file of certificates in PEM form"))?;
    let mut roots = RootCertStore::empty();
    if named.is_empty() || roots.add_parsable_certificates(named.iter().cloned()).1 > 0 {
        return Err(invalid("it must hold certificates in PEM form, and nothing that is none"));
    }
    Ok(named)
}

/// Looks up names, and keeps the allowed addresses.
#[derive(Clone)]
pub(super) struct AllowedResolver(pub(super) Arc<AllowedTargets>);

impl Service<Name> for AllowedResolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let targets = Arc::clone(&self.0);
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let refused = |fault| io::Error::new(io::ErrorKind::PermissionDenied, fault);
            targets.among(name.as_str(), found).map(Vec::into_iter).map_err(refused)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_targets_and_files_of_authorities_are_refused_by_the_name_of_their_setting() {
        let dir = tempfile::tempdir().unwrap();
        let empty = dir.path().join("ca.pem");
        std::fs::write(&empty, "no certificate").unwrap();
        for (targets, file, setting) in [
            (vec!["a b".to_owned()], String::new(), ALLOWED),
            (vec![], empty.display().to_string(), CA_FILE),
            (vec![], dir.path().join("absent.pem").display().to_string(), CA_FILE),
        ] {
            let callers: RemoteCallers = Arc::new(|| true);
            let error = HttpAccess::of(&targets, &file, &callers).err().unwrap();
            assert!(matches!(&error, Error::InvalidSetting { setting: named, .. } if *named == setting), "{error}");
        }
    }

    #[tokio::test]
    async fn a_name_is_used_only_with_its_allowed_addresses() {
        let resolver = |allowed: &str| {
            let targets = AllowedTargets::read(ALLOWED, &[allowed.to_owned()], Arc::new(|| true));
            AllowedResolver(Arc::new(targets.unwrap()))
        };
        let name = || "localhost".parse::<Name>().unwrap();
        assert!(resolver("localhost").call(name()).await.unwrap().next().is_some());
        let refused = resolver("10.0.0.0/8").call(name()).await.unwrap_err();
        assert!(refused.to_string().contains(ALLOWED), "{refused}");
    }
}
