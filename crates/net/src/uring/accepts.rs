//! Clients that the kernel accepts before they are asked for.
//!
//! Each TCP listener has one standing order to accept. Accepted clients wait in a list of the
//! listener until the worker takes them:
//!
//! ```text
//!           ┌──────────── the list is empty again ────────────┐
//!           ▼                                                  │
//!  ring ─► Armed ─── no room (held, paused), the list is long ─► Stopping ─► Idle
//!                 └─ no descriptor left ─► the driver below tells, until nobody waits
//! ```
//! The list is reported like a backlog: at each poll, as long as it has clients and there is room.
//! The kernel accepts only while it is called, so a worker that is busy with other work finds no
//! more clients there than it left. All workers share a unix socket, which stays with the driver
//! below: an order would wake one of the waiting workers, however busy that one is.

use super::orders::{Done, Kind};
use super::{Reading, UringIo};
use crate::address::canonical;
use crate::{Accept, Event, Io, ListenerIndex, Peer, Socket};
use io_uring::cqueue;
use rustix::fd::{FromRawFd, IntoRawFd, OwnedFd};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

/// Length of the list at which the order is withdrawn. The kernel accepts a whole backlog at once,
/// so the list has at most this many clients and one backlog more.
const COME_MAX: usize = 256;

/// Number of waits for an order to end, a tenth of a second each.
const QUIET_WAITS: usize = 50;

/// The component that reports clients waiting at a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Acceptor {
    /// The ring accepts them.
    Ring,
    /// The driver below, until no client waits: the ring has failed.
    UntilEmpty,
    /// The driver below: the kernel does not know such orders.
    Base,
    /// None: the listener is closed, and earlier clients are still to be taken.
    Ended,
}

/// A listener.
struct Post {
    number: i32,
    generation: u32,
    order: Reading,
    way: Acceptor,
    /// True if the worker has no room.
    is_held: bool,
    /// Accepted clients in the order in which they came.
    come: VecDeque<OwnedFd>,
}

impl Post {
    fn is_due(&self) -> bool {
        self.way == Acceptor::Ring
            && !self.is_held
            && self.order == Reading::Idle
            && self.come.is_empty()
    }
}

/// All listeners that the ring may accept for.
#[derive(Default)]
pub(super) struct Accepts {
    /// Listeners by position.
    posts: Vec<Option<Post>>,
    is_paused: bool,
    /// Number of accepted clients, at all of them.
    count: usize,
    /// True if an order may be due.
    is_due: bool,
}

impl Accepts {
    fn post(&mut self, index: ListenerIndex) -> Option<&mut Post> {
        self.posts.get_mut(usize::from(index.0))?.as_mut()
    }

    /// Returns whether an order that was to end has not ended yet.
    pub(super) fn is_stopping(&self, generation: u32) -> bool {
        let mut posts = self.posts.iter().flatten();
        posts.any(|post| post.generation == generation && post.order == Reading::Stopping)
    }

    /// Returns whether any accepted client was not taken yet.
    pub(super) fn has_come(&self) -> bool {
        self.count > 0
    }

    fn with_news(&self) -> impl Iterator<Item = ListenerIndex> {
        let has_news = |post: &Post| !post.is_held && !post.come.is_empty();
        let posts = (0..).zip(&self.posts).filter(|_| self.count > 0 && !self.is_paused);
        let told = posts.filter(move |(_, post)| post.as_ref().is_some_and(has_news));
        told.map(|(index, _)| ListenerIndex(index))
    }

    /// Returns whether clients are to be reported without any other event.
    #[inline]
    pub(super) fn has_news(&self) -> bool {
        self.count > 0 && self.with_news().next().is_some()
    }

    /// Reports accepted clients.
    #[inline]
    pub(super) fn tell(&self, events: &mut Vec<Event>) {
        if self.count > 0 {
            events.extend(self.with_news().map(Event::Incoming));
        }
    }
}

impl UringIo {
    /// Accepts by the ring at a listener of the driver below, if possible.
    pub(super) fn take_listener(&mut self, index: usize) {
        let Some(number) = self.base.own_listener_fd(index).filter(|_| !self.has_fallen) else {
            return;
        };
        let generation = self.next_generation();
        let Accepts { posts, is_due, .. } = &mut self.accepts;
        if posts.len() <= index {
            posts.resize_with(index + 1, || None);
        }
        posts[index] = Some(Post {
            number,
            generation,
            order: Reading::Idle,
            way: Acceptor::Ring,
            is_held: false,
            come: VecDeque::new(),
        });
        *is_due = true;
        self.base.hold_listener(ListenerIndex(index as u16), true);
    }

    /// Gives the orders that are due.
    #[inline]
    pub(super) fn tend_accepts(&mut self) {
        if std::mem::take(&mut self.accepts.is_due) && !self.accepts.is_paused {
            self.order_accepts();
        }
    }

    #[cold]
    fn order_accepts(&mut self) {
        for post in self.accepts.posts.iter_mut().flatten().filter(|post| post.is_due()) {
            self.orders.accept((Kind::Accept, post.generation, post.number));
            post.order = Reading::Armed;
        }
    }

    /// Withdraws the orders of listeners.
    fn withdraw(&mut self, which: impl Fn(&Post) -> bool) {
        let Self { accepts, orders, .. } = self;
        for post in accepts.posts.iter_mut().flatten().filter(|post| which(post)) {
            if post.order == Reading::Armed {
                orders.cancel((Kind::Accept, post.generation, post.number));
                post.order = Reading::Stopping;
            }
        }
    }

    /// Handles an accepted client, or the end of the order.
    pub(super) fn on_accepted(&mut self, one: Done) {
        // SAFETY: the kernel has made the descriptor for this order, and no other owner has it.
        let come = (one.result >= 0).then(|| unsafe { OwnedFd::from_raw_fd(one.result) });
        let mut posts = (0..).zip(self.accepts.posts.iter_mut());
        let found = posts.find_map(|(index, post)| {
            let post = post.as_mut().filter(|post| post.generation == one.generation)?;
            Some((ListenerIndex(index), post))
        });
        // A client of a listener that has ended is closed.
        let Some((index, post)) = found else { return };
        if let Some(come) = come {
            post.come.push_back(come);
            self.accepts.count += 1;
        }
        if !cqueue::more(one.flags) {
            post.order = Reading::Idle;
            self.accepts.is_due = true;
            return self.on_accepts_ended(index, one.result);
        }
        if post.come.len() >= COME_MAX {
            let generation = one.generation;
            self.withdraw(|post| post.generation == generation);
        }
    }

    fn on_accepts_ended(&mut self, index: ListenerIndex, result: i32) {
        let Some(post) = self.accepts.post(index).filter(|post| post.way == Acceptor::Ring) else {
            return;
        };
        if result >= 0 {
            return;
        }
        post.way = match Errno::from_raw_os_error(-result) {
            // The kernel reports one by one the connections that break while they wait.
            Errno::CANCELED | Errno::INTR | Errno::AGAIN | Errno::CONNABORTED | Errno::PROTO => {
                return;
            }
            Errno::INVAL | Errno::OPNOTSUPP => Acceptor::Base,
            // The kernel takes a descriptor before it looks for a client. Only the driver below
            // tells whether a client waits.
            _ => Acceptor::UntilEmpty,
        };
        let is_held = post.is_held;
        self.base.hold_listener(index, is_held);
    }

    /// Returns the next client.
    pub(super) fn accept_next(&mut self, listener: ListenerIndex) -> Accept {
        if self.base.has_beside(listener) {
            return self.base.accept(listener);
        }
        while let Some(post) = self.accepts.post(listener)
            && let Some(socket) = post.come.pop_front()
        {
            self.accepts.count -= 1;
            self.accepts.is_due = true;
            // A client that is gone has no address; others may follow it.
            let peer = rustix::net::getpeername(&socket).ok().flatten();
            if let Some(addr) = peer.and_then(|peer| SocketAddr::try_from(peer).ok()) {
                let socket = Socket(socket.into_raw_fd());
                return Accept::Client { socket, peer: Peer::Tcp(canonical(addr)) };
            }
        }
        match self.accepts.post(listener).map(|post| post.way) {
            None | Some(Acceptor::Base) => self.base.accept(listener),
            Some(Acceptor::Ring | Acceptor::Ended) => Accept::Empty,
            Some(Acceptor::UntilEmpty) => {
                let accept = self.base.accept(listener);
                if matches!(accept, Accept::Empty) {
                    self.accept_by_ring_again(listener);
                }
                accept
            }
        }
    }

    #[cold]
    fn accept_by_ring_again(&mut self, listener: ListenerIndex) {
        let Some(post) = self.accepts.post(listener) else { return };
        post.way = Acceptor::Ring;
        self.accepts.is_due = true;
        self.base.hold_listener(listener, true);
    }

    /// Notes that there is no room for any client, or that there is again.
    pub(super) fn pause_accepts(&mut self, is_paused: bool) {
        self.accepts.is_paused = is_paused;
        self.accepts.is_due = true;
        if is_paused {
            self.withdraw(|_| true);
        }
    }

    /// Notes that there is no room for clients of one listener, or that there is again. Returns
    /// whether it is a listener of the ring.
    pub(super) fn hold_accepts(&mut self, index: ListenerIndex, is_held: bool) -> bool {
        let Some(post) = self.accepts.post(index) else { return false };
        post.is_held = is_held;
        let (generation, way) = (post.generation, post.way);
        self.accepts.is_due = true;
        if is_held {
            self.withdraw(|post| post.generation == generation);
        }
        if way != Acceptor::Ring {
            self.base.hold_listener(index, is_held);
        }
        true
    }

    /// Makes sure that no client is accepted any more at one listener, or at all.
    fn quiet_accepts(&mut self, at: Option<ListenerIndex>) {
        let generation = at.map(|index| self.accepts.post(index).map_or(0, |post| post.generation));
        let is_it = |post: &Post| generation.is_none_or(|one| post.generation == one);
        self.withdraw(is_it);
        for _ in 0..QUIET_WAITS {
            let mut posts = self.accepts.posts.iter().flatten();
            if self.orders.is_lost()
                || posts.all(|post| !is_it(post) || post.order == Reading::Idle)
            {
                return;
            }
            self.orders.enter(Some(Duration::from_millis(100)));
            let mut events = std::mem::take(&mut self.early);
            self.reap(&mut events);
            self.early = events;
        }
    }

    /// Ends one listener, or all, with their clients that were not taken.
    pub(super) fn end_accepts(&mut self, at: Option<ListenerIndex>) {
        self.quiet_accepts(at);
        let posts = &mut self.accepts.posts;
        match at {
            None => posts.clear(),
            Some(index) => {
                posts.get_mut(usize::from(index.0)).into_iter().for_each(|it| *it = None)
            }
        }
        self.accepts.count = posts.iter().flatten().map(|post| post.come.len()).sum();
    }

    /// Stops accepting by the ring at one listener. After the accepted clients the driver below is
    /// asked.
    pub(super) fn empty_accepts(&mut self, index: ListenerIndex) {
        self.quiet_accepts(Some(index));
        if let Some(post) = self.accepts.post(index).filter(|post| post.way != Acceptor::Ended) {
            post.way = Acceptor::Base;
        }
    }

    /// Stops accepting. Accepted clients are still reported.
    pub(super) fn leave_accepts(&mut self) {
        self.quiet_accepts(None);
        self.accepts.posts.iter_mut().flatten().for_each(|post| post.way = Acceptor::Ended);
    }

    /// Makes the driver below report waiting clients, at all listeners.
    pub(super) fn accept_by_base(&mut self) {
        for index in 0..self.accepts.posts.len() {
            let index = ListenerIndex(index as u16);
            let Some(post) = self.accepts.post(index) else { continue };
            post.order = Reading::Idle;
            let is_held = post.is_held;
            if post.way != Acceptor::Ended {
                post.way = Acceptor::Base;
                self.base.hold_listener(index, is_held);
            }
        }
    }
}
