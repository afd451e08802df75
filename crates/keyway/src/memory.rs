//! Memory of the machine and of this process.

use keyway_config::{Config, ConfigError, PoolKindConfig};
use std::fs;
use std::path::{Component, Path};

/// Returns the memory that this process may use, in bytes: the machine's, or the control group's
/// bound if that is lower.
pub fn available() -> u64 {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| mem_total(&text));
    let group = group_bound(Path::new("/"));
    match (machine, group) {
        (Some(machine), Some(group)) => machine.min(group),
        (machine, group) => machine.or(group).unwrap_or(1 << 30),
    }
}

/// Returns the lowest memory bound of this process's control group and those above it, in bytes.
/// `root` is the root of the file system.
fn group_bound(root: &Path) -> Option<u64> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let own = |is_memory: fn(&str) -> bool| {
        // number:controllers:path
        groups.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            let controllers = fields.next()?;
            is_memory(controllers).then(|| fields.next())?
        })
    };
    let unified = own(str::is_empty);
    let classic = own(|controllers| controllers.split(',').any(|name| name == "memory"));
    let places = [
        ("sys/fs/cgroup", unified, "memory.max"),
        ("sys/fs/cgroup/memory", classic, "memory.limit_in_bytes"),
    ];
    let bounds = places
        .iter()
        .filter_map(|(mount, group, file)| lowest(&root.join(mount), group.unwrap_or("/"), file));
    bounds.min()
}

/// Returns the lowest number in the files called `file`, from the directory `group` below `mount`
/// up to `mount` itself. Inside a container the group may have its name on the host; then only the
/// mount's own file exists.
fn lowest(mount: &Path, group: &str, file: &str) -> Option<u64> {
    let names = Path::new(group).components().filter_map(|part| match part {
        Component::Normal(name) => Some(name),
        _ => None,
    });
    let mut directory = mount.to_owned();
    let read = |directory: &Path| {
        let text = fs::read_to_string(directory.join(file)).ok()?;
        text.trim().parse::<u64>().ok()
    };
    let mut bound = read(&directory);
    for name in names {
        directory.push(name);
        bound = [bound, read(&directory)].into_iter().flatten().min();
    }
    bound
}

/// Returns the memory that this process holds, in bytes.
pub fn resident() -> u64 {
    let pages = fs::read_to_string("/proc/self/statm")
        .ok()
        .and_then(|text| text.split_whitespace().nth(1)?.parse::<u64>().ok());
    pages.unwrap_or(0) * rustix::param::page_size() as u64
}

/// Returns the most memory that this process has held so far, in bytes; 0 if the kernel does not
/// tell.
pub fn resident_peak() -> u64 {
    let text = fs::read_to_string("/proc/self/status").unwrap_or_default();
    kilobytes(&text, "VmHWM:").unwrap_or(0)
}

/// Returns the processor time of this process in seconds: in user code, and in the kernel.
pub fn cpu_seconds() -> (f64, f64) {
    let ticks = rustix::param::clock_ticks_per_second() as f64;
    let text = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // These are the fields after the name, which may itself contain blanks and brackets.
    let after = text.rsplit_once(')').map_or("", |(_, after)| after);
    let mut fields = after.split_whitespace().skip(11).filter_map(|field| field.parse().ok());
    let mut next = || fields.next().map_or(0.0, |value: u64| value as f64 / ticks);
    (next(), next())
}

/// Returns the default size of each of `stores` stores, in bytes. Together they get half of the
/// available memory, so that there is room for the kernel's buffers, connections and other
/// processes.
pub fn default_store_bytes(stores: usize) -> u64 {
    available() / 2 / stores.max(1) as u64
}

/// Warns of stores that may grow beyond `available` bytes. `path` is the file in which they are
/// configured.
pub fn warnings(config: &Config, path: &str, available: u64) -> Vec<ConfigError> {
    let bounds = config.pools.iter().filter_map(|pool| match &pool.kind {
        PoolKindConfig::Store(store) => Some((pool.name.as_str(), store.memory_max?)),
        _ => None,
    });
    let bounds: Vec<(&str, u64)> = bounds.collect();
    let sum = bounds.iter().map(|(_, bound)| *bound).fold(0, u64::saturating_add);
    let tell = |which: &str, bound: u64| ConfigError {
        path: path.to_owned(),
        line: 0,
        column: 0,
        what: format!(
            "memory_max of {which} is {}, and this machine or its control group has {}: the kernel \
             would end Keyway before anything is evicted",
            human(bound),
            human(available)
        ),
        hint: "lower memory_max, or write \"auto\" for half of what there is".to_owned(),
    };
    let alone: Vec<ConfigError> = bounds
        .iter()
        .filter(|(_, bound)| *bound > available)
        .map(|(name, bound)| tell(&format!("[pool.{name}]"), *bound))
        .collect();
    match alone.is_empty() && sum > available {
        true => vec![tell("all stores together", sum)],
        false => alone,
    }
}

fn mem_total(text: &str) -> Option<u64> {
    kilobytes(text, "MemTotal:")
}

/// Returns the bytes of a line `name  123 kB`.
fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

/// Returns `bytes` in words, in binary units.
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
        assert!(default_store_bytes(3) <= available() / 6);
    }

    #[test]
    fn stores_that_may_outgrow_the_machine_are_told_of() {
        let text = |first: &str, second: &str| {
            let pool = |name: &str, bound: &str| {
                format!("[pool.{name}]\nkind = \"store\"\nmemory_max = \"{bound}\"\n")
            };
            let listener = "[[listener]]\nbind = \"tcp://127.0.0.1:1\"\npool = \"a\"\n";
            [listener, &pool("a", first), &pool("b", second)].concat()
        };
        let told = |first, second| {
            let config = Config::from_str(&text(first, second), "x").unwrap();
            let warnings = warnings(&config, "x.toml", 4 << 30);
            warnings.iter().map(|warning| warning.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(told("auto", "auto"), [""; 0]);
        assert_eq!(told("4GiB", "auto"), [""; 0]);
        let one = told("5GiB", "1GiB");
        assert!(one.len() == 1 && one[0].starts_with("x.toml: memory_max of [pool.a] is 5.0 GiB"));
        let all = told("3GiB", "2GiB");
        assert!(all.len() == 1 && all[0].contains("all stores together is 5.0 GiB"), "{all:?}");
    }

    /// Creates a root directory with these files.
    fn root_with(files: &[(&str, &str)]) -> keyway_testkit::TempDir {
        let root = keyway_testkit::TempDir::new();
        for (name, text) in files {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn the_lowest_bound_from_our_group_to_the_root_counts() {
        let unified = ("proc/self/cgroup", "0::/system.slice/keyway.service\n");
        let of = |files: &[(&str, &str)]| group_bound(root_with(files).path());
        let own = ("sys/fs/cgroup/system.slice/keyway.service/memory.max", "1000\n");
        let above = ("sys/fs/cgroup/system.slice/memory.max", "500\n");
        let none = ("sys/fs/cgroup/system.slice/memory.max", "max\n");
        assert_eq!(of(&[unified]), None);
        assert_eq!(of(&[unified, own]), Some(1000));
        assert_eq!(of(&[unified, own, above]), Some(500));
        assert_eq!(of(&[unified, own, none]), Some(1000));
        // In a container the group's name on the host leads nowhere.
        let inside = ("sys/fs/cgroup/memory.max", "700\n");
        assert_eq!(of(&[("proc/self/cgroup", "0::/../../elsewhere\n"), inside]), Some(700));
        assert_eq!(of(&[inside]), Some(700));
    }

    #[test]
    fn the_older_groups_are_read_by_their_memory_controller() {
        let groups = ("proc/self/cgroup", "5:cpu,cpuacct:/a\n4:memory:/b/c\n0::/d\n");
        let own = ("sys/fs/cgroup/memory/b/c/memory.limit_in_bytes", "9000\n");
        let above = ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
        let other = ("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "1\n");
        let bound = group_bound(root_with(&[groups, own, above, other]).path());
        assert_eq!(bound, Some(9000));
    }
}
