//! Changes of collections, by type. A change goes through an
//! [`Editor`](crate::entry::Editor), which keeps the books.

pub(crate) mod fill;
pub(crate) mod hash;
pub(crate) mod list;
pub(crate) mod set;
pub(crate) mod sorted;
pub(crate) mod stream;
