//! The layout of the cells, which is fixed when the registry is built.

/// What is counted. Fixed when the [`Registry`](crate::Registry) is built.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Names of the command classes, values of the `command` label.
    pub classes: &'static [&'static str],
    /// Names of the commands, by which requests are counted beside their classes.
    pub commands: &'static [&'static str],
    /// The pools; cells are found by position.
    pub pools: Vec<PoolLayout>,
    /// Most workers that ever run at once. A worker that has not started takes a few words. A
    /// worker that has started takes about 1.6 KiB for each pool and class and for each backend,
    /// and in each pool 0.5 KiB and 40 bytes for each called command and its neighbours.
    pub workers_max: usize,
    /// Version of this build.
    pub version: &'static str,
    /// When the process started, in microseconds since the Unix epoch.
    pub start_unix_micros: u64,
}

/// One pool of a [`Layout`].
#[derive(Clone, Debug)]
pub struct PoolLayout {
    /// The pool's name; unique.
    pub name: String,
    /// Names of its backends, unique in the pool; cells are found by position.
    pub backends: Vec<String>,
    /// True if another pool has replaced it. Its metrics are then left out.
    pub is_retired: bool,
}
