//! The changes of a document, for people.

use crate::reload::diff;
use keyway_config::Config;

/// Returns the differences between the pools of two documents, one line each. An empty document
/// has no pools.
///
/// # Errors
/// Returns everything that is wrong with the new one. An old one that is wrong counts as empty.
pub fn changes(old: &str, new: &str) -> Result<Vec<String>, Vec<String>> {
    let new = Config::check_document("document", new)
        .map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>())?;
    let old = Config::check_document("document", old).ok();
    let Some(old) = old else {
        return Ok(new.pools.iter().map(|pool| format!("pool {}: added", pool.name)).collect());
    };
    let lines = diff(&old, &new).into_iter();
    Ok(lines.filter(|line| line.starts_with("pool ")).collect())
}
