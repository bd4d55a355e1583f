//! `millstream tls self-signed`: an authority of one's own and certificates that it has signed, for a try of TLS.
//!
//! The authority's key is never written: nobody can sign anything more with it.

use std::fs::{DirBuilder, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use millstream_types::{SystemClock, WallClock as _, iso_time};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};

/// Certificates end after this time, and begin an hour ago: the clocks of clients differ.
const VALID: Duration = Duration::from_secs(365 * 24 * 3_600);
const CLOCK_SKEW: Duration = Duration::from_secs(3_600);

#[derive(Debug, clap::Subcommand)]
pub(crate) enum TlsCommand {
    /// Write an authority (ca.crt), and a certificate (server.crt) and key (server.key) that it has signed
    SelfSigned(SelfSignedArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct SelfSignedArgs {
    /// Directory to which the files are written
    #[arg(long, default_value = "tls", value_name = "DIR")]
    dir: PathBuf,
    /// Host name or IP address under which clients reach the server; may be repeated [default: localhost, 127.0.0.1, ::1]
    #[arg(long = "name", value_name = "HOST")]
    names: Vec<String>,
    /// Write NAME.crt and NAME.key for a client, too; may be repeated
    #[arg(long = "client", value_name = "NAME")]
    clients: Vec<String>,
}

pub(crate) fn run(command: &TlsCommand) -> anyhow::Result<()> {
    let TlsCommand::SelfSigned(arguments) = command;
    let files = arguments.files(SystemClock::default().now_ms())?;
    let dir = &arguments.dir;
    for (name, ..) in &files {
        ensure!(
            !dir.join(name).exists(),
            "{} is there already; name another directory with --dir",
            dir.join(name).display()
        );
    }
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .with_context(|| format!("cannot make {}", dir.display()))?;
    for (name, text, mode) in &files {
        write(&dir.join(name), text, *mode)?;
        println!("wrote {}", dir.join(name).display());
    }
    let (dir, host) = (dir.display(), arguments.server_names().swap_remove(0));
    println!(
        "\nStart with it, and ask over TLS:\n\n  millstream serve --listen-applications-tls 127.0.0.1:8443 \
         --tls-certificate {dir}/server.crt --tls-key {dir}/server.key\n  curl --cacert {dir}/ca.crt https://{host}:8443/healthz"
    );
    Ok(())
}

/// A file's name, text and mode.
type NewFile = (String, String, u32);

impl SelfSignedArgs {
    fn server_names(&self) -> Vec<String> {
        match self.names.as_slice() {
            [] => ["localhost", "127.0.0.1", "::1"].map(str::to_owned).to_vec(),
            names => names.to_vec(),
        }
    }

    /// The files to be written, with certificates that are valid from now on.
    fn files(&self, now_ms: i64) -> anyhow::Result<Vec<NewFile>> {
        let names = self.server_names();
        let mut authority = params(&format!("Millstream try {}", iso_time(now_ms)), vec![], now_ms)?;
        authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;
        let mut files = vec![("ca.crt".to_owned(), authority.pem(), 0o644)];
        let subject = names.first().cloned().unwrap_or_default();
        let server = (params(&subject, names, now_ms)?, ExtendedKeyUsagePurpose::ServerAuth);
        let mut wanted = vec![("server", server)];
        for client in &self.clients {
            let is_file_name = !client.starts_with('.') && !client.contains(['/', '\0']);
            if client.is_empty() || !is_file_name || client == "server" || client == "ca" {
                bail!(
                    "--client {client}: use a name that can be a file's, other than server and ca, such as thermometer-7"
                );
            }
            wanted.push((client, (params(client, vec![], now_ms)?, ExtendedKeyUsagePurpose::ClientAuth)));
        }
        for (name, (mut params, usage)) in wanted {
            params.extended_key_usages = vec![usage];
            params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
            params.use_authority_key_identifier_extension = true;
            let key = KeyPair::generate()?;
            let certificate = params.signed_by(&key, &authority)?;
            files.push((format!("{name}.crt"), certificate.pem(), 0o644));
            files.push((format!("{name}.key"), key.serialize_pem(), 0o600));
        }
        Ok(files)
    }
}

fn params(subject: &str, names: Vec<String>, now_ms: i64) -> anyhow::Result<CertificateParams> {
    let mut params = CertificateParams::new(names).context("--name: use host names and IP addresses")?;
    params.distinguished_name.push(DnType::CommonName, subject);
    let now = date_time_ymd(1970, 1, 1) + Duration::from_millis(u64::try_from(now_ms)?);
    (params.not_before, params.not_after) = (now - CLOCK_SKEW, now + VALID);
    Ok(params)
}

fn write(path: &Path, text: &str, mode: u32) -> anyhow::Result<()> {
    let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes()))
        .with_context(|| format!("cannot write {}", path.display()))
}
