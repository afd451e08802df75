//! `[[user]]`: the rights of users, and the listeners at which they log in.

use crate::cluster::parse_read_from;
use crate::error::{Problem, Report, nearest, quoted};
use crate::kinds::{self, ServedBy};
use crate::model::UserConfig;
use crate::named::NamedPools;
use crate::secret::ReadFile;
use crate::secret::{PASSWORD, password, tell_of_mask};
use crate::section::HashedPasswords;
use crate::section::{NamedPool, Section, Value};
use keyway_topology::ReadFrom;
use keyway_users::{Digest, SlowHash, User};
use std::collections::BTreeSet;
use toml::de::DeValue;

const HASH_HINT: &str = "write what `keyway hash-password` prints: # and 64 hexadecimal digits, or with --slow what \
     begins with $argon2id$, each in double quotes";

/// The beginning of the masks of hashes. No real hash begins so. A number stands in place of the
/// rest.
pub(crate) const MASK_OF_HASH: &str = "#00000000000000000000000000000000000000000000000000000000";

/// Most slow hashes of one user. All of them are computed for each login.
const SLOW_MAX: usize = 4;

/// Reads hashed passwords. None is ever quoted: the mistake may be that it is a plain password.
pub(crate) fn read_hashes(value: &DeValue<'_>) -> Result<Value, Problem> {
    let wrong = |what: String| Problem::new(what, HASH_HINT);
    let items = value.as_array().ok_or_else(|| wrong("the value is no list".to_owned()))?;
    let mut hashes = HashedPasswords::default();
    for (at, item) in (1..).zip(items.iter()) {
        let text = item.get_ref().as_str().unwrap_or_default();
        if text.starts_with('$') {
            SlowHash::parse(text).map_err(|what| wrong(format!("number {at} {what}")))?;
            hashes.slow.push(text.into());
        } else {
            let digest = Digest::parse(text);
            hashes.has_mask |= digest.is_some() && text.starts_with(MASK_OF_HASH);
            hashes.digests.push(digest.ok_or_else(|| wrong(format!("number {at} is no hash")))?);
        }
    }
    if hashes.slow.len() > SLOW_MAX {
        return Err(wrong(format!("there are more than {SLOW_MAX} hashes that take long")));
    }
    Ok(Value::Hashes(hashes))
}

/// Reads rules, and keeps them as they are written.
pub(crate) fn read_rules(text: &str) -> Result<Value, Problem> {
    let faults = User::faults(text);
    if faults.is_empty() {
        return Ok(Value::Text(text.to_owned()));
    }
    let mut told: Vec<String> = faults.iter().map(ToString::to_string).collect();
    told.dedup();
    Err(Problem::new(
        told.join(", and "),
        "write rules as in docs/users.md, such as \"+@read -@dangerous ~app:*\"",
    ))
}

/// Reads the name of an environment variable.
pub(crate) fn read_variable(text: &str) -> Result<Value, Problem> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if text.is_empty() || text.len() > 256 || !text.bytes().all(fits) {
        // The value may be the password itself.
        let what = "the value (not shown) cannot be the name of a variable";
        return Err(Problem::new(what, "write its name: letters, digits and _"));
    }
    Ok(Value::Text(text.to_owned()))
}

/// Reads every user of the file that is valid, in the file's order.
pub(crate) fn resolve(
    sections: &[Section],
    named: &NamedPools<'_>,
    read_file: Option<ReadFile<'_>>,
    report: &mut Report<'_>,
) -> Vec<UserConfig> {
    let mut users: Vec<UserConfig> = Vec::new();
    let mut names = BTreeSet::new();
    for section in sections {
        let Some(user) = user(section, named, read_file, report) else { continue };
        let name = user.user.name();
        if !names.insert(name.clone()) {
            let what = format!("there are two users {}", quoted(name));
            let hint = "keep one of them; a user may have several passwords";
            report.consequence(section.place("name"), Problem::new(what, hint));
        }
        users.push(user);
    }
    let choices = users.iter_mut().filter(|user| user.read_from.is_some());
    for (at, user) in (0..).zip(choices) {
        user.user = user.user.clone().with_reads(Some(at));
    }
    users
}

/// Reads from which servers a user reads, if the user sets that. The user's own pool must have
/// replicas.
fn read_from(
    section: &Section,
    pool: Option<&NamedPool>,
    report: &mut Report<'_>,
) -> Option<ReadFrom> {
    let from = parse_read_from(section.text("read_from")?).ok()?;
    let kind = pool.and_then(|pool| pool.section.as_ref()).map(|(kind, _)| *kind);
    if let Some(kind) = kind.filter(|kind| !kinds::discovers(kind)) {
        let what = format!(
            "read_from in [[user]]: its pool is of kind \"{kind}\" and has no replicas to read"
        );
        let hint = "remove it, or name a pool of kind \"cluster\", \"replicated\" or \"slots\"";
        report.consequence(section.place("read_from"), Problem::new(what, hint));
    }
    Some(from)
}

fn user(
    section: &Section,
    named: &NamedPools<'_>,
    read_file: Option<ReadFile<'_>>,
    report: &mut Report<'_>,
) -> Option<UserConfig> {
    let (password, password_from) = password(section, PASSWORD, read_file, report);
    let pool_index = match section.text("pool") {
        None => None,
        Some(name) => {
            let index = named.position(name);
            if index.is_none() {
                let hint = match named.suggest(name) {
                    Some(meant) => format!("did you mean \"{meant}\"?"),
                    None => "write the NAME of a [pool.NAME]".to_owned(),
                };
                let what = format!("pool in [[user]]: there is no pool {}", quoted(name));
                report.consequence(section.place("pool"), Problem::new(what, hint));
            }
            Some(index?)
        }
    };
    let mut user = User::new(section.text("name")?, section.text("rules")?).ok()?;
    user = user.of_pool(pool_index.map(|index| index as u16));
    if let Some(Value::Hashes(hashes)) = section.value("password_hashes") {
        if hashes.has_mask {
            let what = "password_hashes in [[user]] has the zeros that `keyway ctl config` and \
                        `keyway check` print in place of a hash";
            let hint = "write what `keyway hash-password` prints, or name a file with the password: \
                        password_file = \"FILE\"";
            let at = section.place("password_hashes");
            tell_of_mask(read_file, at, Problem::new(what, hint), report);
        }
        user = hashes.digests.iter().fold(user, |user, digest| user.with_digest(*digest));
        let slow = hashes.slow.iter().filter_map(|text| SlowHash::parse(text).ok());
        user = user.with_slow(slow.collect());
    }
    if let Some(password) = &password {
        user = user.with_digest(Digest::of(password.expose().as_bytes()));
    }
    // A wrong value is reported already.
    let is_wrong = |key: &str| section.given(key).is_some() && section.value(key).is_none();
    let has_wrong = PASSWORD.iter().chain(&["password_hashes"]).any(|key| is_wrong(key));
    if user.is_on() && !user.has_password() && password_from.is_none() && !has_wrong {
        let what = format!("user {} has no password", quoted(user.name()));
        let hint = "write password_file, password_env or password_hashes, or the rule \"nopass\" \
                    or \"off\"";
        report.consequence(section.at, Problem::new(what, hint));
    }
    let read_from = read_from(section, pool_index.map(|index| &named[index]), report);
    Some(UserConfig { user, password, password_from, pool_index, read_from })
}

/// Returns the users that may log in at a listener, by their positions.
pub(crate) fn of_listener(
    section: &Section,
    sections: &[Section],
    users: &[UserConfig],
    (named, has_password): (&NamedPools<'_>, bool),
    report: &mut Report<'_>,
) -> Vec<usize> {
    let speaks_memcached = section.text("protocol") == Some("memcached");
    let own_pool = section.text("pool").unwrap_or_default();
    let fits = |user: &UserConfig| {
        let pool = user.pool_index.map_or(own_pool, |index| named[index].name.as_str());
        answers(pool, speaks_memcached, named)
    };
    let chosen: Vec<usize> = match section.value("users") {
        Some(Value::Names(names)) => {
            let find = |(at, name): &(usize, String)| {
                let found = users.iter().position(|user| **user.user.name() == **name);
                let problem = match found {
                    Some(found) if fits(&users[found]) => return Some(found),
                    Some(_) => Problem::new(
                        format!(
                            "user {} is of a pool that does not speak what this listener does",
                            quoted(name)
                        ),
                        "leave the user out of users, or give it another pool",
                    ),
                    None => {
                        let names = users.iter().map(|user| &**user.user.name());
                        let hint = match nearest(name, names) {
                            Some(meant) => format!("did you mean \"{meant}\"?"),
                            None => "add a [[user]] with this name".to_owned(),
                        };
                        Problem::new(
                            format!("users in [[listener]]: there is no user {}", quoted(name)),
                            hint,
                        )
                    }
                };
                report.consequence(*at, problem);
                None
            };
            names.iter().filter_map(find).collect()
        }
        _ => {
            let fitting: Vec<usize> = (0..users.len()).filter(|&at| fits(&users[at])).collect();
            if fitting.is_empty() && !users.is_empty() && !has_password {
                let what = "[[listener]] has no users: the pool of each [[user]] does not speak \
                            what it does, and so nobody would have to log in";
                let hint = "give it a password or a user, or write users = [] if it is to be open";
                report.consequence(section.at, Problem::new(what, hint));
            }
            fitting
        }
    };
    let has_default = chosen.iter().any(|&at| **users[at].user.name() == *"default");
    let own = PASSWORD.iter().find_map(|key| section.given(key));
    // The password may be the client_password of the pool.
    if has_default && has_password {
        let at = own.unwrap_or(section.at);
        let user = sections.iter().find(|user| user.text("name") == Some("default"));
        let line = user.map_or_else(|| "a line".to_owned(), |user| report.line_text_of(user.at));
        let what =
            format!("[[listener]] has a password for the user \"default\", whom {line} describes");
        report.consequence(at, Problem::new(what, "keep one of them"));
    }
    chosen
}

/// Returns whether a pool answers clients of this protocol.
fn answers(pool: &str, speaks_memcached: bool, named: &NamedPools<'_>) -> bool {
    let kind = named.section(pool).map(|(kind, _)| *kind);
    let spoken = named.speaks(pool);
    match (kind.and_then(kinds::served_by), speaks_memcached) {
        (Some(ServedBy::Memcached), _) => speaks_memcached,
        (Some(ServedBy::Store | ServedBy::Redis | ServedBy::Discovered), _) => true,
        (Some(ServedBy::Pools) | None, true) => !spoken.redis || spoken.memcached,
        (Some(ServedBy::Pools) | None, false) => !spoken.memcached || spoken.redis,
    }
}
