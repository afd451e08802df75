use crate::TlsFault;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, Connection, Error, ServerConfig, ServerConnection};
use std::io::{BufRead, Write};
use std::sync::Arc;

/// The certificate that the peer has shown, checked.
#[derive(Clone, Debug)]
pub struct PeerCertificate(CertificateDer<'static>);

impl PeerCertificate {
    /// Returns whether it is issued to `name`, the name of a host.
    pub fn has_name(&self, name: &str) -> bool {
        crate::peers::has_name(&self.0, name)
    }
}

/// Number of bytes at the start of a record that identify it as one: its kind, version and length.
const RECORD_START_LEN: usize = 5;

/// One TLS connection, without its socket.
///
/// Received bytes go into [`Channel::handle_input`], which appends the decrypted ones to a buffer
/// of the caller. Bytes to be sent go into [`Channel::encrypt`], and [`Channel::take_output`]
/// returns the encrypted ones. Between calls, the channel keeps only the beginning of an incomplete
/// record: at most 64 KiB during the handshake, 17 KiB later.
pub struct Channel {
    connection: Connection,
    /// Number of received bytes that were TLS, up to [`RECORD_START_LEN`].
    heard: usize,
    has_ended: bool,
}

impl Channel {
    /// Number of plain bytes that [`Channel::encrypt`] accepts at once. If it were larger, more
    /// would wait for a full socket. If it were smaller, large values would need more calls.
    pub const ENCRYPT_LEN_MAX: usize = 32 << 10;

    pub(crate) fn client(
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
    ) -> Result<Self, TlsFault> {
        let connection =
            ClientConnection::new(config, name).map_err(|error| TlsFault::from(&error))?;
        Ok(Channel::of(connection.into()))
    }

    pub(crate) fn of(connection: Connection) -> Self {
        Channel { connection, heard: 0, has_ended: false }
    }

    /// Returns bytes that only both sides of this connection know, different ones for each label
    /// (RFC 5705). Returns `None` during the handshake.
    pub fn export(&self, label: &[u8]) -> Option<[u8; 32]> {
        self.connection.export_keying_material([0; 32], label, None).ok()
    }

    /// Returns the certificate of the peer, if it has shown one.
    pub fn peer_certificate(&self) -> Option<PeerCertificate> {
        let certificate = self.connection.peer_certificates()?.first()?;
        Some(PeerCertificate(certificate.clone().into_owned()))
    }

    pub(crate) fn server(config: Arc<ServerConfig>) -> Result<Self, TlsFault> {
        let connection = ServerConnection::new(config).map_err(|error| TlsFault::from(&error))?;
        Ok(Channel::of(connection.into()))
    }

    /// Returns whether the handshake is still running.
    pub fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// Returns whether the peer has announced that it sends no more.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Takes all received bytes and appends the decrypted ones to `plain`: never more than the
    /// bytes given now and those kept from before.
    ///
    /// # Errors
    /// Returns why the connection can no longer be used. There may still be something to send,
    /// which tells the peer why.
    pub fn handle_input(&mut self, bytes: &[u8], plain: &mut Vec<u8>) -> Result<(), TlsFault> {
        let mut left = bytes;
        while !left.is_empty() && !self.has_ended {
            match self.connection.read_tls(&mut left) {
                Ok(0) | Err(_) => return Err(TlsFault::Broken),
                Ok(_) => {}
            }
            let state = match self.connection.process_new_packets() {
                Ok(state) => state,
                Err(error) => return Err(self.fault(&error)),
            };
            self.heard = RECORD_START_LEN.min(self.heard + bytes.len());
            self.has_ended = state.peer_has_closed();
            if state.plaintext_bytes_to_read() > 0 {
                self.read_plain(plain);
            }
        }
        Ok(())
    }

    fn read_plain(&mut self, plain: &mut Vec<u8>) {
        let mut reader = self.connection.reader();
        // An error means that there is no more now, or at all.
        while let Ok(chunk) = reader.fill_buf() {
            let len = chunk.len();
            if len == 0 {
                return;
            }
            plain.extend_from_slice(chunk);
            reader.consume(len);
        }
    }

    /// Returns the fault for an error. A peer whose first bytes are no record does not use TLS.
    #[cold]
    fn fault(&mut self, error: &Error) -> TlsFault {
        match error {
            Error::InvalidMessage(_) if !self.has_spoken() && self.is_handshaking() => {
                TlsFault::NotTls
            }
            error => TlsFault::from(error),
        }
    }

    /// Returns whether the beginning of a record has arrived. No other protocol looks like that.
    fn has_spoken(&self) -> bool {
        self.heard == RECORD_START_LEN
    }

    /// Encrypts the beginning of `plain`, at most [`Channel::ENCRYPT_LEN_MAX`] bytes. Returns the
    /// number of bytes, which is 0 during the handshake.
    pub fn encrypt(&mut self, plain: &[u8]) -> usize {
        if self.is_handshaking() {
            return 0;
        }
        let len = plain.len().min(Self::ENCRYPT_LEN_MAX);
        self.connection.writer().write(&plain[..len]).unwrap_or(0)
    }

    /// Returns whether there is something to send.
    pub fn wants_output(&self) -> bool {
        self.connection.wants_write()
    }

    /// Appends everything that must be sent to `out`.
    pub fn take_output(&mut self, out: &mut Vec<u8>) {
        while self.connection.wants_write() {
            // A vector accepts everything.
            if self.connection.write_tls(out).is_err() {
                return;
            }
        }
    }

    /// Announces to the peer that no more is sent.
    pub fn end(&mut self) {
        self.connection.send_close_notify();
    }
}
