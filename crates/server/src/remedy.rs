//! Remedies for failures of the operating system.

use std::io::{self, ErrorKind};
use std::sync::Arc;

/// Returns the remedy for a system failure that a user can fix.
pub(crate) fn of(failure: &anyhow::Error) -> Option<&'static str> {
    failure.chain().find_map(|cause| {
        let shared = || cause.downcast_ref::<Arc<io::Error>>().map(|cause| &**cause);
        cause.downcast_ref::<io::Error>().or_else(shared).and_then(|cause| of_kind(cause.kind()))
    })
}

fn of_kind(kind: ErrorKind) -> Option<&'static str> {
    match kind {
        ErrorKind::PermissionDenied => {
            Some("let the user that runs millstream read and write there, or name another place")
        }
        ErrorKind::ReadOnlyFilesystem => Some("name a place that can be written"),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Some("make room there, or name another place"),
        ErrorKind::NotADirectory | ErrorKind::AlreadyExists => {
            Some("a file stands where a directory is needed: move it away, or name another place")
        }
        ErrorKind::IsADirectory => {
            Some("a directory stands where a file is needed: move it away, or name another place")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;
    use millstream_log::Error;

    use super::*;

    #[test]
    fn the_systems_refusal_is_found_wherever_it_stands_in_the_chain() {
        let full = || io::Error::from(ErrorKind::StorageFull);
        let of_log = Error::Io { action: "write", path: "data/log/meta".into(), source: Arc::new(full()) };
        let shared = anyhow::Error::new(of_log).context("the server cannot start");
        let plain = Err::<(), _>(full()).context("cannot write").unwrap_err();
        for failure in [shared, plain] {
            assert_eq!(of(&failure), Some("make room there, or name another place"), "{failure:#}");
        }
        assert_eq!(of(&anyhow::Error::new(io::Error::from(ErrorKind::NotFound))), None);
        assert_eq!(of(&anyhow::anyhow!("something else")), None);
    }
}
