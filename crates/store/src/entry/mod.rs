//! Keys as commands see them: an [`Entry`] is one key of one database with its
//! shard's lock held. All that commands do with keys goes through here, so that
//! memory, expiry and eviction are always accounted for.

mod edit;
mod fields;
mod key;
mod quick;
mod version;

pub(crate) use edit::Editor;
pub(crate) use key::{Entry, Facts};
