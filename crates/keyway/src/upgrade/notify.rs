//! What systemd is told, where it asks: `Type=notify`.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;

/// This process serves.
pub fn tell_of_start() {
    tell("READY=1\n");
}

/// Another process is the main one from here on. Only the one that was may say so.
pub fn tell_of_heir(pid: u32) {
    tell(&format!("MAINPID={pid}\n"));
}

#[allow(clippy::disallowed_methods, reason = "the protocol of systemd")]
fn tell(words: &str) {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return };
    if let Err(error) = send(Path::new(&path), words) {
        tracing::warn!("systemd cannot be told: {}: {error}", path.display());
    }
}

fn send(path: &Path, words: &str) -> io::Result<()> {
    let addr = match path.to_str().and_then(|path| path.strip_prefix('@')) {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(path)?,
    };
    let socket = UnixDatagram::unbound()?;
    // A manager that does not read is not waited for.
    socket.set_nonblocking(true)?;
    socket.send_to_addr(words.as_bytes(), &addr).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_arrive_at_a_path_and_at_a_name() {
        let folder = keyway_testkit::TempDir::new();
        let path = folder.path().join("notify");
        let name = format!("keyway-notify-test-{}", std::process::id());
        let abstract_addr = SocketAddr::from_abstract_name(&name).unwrap();
        let listening =
            [UnixDatagram::bind(&path).unwrap(), UnixDatagram::bind_addr(&abstract_addr).unwrap()];
        for (socket, path) in listening.iter().zip([path, format!("@{name}").into()]) {
            send(&path, "MAINPID=7\n").unwrap();
            let mut bytes = [0; 32];
            let len = socket.recv(&mut bytes).unwrap();
            assert_eq!(&bytes[..len], b"MAINPID=7\n");
        }
        assert!(send(&folder.path().join("nobody"), "READY=1\n").is_err());
    }
}
