//! How much memory there is.

use std::fs;

/// Memory this process may use, in bytes: the machine's, or the control
/// group's bound if that is lower.
pub fn available() -> u64 {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| mem_total(&text));
    let group = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"]
        .iter()
        .find_map(|path| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok());
    match (machine, group) {
        (Some(machine), Some(group)) => machine.min(group),
        (machine, group) => machine.or(group).unwrap_or(1 << 30),
    }
}

/// Memory this process holds, in bytes.
pub fn resident() -> u64 {
    let pages = fs::read_to_string("/proc/self/statm")
        .ok()
        .and_then(|text| text.split_whitespace().nth(1)?.parse::<u64>().ok());
    pages.unwrap_or(0) * rustix::param::page_size() as u64
}

/// The most memory this process has held so far, in bytes; 0 where the kernel
/// does not say.
pub fn resident_peak() -> u64 {
    let text = fs::read_to_string("/proc/self/status").unwrap_or_default();
    kilobytes(&text, "VmHWM:").unwrap_or(0)
}

/// Processor time of this process: in user code, and in the kernel for it.
pub fn cpu_seconds() -> (f64, f64) {
    let ticks = rustix::param::clock_ticks_per_second() as f64;
    let text = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The fields behind the name, which may itself hold blanks and brackets.
    let after = text.rsplit_once(')').map_or("", |(_, after)| after);
    let mut fields = after.split_whitespace().skip(11).filter_map(|field| field.parse().ok());
    let mut next = || fields.next().map_or(0.0, |value: u64| value as f64 / ticks);
    (next(), next())
}

/// What a store takes when it is not told: half of what there is, so that the
/// kernel's buffers, connections and a neighbour have room.
pub fn default_store_bytes() -> u64 {
    available() / 2
}

fn mem_total(text: &str) -> Option<u64> {
    kilobytes(text, "MemTotal:")
}

/// The bytes of a line `name  123 kB`.
fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

/// `bytes` for people, in binary units.
pub fn human(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_and_shown() {
        assert_eq!(mem_total("MemFree: 1 kB\nMemTotal:       24576 kB\n"), Some(24576 * 1024));
        assert_eq!(mem_total("nonsense"), None);
        assert_eq!(human(12), "12 B");
        assert_eq!(human(12 << 30), "12.0 GiB");
        assert_eq!(human(1536), "1.5 KiB");
        assert!(available() > 0);
    }
}
