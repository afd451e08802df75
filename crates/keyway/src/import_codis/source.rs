//! The coordinators in which Codis 3 keeps a product.

use anyhow::{Context, Result, bail};
use keyway_coordinator::{EtcdSettings, ForeignEntries, Patience, ZooKeeperSettings};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The path below which Codis keeps its products.
const ROOT: &str = "/codis3";

/// Longest wait for a server, and for all of it.
const PATIENCE: Patience =
    Patience { request: Duration::from_secs(5), call: Duration::from_secs(10) };

/// Largest file of a coordinator of files. Entries have some hundred bytes.
const FILE_LEN_MAX: u64 = 1 << 20;

/// The coordinator of a product.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The folder that Codis calls the address of its coordinator `filesystem`.
    Files(PathBuf),
    /// Addresses of ZooKeeper, `HOST:PORT` each.
    ZooKeeper(Vec<String>),
    /// Addresses of etcd, `HOST:PORT` each.
    Etcd(Vec<String>),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Files(folder) => write!(f, "files in {}", folder.display()),
            Source::ZooKeeper(endpoints) => write!(f, "ZooKeeper at {}", endpoints.join(", ")),
            Source::Etcd(endpoints) => write!(f, "etcd at {}", endpoints.join(", ")),
        }
    }
}

impl Source {
    /// Returns the entries of a product, with their names relative to it.
    ///
    /// # Errors
    /// Returns why they cannot be read.
    pub fn read(&self, product: &str) -> Result<Vec<(String, Vec<u8>)>> {
        let is_path = product.contains('/') || product.is_empty() || product.starts_with('.');
        if is_path {
            bail!("{product:?} is no name of a product");
        }
        let entries = match self {
            Source::Files(folder) => {
                if !folder.join(&ROOT[1..]).is_dir() {
                    bail!(
                        "{} has no folder {}: name the folder that has it with --files",
                        folder.display(),
                        &ROOT[1..]
                    );
                }
                return read_files(&folder.join(&ROOT[1..]).join(product))
                    .with_context(|| format!("cannot read {self}"));
            }
            Source::ZooKeeper(endpoints) => ForeignEntries::ZooKeeper(ZooKeeperSettings {
                endpoints: endpoints.clone(),
                root: ROOT.to_owned(),
                patience: PATIENCE,
                ..ZooKeeperSettings::new(&[], product)
            }),
            Source::Etcd(endpoints) => ForeignEntries::EtcdV2(EtcdSettings {
                endpoints: endpoints.clone(),
                root: ROOT.to_owned(),
                patience: PATIENCE,
                ..EtcdSettings::new(&[], product)
            }),
        };
        entries.read().map_err(|fault| anyhow::anyhow!("{fault}"))
    }
}

/// Reads the files of each folder of a product. A product that is not there has none.
fn read_files(product: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let mut found = Vec::new();
    for folder in ["slots", "group", "proxy"] {
        let path = product.join(folder);
        let files = match std::fs::read_dir(&path) {
            Ok(files) => files,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => bail!("{}: {error}", path.display()),
        };
        for file in files {
            let file = file.with_context(|| path.display().to_string())?;
            let len = file.metadata().with_context(|| file.path().display().to_string())?.len();
            if len > FILE_LEN_MAX {
                bail!("{} has {len} bytes, too many for an entry", file.path().display());
            }
            let name = format!("{folder}/{}", file.file_name().to_string_lossy());
            let value = std::fs::read(file.path());
            found.push((name, value.with_context(|| file.path().display().to_string())?));
        }
    }
    found.sort();
    Ok(found)
}
