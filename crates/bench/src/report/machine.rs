use std::path::Path;

/// What a figure should never be read without.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// The processor, as the kernel names it.
    pub cpu: String,
    /// Processors this process may use.
    pub cores: usize,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// The kernel's release.
    pub kernel: String,
}

impl Machine {
    /// The machine this runs on; what cannot be read is called `unknown`.
    pub fn here() -> Machine {
        let cpu_info = read("/proc/cpuinfo");
        let memory = value_of(&read("/proc/meminfo"), "MemTotal");
        let kilobytes = memory.and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok());
        let kernel = read("/proc/sys/kernel/osrelease").trim().to_owned();
        Machine {
            cpu: value_of(&cpu_info, "model name").unwrap_or_else(|| "unknown".into()),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_mib: kilobytes.unwrap_or(0) / 1024,
            kernel: if kernel.is_empty() { "unknown".into() } else { kernel },
        }
    }
}

/// The kernel's 1 minute load average.
pub fn load_average() -> String {
    read("/proc/loadavg").split_whitespace().next().unwrap_or("unknown").to_owned()
}

fn read(path: &str) -> String {
    std::fs::read_to_string(Path::new(path)).unwrap_or_default()
}

/// The value of the first `name: value` line.
fn value_of(text: &str, name: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim().to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_by_their_whole_name() {
        let text = "model\t\t: 2\nmodel name\t: AMD EPYC\nmodel name\t: other\n";
        assert_eq!(value_of(text, "model name").as_deref(), Some("AMD EPYC"));
        assert_eq!(value_of(text, "name"), None);
    }

    #[test]
    fn this_machine_has_a_core_and_a_kernel() {
        let machine = Machine::here();
        assert!(machine.cores > 0 && machine.memory_mib > 0 && machine.kernel != "unknown");
    }
}
