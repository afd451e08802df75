//! A TLS client that waits for each reply.

#![allow(dead_code, reason = "each of the tests takes its part of it")]

use keyway_testkit::certificates::CertificateFiles;
use keyway_tls::{Channel, ClientSettings, ClientTls, Identity, MinVersion, Trust};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

const WITHIN: Duration = Duration::from_secs(20);

/// Returns the setting `tls` of a listener.
pub fn tls_table(files: &CertificateFiles, name: &str, more: &str) -> String {
    let file = |kind| files.path(&format!("{name}.{kind}"));
    format!("{{ cert_file = {:?}, key_file = {:?}{more} }}", file("pem"), file("key"))
}

/// The credentials of a client.
pub struct TlsLogin<'f> {
    pub files: &'f CertificateFiles,
    pub name: &'f str,
    pub identity: Option<&'f str>,
    pub authority: PathBuf,
}

impl<'f> TlsLogin<'f> {
    pub fn new(files: &'f CertificateFiles) -> Self {
        TlsLogin { files, name: "127.0.0.1", identity: None, authority: files.path("ca.pem") }
    }

    pub fn tls(&self) -> ClientTls {
        let file = |name: &str, kind: &str| self.files.path(&format!("{name}.{kind}"));
        let settings = ClientSettings {
            trust: Trust::Authorities(self.authority.clone()),
            server_name: Some(self.name.to_owned()),
            identity: self
                .identity
                .map(|name| Identity { cert_file: file(name, "pem"), key_file: file(name, "key") }),
            min_version: MinVersion::V1_2,
        };
        let read = |path: &Path| std::fs::read_to_string(path).map_err(|error| error.to_string());
        ClientTls::load(&settings, &read).expect("the files are right").tls
    }

    pub fn connect(&self, at: SocketAddr) -> TlsClient {
        let stream = TcpStream::connect(at).expect("it listens");
        stream.set_read_timeout(Some(WITHIN)).unwrap();
        let channel = self.tls().connect("127.0.0.1").unwrap();
        TlsClient { stream, channel, heard: Vec::new() }
    }
}

/// A TLS client that reads no faster than it is told to.
pub struct TlsClient {
    pub stream: TcpStream,
    pub channel: Channel,
    pub heard: Vec<u8>,
}

impl TlsClient {
    pub fn flush(&mut self) -> std::io::Result<()> {
        let mut out = Vec::new();
        self.channel.take_output(&mut out);
        self.stream.write_all(&out)
    }

    /// Reads some bytes. Returns `false` at the end, however the connection ended.
    pub fn read(&mut self) -> bool {
        let mut bytes = [0; 4096];
        let len = self.stream.read(&mut bytes).unwrap_or(0);
        let was_right = self.channel.handle_input(&bytes[..len], &mut self.heard).is_ok();
        let _ = self.flush();
        len > 0 && was_right && !self.channel.has_ended()
    }

    pub fn shake(&mut self) -> bool {
        let _ = self.flush();
        while self.channel.is_handshaking() {
            if !self.read() {
                return false;
            }
        }
        true
    }

    /// Sends `words`, and returns the reply up to `end` or the end of the connection.
    pub fn ask(&mut self, words: &str, end: &str) -> String {
        if self.shake() {
            let mut left = words.as_bytes();
            while !left.is_empty() {
                left = &left[self.channel.encrypt(left)..];
                if self.flush().is_err() {
                    break;
                }
            }
        }
        while !String::from_utf8_lossy(&self.heard).ends_with(end) && self.read() {}
        String::from_utf8_lossy(&std::mem::take(&mut self.heard)).into_owned()
    }

    pub fn ping(&mut self) -> bool {
        self.ask("PING\r\n", "PONG\r\n") == "+PONG\r\n"
    }
}
