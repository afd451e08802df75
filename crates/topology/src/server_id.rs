/// Names a server by its pool and its position in that pool, for as long as a plan lasts.
///
/// After a reload the same position may be another server's: a [`crate::BackendId`] tells
/// these apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerId {
    /// Index of the pool in [`crate::Topology::pools`].
    pub pool: u16,
    /// Index of the server in its pool.
    pub server: u16,
}
