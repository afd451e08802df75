//! `[tls]` of a node of the bus.

use super::{BusConfig, text, unknown};
use crate::error::{Problem, Report, quoted};
use keyway_bus::{NodeId, Url, certificate_name};
use keyway_tls::{FileFault, Identity, PeerSettings, PeerTls, Setting};
use std::path::{Path, PathBuf};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

const KEYS: [&str; 3] = ["ca_file", "cert_file", "key_file"];

/// The TLS of connections by TCP, and the files from which it was read.
#[derive(Clone, Debug)]
pub struct BusTls {
    /// The TLS settings of new connections.
    pub loaded: PeerTls,
    /// The files.
    pub files: PeerSettings,
}

impl BusTls {
    /// Reads the files of the node `id` again. New connections use what is in them; open ones go on
    /// as they are. Returns warnings about the files.
    ///
    /// # Errors
    /// Returns everything that is wrong with the files. Then nothing has changed.
    pub fn reread(&self, id: NodeId) -> Result<Vec<String>, Vec<String>> {
        let told = |faults: &[FileFault]| {
            faults.iter().map(|fault| format!("{}; {}", fault.what, fault.hint)).collect()
        };
        let newer =
            PeerTls::load(&self.files, &crate::read_file).map_err(|faults| told(&faults))?;
        let name = certificate_name(id);
        if !newer.tls.is_named(&name) {
            return Err(vec![format!("the certificate in cert_file is not made out to {name}")]);
        }
        self.loaded.replace(&newer.tls);
        Ok(told(&newer.warnings))
    }
}

/// Reads the table. Returns `None` if something is wrong with it, after reporting that.
pub(super) fn read(
    value: &Spanned<DeValue<'_>>,
    read_file: &dyn Fn(&str) -> Result<Vec<u8>, String>,
    report: &mut Report<'_>,
) -> Result<Option<BusTls>, String> {
    let table = value.get_ref().as_table().ok_or("it is no table")?;
    for name in table.keys().filter(|name| !KEYS.contains(&name.get_ref().as_ref())) {
        report.mistake(name.span().start, unknown(name.get_ref(), &KEYS));
    }
    let mut paths = Vec::new();
    for key in KEYS {
        let Some(path) = table.get(key) else {
            let what = format!("tls lacks {key}");
            let hint = "it has ca_file, cert_file and key_file: files in PEM";
            report.mistake(value.span().start, Problem::new(what, hint));
            continue;
        };
        paths.push(report.in_folder(Path::new(text(path)?)));
    }
    let Ok([ca_file, cert_file, key_file]) = <[PathBuf; 3]>::try_from(paths) else {
        return Ok(None);
    };
    let settings = PeerSettings { ca_file, identity: Identity { cert_file, key_file } };
    let at = |fault: &FileFault| {
        let key = match fault.setting {
            Setting::CaFile | Setting::CrlFile => "ca_file",
            Setting::CertFile => "cert_file",
            Setting::KeyFile => "key_file",
        };
        table.get(key).map_or(value.span().start, |path| path.span().start)
    };
    let read = |path: &Path| {
        let bytes = read_file(&path.to_string_lossy())?;
        String::from_utf8(bytes).map_err(|_| "is no text".to_owned())
    };
    match PeerTls::load(&settings, &read) {
        Ok(loaded) => {
            for fault in &loaded.warnings {
                report.warning(at(fault), Problem::new(fault.what.as_str(), fault.hint));
            }
            Ok(Some(BusTls { loaded: loaded.tls, files: settings }))
        }
        Err(faults) => {
            for fault in &faults {
                report.mistake(at(fault), Problem::new(fault.what.as_str(), fault.hint));
            }
            Ok(None)
        }
    }
}

/// Refuses an address without TLS if there is no token: without a token only certificates keep
/// strangers out.
pub(super) fn check_reach(table: &DeTable<'_>, config: &BusConfig, report: &mut Report<'_>) {
    let is_tcp = |url: &&Url| matches!(url, Url::Tcp { .. });
    let upstreams = config.settings.upstreams.iter().flat_map(|upstream| &upstream.urls);
    let named = [("listen", config.settings.urls.iter().find(|url| !is_tcp(url)))];
    let named =
        named.into_iter().chain([("upstream", upstreams.into_iter().find(|url| !is_tcp(url)))]);
    for (key, url) in named {
        let Some(url) = url else { continue };
        let at = table.get(key).map_or(0, |value| value.span().start);
        let what = format!("{key}: {} has no TLS, and there is no token", quoted(&url.to_string()));
        let hint = "add token_files, or write addresses of TCP only";
        report.consequence(at, Problem::new(what, hint));
    }
}

/// Refuses a certificate that is made out to another node: no node would accept it.
pub(super) fn check_name(table: &DeTable<'_>, config: &BusConfig, report: &mut Report<'_>) {
    let Some(tls) = &config.tls else { return };
    let name = certificate_name(config.settings.id);
    if tls.loaded.is_named(&name) {
        return;
    }
    let at = table.get("tls").map_or(0, |value| value.span().start);
    let what = format!("tls: the certificate in cert_file is not made out to {name}");
    let hint = "give one whose subject alternative names have that name";
    report.consequence(at, Problem::new(what, hint));
}
