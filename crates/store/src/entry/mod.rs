//! Keys as commands see them, each with its shard's lock held.

mod edit;
mod fields;
mod key;
mod quick;
mod version;

pub(crate) use edit::Editor;
pub(crate) use key::{Entry, Facts};
pub(crate) use quick::Event;
