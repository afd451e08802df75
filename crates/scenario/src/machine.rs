//! The machine, and what numbers of a scenario are on it.

use crate::model::Scaled;
use keyway_report::Machine;

/// What a scenario is scaled to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// Cores this process may use.
    pub cores: u64,
    /// Memory of the machine.
    pub gib: u64,
    /// True if the report's own size is asked for.
    pub is_full: bool,
}

impl Scaled {
    /// The number on a machine: at least 1 unless it is 0 by itself.
    pub fn on(&self, scale: Scale) -> u64 {
        if let (true, Some(full)) = (scale.is_full, self.full) {
            return full;
        }
        let by_core = self.per_core.map(|each| each.saturating_mul(scale.cores));
        let by_gib = self.per_gib.map(|each| each.saturating_mul(scale.gib));
        let number = self.usual.or(by_core.min(by_gib).or(by_core).or(by_gib)).unwrap_or(1);
        let most = self.most.unwrap_or(u64::MAX);
        number.min(most).max(self.least.unwrap_or(0).min(most))
    }
}

/// What this machine is.
pub fn machine() -> Machine {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let value = |text: &str, name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.trim_start_matches([' ', '\t', ':']).trim().to_owned())
    };
    let kib = value(&read("/proc/meminfo"), "MemTotal");
    let kib = kib.and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
    let kernel = ["ostype", "osrelease"].map(|name| read(&format!("/proc/sys/kernel/{name}")));
    Machine {
        cpu: value(&read("/proc/cpuinfo"), "model name").unwrap_or_default(),
        cores: std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32),
        memory_bytes: kib.unwrap_or(0) * 1024,
        kernel: kernel.each_ref().map(|text| text.trim()).join(" "),
    }
}

/// The machine's load over the last minute.
pub fn load_average() -> Option<f64> {
    std::fs::read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_follow_the_machine_and_the_size_asked_for() {
        let small = Scale { cores: 2, gib: 8, is_full: false };
        let large = Scale { cores: 64, gib: 256, is_full: false };
        let full = Scale { is_full: true, ..small };
        let servers = Scaled {
            per_core: Some(2),
            least: Some(4),
            most: Some(16),
            full: Some(16),
            ..Scaled::default()
        };
        assert_eq!([small, large, full].map(|scale| servers.on(scale)), [4, 16, 16]);
        let keys = Scaled { per_gib: Some(1000), ..Scaled::default() };
        assert_eq!([small, large, full].map(|scale| keys.on(scale)), [8000, 256_000, 8000]);
        assert_eq!(Scaled::from(0).on(small), 0);
        assert!(machine().cores > 0 && machine().memory_bytes > 1 << 20);
        assert!(load_average().is_some());
    }
}
