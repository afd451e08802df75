//! The changes of a document, for people.

use crate::reload::diff;
use keyway_config::{ChangedPools, Config};
use keyway_users::{Operator, Role};

/// Returns the pools of a document that an operator has written. It has some.
///
/// # Errors
/// Returns everything that is wrong with it.
pub fn checked(text: &str) -> Result<Config, Vec<String>> {
    let errors = |errors: Vec<keyway_config::ConfigError>| {
        errors.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    Config::check_document("document", text).map_err(errors)
}

/// Checks that an operator may change every pool that differs between two documents. Files and
/// variables of hosts are an admin's: their contents may go to a server that the document names.
///
/// # Errors
/// Returns the first pool, file or variable that it may not change.
pub fn check_pools(operator: &Operator, old: &str, new: &str) -> Result<(), String> {
    if operator.role() < Role::Admin
        && let Some(file) = Config::other_files(old, new)
    {
        let name = operator.name();
        return Err(format!(
            "this names a file or a variable of hosts, {file}: an admin may, and {name} is none"
        ));
    }
    match Config::changed_pools(old, new) {
        ChangedPools::Some(pools) => match pools.iter().find(|pool| !operator.may_change(pool)) {
            Some(pool) => Err(operator.refusal(&format!("pool {pool}"))),
            None => Ok(()),
        },
        ChangedPools::Any if operator.pools().is_none() => Ok(()),
        ChangedPools::Any => Err(operator.refusal("more than pools")),
    }
}

/// Returns the differences between the pools of two documents, one line each. An empty document
/// has no pools.
///
/// # Errors
/// Returns everything that is wrong with the new one. An old one that is wrong counts as empty.
pub fn changes(old: &str, new: &str) -> Result<Vec<String>, Vec<String>> {
    let old = Config::check_document("document", old).ok();
    if new.is_empty() {
        let pools = old.iter().flat_map(|old| &old.pools);
        return Ok(pools.map(|pool| format!("pool {}: removed", pool.name)).collect());
    }
    let new = checked(new)?;
    let Some(old) = old else {
        return Ok(new.pools.iter().map(|pool| format!("pool {}: added", pool.name)).collect());
    };
    let lines = diff(&old, &new).into_iter();
    Ok(lines.filter(|line| line.starts_with("pool ")).collect())
}
