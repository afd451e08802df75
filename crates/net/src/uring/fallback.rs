//! The fallback to the driver below, when the kernel has dropped completions.
//!
//! If the kernel has no room for completions, and no memory to keep them, it drops them and reports
//! that once. A receive order ends with what cannot be reported, be it bytes, the end or an error.
//! So after all orders were withdrawn, each order that was reported as ended has reported all bytes
//! it took from its socket. The others may have taken bytes that are lost, so their connections are
//! broken. The descriptor of a client whose acceptance was dropped is unknown: it stays open until
//! the process ends.

use super::inbox::{Conn, Reading};
use super::{Outcome, UringIo, hold, is_by_epoll};
use crate::{Event, Io, Socket};
use std::time::Duration;

/// Most calls of the kernel to end all orders. It ends twenty with each call.
const CALLS_MAX: usize = 1 << 16;

/// Number of calls in a row without a result after which the kernel has no more to report.
const QUIET_CALLS: usize = 50;

impl UringIo {
    /// Makes the driver below do everything from now on.
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
        // No order is left that would write to them.
        self.orders.end_buffers();
        // The driver below was not asked for events while the ring was not read.
        self.base.poll(Some(Duration::ZERO), &mut self.early);
    }

    /// Withdraws all orders, and handles the remaining reports of the kernel.
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

    /// Makes the driver below watch a connection that has lost no bytes. Returns whether it does.
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

    /// Keeps a connection that has lost bytes, or may have. The earlier bytes can be read, and then
    /// the connection is reported as broken.
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

    /// A driver, and the clients that it has reported, by token.
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
            // They come in the order in which they connected.
            let order: Vec<u8> = self.got.values().skip(before).map(|got| got[0]).collect();
            assert!(order.into_iter().eq((0..count).map(|nth| nth as u8)));
            clients
        }
    }

    #[test]
    fn connections_of_which_nothing_is_lost_go_on_by_the_driver_below() {
        let Some(mut seat) = Seat::new() else { return };
        let mut clients = seat.connected(20);
        // Some clients have sent bytes that were received but not read.
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
        // New clients are reported too.
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
        // The kernel drops the last report of an order, as if the order had ended with these bytes.
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
        // There are more orders than room, while the kernel has no memory.
        seat.io.orders.faults = vec![Errno::NOMEM; 20];
        let socket = seat.sockets[&1];
        for _ in 0..600 {
            seat.io.orders.cancel((Kind::Room, 1, socket.0));
        }
        assert!(!seat.io.orders.is_lost());
        // The kernel never has memory for this one.
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
