//! The owner of each part of a shown configuration, if the process joins a control plane: the file, or the
//! document of control.

use super::out::Out;
use crate::model::Config;

/// Writes whose a pool is.
pub(super) fn of_pool(config: &Config, name: &str, out: &mut Out) {
    let is_it = |pool: &String| pool == name;
    let is_left = config.control.as_ref().is_some_and(|control| control.pools.iter().any(is_it));
    let is_taken = config.document.as_ref().is_some_and(|all| all.pools.iter().any(is_it));
    tell("The pool is", "it", (is_left, is_taken), config, out);
}

/// Writes whose a user is. All of them have one owner.
pub(super) fn of_user(config: &Config, out: &mut Out) {
    let is_left = config.control.as_ref().is_some_and(|control| control.users);
    let is_taken = config.document.as_ref().is_some_and(|document| document.users);
    tell("The user is", "users", (is_left, is_taken), config, out);
}

/// Writes whose the limits are.
pub(super) fn of_limits(config: &Config, out: &mut Out) {
    let is_left = config.control.as_ref().is_some_and(|control| control.limits);
    let is_taken = config.document.as_ref().is_some_and(|document| document.limits);
    tell("The limits are", "them", (is_left, is_taken), config, out);
}

fn tell(it_is: &str, it: &str, (is_left, is_taken): (bool, bool), config: &Config, out: &mut Out) {
    if config.control.is_none() {
        return;
    }
    let name = config.document.as_ref().map(|document| &document.name).filter(|_| is_taken);
    let line = match name {
        Some(name) => format!("{it_is} from {name}."),
        None if is_left => format!("{it_is} from the file, until a document of control has {it}."),
        None => format!("{it_is} from the file."),
    };
    out.comment(&line);
}
