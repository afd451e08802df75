/// Identifies a server by its pool and its position in that pool, as long as a plan lasts.
///
/// After a reload another server may have the same position; their [`crate::BackendId`]s differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerId {
    /// Index of the pool in [`crate::Topology::pools`].
    pub pool: u16,
    /// Index of the server in its pool.
    pub server: u16,
}
