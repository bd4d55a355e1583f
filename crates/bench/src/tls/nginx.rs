//! nginx with TLS, as Debian packages it, in one process on the server's core.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::Context as _;

use super::certificate::CertificateFiles;
use crate::cores::Cores;
use crate::peer_process::{PeerProcess, find, free_address};

/// Starts nginx with this certificate; returns its address, at which it listens.
pub(super) fn start(dir: &Path, cores: &Cores, files: &CertificateFiles) -> anyhow::Result<(PeerProcess, SocketAddr)> {
    let program = find("nginx", "nginx-light")?;
    fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    // It cannot choose a free port and report it.
    let address = free_address()?;
    let file = dir.join("configuration");
    fs::write(&file, configuration(address, files)).with_context(|| format!("cannot write {}", file.display()))?;
    let mut command = cores.server_command(&program);
    command.current_dir(dir).arg("-c").arg(&file).arg("-p").arg(dir);
    Ok((PeerProcess::start(command, "nginx".to_owned(), address)?, address))
}

fn configuration(address: SocketAddr, files: &CertificateFiles) -> String {
    // One process, so that it accounts for all CPU time.
    format!(
        "daemon off; master_process off; error_log stderr crit; pid nginx.pid;\n\
         events {{ worker_connections 4096; }}\n\
         http {{\n  access_log off;\n  \
         client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;\n  \
         uwsgi_temp_path uwsgi; scgi_temp_path scgi;\n  \
         server {{\n    listen {address} ssl backlog=4096;\n    ssl_certificate {};\n    ssl_certificate_key {};\n    \
         ssl_protocols TLSv1.2 TLSv1.3;\n    location / {{ return 202; }}\n  }}\n}}\n",
        files.certificate.display(),
        files.key.display(),
    )
}
