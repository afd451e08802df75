//! What the kernel says about a process. All of it from `/proc`, all of it
//! for one pid; a process that is gone reads as zero.

use std::fs;
use std::time::Duration;

/// User plus system CPU time, in seconds, of all threads living and dead.
/// The kernel's tick (usually 10 ms) is the resolution.
pub fn cpu_seconds(pid: u32) -> f64 {
    let Some(fields) = stat_fields(pid) else { return 0.0 };
    // Fields 14 and 15 of the manual page, counted after the name.
    let ticks: u64 =
        [11, 12].iter().filter_map(|index| fields.get(*index)?.parse::<u64>().ok()).sum();
    ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}

/// The CPU time it uses while `span` passes: to see that an idle process is
/// idle. The one wait in this crate that is for time itself.
pub fn cpu_seconds_over(pid: u32, span: Duration) -> f64 {
    let before = cpu_seconds(pid);
    std::thread::sleep(span);
    cpu_seconds(pid) - before
}

/// Memory in RAM now (VmRSS), in bytes.
pub fn resident_bytes(pid: u32) -> u64 {
    status_kib(&format!("/proc/{pid}/status"), "VmRSS:") * 1024
}

/// What of it is no file's: all that a process holds but pages of programs, which a build without
/// optimization has several times as many of.
pub fn anonymous_bytes(pid: u32) -> u64 {
    status_kib(&format!("/proc/{pid}/status"), "RssAnon:") * 1024
}

/// The most memory it ever had in RAM (VmHWM), in bytes.
pub fn resident_peak_bytes(pid: u32) -> u64 {
    status_kib(&format!("/proc/{pid}/status"), "VmHWM:") * 1024
}

/// Open file descriptors.
pub fn fd_count(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
}

/// Threads.
pub fn thread_count(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count)
}

/// What the machine could still give out without swapping, in bytes.
pub fn memory_available_bytes() -> u64 {
    status_kib("/proc/meminfo", "MemAvailable:") * 1024
}

/// Lets this process and its children have as many descriptors as the system
/// allows, and returns how many that is.
pub fn raise_descriptor_limit() -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    let current = getrlimit(Resource::Nofile).current.unwrap_or(1 << 20);
    usize::try_from(current).unwrap_or(usize::MAX)
}

/// The one-letter state: `R` running, `S` sleeping, `T` stopped, `Z` dead and
/// not yet waited for.
pub(crate) fn state(pid: u32) -> Option<char> {
    stat_fields(pid)?.first()?.chars().next()
}

fn status_kib(path: &str, label: &str) -> u64 {
    let text = fs::read_to_string(path).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(label)).unwrap_or_default();
    line.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// The fields of `/proc/<pid>/stat` after the process name, which may hold
/// spaces and parentheses itself.
fn stat_fields(pid: u32) -> Option<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = text.rsplit_once(')')?;
    Some(rest.split_whitespace().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_memory_descriptors_threads_and_cpu_time() {
        let pid = std::process::id();
        assert!(resident_bytes(pid) > 100_000);
        assert!(resident_peak_bytes(pid) >= 100_000);
        assert!(fd_count(pid) >= 3);
        assert!(thread_count(pid) >= 1);
        assert!(memory_available_bytes() > 1 << 20);
        let before = cpu_seconds(pid);
        crate::wait_until("20 ms of CPU time", std::time::Duration::from_secs(20), || {
            let _ = (0..200_000_u64).fold(0_u64, |sum, item| std::hint::black_box(sum ^ item));
            cpu_seconds(pid) >= before + 0.02
        });
    }

    #[test]
    fn a_process_that_is_gone_reads_as_nothing() {
        assert_eq!(resident_bytes(u32::MAX), 0);
        assert_eq!(state(u32::MAX), None);
    }
}
