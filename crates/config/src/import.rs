//! Other proxies' configuration files, turned into ours.

mod foreign;
mod overlord;
mod predixy;
mod twemproxy;
mod yaml;

use crate::error::ConfigError;
use std::path::Path;

/// What came of another proxy's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Import {
    /// A file for [`Config::from_str`](crate::Config::from_str), with comments.
    /// Holds the passwords of the original.
    pub toml: String,
    /// What an operator should know before switching: where Keyway differs,
    /// and what was left out. Each is also a comment in the file.
    pub notes: Vec<String>,
}

/// Turns the text of a twemproxy 0.5 file (`nutcracker.yml`), which came from
/// `path`, into ours. Every key is placed as before. Pools that speak memcached
/// are left out with a note.
///
/// # Errors
/// Everything in the file that twemproxy would refuse or Keyway cannot do, in
/// line order; also that no pool is left.
pub fn twemproxy(text: &str, path: &str) -> Result<Import, Vec<ConfigError>> {
    let told = |errors| crate::strangers::explain_import(text, (path, "twemproxy"), errors);
    twemproxy::import(text, path).map_err(told)
}

/// As [`twemproxy`], of the file itself.
///
/// # Errors
/// As [`twemproxy`]; or that the file cannot be read.
pub fn twemproxy_file(path: &Path) -> Result<Import, Vec<ConfigError>> {
    let text = crate::load::read_configuration(path, "YAML")?;
    twemproxy(&text, &path.display().to_string())
}

/// Turns the text of a predixy 1.0.5 file, which came from `path`, into ours; files
/// that it includes are read by `read`. Every key is placed as before.
///
/// # Errors
/// Everything in the file that predixy would refuse or Keyway cannot do.
pub fn predixy(
    text: &str,
    path: &str,
    read: &dyn Fn(&Path) -> Result<String, String>,
) -> Result<Import, Vec<ConfigError>> {
    let told = |errors| crate::strangers::explain_import(text, (path, "predixy"), errors);
    predixy::import(text, path, read).map_err(told)
}

/// As [`predixy`], of the file itself and those it includes.
///
/// # Errors
/// As [`predixy`]; or that the file cannot be read.
pub fn predixy_file(path: &Path) -> Result<Import, Vec<ConfigError>> {
    let text = crate::load::read_configuration(path, "predixy")?;
    predixy(&text, &path.display().to_string(), &crate::load::read_file)
}

/// Turns the text of an overlord 1.9 cluster file, which came from `path`, into
/// ours: each of its clusters becomes a pool. Keys are placed as before, but for those that a note
/// names.
///
/// # Errors
/// Everything in the file that overlord would refuse or Keyway cannot do, in line
/// order.
pub fn overlord(text: &str, path: &str) -> Result<Import, Vec<ConfigError>> {
    let told = |errors| crate::strangers::explain_import(text, (path, "overlord"), errors);
    overlord::import(text, path).map_err(told)
}

/// As [`overlord`], of the file itself.
///
/// # Errors
/// As [`overlord`]; or that the file cannot be read.
pub fn overlord_file(path: &Path) -> Result<Import, Vec<ConfigError>> {
    let text = crate::load::read_configuration(path, "TOML")?;
    overlord(&text, &path.display().to_string())
}
