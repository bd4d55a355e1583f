//! CPU time and memory of a process, as the kernel tells them under `/proc`.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::Context as _;

/// Linux tells CPU time in hundredths of a second, whatever its kernel ticks at (`USER_HZ`).
const TICKS_PER_S: f64 = 100.0;

/// A server is at rest when it uses less than this part of a core.
const AT_REST: f64 = 0.03;
/// Over which time that is looked at.
const LOOK: Duration = Duration::from_millis(300);
/// After which it is not waited for any longer. History writes the points of a million new entities for some ten seconds.
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

/// Resident memory in MiB.
pub(crate) fn rss_mib(pid: u32) -> anyhow::Result<f64> {
    mib(pid, "VmRSS")
}

/// The highest that its resident memory was since it started, or since [`forget_peak`], in MiB.
pub(crate) fn rss_peak_mib(pid: u32) -> anyhow::Result<f64> {
    mib(pid, "VmHWM")
}

/// Lets [`rss_peak_mib`] begin anew from what is resident now.
pub(crate) fn forget_peak(pid: u32) -> anyhow::Result<()> {
    let path = format!("/proc/{pid}/clear_refs");
    fs::write(&path, "5").with_context(|| format!("cannot write {path}"))
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
        let before = cpu_s(pid).unwrap();
        let mut sum = 0_u64;
        while cpu_s(pid).unwrap() <= before {
            sum = std::hint::black_box((0..1_000_000_u64).fold(sum, u64::wrapping_add));
        }
    }
}
