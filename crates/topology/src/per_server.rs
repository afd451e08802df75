//! One value for each server of a topology, found by the server's id.

use crate::strangers::Strangers;
use crate::{BackendId, HealthBoard, Topology};

/// A value for each server. An id of another topology finds a spare empty value, and is counted by
/// [`HealthBoard::strangers`].
#[derive(Debug)]
pub struct PerServer<T> {
    cells: Vec<(BackendId, T)>,
    /// The value for ids of other topologies.
    stray: T,
    strangers: Strangers,
}

impl<T: Default> PerServer<T> {
    /// Creates an empty value for each server of `topology`. Unknown ids are counted with those of
    /// `health`.
    pub fn new(topology: &Topology, health: &HealthBoard) -> Self {
        let cells = topology.all_ids().map(|id| (id, T::default())).collect();
        Self { cells, stray: T::default(), strangers: health.strangers_of_all() }
    }

    /// Adapts to the next topology. Servers that have kept their id keep their value, and all
    /// others begin with an empty one.
    pub fn follow(&mut self, topology: &Topology) {
        let old = std::mem::take(&mut self.cells);
        let mut old: Vec<_> = old.into_iter().map(Some).collect();
        let mut kept = |id: BackendId| {
            let cell = old.get_mut(id.index())?;
            cell.take_if(|(own, _)| *own == id)
        };
        self.cells =
            topology.all_ids().map(|id| kept(id).unwrap_or_else(|| (id, T::default()))).collect();
    }

    /// Returns the value of a server.
    #[inline]
    pub fn get(&self, id: BackendId) -> &T {
        self.strangers.find(&self.cells, id).unwrap_or(&self.stray)
    }

    /// Returns the value of a server, to be changed.
    #[inline]
    pub fn get_mut(&mut self, id: BackendId) -> &mut T {
        if self.strangers.find(&self.cells, id).is_some() {
            return &mut self.cells[id.index()].1;
        }
        self.stray = T::default();
        &mut self.stray
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Epoch, Pool, PoolKind, Server, ServerSet};

    fn topology(epoch: u64, servers: &[&str]) -> Topology {
        let servers = servers.iter().map(|text| Server::parse(text).unwrap()).collect();
        let kind = PoolKind::Sharded(ServerSet::new(servers));
        Topology::new(Epoch(epoch), vec![Pool { name: "pool".into(), kind }])
    }

    #[test]
    fn an_id_of_another_topology_finds_no_servers_value_and_is_counted() {
        let old = topology(1, &["h:1:1", "h:2:1"]);
        let board = HealthBoard::new(&old);
        let mut values: PerServer<u32> = PerServer::new(&old, &board);
        let ids: Vec<_> = old.backend_ids(0).collect();
        ids.iter().zip(5..).for_each(|(id, value)| *values.get_mut(*id) = value);
        values.follow(&old);
        assert_eq!((*values.get(ids[0]), *values.get(ids[1])), (5, 6), "they are the same servers");
        let new = topology(2, &["h:3:1", "h:2:1", "h:1:1"]);
        let new = old.succeeded_by(Epoch(2), new.pools().to_vec(), |_| false);
        values.follow(&new);
        assert!(new.backend_ids(0).all(|id| *values.get(id) == 0));
        assert_eq!(board.strangers(), 0);
        *values.get_mut(ids[0]) = 7;
        assert_eq!((*values.get(ids[1]), board.strangers()), (7, 2), "nobody's value");
        assert_eq!(*values.get_mut(ids[1]), 0);
        assert!(new.backend_ids(0).all(|id| *values.get(id) == 0));
    }
}
