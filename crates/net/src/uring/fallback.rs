//! What is left when the kernel has not told of all that was done: the driver below.
//!
//! Where it has no room for what is done, and no memory to keep it, it drops that and says so once. An
//! order to receive ends with what cannot be told, be it bytes, the end or an error. So once all
//! orders were withdrawn, each that was told to have ended has brought all it took from its
//! socket; the others may have taken bytes that nobody will see, and their connections are broken. Of a
//! client whose acceptance was dropped nobody knows the descriptor: it stays until the process ends.

use super::inbox::{Conn, Reading};
use super::{Outcome, UringIo, hold, is_by_epoll};
use crate::{Event, Io, Socket};
use std::time::Duration;

/// How often the kernel is called to end all orders; it ends twenty with each call.
const CALLS_MAX: usize = 1 << 16;

/// Calls in a row that bring nothing, after which it has no more to say.
const QUIET_CALLS: usize = 50;

impl UringIo {
    /// Has the driver below do everything from here on.
    #[cold]
    #[inline(never)]
    pub(super) fn fall_back(&mut self) {
        self.has_fallen = true;
        self.notice = Some(
            "io_uring has lost track for want of memory: this worker's sockets go by epoll from \
             here on, and connections whose bytes may be lost are closed",
        );
        self.end_orders();
        self.accept_by_base();
        for number in 0..self.conns.len() {
            let Some(mut conn) = self.conns[number].take() else { continue };
            let socket = Socket(number as i32);
            hold(&mut conn, &mut self.pieces, &mut self.buffers);
            if !self.give_to_base(socket, &mut conn) {
                self.keep_broken(socket, conn);
            }
        }
        self.unread.clear();
        self.ending.clear();
        // Nothing stands that would write to them.
        self.orders.end_buffers();
        // What the driver below knows was not asked for while the ring was not heard.
        self.base.poll(Some(Duration::ZERO), &mut self.early);
    }

    /// Withdraws all orders, and takes what the kernel still has to say.
    fn end_orders(&mut self) {
        self.orders.cancel_all();
        let mut events = std::mem::take(&mut self.early);
        let mut quiet = 0;
        for _ in 0..CALLS_MAX {
            let awaited = self.conns.iter().flatten().filter(|conn| conn.reading != Reading::Idle);
            let stands = awaited.count();
            let wait = if stands == 0 { Duration::ZERO } else { Duration::from_millis(1) };
            self.orders.submit();
            self.orders.enter(Some(wait));
            let before = self.reaped_len;
            self.reap(&mut events);
            quiet = if self.reaped_len == before { quiet + 1 } else { 0 };
            if quiet >= if stands == 0 { 2 } else { QUIET_CALLS } {
                break;
            }
        }
        self.early = events;
    }

    /// Has the driver below watch a connection of which nothing is missing.
    fn give_to_base(&mut self, socket: Socket, conn: &mut Conn) -> bool {
        if conn.reading != Reading::Idle || conn.outcome == Some(Outcome::Failed) {
            return false;
        }
        debug_assert!(!is_by_epoll(conn.token));
        if !self.base.watch(socket, conn.token) {
            return false;
        }
        self.base.bring(socket, conn.token, conn.take_held());
        true
    }

    /// Of a connection that has lost bytes, or may have, those before are still to be read, and then
    /// that it is broken.
    fn keep_broken(&mut self, socket: Socket, mut conn: Conn) {
        conn.outcome = Some(Outcome::Failed);
        conn.reading = Reading::Idle;
        (conn.polls_room, conn.polls_hangup) = (false, false);
        let token = conn.token;
        self.early.push(Event::Ready { token, readable: true, writable: false, hangup: true });
        self.conns[socket.0 as usize] = Some(conn);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::uring::Kind;
    use crate::{Accept, Address, Listener, ListenerIndex, ListenerOptions, Mailbox, Recv, Token};
    use rustix::io::Errno;
    use std::collections::BTreeMap;
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpStream};

    /// A driver, and what it has told of those that came, by token.
    struct Seat {
        io: UringIo,
        at: SocketAddr,
        _mailbox: Mailbox<()>,
        sockets: BTreeMap<u64, Socket>,
        got: BTreeMap<u64, Vec<u8>>,
        ended: Vec<u64>,
        failed: Vec<u64>,
    }

    impl Seat {
        fn new() -> Option<Seat> {
            if let Err(error) = UringIo::probe() {
                eprintln!("nothing is looked at: no io_uring here: {error}");
                return None;
            }
            let options = ListenerOptions {
                address: Address::Tcp { host: "127.0.0.1".to_owned(), port: 0 },
                backlog: 64,
                unix_mode: None,
                unix_owner: (None, None),
                tcp_keepalive: None,
                door: None,
                only_v6: false,
            };
            let listener = Listener::bind(&options).expect("a free port");
            let at = listener.local_addr().expect("TCP has an address");
            let mailbox = Mailbox::new(4).expect("a descriptor");
            let io = UringIo::new(vec![listener], &mailbox).expect("it was there a moment ago");
            Some(Seat {
                io,
                at,
                _mailbox: mailbox,
                sockets: BTreeMap::new(),
                got: BTreeMap::new(),
                ended: Vec::new(),
                failed: Vec::new(),
            })
        }

        fn turn(&mut self) {
            let mut events = Vec::new();
            self.io.poll(Some(Duration::from_millis(10)), &mut events);
            for event in events {
                match event {
                    Event::Incoming(at) => {
                        while let Accept::Client { socket, .. } = self.io.accept(at) {
                            let token = self.sockets.len() as u64 + 1;
                            self.sockets.insert(token, socket);
                            assert!(self.io.watch(socket, Token(token)));
                        }
                    }
                    Event::Ready { token, .. } => self.read(token.0),
                    other => panic!("{other:?}"),
                }
            }
        }

        fn read(&mut self, token: u64) {
            loop {
                match self.io.recv(self.sockets[&token]) {
                    Recv::Data { bytes, .. } => {
                        self.got.entry(token).or_default().extend_from_slice(bytes);
                    }
                    Recv::Empty => return,
                    Recv::End => return self.ended.push(token),
                    Recv::Failed => return self.failed.push(token),
                }
            }
        }

        fn until(&mut self, what: &str, is_so: impl Fn(&Seat) -> bool) {
            (0..2000).find(|_| {
                self.turn();
                is_so(self)
            });
            assert!(is_so(self), "{what} did not come to pass");
        }

        fn connected(&mut self, count: usize) -> Vec<TcpStream> {
            let before = self.sockets.len();
            let connect = |nth: usize| {
                let mut client = TcpStream::connect(self.at).expect("it listens");
                client.write_all(&[nth as u8]).unwrap();
                client
            };
            let clients = (0..count).map(connect).collect();
            let all = before + count;
            self.until("hearing all", |seat| seat.sockets.len() == all && seat.got.len() == all);
            // In the order in which they came.
            let order: Vec<u8> = self.got.values().skip(before).map(|got| got[0]).collect();
            assert!(order.into_iter().eq((0..count).map(|nth| nth as u8)));
            clients
        }
    }

    #[test]
    fn connections_of_which_nothing_is_lost_go_on_by_the_driver_below() {
        let Some(mut seat) = Seat::new() else { return };
        let mut clients = seat.connected(20);
        // Some have said something that was received, and not read.
        clients[..10].iter_mut().for_each(|client| client.write_all(b"early").unwrap());
        for _ in 0..10 {
            seat.io.orders.submit();
        }
        let mut events = Vec::new();
        seat.io.reap(&mut events);
        seat.io.orders.faults.push(Errno::BADR);
        seat.until("falling back", |seat| seat.io.has_fallen);
        assert!(seat.io.take_notice().is_some() && seat.io.take_notice().is_none());
        clients.iter_mut().for_each(|client| client.write_all(b"late").unwrap());
        let wanted = |token: u64| match token {
            1..=10 => b"earlylate".as_slice(),
            _ => b"late",
        };
        seat.until("hearing all", |seat| {
            seat.got.iter().all(|(token, got)| got[1..].ends_with(wanted(*token)))
        });
        assert!(seat.got.iter().all(|(token, got)| got[1..] == *wanted(*token)), "nothing twice");
        assert!(seat.failed.is_empty() && seat.ended.is_empty());
        clients.truncate(5);
        seat.until("the ends", |seat| seat.ended.len() == 15);
        // And those who come now.
        clients.extend(seat.connected(3));
        seat.io.stop_listening();
        TcpStream::connect(seat.at).expect_err("nobody listens");
    }

    #[test]
    fn a_connection_whose_bytes_are_lost_is_broken_and_the_others_are_not() {
        let Some(mut seat) = Seat::new() else { return };
        let mut clients = seat.connected(6);
        let socket = seat.sockets[&3];
        let generation = seat.io.conn(socket).unwrap().generation;
        // What the kernel drops is the last of an order: as if it had ended with these bytes.
        clients[2].write_all(b"lost").unwrap();
        seat.io.orders.submit();
        seat.io.orders.cancel((Kind::Receive, generation, socket.0));
        seat.io.orders.swallowed = 3;
        seat.until("that it is broken", |seat| !seat.failed.is_empty());
        assert_eq!(seat.failed, [3]);
        assert_eq!(seat.got[&3], [2], "what comes after what was lost is not read");
        seat.io.close(seat.sockets[&3]);
        assert!(matches!(clients[2].read(&mut [0; 8]), Ok(0) | Err(_)));
        clients.iter_mut().for_each(|client| drop(client.write_all(b"more")));
        seat.until("the others", |seat| {
            seat.got.iter().all(|(token, got)| *token == 3 || got[1..] == *b"more")
        });
        assert_eq!((seat.failed.len(), seat.ended.len()), (1, 0));
    }

    #[test]
    fn an_end_that_is_lost_is_told() {
        let Some(mut seat) = Seat::new() else { return };
        let mut clients = seat.connected(4);
        seat.turn();
        seat.io.orders.swallowed = 1;
        drop(clients.remove(0));
        seat.until("its end", |seat| seat.failed == [1] || seat.ended == [1]);
        assert_eq!(seat.failed.len() + seat.ended.len(), 1);
    }

    #[test]
    fn a_kernel_without_memory_for_a_while_is_asked_again() {
        let Some(mut seat) = Seat::new() else { return };
        let faults = [Errno::NOMEM, Errno::NOBUFS, Errno::AGAIN];
        for fault in faults {
            seat.io.orders.faults = vec![fault; 7];
            let clients = seat.connected(9);
            seat.until("asking again", |seat| seat.io.orders.faults.is_empty());
            assert!(!seat.io.has_fallen);
            drop(clients);
        }
        // More orders than there is room for, while it has none.
        seat.io.orders.faults = vec![Errno::NOMEM; 20];
        let socket = seat.sockets[&1];
        for _ in 0..600 {
            seat.io.orders.cancel((Kind::Room, 1, socket.0));
        }
        assert!(!seat.io.orders.is_lost());
        // And one that never has any.
        seat.io.orders.faults = vec![Errno::NOMEM; 250];
        for _ in 0..1100 {
            seat.io.orders.cancel((Kind::Room, 1, socket.0));
        }
        seat.io.orders.faults.clear();
        assert!(seat.io.orders.is_lost());
        seat.until("falling back", |seat| seat.io.has_fallen);
        seat.connected(2);
        assert!(matches!(seat.io.accept(ListenerIndex(0)), Accept::Empty));
    }
}
