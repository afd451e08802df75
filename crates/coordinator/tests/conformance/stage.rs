//! Where a backend of the suite is, as text that a child process can be given.

use keyway_coordinator::{
    Coordinator, Credentials, Etcd, EtcdSettings, Fault, Files, FilesSettings, Mark, Patience,
    ZooKeeper, ZooKeeperSettings,
};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// A backend with everything that it takes to open it.
#[derive(Clone, Debug)]
pub enum Stage {
    Files { dir: PathBuf, cluster: String },
    Etcd { endpoints: Vec<String>, cluster: String },
    ZooKeeper { endpoints: Vec<String>, cluster: String },
}

/// What differs from the usual.
#[derive(Clone, Debug, Default)]
pub struct How {
    pub mark: Option<Mark>,
    /// Transactions that are remembered, where that is ours to say.
    pub history_max: Option<usize>,
    pub user: Option<Credentials>,
    /// Whether it waits in vain, so that the suite does not take long.
    pub is_hasty: bool,
}

/// Where nothing is to fail, also on a busy machine.
pub const PATIENCE: Patience =
    Patience { request: Duration::from_secs(8), call: Duration::from_secs(20) };

/// Where something fails.
pub const HASTE: Patience =
    Patience { request: Duration::from_secs(1), call: Duration::from_secs(3) };

impl Stage {
    pub fn etcd(addresses: &[SocketAddr], cluster: &str) -> Stage {
        Stage::Etcd { endpoints: texts(addresses), cluster: cluster.to_owned() }
    }

    pub fn zookeeper(addresses: &[SocketAddr], cluster: &str) -> Stage {
        Stage::ZooKeeper { endpoints: texts(addresses), cluster: cluster.to_owned() }
    }

    /// The same backend with another cluster.
    pub fn named(&self, name: &str) -> Stage {
        let mut stage = self.clone();
        match &mut stage {
            Stage::Files { cluster, .. }
            | Stage::Etcd { cluster, .. }
            | Stage::ZooKeeper { cluster, .. } => name.clone_into(cluster),
        }
        stage
    }

    pub async fn open(&self) -> Arc<dyn Coordinator> {
        self.open_as(How::default()).await.expect("the backend can be opened")
    }

    /// The same with less patience, once servers that have just been started answer.
    pub async fn open_hasty(&self) -> Arc<dyn Coordinator> {
        self.open().await;
        let how = How { is_hasty: true, ..How::default() };
        self.open_as(how).await.expect("the backend can be opened")
    }

    pub async fn open_as(&self, how: How) -> Result<Arc<dyn Coordinator>, Fault> {
        let patience = if how.is_hasty { HASTE } else { PATIENCE };
        Ok(match self {
            Stage::Files { dir, cluster } => {
                let mut settings = FilesSettings::new(dir.clone(), cluster);
                (settings.mark, settings.patience) = (how.mark, patience);
                settings.history_max = how.history_max.unwrap_or(settings.history_max);
                Arc::new(Files::open(settings).await?)
            }
            Stage::Etcd { endpoints, cluster } => {
                let mut settings = EtcdSettings::new(&[], cluster);
                settings.endpoints.clone_from(endpoints);
                (settings.mark, settings.patience) = (how.mark, patience);
                settings.user = how.user;
                Arc::new(Etcd::open(settings).await?)
            }
            Stage::ZooKeeper { endpoints, cluster } => {
                let mut settings = ZooKeeperSettings::new(&[], cluster);
                settings.endpoints.clone_from(endpoints);
                (settings.mark, settings.patience) = (how.mark, patience);
                settings.history_max = how.history_max.unwrap_or(settings.history_max);
                settings.user = how.user;
                Arc::new(ZooKeeper::open(settings).await?)
            }
        })
    }

    /// The stage as words, for [`Stage::parse`].
    pub fn to_text(&self) -> String {
        match self {
            Stage::Files { dir, cluster } => format!("files {} {cluster}", dir.display()),
            Stage::Etcd { endpoints, cluster } => format!("etcd {} {cluster}", endpoints.join(",")),
            Stage::ZooKeeper { endpoints, cluster } => {
                format!("zookeeper {} {cluster}", endpoints.join(","))
            }
        }
    }

    pub fn parse(text: &str) -> Stage {
        let words: Vec<&str> = text.split(' ').collect();
        let [kind, place, cluster] = words[..] else { panic!("{text} is no stage") };
        let cluster = cluster.to_owned();
        let endpoints = || place.split(',').map(str::to_owned).collect();
        match kind {
            "files" => Stage::Files { dir: PathBuf::from(place), cluster },
            "etcd" => Stage::Etcd { endpoints: endpoints(), cluster },
            _ => Stage::ZooKeeper { endpoints: endpoints(), cluster },
        }
    }
}

fn texts(addresses: &[SocketAddr]) -> Vec<String> {
    addresses.iter().map(ToString::to_string).collect()
}
