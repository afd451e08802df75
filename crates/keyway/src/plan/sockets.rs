//! The sockets on which a process listens.

use crate::upgrade::TakeOver;
use keyway_config::{Config, ListenAddr, ListenerConfig};
use keyway_net::{Address, Door, Ipv4Amiss, Listener, ListenerOptions};
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;

/// Listens on every address of the configuration. Reports every address that fails.
pub fn bind(
    config: &Config,
    before: &mut TakeOver,
) -> Result<(Vec<Vec<Listener>>, NewSocketFiles), Vec<String>> {
    let mut listeners = Vec::new();
    let mut files = NewSocketFiles::default();
    let mut errors = Vec::new();
    for listener in &config.listeners {
        let options = options(listener, config);
        let handed = before.sockets(&listener.bind);
        let is_new = handed.is_empty();
        let sockets = match is_new {
            true => Listener::bind(&options).map(|listener| vec![listener]),
            false => handed.into_iter().map(|it| Listener::taken(it, &options)).collect(),
        };
        match sockets {
            Ok(sockets) => {
                // All sockets of one listener were bound alike.
                if let Some(amiss) = sockets.first().and_then(Listener::ipv4_amiss) {
                    warn_of_ipv4(&listener.bind, amiss);
                }
                listeners.push(sockets);
                if let (ListenAddr::Unix(path) | ListenAddr::Shm(path), true) =
                    (&listener.bind, is_new)
                {
                    files.0.push(path.clone());
                }
            }
            Err(error) => errors.push(match unusable_path(&listener.bind) {
                Some(why) => format!("cannot listen on {}: {why}", listener.bind),
                None => error.to_string(),
            }),
        }
    }
    if errors.is_empty() { Ok((listeners, files)) } else { Err(errors) }
}

/// The files of unix sockets that this process has created. They are removed when this is dropped,
/// unless the process serves: a failed start leaves no files.
#[derive(Debug, Default)]
pub struct NewSocketFiles(Vec<PathBuf>);

impl NewSocketFiles {
    /// Keeps the files, because clients are served from now on.
    pub fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for NewSocketFiles {
    fn drop(&mut self) {
        for path in &self.0 {
            // A file that is gone already needs no removal.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Warns that a socket of the previous process treats IPv4 clients differently from the settings.
/// It stays so, because a second socket could not be opened before the first one is closed.
fn warn_of_ipv4(bind: &ListenAddr, amiss: Ipv4Amiss) {
    let bind = bind.to_string();
    match amiss {
        Ipv4Amiss::Refused => tracing::warn!(
            bind,
            "upgrade: this listener refuses IPv4 clients, as its socket did in the previous process; \
             restart Keyway to have it accept them"
        ),
        Ipv4Amiss::Accepted => tracing::warn!(
            bind,
            "upgrade: this listener accepts IPv4 clients, as its socket did in the previous process; \
             restart Keyway to leave them to the other listener of this port"
        ),
    }
}

/// Returns the reason why no socket can be created at that path, where the system's own error would
/// mislead: it calls any file at the path an address in use.
pub fn unusable_path(bind: &ListenAddr) -> Option<String> {
    let (ListenAddr::Unix(path) | ListenAddr::Shm(path)) = bind else { return None };
    let directory = path.parent()?;
    if !directory.is_dir() {
        let directory = directory.display();
        return Some(format!("there is no directory {directory}; create it, or change `bind`"));
    }
    let found = std::fs::symlink_metadata(path).ok()?;
    if found.is_dir() {
        return Some("that is a directory; name a file in it with `bind`".to_owned());
    }
    (!found.file_type().is_socket()).then(|| {
        "a file that is no socket is there; remove it, or choose another path for `bind`".to_owned()
    })
}

/// Returns the options of a listener in `config`.
pub fn options(listener: &ListenerConfig, config: &Config) -> ListenerOptions {
    let address = match &listener.bind {
        ListenAddr::Tcp(addr) => Address::Tcp { host: addr.ip().to_string(), port: addr.port() },
        ListenAddr::Unix(path) => Address::Unix(path.clone()),
        ListenAddr::Shm(path) => Address::Shm(path.clone()),
    };
    let door = listener
        .shm
        .as_ref()
        .map(|shm| Door { allow_uids: shm.allow_uids.clone(), ring_max: shm.ring_max as usize });
    ListenerOptions {
        address,
        backlog: listener.backlog,
        unix_mode: listener.mode,
        unix_owner: listener.owner,
        tcp_keepalive: listener.tcp_keepalive,
        door,
        only_v6: config.only_v6(&listener.bind),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(path: &std::path::Path) -> String {
        let path = path.display();
        let config = Config::default_store_at(&format!("unix://{path}")).unwrap();
        bind(&config, &mut TakeOver::default()).unwrap_err().remove(0)
    }

    #[test]
    fn what_is_in_the_way_of_a_socket_is_told_for_what_it_is() {
        let folder = keyway_testkit::TempDir::new();
        let file = folder.path().join("file");
        std::fs::write(&file, "kept").unwrap();
        assert!(refused(&file).contains("a file that is no socket is there; remove it"));
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "kept");
        let lost = refused(&folder.path().join("run/keyway.sock"));
        let directory = folder.path().join("run");
        assert!(lost.contains(&format!("no directory {}; create it", directory.display())));
        let socket = folder.path().join("socket");
        let _listening = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        assert!(refused(&socket).contains("another process has it"));
    }
}
