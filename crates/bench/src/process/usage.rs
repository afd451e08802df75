use std::path::Path;
use std::time::Duration;

use crate::error::Error;

/// Clock ticks of `/proc/PID/stat` per second: fixed at 100 by Linux's ABI.
const TICKS_PER_SECOND: u64 = 100;

/// CPU time (user and system) process `pid` has used so far.
///
/// Read from `/proc/PID/task/*/schedstat`, in nanoseconds, where the kernel
/// keeps it, else from `/proc/PID/stat` in steps of 10 ms. A thread that has
/// ended counts only in the second. A running thread's time is as of its last
/// scheduler tick, so read it while the process waits.
///
/// # Errors
/// [`Error::Io`] when there is no such process.
pub fn cpu_time(pid: u32) -> Result<Duration, Error> {
    let mut total = Duration::ZERO;
    for thread in threads(pid)? {
        let path = format!("/proc/{pid}/task/{thread}/schedstat");
        match std::fs::read_to_string(&path) {
            Ok(text) => total += parse_schedstat(&text)?,
            // The thread ended since it was listed.
            Err(_) if !Path::new(&format!("/proc/{pid}/task/{thread}")).exists() => {}
            Err(_) => return parse_stat(&read(pid, "stat")?),
        }
    }
    Ok(total)
}

/// The ids of the threads of process `pid`.
///
/// # Errors
/// [`Error::Io`] when there is no such process.
pub fn threads(pid: u32) -> Result<Vec<u32>, Error> {
    let directory = format!("/proc/{pid}/task");
    let entries = std::fs::read_dir(&directory).map_err(Error::io(&directory))?;
    Ok(entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
}

/// Resident memory of process `pid`.
///
/// # Errors
/// [`Error::Io`] when there is no such process.
pub fn resident_bytes(pid: u32) -> Result<u64, Error> {
    parse_resident(&read(pid, "status")?)
}

/// Whether process `pid` exists and is no zombie.
pub fn is_running(pid: u32) -> bool {
    read(pid, "stat").is_ok_and(|stat| !matches!(fields(&stat).next(), Some("Z" | "X") | None))
}

fn read(pid: u32, file: &str) -> Result<String, Error> {
    let path = format!("/proc/{pid}/{file}");
    std::fs::read_to_string(&path).map_err(Error::io(&path))
}

/// The first number of a `schedstat` line: nanoseconds on a CPU.
fn parse_schedstat(text: &str) -> Result<Duration, Error> {
    let nanos = text.split_whitespace().next().and_then(|field| field.parse().ok());
    nanos.map(Duration::from_nanos).ok_or_else(|| Error::parse("CPU time", text))
}

/// `utime` and `stime`, fields 14 and 15 of a `stat` line.
fn parse_stat(text: &str) -> Result<Duration, Error> {
    let ticks = |number: usize| fields(text).nth(number - 3)?.parse::<u64>().ok();
    match (ticks(14), ticks(15)) {
        (Some(user), Some(system)) => {
            Ok(Duration::from_millis((user + system) * (1000 / TICKS_PER_SECOND)))
        }
        _ => Err(Error::parse("CPU time", text)),
    }
}

/// The fields of a `stat` line from the third on: those after the program's
/// name, which may hold spaces and parentheses itself.
fn fields(stat: &str) -> impl Iterator<Item = &str> {
    stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace()
}

/// `VmRSS` of a `status` file.
fn parse_resident(text: &str) -> Result<u64, Error> {
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.map(|kilobytes| kilobytes * 1024).ok_or_else(|| Error::parse("VmRSS", text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedstat_gives_nanoseconds() {
        assert_eq!(
            parse_schedstat("174555264 13466831 471\n").unwrap(),
            Duration::from_nanos(174_555_264)
        );
        assert!(parse_schedstat("").is_err());
    }

    #[test]
    fn a_program_name_with_spaces_and_parentheses_shifts_no_field() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 42037 591821 0 640 96 299 1031 643 20 0 13 0";
        assert_eq!(parse_stat(stat).unwrap(), Duration::from_millis(3950));
        assert!(parse_stat("7 (a) S 1 2").is_err());
    }

    #[test]
    fn resident_memory_is_in_bytes() {
        let status = "Name:\tx\nVmHWM:\t 2000 kB\nVmRSS:\t    1234 kB\nThreads:\t1\n";
        assert_eq!(parse_resident(status).unwrap(), 1234 * 1024);
        assert!(parse_resident("Name:\tx\n").is_err());
    }

    #[test]
    fn this_process_uses_memory_and_time() {
        let pid = std::process::id();
        assert!(resident_bytes(pid).unwrap() > 100_000);
        let before = cpu_time(pid).unwrap();
        let mut state = 1u64;
        // Threads of other tests end meanwhile, and their time with them.
        while cpu_time(pid).unwrap().saturating_sub(before) < Duration::from_millis(20) {
            state = std::hint::black_box(state.wrapping_mul(3));
        }
        assert!(is_running(pid) && threads(pid).unwrap().contains(&pid));
    }

    #[test]
    fn a_process_that_is_not_there_is_an_error() {
        assert!(cpu_time(u32::MAX).is_err() && !is_running(u32::MAX));
    }
}
