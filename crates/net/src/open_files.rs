//! The limit on open files, and the share that sockets may use.
//!
//! Sockets count as open files: idle connections could leave none for the log, which could not write any more.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Most files that are reserved from sockets.
const KEPT_MAX: u64 = 1024;

static LIMIT: OnceLock<u64> = OnceLock::new();

/// Raises the limit on open files to the system's *hard* limit (shells and services often start with 1024), and
/// returns the number of connections that it allows: three quarters of the limit, or all but 1,024.
///
/// Call it before any file is opened. If the system refuses, the limit stays as it is.
pub fn raise_open_files() -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).is_ok();
    let limit = if raised { maximum } else { current }.unwrap_or(u64::MAX);
    for_sockets(*LIMIT.get_or_init(|| limit))
}

/// Passes an accepted connection on if enough files are left for everything else. The system assigns the lowest free
/// number to each file, so the number of the new one shows how many are open.
///
/// # Errors
/// A text for the operator. The connection is closed; pause before accepting the next one.
pub fn with_room<S: AsFd>(socket: S) -> io::Result<S> {
    let limit = *LIMIT.get_or_init(|| getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX));
    let number = u64::try_from(socket.as_fd().as_raw_fd()).unwrap_or_default();
    if number < for_sockets(limit) {
        return Ok(socket);
    }
    Err(io::Error::other(format!(
        "{number} files are open; beyond {} of {limit} they are kept for what is stored; raise the limit (ulimit -n)",
        for_sockets(limit)
    )))
}

fn for_sockets(limit: u64) -> u64 {
    limit - (limit / 4).min(KEPT_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_of_the_open_files_is_reserved_and_at_most_1024() {
        for (limit, sockets) in [(30, 23), (1024, 768), (20_000, 18_976), (1 << 20, (1 << 20) - 1024)] {
            assert_eq!(for_sockets(limit), sockets, "{limit}");
        }
    }
}
