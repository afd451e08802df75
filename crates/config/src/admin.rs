//! The admin address, and its access settings.

use crate::access;
use crate::address::ListenAddr;
use crate::error::{Problem, Report};
use crate::model::{ListenerTlsConfig, SecretSource};
use crate::secret::ReadFile;
use crate::secret::password;
use crate::section::Section;
use crate::warnings::is_open;
use keyway_tls::ClientCertificates;
use keyway_topology::Password;

/// Shortest token, in characters. A shorter one could be guessed by a client that tries for long.
const TOKEN_LEN_MIN: usize = 16;

/// The admin address, and its access settings.
pub(crate) struct Admin {
    pub(crate) bind: Option<ListenAddr>,
    pub(crate) token: Option<Password>,
    pub(crate) token_from: Option<SecretSource>,
    pub(crate) tls: Option<ListenerTlsConfig>,
}

/// Reads the keys of the admin address in `[server]`. `bind` is the address. With `has_operators`
/// the file has operators, each of whom shows a token or a certificate.
pub(crate) fn resolve(
    section: &Section,
    (bind, has_operators): (Option<ListenAddr>, bool),
    read_file: Option<ReadFile<'_>>,
    report: &mut Report<'_>,
) -> Admin {
    let keys = ["", "admin_token_file", "admin_token_env"];
    let (token, token_from) = password(section, keys, read_file, report);
    let tls = section.section("admin_tls").map(|tls| access::tls(tls, read_file, report));
    refuse_bad_token(section, token.as_ref(), report);
    if let Some(bind) = bind.as_ref().filter(|bind| is_open(bind)) {
        refuse_strangers(
            section,
            bind,
            (token_from.is_some() || has_operators, tls.as_ref()),
            report,
        );
    }
    Admin { bind, token, token_from, tls }
}

fn refuse_bad_token(section: &Section, token: Option<&Password>, report: &mut Report<'_>) {
    let Some(token) = token else { return };
    let named = ["admin_token_file", "admin_token_env"];
    let Some(at) = named.into_iter().find_map(|name| section.given(name)) else { return };
    check_token(at, "the token for admin", token, report);
}

/// Refuses a token that could be guessed, or that no header can have. It is never quoted.
pub(crate) fn check_token(at: usize, name: &str, token: &Password, report: &mut Report<'_>) {
    let is_sendable = |byte: u8| byte.is_ascii_graphic();
    let hint = "make one, such as with: openssl rand -hex 32";
    if token.expose().len() < TOKEN_LEN_MIN {
        let what = format!("{name} has less than {TOKEN_LEN_MIN} characters");
        report.consequence(at, Problem::new(what, hint));
    } else if !token.expose().bytes().all(is_sendable) {
        let what = format!("{name} has characters that no header may have");
        report.consequence(at, Problem::new(what, hint));
    }
}

/// Refuses an admin address that other machines can reach and that asks for neither a token nor a
/// client certificate.
fn refuse_strangers(
    section: &Section,
    bind: &ListenAddr,
    (has_token, tls): (bool, Option<&ListenerTlsConfig>),
    report: &mut Report<'_>,
) {
    let asks_certificates =
        tls.is_some_and(|tls| matches!(tls.settings.clients, ClientCertificates::Required(_)));
    if !has_token && !asks_certificates {
        let what = format!(
            "admin {bind} can be reached from other machines, and whoever does may change what \
             Keyway does"
        );
        let hint = "add admin_token_file or admin_token_env, an [[operator]], or admin_tls with \
                    ca_file; or listen on 127.0.0.1";
        report.consequence(section.place("admin"), Problem::new(what, hint));
    } else if tls.is_none() {
        let what = format!(
            "admin {bind} can be reached from other machines by HTTP: who sees its traffic sees \
             the token"
        );
        report.warning(section.place("admin"), Problem::new(what, "add admin_tls"));
    }
}
