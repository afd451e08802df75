//! Received frames of a connection.

use super::Node;
use crate::event::Event;
use crate::fault::Reason;
use crate::frame::{self, Frame, Head, Kind, Parsed, flags};
use crate::node::came::Came;
use crate::peer::{Identity, Origin, PeerKey, Relation, Step, Sum};
use keyway_base::Time;
use std::sync::Arc;

impl Node {
    /// Handles received bytes of a connection: any number, cut anywhere.
    pub fn handle_input(&mut self, key: PeerKey, bytes: &[u8], now: Time) {
        let Some(peer) = self.peers.get_mut(key) else { return };
        peer.traffic.bytes_in += bytes.len() as u64;
        let mut partial = std::mem::take(&mut peer.partial);
        let is_partial = !partial.is_empty();
        if is_partial {
            partial.extend_from_slice(bytes);
        }
        let all = if is_partial { &partial[..] } else { bytes };
        let len = self.handle_frames(key, all, now);
        let left = all.len() - len;
        if left > 0
            && let Some(peer) = self.peers.get_mut(key)
        {
            if is_partial {
                partial.drain(..len);
            } else {
                partial.extend_from_slice(&bytes[len..]);
            }
            peer.partial = partial;
        }
        self.account(key);
        self.mark(key);
        self.schedule(key);
        self.note_round_trip(key);
        self.settle(now);
    }

    /// Handles whole frames. Returns the number of their bytes; all of them if a frame has ended
    /// the connection.
    fn handle_frames(&mut self, key: PeerKey, bytes: &[u8], now: Time) -> usize {
        let mut at = 0;
        loop {
            let Some(peer) = self.peers.get(key) else { return bytes.len() };
            let frame = match frame::parse(&bytes[at..], peer.body_len_max()) {
                Ok(Parsed::Frame(frame)) => frame,
                Ok(Parsed::NeedMore(_)) => return at,
                Err(reason) => {
                    self.close(key, reason, now);
                    return bytes.len();
                }
            };
            at += frame.len;
            if let Err(reason) = self.handle_frame(key, &frame, now) {
                self.close(key, reason, now);
            }
        }
    }

    fn handle_frame(&mut self, key: PeerKey, frame: &Frame<'_>, now: Time) -> Result<(), Reason> {
        let Some(peer) = self.peers.get_mut(key) else { return Ok(()) };
        match peer.accept_frame(frame, &self.settings, &mut self.assembly_left, now)? {
            Step::Done => {}
            Step::Frame => {
                self.dispatch(key, frame.head, frame.path, Came::Slice(frame.body), now)?
            }
            Step::Whole { head, body, sum, .. } if head.kind == Kind::Push => {
                self.on_push(key, &head, body, sum, now)?;
            }
            Step::Whole { head, path, front, body, .. } => {
                let body = match front.is_empty() {
                    true => Came::Whole(Arc::new(body)),
                    false => Came::Split(front, body),
                };
                self.dispatch(key, head, &path, body, now)?;
            }
            Step::Refused(reason) => {
                if frame.head.kind == Kind::Push {
                    return Err(reason);
                }
                self.refuse_parts(&frame.head, frame.path, reason, now);
            }
            Step::Asked(identity) => self.on_asked(key, *identity, now)?,
            Step::Registered => self.on_registered(key, now)?,
            Step::Leaves(reason) => self.on_leaves(key, reason, now),
        }
        Ok(())
    }

    fn dispatch(
        &mut self,
        key: PeerKey,
        head: Head,
        path: &[u8],
        body: Came<'_>,
        now: Time,
    ) -> Result<(), Reason> {
        match head.kind {
            Kind::Attach => self.on_attach(key, body.bytes()),
            Kind::Topology => self.on_topology(key, body.bytes(), now),
            Kind::Push => self.on_push(key, &head, body.bytes().to_vec(), Sum::default(), now),
            Kind::Have => self.on_have(key, body.bytes()),
            _ => {
                self.on_routed(key, &head, path, body, now);
                Ok(())
            }
        }
    }

    /// Handles a dialler that has proved its id.
    fn on_asked(&mut self, key: PeerKey, identity: Identity, now: Time) -> Result<(), Reason> {
        let id = identity.id;
        // If two nodes dial each other as siblings, the dial of the lower id counts.
        let dials_it = |origin: &Origin| *origin == Origin::Direct(id);
        let is_dialled = self.dials.values().any(|dial| dials_it(&dial.origin))
            || self.peers.iter().any(|(_, peer)| peer.identity.is_none() && dials_it(&peer.origin));
        let relation = self.peers.get(key).map_or(Relation::Child, |peer| peer.relation);
        let refusal = if is_dialled && self.id < id && relation == Relation::Sibling {
            Some(Reason::IdInUse)
        } else if self.settings.upstreams.iter().any(|upstream| upstream.id == id) {
            // An upstream is dialled, so no dialler is one.
            Some(Reason::IdRefused)
        } else if relation == Relation::Sibling && !self.settings.has_siblings {
            Some(Reason::IdRefused)
        } else {
            None
        };
        if let Some(reason) = refusal {
            self.refuse_known(key, id, reason, now);
            return Ok(());
        }
        let Some(incumbent) = self.by_id.get(&id).copied() else {
            self.admit(key, identity, now);
            return Ok(());
        };
        let known = self.peers.get(incumbent).map(|peer| (peer.origin, peer.relation));
        let is_beside = matches!(known, Some((_, Relation::Sibling)));
        let outcome = match known {
            // A direct connection is only a shortcut. If its node joins below, the direct
            // connection is closed.
            _ if is_beside
                && relation == Relation::Child
                && self.is_process(incumbent, &identity) =>
            {
                self.close(incumbent, Reason::Replaced, now);
                self.admit(key, identity, now);
                Ok(())
            }
            Some((Origin::Accepted, _)) => self.begin_contest(incumbent, key, identity, now),
            Some((Origin::Direct(_), _)) if relation == Relation::Child => {
                self.begin_contest(incumbent, key, identity, now)
            }
            // A connection that this node has dialled is not closed for one that came by itself.
            _ => Err(Reason::IdInUse),
        };
        if let Err(reason) = outcome {
            self.refuse_known(key, id, reason, now);
        }
        Ok(())
    }

    /// Returns whether the process at the other end of a connection is the one that it claims to
    /// be.
    fn is_process(&self, key: PeerKey, identity: &Identity) -> bool {
        let known = self.peers.get(key).and_then(|peer| peer.identity.as_deref());
        known.is_some_and(|known| {
            known.incarnation == identity.incarnation && known.place == identity.place
        })
    }

    /// Accepts a peer.
    pub(super) fn admit(&mut self, key: PeerKey, identity: Identity, now: Time) {
        let Some(peer) = self.peers.get_mut(key) else { return };
        peer.welcome(identity, &self.settings, now);
        self.on_up(key, now);
        self.mark(key);
    }

    /// Closes a connection of the same node for one that this node has dialled, if that is an
    /// upstream, or if the node was restarted.
    fn make_room_for(
        &mut self,
        identity: &Identity,
        origin: Origin,
        now: Time,
    ) -> Result<(), Reason> {
        let Some(old) = self.by_id.get(&identity.id).copied() else { return Ok(()) };
        let Some(known) = self.peers.get(old) else { return Ok(()) };
        let known_incarnation = known.identity.as_deref().map(|known| known.incarnation);
        let gives_way = match (known.origin, origin) {
            (Origin::Accepted | Origin::Direct(_), Origin::Uplink(_)) => true,
            _ => known_incarnation < Some(identity.incarnation),
        };
        if !gives_way {
            return Err(Reason::IdInUse);
        }
        self.close(old, Reason::Replaced, now);
        Ok(())
    }

    /// Handles the acceptance by a peer that this node dialled.
    fn on_registered(&mut self, key: PeerKey, now: Time) -> Result<(), Reason> {
        let Some(peer) = self.peers.get_mut(key) else { return Ok(()) };
        let Some(identity) = peer.identity.take() else { return Ok(()) };
        let (our_id, origin) = (peer.our_id(), peer.origin);
        if self.settings.id.is_none() {
            self.id = our_id;
        }
        // Without an identity, it is not yet among those that could be in the way.
        self.make_room_for(&identity, origin, now)?;
        let Some(peer) = self.peers.get_mut(key) else { return Ok(()) };
        peer.identity = Some(identity);
        peer.attempt = None;
        if let Origin::Uplink(at) = peer.origin {
            self.on_uplink_up(at, key, now);
        }
        self.on_up(key, now);
        Ok(())
    }

    fn on_up(&mut self, key: PeerKey, now: Time) {
        let Some(peer) = self.peers.get(key) else { return };
        let Some(identity) = peer.identity.clone() else { return };
        let (relation, by_us) = (peer.relation, peer.origin != Origin::Accepted);
        self.by_id.insert(identity.id, key);
        self.tell(Event::PeerUp { identity, relation, by_us });
        self.may_unpark = true;
        self.tell_cut_to(key, now);
        self.schedule(key);
        self.choose_upstream(now);
    }

    /// Returns the body of a frame as its sender meant it, taken out of `body` unless it was
    /// compressed; `None` if it is invalid.
    pub(super) fn plain_body(
        &self,
        head: &Head,
        body: &mut Came<'_>,
        len_max: usize,
    ) -> Option<Vec<u8>> {
        if !head.has(flags::COMPRESSED) {
            return Some(std::mem::replace(body, Came::Slice(&[])).into_bytes());
        }
        crate::compress::decompressed(body.bytes(), len_max)
    }
}
