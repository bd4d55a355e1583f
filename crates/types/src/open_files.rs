//! How many files the process may have open, and what of that is kept from sockets.
//!
//! Sockets are files, too: peers that connect and wait could leave none for the log, which cannot write on then.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Most files that are kept from sockets.
const KEPT_MAX: u64 = 1024;

static LIMIT: OnceLock<u64> = OnceLock::new();

/// Lets the process have as many files open as the system allows it (the *hard* limit; shells and services begin with 1024
/// of them usually), and returns how many connections that leaves room for: three quarters, or all but 1,024.
///
/// Call it before anything is opened. Where the system refuses, the limit stays what it is.
pub fn raise_open_files() -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).is_ok();
    let limit = if raised { maximum } else { current }.unwrap_or(u64::MAX);
    for_sockets(*LIMIT.get_or_init(|| limit))
}

/// What was accepted, if it leaves enough files for everything else. The system gives each file the least number that is
/// free, so its own tells how many there are.
///
/// # Errors
/// A text for those who operate the server; the connection is closed. Accept none for a while.
pub fn with_room<S: AsFd, A>((socket, peer): (S, A)) -> io::Result<(S, A)> {
    let limit = *LIMIT.get_or_init(|| getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX));
    let number = u64::try_from(socket.as_fd().as_raw_fd()).unwrap_or_default();
    if number < for_sockets(limit) {
        return Ok((socket, peer));
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
    fn a_quarter_is_kept_and_of_many_1024() {
        for (limit, sockets) in [(30, 23), (1024, 768), (20_000, 18_976), (1 << 20, (1 << 20) - 1024)] {
            assert_eq!(for_sockets(limit), sockets, "{limit}");
        }
    }
}
