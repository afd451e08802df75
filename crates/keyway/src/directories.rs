//! The warnings of `keyway check` about the directories of logs and snapshots: `serve` would not start
//! without them.

use keyway_config::{Config, ConfigError, ControlNodeConfig, CoordinatorConfig, PoolKindConfig};
use rustix::fs::{Access, AtFlags, CWD, accessat};
use std::path::Path;

/// Warns of directories that are missing, or not to be written to. `path` is the file in which they
/// are configured. It may be checked by another user than keyway runs as, or on another machine:
/// these are no errors.
pub fn warnings(config: &Config, path: &str) -> Vec<ConfigError> {
    let mut warnings = Vec::new();
    for pool in &config.pools {
        let PoolKindConfig::Store(store) = &pool.kind else { continue };
        let mut look = |key: &str, directory: &Path| {
            if let Some((what, hint)) = fault_of(directory) {
                let name = &pool.name;
                let what = format!("{key} of [pool.{name}]: {what}; `serve` would not start");
                warnings.push(ConfigError {
                    path: path.to_owned(),
                    line: 0,
                    column: 0,
                    what,
                    hint,
                });
            }
        };
        if let Some(log) = &store.log {
            look("log", &log.dir);
        }
        if let Some(snapshot) = &store.snapshot {
            look("snapshot", directory_of(&snapshot.file));
        }
    }
    warnings
}

/// Warns of files and directories of a control node that it cannot use: it would not start.
pub fn of_control(config: &ControlNodeConfig, path: &str) -> Vec<ConfigError> {
    let files = [("audit_file", &config.audit_file), ("events_file", &config.events_file)];
    let files =
        files.into_iter().filter_map(|(key, file)| Some((key, fault_of_file(file.as_deref()?)?)));
    let dir = match &config.coordinator {
        CoordinatorConfig::Files(dir) => fault_of_new(dir),
        CoordinatorConfig::Etcd(_) | CoordinatorConfig::ZooKeeper(_) => None,
    };
    let all = files.chain(dir.map(|fault| ("dir in [coordinator]", fault)));
    let told = all.map(|(key, (what, hint))| ConfigError {
        path: path.to_owned(),
        line: 0,
        column: 0,
        what: format!("{key}: {what}; `control` would not start"),
        hint,
    });
    told.collect()
}

/// Returns what is wrong with a file that is appended to, and what to do. It may not be there yet.
fn fault_of_file(file: &Path) -> Option<(String, String)> {
    let shown = file.display();
    if file.is_dir() {
        let what = format!("{shown} is a directory");
        return Some((what, "name a file in it".to_owned()));
    }
    if !file.exists() {
        return fault_of(directory_of(file));
    }
    let error = accessat(CWD, file, Access::WRITE_OK, AtFlags::EACCESS).err()?;
    let what = format!("{shown} cannot be written to by this user: {error}");
    Some((what, "let the user that keyway runs as write to it, or check as that user".to_owned()))
}

/// Returns what is wrong with a directory that is made if it is not there, and what to do.
fn fault_of_new(directory: &Path) -> Option<(String, String)> {
    let there = directory.ancestors().find(|part| part.exists())?;
    if !there.is_dir() {
        let what = format!("{} is no directory", there.display());
        return Some((what, "name a directory".to_owned()));
    }
    fault_of(there)
}

/// Returns the directory of a file.
pub fn directory_of(file: &Path) -> &Path {
    match file.parent() {
        Some(directory) if !directory.as_os_str().is_empty() => directory,
        _ => Path::new("."),
    }
}

/// Returns what is wrong with a directory, and what to do.
fn fault_of(directory: &Path) -> Option<(String, String)> {
    let shown = directory.display();
    if !directory.is_dir() {
        let what = format!("there is no directory {shown}");
        return Some((what, "create it, for the user that keyway runs as".to_owned()));
    }
    let access = Access::WRITE_OK | Access::EXEC_OK;
    let error = accessat(CWD, directory, access, AtFlags::EACCESS).err()?;
    let what = format!("the directory {shown} cannot be written to by this user: {error}");
    Some((what, "let the user that keyway runs as write to it, or check as that user".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_a_directory_is_in_the_current_one() {
        assert_eq!(directory_of(Path::new("a.rdb")), Path::new("."));
        assert_eq!(directory_of(Path::new("/var/a.rdb")), Path::new("/var"));
    }

    #[test]
    fn a_file_or_directory_of_control_may_be_made_where_it_is_not() {
        let folder = keyway_testkit::TempDir::new();
        let at = |name: &str| folder.path().join(name);
        let there = folder.write("there", "");
        assert_eq!(fault_of_file(&at("new.log")), None);
        assert_eq!(fault_of_file(&there), None);
        assert_eq!(fault_of_new(&at("a/b/c")), None);
        assert_eq!(fault_of_new(folder.path()), None);
        let told = |fault: Option<(String, String)>| fault.expect("a fault").0;
        assert!(told(fault_of_file(&at("no/new.log"))).contains("there is no directory"));
        assert!(told(fault_of_file(folder.path())).contains("is a directory"));
        assert!(told(fault_of_new(&there)).contains("is no directory"));
        assert!(told(fault_of_new(&there.join("a"))).contains("is no directory"));
    }

    #[test]
    fn a_directory_that_is_there_has_no_fault() {
        assert_eq!(fault_of(&std::env::temp_dir()), None);
        let (what, hint) = fault_of(Path::new("/no/such/place")).expect("a fault");
        assert!(what.contains("/no/such/place") && hint.starts_with("create it"), "{what}");
    }
}
