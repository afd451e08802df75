//! HTTP over TLS. The HTTP library reads and writes an in-memory channel, and this side carries the
//! records.

use keyway_tls::{Channel, PeerCertificate, ServerTls};
use std::io;
use std::sync::{Arc, OnceLock};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::net::TcpStream;

/// Plain bytes on their way to or from the HTTP library, for each connection.
const PLAIN_LEN: usize = 16 << 10;

/// Returns the plain side of a connection, and a future that carries its bytes until either side
/// ends. Poll the future beside it. No bytes of a client without the right certificate get through.
/// The certificate of the client is in `certificate` before its first byte gets through.
pub(crate) fn secure(
    socket: TcpStream,
    tls: &ServerTls,
    certificate: Arc<OnceLock<PeerCertificate>>,
) -> Option<(DuplexStream, impl Future<Output = io::Result<()>> + use<>)> {
    // This fails only if the settings contradict each other, which loading has checked.
    let channel = tls.accept().ok()?;
    let (near, far) = tokio::io::duplex(PLAIN_LEN);
    Some((near, carry(socket, channel, far, certificate)))
}

async fn carry(
    mut socket: TcpStream,
    mut channel: Channel,
    mut plain: DuplexStream,
    certificate: Arc<OnceLock<PeerCertificate>>,
) -> io::Result<()> {
    let (mut arrived, mut said) = (vec![0; PLAIN_LEN], vec![0; PLAIN_LEN]);
    let (mut decrypted, mut records) = (Vec::new(), Vec::new());
    let mut is_read_out = false;
    loop {
        tokio::select! {
            len = socket.read(&mut arrived), if !is_read_out => {
                let len = len?;
                let outcome = channel.handle_input(&arrived[..len], &mut decrypted);
                // The other side is told of a failure, too.
                send(&mut channel, &mut socket, &mut records).await?;
                if outcome.is_err() {
                    return Err(io::ErrorKind::InvalidData.into());
                }
                if !decrypted.is_empty()
                    && certificate.get().is_none()
                    && let Some(shown) = channel.peer_certificate()
                {
                    // Nobody else sets it.
                    let _ = certificate.set(shown);
                }
                // A client that has sent enough is not read any more; its reply is still carried.
                let is_refused = plain.write_all(&decrypted).await.is_err();
                decrypted.clear();
                is_read_out = is_refused || len == 0 || channel.has_ended();
                if is_read_out {
                    let _ = plain.shutdown().await;
                }
            }
            len = plain.read(&mut said) => {
                let len = len?;
                if channel.is_handshaking() {
                    // It has waited for a request for as long as it does.
                    return Err(io::ErrorKind::TimedOut.into());
                }
                if len == 0 {
                    channel.end();
                    send(&mut channel, &mut socket, &mut records).await?;
                    return socket.shutdown().await;
                }
                let mut left = &said[..len];
                while !left.is_empty() {
                    let taken = channel.encrypt(left);
                    if taken == 0 {
                        return Err(io::ErrorKind::BrokenPipe.into());
                    }
                    left = &left[taken..];
                    send(&mut channel, &mut socket, &mut records).await?;
                }
            }
        }
    }
}

async fn send(
    channel: &mut Channel,
    socket: &mut TcpStream,
    records: &mut Vec<u8>,
) -> io::Result<()> {
    channel.take_output(records);
    socket.write_all(records).await?;
    records.clear();
    Ok(())
}
