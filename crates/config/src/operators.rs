//! `[[operator]]`: the operators of the admin address.

use crate::admin::check_token;
use crate::error::{Problem, Report, quoted};
use crate::model::{ListenerTlsConfig, SecretSource};
use crate::secret::{ReadFile, password};
use crate::section::{Section, Value};
use keyway_tls::ClientCertificates;
use keyway_topology::Password;
use keyway_users::{Operator, Role};
use std::collections::BTreeSet;

/// Most operators. The token of a request is compared with that of each.
pub(crate) const OPERATORS_MAX: usize = 256;

/// `[[operator]]`: an operator of the admin address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorConfig {
    /// Its name, role and pools.
    pub operator: Operator,
    /// Its token. `None` until it was read, which [`crate::Config::load`] does.
    pub token: Option<Password>,
    /// The source of `token`, if there is one.
    pub token_from: Option<SecretSource>,
    /// The host name that its certificate is issued to.
    pub certificate: Option<String>,
}

/// Reads every operator of the file that is valid, in the file's order. `tls` and `admin_token` are
/// those of the admin address.
pub(crate) fn resolve(
    sections: &[Section],
    (tls, admin_token): (Option<&ListenerTlsConfig>, Option<&Password>),
    read_file: Option<ReadFile<'_>>,
    report: &mut Report<'_>,
) -> Vec<OperatorConfig> {
    let has_certificates =
        tls.is_some_and(|tls| matches!(tls.settings.clients, ClientCertificates::Required(_)));
    let mut operators: Vec<OperatorConfig> = Vec::new();
    let mut seen = BTreeSet::new();
    for section in sections {
        let Some(operator) = operator(section, has_certificates, read_file, report) else {
            continue;
        };
        if !seen.insert(operator.operator.name().to_owned()) {
            let what = format!("there are two operators {}", quoted(operator.operator.name()));
            let problem = Problem::new(what, "give each operator a name of its own");
            report.consequence(section.place("name"), problem);
        }
        operators.push(operator);
    }
    if let Some(section) = sections.get(OPERATORS_MAX) {
        let what = format!("there are more than {OPERATORS_MAX} operators");
        report.consequence(section.at, Problem::new(what, "remove those that are not needed"));
    }
    refuse_shared_secrets(sections, &operators, admin_token, report);
    operators
}

fn operator(
    section: &Section,
    has_certificates: bool,
    read_file: Option<ReadFile<'_>>,
    report: &mut Report<'_>,
) -> Option<OperatorConfig> {
    let keys = ["", "token_file", "token_env"];
    let (token, token_from) = password(section, keys, read_file, report);
    if let Some(token) = &token {
        let at = keys.iter().skip(1).find_map(|key| section.given(key)).unwrap_or(section.at);
        check_token(at, "the token of the operator", token, report);
    }
    let certificate = section.text("certificate").map(str::to_owned);
    let given = |key: &str| section.given(key).is_some();
    if !keys.iter().skip(1).chain(&["certificate"]).any(|key| given(key)) {
        let what = "[[operator]] has neither a token nor a certificate";
        report.consequence(section.at, Problem::new(what, "add token_file or certificate"));
    }
    if certificate.is_some() && !has_certificates {
        let what = "certificate in [[operator]]: the admin address asks for none";
        let problem = Problem::new(what, "add admin_tls with ca_file to [server]");
        report.consequence(section.place("certificate"), problem);
    }
    let pools = match section.value("pools") {
        Some(Value::Names(names)) => Some(names.iter().map(|(_, name)| name.clone()).collect()),
        _ => None,
    };
    let role: Role = section.text("role")?.parse().ok()?;
    match Operator::new(section.text("name")?, role, pools) {
        Ok(operator) => Some(OperatorConfig { operator, token, token_from, certificate }),
        Err(what) => {
            let at = if what.contains("pools") { "pools" } else { "name" };
            let problem = Problem::new(format!("[[operator]]: {what}"), "see docs/operators.md");
            report.consequence(section.place(at), problem);
            None
        }
    }
}

/// Refuses two operators that show the same: nobody could tell them apart.
fn refuse_shared_secrets(
    sections: &[Section],
    operators: &[OperatorConfig],
    admin_token: Option<&Password>,
    report: &mut Report<'_>,
) {
    let at = sections.first().map_or(0, |section| section.at);
    for (nth, one) in operators.iter().enumerate() {
        let before = operators.iter().take(nth);
        let has_token = |token| one.token.as_ref().is_some_and(|own| own == token);
        let mut tokens = before.clone().filter_map(|other| other.token.as_ref());
        let is_shared = tokens.any(has_token) || admin_token.is_some_and(has_token);
        let mut names = before.filter_map(|other| other.certificate.as_deref());
        let same_name = one.certificate.as_deref().is_some_and(|own| names.any(|it| it == own));
        if is_shared || same_name {
            let what = format!(
                "operator {} shows the same token or certificate as another one",
                quoted(one.operator.name())
            );
            report.consequence(at, Problem::new(what, "give each operator a token of its own"));
        }
    }
}
