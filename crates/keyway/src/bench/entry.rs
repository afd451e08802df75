//! How the measuring client gets access to a server: user, password, TLS.

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use keyway_load::{Protocol, Target};
use keyway_tls::{ClientSettings, ClientTls, Identity, MinVersion, Trust};
use std::path::{Path, PathBuf};

/// Files in which systems keep the authorities that all programs trust.
const AUTHORITIES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// The environment variable that holds the password for redis-cli.
const PASSWORD: &str = "REDISCLI_AUTH";

#[allow(clippy::disallowed_methods, reason = "a command of a user's, who has a password there")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// How a server lets us in.
#[derive(Debug, Args)]
pub struct Entry {
    /// User to be.
    #[arg(long)]
    user: Option<String>,
    /// Password to say; others on this machine can see it: better a file, or REDISCLI_AUTH in the
    /// environment, which is taken for servers of Redis where neither is given.
    #[arg(long, group = "secret")]
    password: Option<String>,
    /// File whose first line is the password.
    #[arg(long, value_name = "FILE", group = "secret")]
    password_file: Option<PathBuf>,
    /// Variable of the environment that has the password.
    #[arg(long, value_name = "NAME", group = "secret")]
    password_env: Option<String>,
    /// Connections are secured.
    #[arg(long)]
    tls: bool,
    /// Authorities whose certificates of servers are believed; the system's where none are given.
    #[arg(long, value_name = "FILE", requires = "tls", conflicts_with = "insecure")]
    cacert: Option<PathBuf>,
    /// Certificate to show to a server that asks, and those between it and its authority.
    #[arg(long, value_name = "FILE", requires = "tls", requires = "key")]
    cert: Option<PathBuf>,
    /// Its private key.
    #[arg(long, value_name = "FILE", requires = "tls", requires = "cert")]
    key: Option<PathBuf>,
    /// Name that the server's certificate is for, where that is not the host of its address.
    #[arg(long, value_name = "NAME", requires = "tls")]
    sni: Option<String>,
    /// Believe any certificate.
    #[arg(long, requires = "tls")]
    insecure: bool,
}

impl Entry {
    /// Sets the access settings of a target.
    pub fn apply(&self, target: &mut Target) -> Result<()> {
        target.user = self.user.clone();
        target.password = self.password(target.protocol)?;
        if self.user.is_some() && target.password.is_none() {
            bail!("a user has a password: --password-file, --password-env or --password says it");
        }
        target.tls = if self.tls { Some(self.secured()?) } else { None };
        Ok(())
    }

    fn password(&self, protocol: Protocol) -> Result<Option<String>> {
        if let Some(file) = &self.password_file {
            let text = std::fs::read_to_string(file)
                .with_context(|| format!("cannot read {}", file.display()))?;
            return Ok(Some(text.lines().next().unwrap_or_default().to_owned()));
        }
        if let Some(name) = &self.password_env {
            let value = variable(name).with_context(|| format!("no password in {name}"))?;
            return Ok(Some(value));
        }
        let usual = variable(PASSWORD).filter(|text| !text.is_empty());
        Ok(self.password.clone().or(usual.filter(|_| protocol.is_redis())))
    }

    fn secured(&self) -> Result<ClientTls> {
        let trust = match &self.cacert {
            _ if self.insecure => Trust::Anybody,
            Some(file) => Trust::Authorities(file.clone()),
            None => {
                let found = AUTHORITIES.iter().map(PathBuf::from).find(|file| file.is_file());
                Trust::Authorities(found.context(
                    "this system has no file of authorities where others have it: --cacert names one",
                )?)
            }
        };
        let both = self.cert.clone().zip(self.key.clone());
        let settings = ClientSettings {
            trust,
            server_name: self.sni.clone(),
            identity: both.map(|(cert_file, key_file)| Identity { cert_file, key_file }),
            min_version: MinVersion::default(),
        };
        let read = |path: &Path| std::fs::read_to_string(path).map_err(|why| why.to_string());
        let loaded = ClientTls::load(&settings, &read).map_err(|faults| {
            let told = faults.iter().map(|fault| format!("{}; {}", fault.what, fault.hint));
            anyhow!("{}", told.collect::<Vec<_>>().join("; "))
        })?;
        Ok(loaded.tls)
    }
}
