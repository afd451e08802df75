use std::ops::Range;

use crate::{Pool, Server, ServerId};

/// The version of a [`Topology`]. It grows with every topology that is published.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

/// Identifies one backend of one [`Topology`]. Only a topology makes ids. A server listed in two
/// pools is two backends.
///
/// The low 24 bits are the backend's index in the list of all servers of all pools, from 0. The
/// high 8 bits are the generation of the topology in which its pool began. A later topology refuses
/// the id of a pool that it does not keep, also if another server has the index. An id that
/// outlives 256 topologies may be mistaken for another's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BackendId(pub(crate) u32);

impl BackendId {
    /// Bits of the index. With fewer, a process could have fewer servers; with more, there would be
    /// fewer generations.
    const INDEX_BITS: u32 = 24;

    fn new(index: usize, generation: u8) -> BackendId {
        BackendId(index as u32 | u32::from(generation) << BackendId::INDEX_BITS)
    }

    /// Returns the id of the server `server_index` positions behind this one in its pool.
    #[inline]
    fn nth(self, server_index: usize) -> BackendId {
        BackendId(self.0 + server_index as u32)
    }

    /// Returns the index, for arrays with one entry for each backend of a topology.
    #[inline]
    pub fn index(self) -> usize {
        (self.0 & ((1 << BackendId::INDEX_BITS) - 1)) as usize
    }
}

/// One backend and where it belongs, as found by [`Topology::backend`].
#[derive(Clone, Copy, Debug)]
pub struct Backend<'a> {
    /// Index of its pool in [`Topology::pools`].
    pub pool_index: usize,
    /// Its pool.
    pub pool: &'a Pool,
    /// Index of the server in its pool, as [`Ring::pick`] returns it.
    pub server_index: usize,
    /// The server.
    pub server: &'a Server,
}

impl Backend<'_> {
    /// Returns the id of the server by its position.
    pub fn server_id(&self) -> ServerId {
        ServerId { pool: self.pool_index as u16, server: self.server_index as u16 }
    }
}

/// All pools, immutable and with an epoch. A reload replaces the topology as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    epoch: Epoch,
    pools: Vec<Pool>,
    /// The id of the first server of each pool.
    first_backends: Vec<BackendId>,
    /// One more than the last index of a backend.
    backend_count: u32,
    /// The generation of the ids of pools that begin in this topology.
    generation: u8,
}

impl Topology {
    /// Creates a topology, and gives ids to its backends.
    ///
    /// # Panics
    /// Panics with 2^24 servers or more. The configuration bounds them far below.
    pub fn new(epoch: Epoch, pools: Vec<Pool>) -> Topology {
        Topology {
            epoch: Epoch(0),
            pools: Vec::new(),
            first_backends: Vec::new(),
            backend_count: 0,
            generation: u8::MAX,
        }
        .succeeded_by(epoch, pools, |_| false)
    }

    /// Returns the next version. Backends of pools that are kept have the same ids as here, if the
    /// pools stay at the same positions. Other backends get ids that no backend has here.
    ///
    /// # Panics
    /// Panics as [`Topology::new`] does, and if a pool that is kept is not here.
    #[must_use]
    pub fn succeeded_by(
        &self,
        epoch: Epoch,
        pools: Vec<Pool>,
        is_kept: impl Fn(usize) -> bool,
    ) -> Topology {
        let kept = (0..pools.len()).filter(|&index| is_kept(index));
        let generation = self.generation.wrapping_add(1);
        let span =
            |first: BackendId, pool: &Pool| first.index()..first.index() + pool.servers().len();
        let mut taken: Vec<Range<usize>> =
            kept.map(|index| span(self.first_backends[index], &pools[index])).collect();
        taken.sort_by_key(|span| span.start);
        let mut first_backends = Vec::with_capacity(pools.len());
        for (index, pool) in pools.iter().enumerate() {
            if is_kept(index) {
                first_backends.push(self.first_backends[index]);
                continue;
            }
            let (mut first, len) = (0, pool.servers().len());
            let mut next = 0;
            while next < taken.len() && taken[next].start < first + len {
                first = first.max(taken[next].end);
                next += 1;
            }
            first_backends.push(BackendId::new(first, generation));
            if len > 0 {
                taken.insert(next, first..first + len);
            }
        }
        let backend_count = taken.iter().map(|span| span.end).max().unwrap_or(0);
        assert!(
            backend_count < 1 << BackendId::INDEX_BITS,
            "more servers than a BackendId can name"
        );
        let backend_count = backend_count as u32;
        Topology { epoch, pools, first_backends, backend_count, generation }
    }

    /// Returns the version.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Returns the pools in the order configured.
    pub fn pools(&self) -> &[Pool] {
        &self.pools
    }

    /// Returns the index in [`Topology::pools`] of the pool called `name`.
    pub fn pool_index(&self, name: &str) -> Option<usize> {
        self.pools.iter().position(|pool| pool.name == name)
    }

    /// Returns one more than the last index of a backend. In a version that succeeds another there
    /// may be unused indices below it.
    pub fn backend_count(&self) -> usize {
        self.backend_count as usize
    }

    /// Returns the id of a pool's server.
    ///
    /// # Panics
    /// Panics if there is no such pool.
    #[inline]
    pub fn backend_id(&self, pool_index: usize, server_index: usize) -> BackendId {
        debug_assert!(server_index < self.pools[pool_index].servers().len());
        self.first_backends[pool_index].nth(server_index)
    }

    /// Returns the id of a backend, like [`Topology::backend_id`], for a server that is identified
    /// by one value.
    #[inline]
    pub fn id_of(&self, server: ServerId) -> BackendId {
        self.backend_id(usize::from(server.pool), usize::from(server.server))
    }

    /// Returns the ids of a pool's servers, in order.
    ///
    /// # Panics
    /// Panics if there is no such pool.
    pub fn backend_ids(&self, pool_index: usize) -> impl Iterator<Item = BackendId> + use<> {
        let first = self.first_backends[pool_index];
        (0..self.pools[pool_index].servers().len()).map(move |server| first.nth(server))
    }

    /// Returns an id for each index below [`Topology::backend_count`], in order. The id of an
    /// unused index has this topology's generation, so no earlier id equals it.
    pub fn all_ids(&self) -> impl Iterator<Item = BackendId> + use<> {
        let free = |index| BackendId::new(index, self.generation);
        let mut ids: Vec<BackendId> = (0..self.backend_count()).map(free).collect();
        for id in (0..self.pools.len()).flat_map(|pool| self.backend_ids(pool)) {
            ids[id.index()] = id;
        }
        ids.into_iter()
    }

    /// Returns the backend with an id; `None` if the id belongs to another topology and does not
    /// exist in this one.
    pub fn backend(&self, id: BackendId) -> Option<Backend<'_>> {
        // Ids of two generations are never so close: no pool ends behind the last index.
        let has_it = |(first, pool): (&BackendId, &Pool)| {
            id.0.checked_sub(first.0).is_some_and(|at| (at as usize) < pool.servers().len())
        };
        let pool_index = self.first_backends.iter().zip(&self.pools).position(has_it)?;
        let pool = &self.pools[pool_index];
        let server_index = (id.0 - self.first_backends[pool_index].0) as usize;
        Some(Backend { pool_index, pool, server_index, server: &pool.servers()[server_index] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PoolKind, ServerSet};

    fn pool(name: &str, servers: &[&str]) -> Pool {
        let servers = servers.iter().map(|text| Server::parse(text).unwrap()).collect();
        Pool { name: name.into(), kind: PoolKind::Sharded(ServerSet::new(servers)) }
    }

    #[test]
    fn backends_of_pools_that_are_kept_keep_their_ids_and_gaps_are_used_again() {
        let before = Topology::new(
            Epoch(1),
            vec![pool("a", &["h:1", "h:2"]), pool("b", &["h:3", "h:4"]), pool("c", &["h:5"])],
        );
        let pools = vec![pool("d", &["h:1"]), pool("b", &["h:3", "h:4"]), pool("c", &["h:5"])];
        let ids = |topology: &Topology, pool| -> Vec<u32> {
            topology.backend_ids(pool).map(|id| id.index() as u32).collect()
        };
        let after = before.succeeded_by(Epoch(2), pools.clone(), |index| index > 0);
        assert_eq!(
            (ids(&after, 0), ids(&after, 1), ids(&after, 2)),
            (vec![0], vec![2, 3], vec![4])
        );
        assert!(after.backend(BackendId(1)).is_none(), "nobody's");
        assert_eq!(after.backend(BackendId(3)).unwrap().pool_index, 1);
        assert_eq!(after.backend_id(1, 1), before.backend_id(1, 1), "its pool is kept");
        let (gone, new) = (before.backend_id(0, 0), after.backend_id(0, 0));
        assert_eq!(gone.index(), new.index());
        assert!(gone != new && after.backend(gone).is_none() && before.backend(new).is_none());
        assert_eq!(after.backend(new).unwrap().pool_index, 0);
        assert_eq!(size_of::<BackendId>(), 4);
        let more = [pools, vec![pool("e", &["h:6", "h:7"]), pool("f", &["h:8"])]].concat();
        let after = after.succeeded_by(Epoch(3), more, |index| index < 3);
        assert_eq!((ids(&after, 3), ids(&after, 4)), (vec![5, 6], vec![1]));
        assert_eq!(after.backend_count(), 7);
    }

    #[test]
    fn backend_ids_and_servers_name_each_other() {
        let store = Pool { name: "store".into(), kind: PoolKind::Store };
        let topology = Topology::new(
            Epoch(3),
            vec![store.clone(), pool("a", &["h:1", "h:2"]), store.clone(), pool("b", &["h:1"])],
        );
        assert_eq!(topology.epoch(), Epoch(3));
        assert_eq!(topology.backend_count(), 3);
        for pool_index in 0..4 {
            let ids: Vec<_> = topology.backend_ids(pool_index).collect();
            assert_eq!(ids.len(), topology.pools()[pool_index].servers().len());
            for (server_index, id) in ids.into_iter().enumerate() {
                assert_eq!(topology.backend_id(pool_index, server_index), id);
                let backend = topology.backend(id).unwrap();
                assert_eq!((backend.pool_index, backend.server_index), (pool_index, server_index));
                assert_eq!(backend.server, &backend.pool.servers()[server_index]);
            }
        }
        assert!(topology.backend(BackendId(3)).is_none());
        assert_eq!(topology.pool_index("b"), Some(3));
        assert_eq!(topology.pool_index("c"), None);
        assert_eq!(Topology::new(Epoch(0), vec![]).backend_count(), 0);
    }
}
