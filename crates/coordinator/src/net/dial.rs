use crate::{Fault, FaultKind};
use keyway_tls::{Channel, ClientTls};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream};
use tokio::net::TcpStream;

/// Endpoints that one cluster has at most. More would only make a wrong setting take longer.
const ENDPOINTS_MAX: usize = 16;

/// Plain bytes between the records and their reader, for each connection and direction.
const PLAIN_LEN: usize = 64 << 10;

/// The plain side of a connection.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A connection to an endpoint.
pub(crate) type Socket = Box<dyn Stream>;

/// Returns a time for people: what is left of a patience is no round number.
pub(crate) fn in_words(time: Duration) -> String {
    match time < Duration::from_millis(100) {
        true => format!("{} ms", time.as_millis()),
        false => format!("{:.1} s", time.as_secs_f64()),
    }
}

/// The endpoints of a cluster, and the one that answered last.
#[derive(Debug)]
pub(crate) struct Dialer {
    engine: &'static str,
    endpoints: Vec<String>,
    tls: Option<ClientTls>,
    preferred: AtomicUsize,
    timeout: Duration,
}

impl Dialer {
    /// Checks endpoints of the form `HOST:PORT`.
    pub(crate) fn new(
        engine: &'static str,
        endpoints: &[String],
        tls: Option<ClientTls>,
        timeout: Duration,
    ) -> Result<Dialer, Fault> {
        if endpoints.is_empty() || endpoints.len() > ENDPOINTS_MAX {
            return Err(Fault::invalid(format!("{engine} has 1 to {ENDPOINTS_MAX} endpoints")));
        }
        if let Some(wrong) = endpoints.iter().find(|endpoint| host_of(endpoint).is_none()) {
            return Err(Fault::invalid(format!("{wrong:?} is not HOST:PORT")));
        }
        let endpoints = endpoints.to_vec();
        Ok(Dialer { engine, endpoints, tls, preferred: AtomicUsize::new(0), timeout })
    }

    /// Returns the endpoint to ask first.
    pub(crate) fn preferred(&self) -> usize {
        self.preferred.load(Ordering::Relaxed) % self.endpoints.len()
    }

    /// Asks another endpoint first, unless somebody has chosen one since.
    pub(crate) fn leave(&self, index: usize) {
        let next = (index + 1) % self.endpoints.len();
        let _ = self.preferred.compare_exchange(index, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Returns the engine and the endpoint, for faults.
    pub(crate) fn place(&self, index: usize) -> String {
        match self.endpoints.get(index) {
            Some(endpoint) => format!("{} at {endpoint}", self.engine),
            None => self.all(),
        }
    }

    /// Returns the engine and all endpoints, for faults.
    pub(crate) fn all(&self) -> String {
        format!("{} at {}", self.engine, self.endpoints.join(", "))
    }

    /// Returns the text of the endpoint.
    pub(crate) fn authority(&self, index: usize) -> &str {
        self.endpoints.get(index).map_or("", String::as_str)
    }

    /// Connects to an endpoint.
    pub(crate) async fn dial(&self, index: usize) -> Result<Socket, Fault> {
        let fault =
            |what: String| Fault::new(FaultKind::Unreachable, self.place(index), "connect", what);
        match tokio::time::timeout(self.timeout, self.connect(index)).await {
            Ok(Ok(socket)) => Ok(socket),
            Ok(Err(what)) => Err(fault(what)),
            Err(_) => Err(fault(format!("no answer within {}", in_words(self.timeout)))),
        }
    }

    async fn connect(&self, index: usize) -> Result<Socket, String> {
        let endpoint = self.authority(index);
        let text = |error: io::Error| error.to_string();
        let mut socket = TcpStream::connect(endpoint).await.map_err(text)?;
        socket.set_nodelay(true).map_err(text)?;
        let Some(tls) = &self.tls else { return Ok(Box::new(socket)) };
        let host = host_of(endpoint).unwrap_or_default();
        let mut channel = tls.connect(host).map_err(|fault| tls.explain(fault, host))?;
        let mut early = Vec::new();
        shake_hands(&mut socket, &mut channel, &mut early, |fault| tls.explain(fault, host))
            .await?;
        let (near, far) = tokio::io::duplex(PLAIN_LEN);
        tokio::spawn(carry(socket, channel, far, early));
        Ok(Box::new(near))
    }
}

/// Returns the host of `HOST:PORT`, without brackets.
fn host_of(endpoint: &str) -> Option<&str> {
    let (host, port) = endpoint.rsplit_once(':')?;
    port.parse::<u16>().ok().filter(|port| *port != 0)?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    (!host.is_empty() && !host.contains(['/', '@', ' '])).then_some(host)
}

async fn shake_hands(
    socket: &mut TcpStream,
    channel: &mut Channel,
    early: &mut Vec<u8>,
    explain: impl Fn(keyway_tls::TlsFault) -> String,
) -> Result<(), String> {
    let text = |error: io::Error| error.to_string();
    let (mut arrived, mut records) = (vec![0; PLAIN_LEN], Vec::new());
    loop {
        send(channel, socket, &mut records).await.map_err(text)?;
        if !channel.is_handshaking() {
            return Ok(());
        }
        let len = socket.read(&mut arrived).await.map_err(text)?;
        if len == 0 {
            return Err("the connection was closed during the TLS handshake".to_owned());
        }
        let outcome = channel.handle_input(arrived.get(..len).unwrap_or_default(), early);
        if let Err(fault) = outcome {
            // The peer is told why, too.
            let _ = send(channel, socket, &mut records).await;
            return Err(explain(fault));
        }
    }
}

/// Carries records until either side ends.
async fn carry(
    mut socket: TcpStream,
    mut channel: Channel,
    mut plain: DuplexStream,
    early: Vec<u8>,
) -> io::Result<()> {
    plain.write_all(&early).await?;
    let (mut arrived, mut said) = (vec![0; PLAIN_LEN], vec![0; PLAIN_LEN]);
    let (mut decrypted, mut records) = (Vec::new(), Vec::new());
    loop {
        tokio::select! {
            len = socket.read(&mut arrived) => {
                let len = len?;
                let bytes = arrived.get(..len).unwrap_or_default();
                let outcome = channel.handle_input(bytes, &mut decrypted);
                send(&mut channel, &mut socket, &mut records).await?;
                plain.write_all(&decrypted).await?;
                decrypted.clear();
                if outcome.is_err() || len == 0 || channel.has_ended() {
                    return plain.shutdown().await;
                }
            }
            len = plain.read(&mut said) => {
                let len = len?;
                if len == 0 {
                    channel.end();
                    send(&mut channel, &mut socket, &mut records).await?;
                    return socket.shutdown().await;
                }
                let mut left = said.get(..len).unwrap_or_default();
                while !left.is_empty() {
                    let taken = channel.encrypt(left);
                    if taken == 0 {
                        return Err(io::ErrorKind::BrokenPipe.into());
                    }
                    left = left.get(taken..).unwrap_or_default();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_told_in_round_numbers() {
        let told = |micros| in_words(Duration::from_micros(micros));
        assert_eq!([told(489_374), told(2_000_000), told(20_900)], ["0.5 s", "2.0 s", "20 ms"]);
    }

    #[test]
    fn an_endpoint_is_a_host_and_a_port() {
        assert_eq!(host_of("127.0.0.1:2379"), Some("127.0.0.1"));
        assert_eq!(host_of("[::1]:2379"), Some("::1"));
        assert_eq!(host_of("etcd.example:2379"), Some("etcd.example"));
        for wrong in ["", "host", "host:", ":1", "host:0", "http://host:1", "u@host:1", "host:x"] {
            assert_eq!(host_of(wrong), None, "{wrong}");
        }
    }
}
