//! CPU time and memory of a process, read from `/proc`.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::Context as _;

/// Linux tells CPU time in hundredths of a second, whatever its kernel ticks at (`USER_HZ`).
const TICKS_PER_S: f64 = 100.0;

/// A server is at rest when it uses less than this part of a core.
const AT_REST: f64 = 0.03;
/// Interval over which the CPU use is sampled.
const LOOK: Duration = Duration::from_millis(300);
/// Longest wait for an idle server. History writes the points of a million new entities for some ten seconds.
const REST_TIMEOUT: Duration = Duration::from_secs(30);

/// Seconds of CPU time, in user and kernel mode, that all threads of a process have used.
pub(crate) fn cpu_s(pid: u32) -> anyhow::Result<f64> {
    let stat = read(pid, "stat")?;
    cpu_s_of(&stat).with_context(|| format!("/proc/{pid}/stat has no CPU times: {stat:?}"))
}

fn cpu_s_of(stat: &str) -> Option<f64> {
    // The second field is the program's name in parentheses, which may hold blanks; `utime` and `stime` are fields 14, 15.
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let mut fields = after_name.split_ascii_whitespace().skip(11).map(str::parse::<f64>);
    match (fields.next(), fields.next()) {
        (Some(Ok(user)), Some(Ok(system))) => Some((user + system) / TICKS_PER_S),
        _ => None,
    }
}

/// Waits until the server has nothing left to do.
pub(crate) fn rest(pid: u32) -> anyhow::Result<()> {
    let begin = Instant::now();
    let mut before = cpu_s(pid)?;
    while begin.elapsed() < REST_TIMEOUT {
        std::thread::sleep(LOOK);
        let now = cpu_s(pid)?;
        if (now - before) / LOOK.as_secs_f64() <= AT_REST {
            break;
        }
        before = now;
    }
    Ok(())
}

/// Seconds of CPU time of those of its threads whose names begin with `prefix`.
pub(crate) fn threads_cpu_s(pid: u32, prefix: &str) -> anyhow::Result<f64> {
    let tasks = format!("/proc/{pid}/task");
    let mut all = 0.0;
    for task in fs::read_dir(&tasks).with_context(|| format!("cannot read {tasks}"))? {
        let path = task?.path();
        // A thread may have ended meanwhile.
        let Ok(stat) = fs::read_to_string(path.join("stat")) else { continue };
        if stat.split_once('(').is_some_and(|(_, name)| name.starts_with(prefix)) {
            all += cpu_s_of(&stat).with_context(|| format!("{}/stat has no CPU times", path.display()))?;
        }
    }
    Ok(all)
}

pub(crate) fn rss_mib(pid: u32) -> anyhow::Result<f64> {
    mib(pid, "VmRSS")
}

/// Peak of the resident memory in MiB since the start or the last [`forget_peak`].
pub(crate) fn rss_peak_mib(pid: u32) -> anyhow::Result<f64> {
    mib(pid, "VmHWM")
}

/// Resets [`rss_peak_mib`] to the current resident memory.
pub(crate) fn forget_peak(pid: u32) -> anyhow::Result<()> {
    let path = format!("/proc/{pid}/clear_refs");
    fs::write(&path, "5").with_context(|| format!("cannot write {path}"))
}

/// Bytes that a process has passed to calls that write. What the kernel counts as sent to the disk is no better: on large pages
/// it counts far more than is written.
pub(crate) fn written_bytes(pid: u32) -> anyhow::Result<u64> {
    let io = read(pid, "io")?;
    let bytes = io.lines().find_map(|line| line.strip_prefix("wchar: ")?.trim().parse().ok());
    bytes.with_context(|| format!("/proc/{pid}/io has no wchar"))
}

fn mib(pid: u32, member: &str) -> anyhow::Result<f64> {
    let status = read(pid, "status")?;
    let of = |line: &str| line.strip_prefix(member)?.strip_prefix(':')?.trim().strip_suffix(" kB")?.parse().ok();
    let kib = status.lines().find_map(of);
    kib.map(|kib: f64| kib / 1024.0).with_context(|| format!("/proc/{pid}/status has no {member}"))
}

fn read(pid: u32, file: &str) -> anyhow::Result<String> {
    fs::read_to_string(format!("/proc/{pid}/{file}")).with_context(|| format!("cannot read /proc/{pid}/{file}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_memory_and_its_cpu_time_grows_with_work() {
        let pid = std::process::id();
        assert!(rss_mib(pid).unwrap() > 0.5);
        forget_peak(pid).unwrap();
        assert!(rss_peak_mib(pid).unwrap() > 0.5);
        let written = written_bytes(pid).unwrap();
        std::fs::write(tempfile::NamedTempFile::new().unwrap().path(), [0; 5_000]).unwrap();
        assert!(written_bytes(pid).unwrap() >= written + 5_000);
        let before = cpu_s(pid).unwrap();
        let mut sum = 0_u64;
        while cpu_s(pid).unwrap() <= before {
            sum = std::hint::black_box((0..1_000_000_u64).fold(sum, u64::wrapping_add));
        }
    }
}
