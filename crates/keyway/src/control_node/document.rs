//! The changes of a document, for people.

use crate::reload::diff;
use keyway_config::{Config, ConfigError, DocumentChange, PoolConfig};
use keyway_fleet::{Document, SlotsView};
use keyway_users::{Operator, Role};
use std::collections::BTreeSet;

/// Errors of a document that are told. More fill an operator's screen, and the entry of the audit log.
const ERRORS_MAX: usize = 20;

/// Checks a document that an operator wants to be stored.
///
/// # Errors
/// Returns what is wrong with it: the first errors, and how many others there are.
pub fn check(text: &str) -> Result<(), Vec<String>> {
    // A text that is too long is not read: that takes time.
    if let Some(what) = Document::too_long(text.len()) {
        return Err(vec![what]);
    }
    Config::check_new_document("document", text).map_err(lines).map(|_| ())
}

/// Checks that no server of a document that was stored earlier is in two groups.
///
/// # Errors
/// Returns every server that is.
pub fn check_groups(text: &str) -> Result<(), Vec<String>> {
    Config::check_groups("document", text).map_err(lines)
}

fn lines(errors: Vec<ConfigError>) -> Vec<String> {
    let mut lines: Vec<String> = errors.iter().take(ERRORS_MAX).map(ToString::to_string).collect();
    if let Some(more) = errors.len().checked_sub(ERRORS_MAX).filter(|more| *more > 0) {
        let more = keyway_config::counted(more, "more error");
        lines.push(format!("not shown: {more}"));
    }
    lines
}

/// Checks that an operator may change all that differs between two documents. Users and limits are an
/// admin's. So are files and variables of hosts: their contents may go to a server that the document
/// names. A new server of a group is for operators of all pools: control makes any redis-server that
/// it reaches a replica, which empties it, and the server may be one of another pool.
///
/// # Errors
/// Returns the first thing that it may not change.
pub fn check_rights(operator: &Operator, old: &str, new: &str) -> Result<(), String> {
    if operator.role() >= Role::Admin {
        return Ok(());
    }
    let name = operator.name();
    if let Some(file) = Config::other_files(old, new) {
        return Err(format!(
            "this names a file or a variable of hosts, {file}: an admin may, and {name} is none"
        ));
    }
    if operator.pools().is_some()
        && let Some((pool, server)) = Config::new_group_servers(old, new).into_iter().next()
    {
        return Err(format!(
            "server {server} is new in the group of pool {pool}, and control would make it a \
             replica, which empties it: an operator of all pools may do that, and {name} is one of \
             some pools"
        ));
    }
    match Config::changed_parts(old, new) {
        DocumentChange::Pools(pools) => {
            match pools.iter().find(|pool| !operator.may_change(pool)) {
                Some(pool) => Err(operator.refusal(&format!("pool {pool}"))),
                None => Ok(()),
            }
        }
        DocumentChange::UsersOrLimits => {
            Err(format!("this changes users or limits: an admin may, and {name} is none"))
        }
        DocumentChange::Any => {
            Err(format!("this changes more than pools: an admin may, and {name} is none"))
        }
    }
}

/// Returns what a document lacks of a pool whose slots were moved, if it lacks something: groups that have
/// slots by the map of control, or that a plan is about. The map would be obeyed by no proxy.
pub fn lacks_slots(text: &str, view: &SlotsView) -> Option<String> {
    let pool = &view.pool;
    if view.epoch == 0 && view.plans.iter().all(|one| one.plan.phase.is_over()) {
        return None;
    }
    let config = Config::check_document("document", text).ok()?;
    let named = config.pools.iter().find(|one| one.name == *pool);
    let known = named.and_then(PoolConfig::controlled_slots);
    let Some(known) = known.filter(|known| known.space.count() == view.count) else {
        return Some(format!(
            "pool {pool}: control has moved slots of it, so it stays a pool of kind \"slots\" with \
             `failover` and {} slots",
            view.count
        ));
    };
    let going = view.plans.iter().filter(|one| !one.plan.phase.is_over());
    let in_plans = going.flat_map(|one| [&one.plan.from, &one.plan.to]);
    let needed: BTreeSet<&String> = view.owners.keys().chain(in_plans).collect();
    let is_there = |name: &&&String| known.groups.iter().any(|(group, _)| group == **name);
    let missing = needed.iter().find(|name| !is_there(name))?;
    Some(format!(
        "pool {pool}: group {missing} has slots, or a plan is about it, and the document lacks it: \
         first keyway ctl slots evacuate {pool} {missing} --yes --wait"
    ))
}

/// Returns what another document does not take back, one line each.
pub fn lasting(old: &str, new: &str) -> Vec<String> {
    let servers = Config::new_group_servers(old, new).into_iter().map(|(pool, server)| {
        format!(
            "pool {pool}: server {server} is new in the group: it loses what it holds, unless it \
             becomes the first primary"
        )
    });
    let stores = Config::new_stores(old, new).into_iter().map(|pool| {
        format!(
            "pool {pool}: each proxy has an empty store of its own, until the proxy is restarted \
             by another document"
        )
    });
    stores.chain(servers).collect()
}

/// Checks that a rollout could go back from a document.
///
/// # Errors
/// Returns what it could not take back.
pub fn check_share(old: &str, new: &str) -> Result<(), String> {
    match Config::new_stores(old, new).first() {
        None => Ok(()),
        Some(pool) => Err(format!(
            "pool {pool}: a rollout cannot take a new store back, because a proxy keeps it until a \
             restart: apply the document to all members"
        )),
    }
}

/// Returns the differences between two documents, one line each, without secrets. An empty document has
/// nothing in it. If one of them has masks, secrets are not compared.
///
/// # Errors
/// Returns everything that is wrong with the new one. An old one that is wrong counts as empty.
pub fn changes(old: &str, new: &str) -> Result<Vec<String>, Vec<String>> {
    let masked = |text: &str| Config::masked_document(text);
    let (old, new) = match (Config::has_masks(old), Config::has_masks(new)) {
        (true, false) => (old.to_owned(), masked(new)),
        (false, true) => (masked(old), new.to_owned()),
        _ => (old.to_owned(), new.to_owned()),
    };
    let old = Config::check_document("document", &old).ok();
    let new = match &*new {
        "" => None,
        text => Some(Config::check_document("document", text).map_err(lines)?),
    };
    let (before, after) = (Parts::of(old.as_ref()), Parts::of(new.as_ref()));
    // A document may have ten thousand pools.
    let lacks = |mine: &[String], its: &[String]| {
        let its: BTreeSet<&String> = its.iter().collect();
        mine.iter().filter(|part| !its.contains(part)).cloned().collect::<Vec<_>>()
    };
    let mut told: Vec<String> = Vec::new();
    told.extend(lacks(&before.all, &after.all).iter().map(|part| format!("{part}: removed")));
    if let (Some(old), Some(new)) = (&old, &new) {
        let (before, after): (BTreeSet<&str>, BTreeSet<&str>) =
            (texts(&before.shown), texts(&after.shown));
        let is_of_both = |line: &String| {
            let mut ends = line.match_indices(": ").filter_map(|(end, _)| line.get(..end));
            ends.any(|part| before.contains(part) && after.contains(part))
        };
        told.extend(diff(old, new).into_iter().filter(is_of_both));
    }
    told.extend(lacks(&after.all, &before.all).iter().map(|part| format!("{part}: added")));
    if before.has_users && !after.has_users {
        told.push(
            "no user is left in the document: each proxy has the users of its file".to_owned(),
        );
    }
    if after.is_open && !before.is_open {
        told.push(
            "user default: clients that do not log in are let in, at each listener of it".into(),
        );
    }
    Ok(told)
}

fn texts(all: &[String]) -> BTreeSet<&str> {
    all.iter().map(String::as_str).collect()
}

/// The parts of a document, each as lines about differences begin.
#[derive(Default)]
struct Parts {
    all: Vec<String>,
    /// The same, and the names as the form of a file has them, in quotes if needed.
    shown: Vec<String>,
    has_users: bool,
    /// True if there is a user `default` that needs no password.
    is_open: bool,
}

impl Parts {
    fn of(config: Option<&Config>) -> Parts {
        let Some(config) = config else { return Parts::default() };
        let Some(document) = &config.document else { return Parts::default() };
        let users = config.users.iter().map(|user| &user.user);
        let mut all: Vec<String> =
            users.clone().map(|user| format!("user {}", user.name())).collect();
        all.extend(document.limits.then(|| "limits".to_owned()));
        // Other pools are those of files that users name.
        let its: BTreeSet<&String> = document.pools.iter().collect();
        let pools = config.pools.iter().filter(|pool| its.contains(&pool.name));
        all.extend(pools.clone().map(|pool| format!("pool {}", pool.name)));
        let quoted = pools.map(|pool| format!("pool \"{}\"", pool.name));
        let shown = all.iter().cloned().chain(quoted).collect();
        let is_open = users
            .clone()
            .any(|user| **user.name() == *"default" && user.is_on() && user.needs_no_password());
        Parts { all, shown, has_users: document.users, is_open }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POOLS: &str = "[pool.a]\nkind = \"store\"\n[pool.\"b.c\"]\nkind = \"sharded\"\nservers = \
                         [\"127.0.0.1:7001:1\"]\n";

    fn user(name: &str, byte: &str) -> String {
        let hash = byte.repeat(32);
        format!(
            "[[user]]\nname = \"{name}\"\nrules = \"+get ~*\"\npassword_hashes = [\"#{hash}\"]\n"
        )
    }

    fn told(old: &str, new: &str) -> String {
        changes(old, new).expect("it is right").join("\n")
    }

    #[test]
    fn the_changes_of_users_and_limits_are_told_without_secrets() {
        let of_file = |name: &str| user(name, "1f") + "pool = \"elsewhere\"\n";
        let (app, limits) = (user("app", "1f"), "[limits]\nclients_max = 7\n");
        let old = format!("{app}{POOLS}");
        assert_eq!(told("", &old), "user app: added\npool a: added\npool b.c: added");
        assert_eq!(told(&old, ""), told(&old, "").replace("added", "removed"));
        assert_eq!(told(&old, &old), "");
        let other = told(&old, &format!("{}{POOLS}", user("app", "2f")));
        assert_eq!(other, "user app: password changed");
        // A viewer has one of them without its secrets.
        let masked = Config::masked_document(&old);
        assert_eq!(told(&masked, &format!("{}{POOLS}", user("app", "2f"))), "");
        assert_eq!(told(&old, &masked), "");
        assert!(told(&old, &old.replace("+get", "+set")).starts_with("user app: rules "));
        let added = told(&old, &format!("{old}{limits}"));
        // Bounds of pools are those of the limits, unless they have their own.
        assert!(added.contains("pool \"b.c\": clients_max 100000 -> 7"), "{added}");
        assert!(added.ends_with("\nlimits: added"), "{added}");
        let both = (format!("{old}{limits}"), format!("{old}{}", limits.replace('7', "9")));
        assert!(told(&both.0, &both.1).starts_with("limits: clients_max 7 -> 9\n"));
        assert!(told(&both.1, &old).starts_with("limits: removed\n"));
        let moved = old.replace("7001:1", "7002:1");
        assert!(told(&old, &moved).starts_with("pool \"b.c\": servers "), "{}", told(&old, &moved));
        // A pool of files is none of the document.
        assert_eq!(
            told(&old, &format!("{}{POOLS}", of_file("app"))),
            "user app: pool \"elsewhere\" added"
        );
        assert_eq!(told(POOLS, &format!("{}{POOLS}", of_file("x"))), "user x: added");
        let here = of_file("app") + "[pool.elsewhere]\nkind = \"store\"\n";
        assert_eq!(told(&of_file("app"), &here), "pool elsewhere: added");
    }

    #[test]
    fn a_document_that_opens_listeners_or_leaves_them_to_files_is_told_as_that() {
        let open = "[[user]]\nname = \"default\"\nrules = \"nopass +ping\"\n";
        let with = format!("{}{open}", user("app", "1f"));
        assert!(told(&user("app", "1f"), &with).ends_with("are let in, at each listener of it"));
        assert!(!told(&with, &with.replace("+ping", "+get")).contains("are let in"));
        let off = open.replace("nopass", "nopass off");
        assert!(!told("", &off).contains("are let in"));
        assert!(told(&with, POOLS).ends_with("each proxy has the users of its file"));
    }

    /// Each byte of these is an error. Checking them takes time in proportion to their length, and
    /// not to its square.
    #[test]
    fn a_document_of_mistakes_is_checked_in_proportion_and_told_in_part() {
        let len_max = keyway_fleet::limits::DOCUMENT_LEN_MAX;
        let len = len_max / 4;
        let numbered = |len: usize, end: &str| -> String {
            (0..len / 16).map(|nth| format!("k{nth}=1{end}")).collect()
        };
        let repeated = |text: &str| text.repeat(len / text.len());
        for text in [
            format!("# {}", "\u{1}".repeat(len - 2)),
            repeated("\u{7f}\n"),
            repeated("a b\n"),
            repeated("a=1\n"),
            repeated("[a]\n"),
            numbered(len, "\n"),
            format!("pool={{{}}}", numbered(len, ",")),
        ] {
            let errors = check(&text).expect_err("it is wrong");
            assert!((1..=ERRORS_MAX + 1).contains(&errors.len()), "{} errors", errors.len());
            let is_told = |error: &String| {
                error.contains("not shown") || error.contains("more mistakes may show")
            };
            assert!(errors.iter().any(is_told), "{errors:?}");
        }
        let longer = check(&"#".repeat(len_max + 1)).expect_err("it is too long");
        assert_eq!(longer, ["the document has 262145 bytes, and may have 262144"]);
    }

    #[test]
    fn what_another_document_does_not_take_back_is_told() {
        let group = |servers: &str| {
            format!("[pool.g]\nkind = \"replicated\"\nfailover = {{}}\nservers = [{servers}]\n")
        };
        let told = lasting(&group("\"h:1\""), &(group("\"h:1\", \"h:2\"") + POOLS)).join("\n");
        assert!(told.starts_with("pool a: each proxy has an empty store of its own"), "{told}");
        assert!(told.contains("\npool g: server h:2 is new in the group"), "{told}");
        assert_eq!(lasting(POOLS, POOLS), [""; 0]);
        assert!(check_share("", POOLS).is_err_and(|what| what.starts_with("pool a: a rollout")));
        assert_eq!(check_share(POOLS, POOLS), Ok(()));
    }

    #[test]
    fn users_limits_and_files_are_an_admins() {
        let of = |role, pools: Option<&str>| {
            let pools = pools.map(|pool| vec![pool.to_owned()]);
            Operator::new("ann", role, pools).expect("a name")
        };
        let (all, one) = (of(Role::Operator, None), of(Role::Operator, Some("a")));
        let admin = of(Role::Admin, None);
        let app = user("app", "1f");
        let file = POOLS.to_owned() + "password_file = \"f\"\n";
        for (old, new, ok_of_all, ok_of_one) in [
            ("", POOLS, true, false),
            (POOLS, POOLS, true, true),
            (POOLS, &*format!("{app}{POOLS}"), false, false),
            (&*format!("{app}{POOLS}"), POOLS, false, false),
            (&*format!("{app}{POOLS}"), &*format!("{}{POOLS}", user("app", "2f")), false, false),
            (POOLS, &*format!("[limits]\nclients_max = 7\n{POOLS}"), false, false),
            (POOLS, &*file, false, false),
            (&*file, POOLS, true, false),
            (&*app, "[pool.\n", false, false),
        ] {
            assert_eq!(check_rights(&all, old, new).is_ok(), ok_of_all, "{old}{new}");
            assert_eq!(check_rights(&one, old, new).is_ok(), ok_of_one, "{old}{new}");
            assert_eq!(check_rights(&admin, old, new), Ok(()), "{old}{new}");
        }
        // A server that becomes one of a group is emptied, whatever pool it is in.
        let group = |more: &str| {
            format!("[pool.a]\nkind = \"replicated\"\nfailover = {{}}\nservers = [\"h:1\"{more}]\n")
        };
        let plain = group("").replace("failover = {}\n", "");
        for (old, new, ok_of_one) in [
            (group(""), group(", \"h:2\""), false),
            (group(", \"h:2\""), group(""), true),
            (group(""), group("").replace("h:1", "H:1"), true),
            (group(""), group("").replace("{}", "{ quorum = 1 }"), true),
            (plain.clone(), group(""), false),
            (String::new(), group(""), false),
            (group(""), plain, true),
        ] {
            assert_eq!(check_rights(&one, &old, &new).is_ok(), ok_of_one, "{old}{new}");
            assert_eq!(check_rights(&all, &old, &new), Ok(()), "{old}{new}");
        }
        let told = check_rights(&one, "", &group("")).expect_err("it is refused");
        assert!(told.contains("h:1") && told.contains("operator of all pools"), "{told}");
        // A viewer may change nothing.
        assert!(check_rights(&of(Role::Viewer, None), "", POOLS).is_err());
    }
}
