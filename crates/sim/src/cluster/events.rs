//! The events of a cluster, one after the other.

use super::*;
use crate::network::MICRO;

impl ClusterSim {
    pub(super) fn begin(&mut self, kind: EventKind, scene: &mut Scene) {
        let what = match kind {
            EventKind::Move => self.begin_moves(scene),
            EventKind::Storm => self.storm(scene),
            EventKind::Switch => self.switch(scene),
            EventKind::Join => self.join(scene),
            EventKind::Leave => self.leave(None, scene),
            EventKind::Die => self.die(scene),
            EventKind::Usurp => self.usurp(scene),
            EventKind::Mislead => self.mislead(scene),
            EventKind::Relapse => self.relapse(scene),
            EventKind::RestartAll => self.restart_sentinels(scene),
        };
        let happens = if what.is_some() { "happens" } else { "cannot happen" };
        scene.network.tell(|| format!("cluster: {kind:?} {happens}"));
    }

    /// Picks one of the servers that fit and that take part in no event now.
    fn pick(&mut self, fits: impl Fn(&Self, u16) -> bool) -> Option<u16> {
        let is_free = |node: &u16| {
            self.view.members[usize::from(*node)].is_member
                && self.is_alive[usize::from(*node)]
                && !self.busy.contains(node)
                && fits(self, *node)
        };
        let nodes: Vec<u16> = (0..self.view.members.len() as u16).filter(is_free).collect();
        (!nodes.is_empty()).then(|| nodes[self.random.index(nodes.len())])
    }

    fn is_primary(&self, node: u16) -> bool {
        self.view.members[usize::from(node)].replica_of.is_none()
    }

    fn owns(&self, node: u16) -> bool {
        self.view.owners.contains(&node)
    }

    /// Returns a copy that can take over.
    fn heir_of(&self, node: u16) -> Option<u16> {
        let fits = |&copy: &u16| self.is_alive[usize::from(copy)] && !self.busy.contains(&copy);
        self.view.replicas_of(node).find(fits)
    }

    fn next_epoch(&mut self, node: u16) {
        let last = self.view.members.iter().map(|member| member.epoch).max().unwrap_or(0);
        self.view.members[usize::from(node)].epoch = last + 1;
    }

    /// Picks slots of a server, preferably ones with keys.
    fn slots_of(&mut self, node: u16, count: u64, scene: &Scene) -> Vec<u16> {
        let owners = &self.view.owners;
        let used: BTreeSet<u16> = scene.servers[usize::from(node)]
            .keys()
            .iter()
            .map(|key| slot_of(key))
            .filter(|&slot| owners[usize::from(slot)] == node && !self.moving.contains_key(&slot))
            .collect();
        let mut used: Vec<u16> = used.into_iter().collect();
        let mut slots = Vec::new();
        for _ in 0..count.min(used.len() as u64) {
            let at = self.random.index(used.len());
            slots.push(used.swap_remove(at));
        }
        slots
    }

    fn begin_moves(&mut self, scene: &mut Scene) -> Option<()> {
        let from = self.pick(|this, node| this.is_primary(node) && this.owns(node))?;
        let to = self.pick(|this, node| this.is_primary(node) && node != from)?;
        let count = self.random.scaled(1, 12);
        for slot in self.slots_of(from, count, scene) {
            self.begin_move(slot, (from, to), scene);
        }
        Some(())
    }

    fn begin_move(&mut self, slot: u16, (from, to): (u16, u16), scene: &mut Scene) {
        scene.ledger.on_slot_changed(slot);
        // A server that believes that it owns a slot refuses to import it, and one that does not
        // refuses to give it away. So both are told who owns it.
        let view = Rc::new(self.view.clone());
        for node in [from, to] {
            scene.servers[usize::from(node)].adopt(Rc::clone(&view), scene.network, scene.ledger);
        }
        let pause = self.random.scaled(5 * MICRO, 60 * MILLI);
        self.moving.insert(slot, Moving { from, to, pause });
        scene.servers[usize::from(from)].node().away.insert(slot, to);
        scene.servers[usize::from(to)].node().here.insert(slot, from);
        self.within(scene.network, (1, pause), Step::Migrate(slot));
    }

    /// Moves the next key of a slot, or the slot itself once it is empty.
    pub(super) fn migrate(&mut self, slot: u16, scene: &mut Scene) {
        let Some(&moving) = self.moving.get(&slot) else { return };
        let keys = scene.servers[usize::from(moving.from)].keys_of(slot);
        let is_over = scene.network.now >= self.plan.ends_at;
        if keys.is_empty() || is_over {
            // A request that was redirected by ASK before the slot turned may still be on its way
            // to the server that gives the slot back. If the slot arrived before it, the next
            // request of the client would overtake it. No client of Redis can prevent that.
            return match self.turned.get(&slot).map(|&at| at + TURNS_AGAIN) {
                Some(at) if at > scene.network.now && !is_over => {
                    self.at(scene.network, at, Step::Migrate(slot));
                }
                _ => self.end_move(slot, false, scene),
            };
        }
        let key = &keys[self.random.index(keys.len())];
        self.move_key(key, (moving.from, moving.to), scene);
        self.within(scene.network, (1, moving.pause), Step::Migrate(slot));
    }

    fn move_key(&mut self, key: &[u8], (from, to): (u16, u16), scene: &mut Scene) {
        let copied = scene.servers[usize::from(from)].take_key(key);
        scene.servers[usize::from(to)].give_key(copied);
        self.replicate(usize::from(from), scene);
        self.replicate(usize::from(to), scene);
    }

    /// Makes the new server the owner of a slot. The old one is told a little later, or now with
    /// `at_once`.
    fn end_move(&mut self, slot: u16, at_once: bool, scene: &mut Scene) {
        let Some(Moving { from, to, .. }) = self.moving.remove(&slot) else { return };
        self.give_slot(slot, (from, to), scene);
        self.next_epoch(to);
        match at_once {
            true => self.publish(&[to, from], scene),
            false => self.publish(&[to], scene),
        }
        // The slot moves back before every server knows of the first move.
        let is_quiet = !self.busy.contains(&to) && !self.busy.contains(&from);
        let goes_on = !at_once && is_quiet && scene.network.now + TURNS_AGAIN < self.plan.ends_at;
        // A slot does not move back and forth while a client that was redirected by ASK may still
        // be on its way. A server that gets the slot for the second time accepts the client's write
        // although the other has the key again. Redis does that with every client.
        let now = scene.network.now;
        let is_settled = self.turned.get(&slot).is_none_or(|&at| at + TURNS_AGAIN <= now);
        if goes_on && is_settled && self.random.percent(40) {
            self.turned.insert(slot, now);
            scene.servers[usize::from(from)].adopt(
                Rc::new(self.view.clone()),
                scene.network,
                scene.ledger,
            );
            self.begin_move(slot, (to, from), scene);
        }
    }

    fn give_slot(&mut self, slot: u16, (from, to): (u16, u16), scene: &mut Scene) {
        for key in scene.servers[usize::from(from)].keys_of(slot) {
            self.move_key(&key, (from, to), scene);
        }
        self.set_owner(slot, to, scene);
    }

    /// Sets the owner of a slot. If a slot comes back at once, it may meet requests that were
    /// redirected while it was away, and other requests overtake them.
    fn set_owner(&mut self, slot: u16, to: u16, scene: &mut Scene) {
        let (now, index) = (scene.network.now, usize::from(slot));
        let from = std::mem::replace(&mut self.view.owners[index], to);
        let (had, until) = std::mem::replace(&mut self.had[index], (from, now));
        if had == to && now < until + TURNS_AGAIN {
            scene.ledger.on_dispute(slot, true);
            scene.ledger.on_dispute(slot, false);
        }
        scene.ledger.on_slot_changed(slot);
    }

    /// Completes all moves to and from a server.
    fn end_moves_of(&mut self, node: u16, scene: &mut Scene) {
        let concerns = |(_, moving): &(&u16, &Moving)| moving.from == node || moving.to == node;
        let slots: Vec<u16> = self.moving.iter().filter(concerns).map(|(slot, _)| *slot).collect();
        for slot in slots {
            self.end_move(slot, true, scene);
        }
        // No server that is told late may believe that a slot is still moving.
        let view = Rc::new(self.view.clone());
        scene.servers[usize::from(node)].adopt(view, scene.network, scene.ledger);
    }

    fn give_slots(&mut self, slots: &[u16], (from, to): (u16, u16), scene: &mut Scene) {
        let keys = scene.servers[usize::from(from)].keys();
        let moved: BTreeSet<u16> = slots.iter().copied().collect();
        for key in keys.into_iter().filter(|key| moved.contains(&slot_of(key))) {
            self.move_key(&key, (from, to), scene);
        }
        for &slot in slots {
            self.set_owner(slot, to, scene);
        }
    }

    fn storm(&mut self, scene: &mut Scene) -> Option<()> {
        let from = self.pick(|this, node| this.is_primary(node) && this.owns(node))?;
        let to = self.pick(|this, node| this.is_primary(node) && node != from)?;
        self.move_range((from, to), scene);
        Some(())
    }

    fn move_range(&mut self, (from, to): (u16, u16), scene: &mut Scene) {
        self.end_moves_of(from, scene);
        self.end_moves_of(to, scene);
        let first = self.random.index(SLOTS);
        let count = self.random.between(500, SLOTS as u64) as usize;
        let turned = (0..count).map(|offset| ((first + offset) % SLOTS) as u16);
        let slots: Vec<u16> =
            turned.filter(|&slot| self.view.owners[usize::from(slot)] == from).collect();
        self.give_slots(&slots, (from, to), scene);
        self.next_epoch(to);
        self.publish(&[to, from], scene);
    }

    fn switch(&mut self, scene: &mut Scene) -> Option<()> {
        let old = self.pick(|this, node| this.is_primary(node) && this.heir_of(node).is_some())?;
        let heir = self.heir_of(old)?;
        self.end_moves_of(old, scene);
        self.replicate(usize::from(old), scene);
        let (a, b) = two(scene.servers, old, heir);
        b.copy_all(a);
        self.succeed(old, heir, scene);
        self.publish(&[heir, old], scene);
        if self.plan.kills_clients {
            let now = scene.network.now;
            scene.servers[usize::from(old)].drop_connections(scene.network);
            scene.ledger.on_trouble(usize::from(old), now, now + self.plan.aftermath);
        }
        Some(())
    }

    /// Makes a copy the primary, and the old primary a copy of it.
    fn succeed(&mut self, old: u16, heir: u16, scene: &mut Scene) {
        for copy in self.view.replicas_of(old).collect::<Vec<_>>() {
            self.view.members[usize::from(copy)].replica_of = Some(heir);
            if copy != heir {
                let (a, b) = two(scene.servers, heir, copy);
                b.copy_all(a);
            }
        }
        self.view.members[usize::from(heir)].replica_of = None;
        for (group, reigns) in self.reigns.iter_mut().enumerate() {
            if self.view.owners[group] == old {
                reigns.push(heir);
            }
        }
        self.view.members[usize::from(old)].replica_of = Some(heir);
        for slot in self.slots_owned_by(old) {
            self.set_owner(slot, heir, scene);
        }
        self.next_epoch(heir);
    }

    fn join(&mut self, scene: &mut Scene) -> Option<()> {
        let count = self.view.members.len() as u16;
        let spare = |&node: &u16| {
            // The last server never exists.
            node + 1 < count
                && !self.view.members[usize::from(node)].is_member
                && !self.gone.contains(&node)
        };
        let node = (0..count).find(spare)?;
        let giver = self.pick(|this, node| this.is_primary(node) && this.owns(node))?;
        scene.network.modes[usize::from(node)] = ConnectMode::Accept;
        self.is_alive[usize::from(node)] = true;
        self.view.members[usize::from(node)].is_member = true;
        self.next_epoch(node);
        self.publish(&[node], scene);
        self.move_range((giver, node), scene);
        let count = self.view.members.iter().filter(|member| member.is_member).count();
        self.joined.push(node);
        // An index is not reused for some time.
        let is_beyond = count > usize::from(self.plan.nodes_max);
        if is_beyond || count + self.gone.len() > self.plan.indices {
            self.was_crowded = true;
            // Requests for its slots have no server until it has left. It may have got the index of
            // a server that joined shortly before.
            self.busy.insert(node);
            self.within(scene.network, (100 * MILLI, 1500 * MILLI), Step::Retire(node));
            let until = self.plan.ends_at + self.plan.aftermath;
            // A server that joined shortly before stays. It may have no index until that of a
            // server that has left is free.
            scene.ledger.on_crowded(until + INDEX_KEPT + INDEX_EMPTY);
            for &joined in &self.joined {
                scene.ledger.on_trouble(usize::from(joined), scene.network.now, until);
            }
        }
        Some(())
    }

    pub(super) fn leave(&mut self, who: Option<u16>, scene: &mut Scene) -> Option<()> {
        let leaver = match who {
            Some(node) => node,
            None => self.pick(|_, _| true)?,
        };
        let stays = |this: &Self, node| this.is_primary(node) && node != leaver;
        let heir = self.pick(stays)?;
        if self.is_primary(leaver) {
            // Servers with copies stay.
            if who.is_none() {
                self.pick(|this, node| stays(this, node) && node != heir)?;
            }
            self.end_moves_of(leaver, scene);
            self.end_moves_of(heir, scene);
            let owners = self.view.owners.iter().enumerate();
            let slots: Vec<u16> = owners
                .filter(|(_, owner)| **owner == leaver)
                .map(|(slot, _)| slot as u16)
                .collect();
            self.give_slots(&slots, (leaver, heir), scene);
            for copy in self.view.replicas_of(leaver).collect::<Vec<_>>() {
                self.view.members[usize::from(copy)].replica_of = Some(heir);
                let (a, b) = two(scene.servers, heir, copy);
                b.copy_all(a);
            }
            self.next_epoch(heir);
            let copies: Vec<u16> = self.view.replicas_of(heir).collect();
            self.publish(&[&[heir, leaver], &copies[..]].concat(), scene);
        }
        self.busy.insert(leaver);
        let now = scene.network.now;
        let at = (now + self.plan.leaves_after).min(self.plan.ends_at).max(now);
        self.at(scene.network, at, Step::Forget(leaver));
        Some(())
    }

    /// Makes the other servers forget this one, and resets it.
    pub(super) fn forget(&mut self, node: u16, scene: &mut Scene) {
        self.view.members[usize::from(node)].is_member = false;
        self.publish(&[], scene);
        let mut alone = self.view.clone();
        alone.owners.fill(NOBODY);
        for (index, member) in alone.members.iter_mut().enumerate() {
            member.is_member = index == usize::from(node);
            member.replica_of = None;
        }
        scene.servers[usize::from(node)].adopt(Rc::new(alone), scene.network, scene.ledger);
        self.gone.insert(node);
    }

    fn die(&mut self, scene: &mut Scene) -> Option<()> {
        let node = self.pick(|_, _| true)?;
        let (server, now) = (usize::from(node), scene.network.now);
        self.busy.insert(node);
        self.end_moves_of(node, scene);
        self.replicate(server, scene);
        self.is_alive[server] = false;
        let dead = [ConnectMode::Refuse, ConnectMode::Silent, ConnectMode::AcceptAndClose];
        scene.network.modes[server] = self.random.pick(&dead);
        match self.random.percent(30) {
            true => scene.servers[server].abandon_connections(),
            false => scene.servers[server].drop_connections(scene.network),
        }
        let detected = now + self.random.scaled(20 * MILLI, 600 * MILLI);
        let elected = detected + self.random.scaled(10 * MILLI, 400 * MILLI);
        let back = elected + self.random.scaled(50 * MILLI, 1500 * MILLI);
        let heir = match self.is_primary(node) && self.owns(node) {
            true => self.heir_of(node),
            false => None,
        };
        self.busy.extend(heir);
        self.at(scene.network, detected.min(self.plan.ends_at), Step::Detect(node));
        if let Some(heir) = heir {
            self.at(scene.network, elected.min(self.plan.ends_at), Step::Elect(node, heir));
        }
        self.at(scene.network, back.min(self.plan.ends_at), Step::Return(node));
        let until = self.plan.ends_at.min(back + self.plan.longest_gossip());
        scene.ledger.on_trouble(server, now, until + self.plan.aftermath);
        Some(())
    }

    /// Notes which keys change when `heir` takes over.
    fn note_losses(&self, old: u16, heir: u16, scene: &mut Scene) {
        let (a, b) = (&scene.servers[usize::from(old)], &scene.servers[usize::from(heir)]);
        for key in a.keys().union(&b.keys()) {
            let is_own = self.view.owners[usize::from(slot_of(key))] == old;
            if is_own && !a.agrees(b, key) {
                scene.ledger.on_lost_key(key);
            }
        }
    }

    /// Removes keys that moved away with their slot from the copy that takes over, in case it was
    /// not told of that. If the slot came to it later, it would have these keys again, and deleted
    /// values would be back. Redis also loses such changes, but then nothing could be checked.
    fn forget_strays(&self, old: u16, heir: u16, scene: &mut Scene) {
        let server = &mut scene.servers[usize::from(heir)];
        for key in server.keys() {
            if self.view.owners[usize::from(slot_of(&key))] != old {
                let _ = server.take_key(&key);
            }
        }
    }

    pub(super) fn elect(&mut self, old: u16, heir: u16, scene: &mut Scene) {
        let now = scene.network.now;
        let server = &mut scene.servers[usize::from(heir)];
        server.apply_copies(now, scene.network);
        server.lose_incoming();
        self.note_losses(old, heir, scene);
        self.forget_strays(old, heir, scene);
        self.succeed(old, heir, scene);
        self.view.is_down = false;
        self.publish(&[heir], scene);
        self.busy.remove(&heir);
    }

    pub(super) fn come_back(&mut self, node: u16, scene: &mut Scene) {
        let index = usize::from(node);
        scene.servers[index].drop_connections(scene.network);
        scene.network.modes[index] = ConnectMode::Accept;
        (self.is_alive[index], self.back_since[index]) = (true, self.view.version);
        self.view.members[index].has_failed = false;
        self.view.is_down = false;
        let primary = self.view.members[index].replica_of;
        if let Some(primary) = primary
            && self.plan.groups > 0
            && scene.servers[index].copies().is_none()
            && self.disputed.is_empty()
        {
            return self.come_back_as_primary(node, primary, scene);
        }
        if let Some(primary) = primary {
            let (a, b) = two(scene.servers, primary, node);
            b.copy_all(a);
            let copied = scene.network.now + self.random.scaled(MILLI, 200 * MILLI);
            b.mood.loading_until = copied;
        }
        // Until it has heard from the other servers, it reports what it knew and serves no client.
        scene.servers[index].node().is_unsure = self.plan.groups == 0;
        match self.plan.groups {
            0 => self.publish(&[], scene),
            _ => self.publish(&[node], scene),
        }
        self.busy.remove(&node);
    }

    /// Restarts an old primary that was replaced meanwhile. It believes to be a primary until a
    /// sentinel makes it a replica.
    fn come_back_as_primary(&mut self, old: u16, heir: u16, scene: &mut Scene) {
        self.dispute((old, heir), self.slots_owned_by(heir), scene);
        self.publish(&[heir], scene);
        self.believe_alone(old, scene);
        self.within(scene.network, (MILLI, 400 * MILLI), Step::Demote(old, heir));
    }

    fn slots_owned_by(&self, node: u16) -> Vec<u16> {
        let owners = self.view.owners.iter().enumerate();
        owners.filter(|(_, owner)| **owner == node).map(|(slot, _)| slot as u16).collect()
    }

    fn dispute(&mut self, (old, heir): (u16, u16), slots: Vec<u16>, scene: &mut Scene) {
        slots.iter().for_each(|&slot| scene.ledger.on_dispute(slot, true));
        self.disputed = slots;
        self.busy.extend([old, heir]);
    }

    /// Makes a primary that no server copies any more believe that it is alone. It has heard of no
    /// other primary.
    fn believe_alone(&self, node: u16, scene: &mut Scene) {
        let mut alone = self.view.clone();
        alone.members[usize::from(node)].replica_of = None;
        // It hears only of later changes.
        scene.servers[usize::from(node)].node().view = Rc::new(alone);
    }

    /// Makes a sentinel report what was true at first, with the epochs of that time.
    fn relapse(&mut self, scene: &mut Scene) -> Option<()> {
        let free = self.sentinels().filter(|sentinel| !self.busy.contains(sentinel));
        let free: Vec<u16> = free.collect();
        let sentinel = *free.get(self.random.index(free.len().max(1)))?;
        let server = &mut scene.servers[usize::from(sentinel)];
        server.node().view = Rc::clone(&self.first);
        server.drop_connections(scene.network);
        self.busy.insert(sentinel);
        self.within(scene.network, (20 * MILLI, 1500 * MILLI), Step::Correct(sentinel));
        Some(())
    }

    fn restart_sentinels(&mut self, scene: &mut Scene) -> Option<()> {
        for sentinel in self.sentinels() {
            scene.servers[usize::from(sentinel)].drop_connections(scene.network);
            scene.network.modes[usize::from(sentinel)] = ConnectMode::Refuse;
            self.within(scene.network, (MILLI, 900 * MILLI), Step::Reopen(sentinel));
        }
        (self.plan.sentinels > 0).then_some(())
    }

    fn usurp(&mut self, scene: &mut Scene) -> Option<()> {
        if !self.disputed.is_empty() {
            return None;
        }
        let old = self.pick(|this, node| {
            this.is_primary(node) && this.owns(node) && this.heir_of(node).is_some()
        })?;
        let heir = self.heir_of(old)?;
        self.end_moves_of(old, scene);
        let now = scene.network.now;
        let server = &mut scene.servers[usize::from(heir)];
        server.apply_copies(now, scene.network);
        server.lose_incoming();
        self.note_losses(old, heir, scene);
        self.forget_strays(old, heir, scene);
        self.dispute((old, heir), self.slots_owned_by(old), scene);
        self.succeed(old, heir, scene);
        self.view.version += 1;
        let view = Rc::new(self.view.clone());
        scene.servers[usize::from(heir)].adopt(Rc::clone(&view), scene.network, scene.ledger);
        if self.plan.groups > 0 {
            self.tell_sentinels(&view, scene);
            self.believe_alone(old, scene);
        }
        self.within(scene.network, (MILLI, 300 * MILLI), Step::Demote(old, heir));
        Some(())
    }

    /// Tells the primary that was usurped, and all others.
    pub(super) fn step_down(&mut self, old: u16, heir: u16, scene: &mut Scene) {
        let (a, b) = two(scene.servers, heir, old);
        b.copy_all(a);
        self.publish(&[old], scene);
        for slot in std::mem::take(&mut self.disputed) {
            scene.ledger.on_dispute(slot, false);
        }
        self.busy.remove(&old);
        self.busy.remove(&heir);
    }

    fn mislead(&mut self, scene: &mut Scene) -> Option<()> {
        let node = self.pick(|this, node| this.is_primary(node) && this.owns(node))?;
        self.end_moves_of(node, scene);
        let nowhere = self.view.members.len() as u16 - 1;
        let mut view = self.view.clone();
        for slot in self.slots_of(node, 6, scene) {
            view.owners[usize::from(slot)] = nowhere;
        }
        self.view.version += 1;
        view.version = self.view.version;
        self.busy.insert(node);
        let now = scene.network.now;
        scene.servers[usize::from(node)].adopt(Rc::new(view), scene.network, scene.ledger);
        let lasts = self.random.scaled(MILLI, 400 * MILLI);
        let until = (now + lasts).min(self.plan.ends_at);
        self.at(scene.network, until, Step::Correct(node));
        scene.ledger.on_trouble(usize::from(node), now, until + self.plan.aftermath);
        Some(())
    }
}

/// Borrows two servers at once.
fn two(servers: &mut [Server], one: u16, other: u16) -> (&Server, &mut Server) {
    let (one, other) = (usize::from(one), usize::from(other));
    match one < other {
        true => {
            let (left, right) = servers.split_at_mut(other);
            (&left[one], &mut right[0])
        }
        false => {
            let (left, right) = servers.split_at_mut(one);
            (&right[0], &mut left[other])
        }
    }
}
