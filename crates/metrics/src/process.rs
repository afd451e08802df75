//! Figures of the kernel about this process and its threads, from `/proc`. Without `/proc` every
//! figure is absent.

use std::fs;

/// Ticks per second of the CPU times in `/proc`: a fixed part of Linux's user-space interface
/// (USER_HZ) on every supported architecture.
pub(crate) const TICKS_PER_SECOND: u64 = 100;

/// Returns the calling thread's id.
pub(crate) fn thread_id() -> Option<u64> {
    let link = fs::read_link("/proc/thread-self").ok()?;
    link.file_name()?.to_str()?.parse().ok()
}

/// Returns the CPU time of one thread of this process, user and system, in ticks.
pub(crate) fn thread_cpu_ticks(thread: u64) -> Option<u64> {
    cpu_ticks(&fs::read_to_string(format!("/proc/self/task/{thread}/stat")).ok()?)
}

/// CPU time of the whole process, user and system, in ticks.
pub(crate) fn process_cpu_ticks() -> Option<u64> {
    cpu_ticks(&fs::read_to_string("/proc/self/stat").ok()?)
}

/// Memory of the process in RAM, in bytes.
pub(crate) fn resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kibibytes << 10)
}

/// Returns the number of open file descriptors, without the one that reading them takes.
pub(crate) fn open_fds() -> Option<u64> {
    Some((fs::read_dir("/proc/self/fd").ok()?.count() as u64).saturating_sub(1))
}

/// Returns utime + stime of a `stat` line: fields 14 and 15, counted after the command name, which
/// may itself contain spaces and parentheses.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let (_, behind_name) = stat.rsplit_once(')')?;
    let mut fields = behind_name.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_read_behind_any_thread_name() {
        let stat = "12 (a) R 1 ( b) S 1 2 3 4 5 6 7 8 9 10 41 1 13 14";
        assert_eq!(cpu_ticks(stat), Some(42));
        assert_eq!(cpu_ticks("12 (name) S 1 2"), None);
        assert_eq!(cpu_ticks(""), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_has_figures() {
        assert!(thread_cpu_ticks(thread_id().expect("a thread id")).is_some());
        assert!(process_cpu_ticks().is_some());
        assert!(resident_bytes().expect("resident memory") > 100 << 10);
        assert!(open_fds().expect("descriptors") >= 3);
        assert_eq!(thread_cpu_ticks(u64::MAX), None);
    }
}
