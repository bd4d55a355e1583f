//! Certificates for the servers.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

/// The kind of a certificate's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CertificateKind {
    EcdsaP256,
    Rsa2048,
}

impl CertificateKind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::EcdsaP256 => "ECDSA P-256",
            Self::Rsa2048 => "RSA 2048",
        }
    }

    /// The options with which openssl makes such a key.
    fn options(self) -> &'static [&'static str] {
        match self {
            Self::EcdsaP256 => &["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"],
            Self::Rsa2048 => &["-newkey", "rsa:2048"],
        }
    }
}

/// Files of a certificate, its key and, if it has one, its authority.
pub(super) struct CertificateFiles {
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
    pub(super) authority: PathBuf,
}

impl CertificateFiles {
    /// A certificate that is signed with its own key, for servers whose clients do not check it.
    pub(super) fn self_signed(dir: &Path, kind: CertificateKind) -> anyhow::Result<Self> {
        let file = |extension: &str| dir.join(format!("{kind:?}.{extension}"));
        let (certificate, key) = (file("crt"), file("key"));
        let mut command = Command::new("openssl");
        command.args(["req", "-x509", "-nodes", "-days", "2", "-subj", "/CN=localhost"]).args(kind.options());
        run(command.arg("-keyout").arg(&key).arg("-out").arg(&certificate))?;
        Ok(Self { authority: certificate.clone(), certificate, key })
    }

    /// A certificate on P-256 for `localhost` of an authority that clients can trust.
    pub(super) fn of_an_authority(dir: &Path) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("cannot tell where this program lies")?;
        let dir = dir.join("tls");
        run(Command::new(program).args(["tls", "self-signed", "--dir"]).arg(&dir))?;
        let file = |name: &str| dir.join(name);
        Ok(Self { certificate: file("server.crt"), key: file("server.key"), authority: file("ca.crt") })
    }
}

fn run(command: &mut Command) -> anyhow::Result<()> {
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
