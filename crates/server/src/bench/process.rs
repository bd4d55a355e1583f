//! CPU time and memory of a process, as the kernel tells them under `/proc`.

use std::fs;

use anyhow::Context as _;

/// Linux tells CPU time in hundredths of a second, whatever its kernel ticks at (`USER_HZ`).
const TICKS_PER_S: f64 = 100.0;

/// Seconds of CPU time, in user and kernel mode, that all threads of a process have used.
pub(crate) fn cpu_s(pid: u32) -> anyhow::Result<f64> {
    let stat = read(pid, "stat")?;
    // The second field is the program's name in parentheses, which may hold blanks; `utime` and `stime` are fields 14, 15.
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let mut fields = after_name.split_ascii_whitespace().skip(11).map(str::parse::<f64>);
    match (fields.next(), fields.next()) {
        (Some(Ok(user)), Some(Ok(system))) => Ok((user + system) / TICKS_PER_S),
        _ => anyhow::bail!("/proc/{pid}/stat has no CPU times: {stat:?}"),
    }
}

/// Resident memory in MiB.
pub(crate) fn rss_mib(pid: u32) -> anyhow::Result<f64> {
    let status = read(pid, "status")?;
    let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.parse().ok());
    kib.map(|kib: f64| kib / 1024.0).with_context(|| format!("/proc/{pid}/status has no VmRSS"))
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
        let before = cpu_s(pid).unwrap();
        let mut sum = 0_u64;
        while cpu_s(pid).unwrap() <= before {
            sum = std::hint::black_box((0..1_000_000_u64).fold(sum, u64::wrapping_add));
        }
    }
}
