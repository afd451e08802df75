/// A worker's part in a pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PoolWorker {
    /// Index of the pool.
    pub(crate) pool: u16,
    /// The worker's number.
    pub(crate) worker: u16,
}
