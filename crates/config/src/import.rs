//! Converts other proxies' configuration files into Keyway's.

mod foreign;
mod overlord;
mod predixy;
mod twemproxy;
mod yaml;

use crate::error::ConfigError;
use std::path::Path;

/// The result of converting another proxy's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Import {
    /// A file for [`Config::from_str`](crate::Config::from_str), with comments.
    /// Holds the passwords of the original.
    pub toml: String,
    /// Notes for the operator: differences of Keyway, and settings that were left out. Each is also
    /// a comment in the file.
    pub notes: Vec<String>,
}

/// Converts the text of a twemproxy 0.5 file (`nutcracker.yml`), which came from `path`. Every key
/// keeps its server. Pools that speak memcached are left out with a note.
///
/// # Errors
/// Returns everything in the file that twemproxy would refuse or Keyway cannot do, in line order.
/// It is also an error if no pool remains.
pub fn twemproxy(text: &str, path: &str) -> Result<Import, Vec<ConfigError>> {
    let told = |errors| crate::strangers::explain_import(text, (path, "twemproxy"), errors);
    twemproxy::import(text, path).map_err(told)
}

/// Converts a file as [`twemproxy`] does.
///
/// # Errors
/// Returns errors as [`twemproxy`] does, or that the file cannot be read.
pub fn twemproxy_file(path: &Path) -> Result<Import, Vec<ConfigError>> {
    let text = crate::load::read_configuration(path, "YAML")?;
    twemproxy(&text, &path.display().to_string())
}

/// Converts the text of a predixy 1.0.5 file, which came from `path`. `read` reads the files that
/// it includes. Every key keeps its server.
///
/// # Errors
/// Returns everything in the file that predixy would refuse or Keyway cannot do.
pub fn predixy(
    text: &str,
    path: &str,
    read: &dyn Fn(&Path) -> Result<String, String>,
) -> Result<Import, Vec<ConfigError>> {
    let told = |errors| crate::strangers::explain_import(text, (path, "predixy"), errors);
    predixy::import(text, path, read).map_err(told)
}

/// Converts a file and the files it includes, as [`predixy`] does.
///
/// # Errors
/// Returns errors as [`predixy`] does, or that the file cannot be read.
pub fn predixy_file(path: &Path) -> Result<Import, Vec<ConfigError>> {
    let text = crate::load::read_configuration(path, "predixy")?;
    predixy(&text, &path.display().to_string(), &crate::load::read_file)
}

/// Converts the text of an overlord 1.9 cluster file, which came from `path`. Each of its clusters
/// becomes a pool. Every key keeps its server, except for keys that a note names.
///
/// # Errors
/// Returns everything in the file that overlord would refuse or Keyway cannot do, in line order.
pub fn overlord(text: &str, path: &str) -> Result<Import, Vec<ConfigError>> {
    let told = |errors| crate::strangers::explain_import(text, (path, "overlord"), errors);
    overlord::import(text, path).map_err(told)
}

/// Converts a file as [`overlord`] does.
///
/// # Errors
/// Returns errors as [`overlord`] does, or that the file cannot be read.
pub fn overlord_file(path: &Path) -> Result<Import, Vec<ConfigError>> {
    let text = crate::load::read_configuration(path, "TOML")?;
    overlord(&text, &path.display().to_string())
}
