use crate::counting;
use crate::network::{Nanos, Read, Received, Sent};
use crate::world::World;
use keyway_base::{Block, Clock, Time};
use keyway_net::Token;
use keyway_net::{
    Accept, Address, Event, Io, ListenerIndex, Mailbox, Mailer, Peer, Recv, Send, Socket,
};
use keyway_worker::Mail;
use std::cell::RefCell;
use std::fs::File;
use std::io::Read as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

/// The wall clock at virtual time zero, in microseconds since the Unix epoch.
const EPOCH_MICROS: u64 = 1_700_000_000_000_000;

/// The first poll that a worker asked for in a turn.
#[derive(Clone, Copy, Debug)]
pub struct PollRequest {
    /// How long it was willing to wait. `None`: without a limit.
    pub wait: Option<Duration>,
    /// Number of events that it got.
    pub events: usize,
    /// The time that the clock showed it before.
    pub clock_before: Nanos,
}

/// An [`Io`] over the simulated network. It never sleeps: the driver of the simulation reads what
/// the worker asked for and lets time pass.
pub struct SimIo {
    world: Rc<RefCell<World>>,
    worker: usize,
    read_buf: Vec<u8>,
    /// The block that was read last. The worker may hold parts of it.
    block: Option<Block>,
    found: Vec<Event>,
    mail: File,
    mailer: Mailer<Mail>,
    /// The first poll that the worker asked for since this was last taken.
    pub asked: Option<PollRequest>,
    clock: Nanos,
}

impl SimIo {
    /// Creates the driver of one worker.
    ///
    /// # Errors
    /// Returns an error if the process has no file descriptor left for the mailbox.
    pub fn new(
        world: Rc<RefCell<World>>,
        worker: usize,
        mailbox: &Mailbox<Mail>,
    ) -> std::io::Result<Self> {
        let mail = File::from(mailbox.wake_fd().try_clone_to_owned()?);
        let (read_buf, found) = (Vec::new(), Vec::new());
        let mailer = mailbox.mailer();
        Ok(Self {
            world,
            worker,
            read_buf,
            block: None,
            found,
            mail,
            mailer,
            asked: None,
            clock: 0,
        })
    }

    /// Notes whether mail was posted. It reads the descriptor only if the box holds mail: a system
    /// call for each turn took a sixth of a seed's time.
    pub fn check_mail(&mut self) {
        if self.mailer.is_empty() {
            return;
        }
        let mut count = [0; 8];
        if self.mail.read(&mut count).is_ok() {
            self.world.borrow_mut().network.stations[self.worker].mail = true;
        }
    }
}

impl Io for SimIo {
    fn clock(&mut self) -> Clock {
        self.clock = self.world.borrow().network.now;
        Clock { now: Time(self.clock), unix_micros: EPOCH_MICROS + self.clock / 1_000 }
    }

    fn poll(&mut self, wait: Option<Duration>, events: &mut Vec<Event>) -> bool {
        {
            let _uncounted = counting::pause();
            self.check_mail();
            let mut world = self.world.borrow_mut();
            world.settle();
            self.found.clear();
            world.network.poll(self.worker, &mut self.found);
        }
        events.extend_from_slice(&self.found);
        let clock_before = self.clock;
        self.asked.get_or_insert(PollRequest { wait, events: self.found.len(), clock_before });
        wait != Some(Duration::ZERO)
    }

    fn accept(&mut self, listener: ListenerIndex) -> Accept {
        let _uncounted = counting::pause();
        let network = &mut self.world.borrow_mut().network;
        let now = network.now;
        let station = &mut network.stations[self.worker];
        if now < station.exhausted_until && network.has_waiting(self.worker) {
            return Accept::Exhausted;
        }
        station_moved(network, self.worker);
        match network.accept(self.worker, listener) {
            Some((socket, client)) => {
                let addr = SocketAddr::from((Ipv4Addr::new(10, 9, 0, 1), client as u16 + 1));
                Accept::Client { socket, peer: Peer::Tcp(addr) }
            }
            None => Accept::Empty,
        }
    }

    fn pause_accepting(&mut self, paused: bool) {
        self.world.borrow_mut().network.pause_accepting(self.worker, paused);
    }

    fn stop_listening(&mut self) {
        self.world.borrow_mut().network.stop_listening(self.worker);
    }

    fn watch(&mut self, socket: Socket, token: Token) -> bool {
        let _uncounted = counting::pause();
        self.world.borrow_mut().network.watch(self.worker, socket, token);
        true
    }

    fn connect(&mut self, address: &Address, token: Token) {
        let _uncounted = counting::pause();
        let network = &mut self.world.borrow_mut().network;
        station_moved(network, self.worker);
        network.connect_worker(self.worker, token, &address.to_string());
    }

    /// Does nothing. The network may know the outcome already and reports it all the same, which is
    /// the harder case for the worker.
    fn cancel_connect(&mut self, _token: Token) {}

    fn recv(&mut self, socket: Socket) -> Recv<'_> {
        let _uncounted = counting::pause();
        let network = &mut self.world.borrow_mut().network;
        self.read_buf.clear();
        let Read { outcome, drained, is_block } =
            network.read(self.worker, socket, &mut self.read_buf);
        if outcome != Received::Empty {
            station_moved(network, self.worker);
            network.stations[self.worker].fed += u64::from(matches!(outcome, Received::Data(_)));
        }
        let by_ring = network.options().ring.is_some();
        match outcome {
            Received::Data(_) if !is_block => {
                Recv::Data { bytes: &self.read_buf, drained, block: None }
            }
            Received::Data(len) => {
                if by_ring {
                    // The buffer keeps its length, with old content after what was read.
                    self.read_buf.extend_from_slice(b"*1\r\n$4\r\nrest\r\n");
                }
                let block = self.block.insert(self.read_buf.as_slice().into());
                Recv::Data { bytes: &block[..len], drained, block: Some(block) }
            }
            Received::Empty => Recv::Empty,
            Received::End => Recv::End,
            Received::Failed => Recv::Failed,
        }
    }

    fn send(&mut self, socket: Socket, bytes: &[u8]) -> Send {
        let _uncounted = counting::pause();
        let network = &mut self.world.borrow_mut().network;
        let outcome = network.write(self.worker, socket, bytes);
        if outcome != Sent::Taken(0) {
            station_moved(network, self.worker);
        }
        match outcome {
            Sent::Taken(len) => Send::Taken(len),
            Sent::Failed => Send::Failed,
        }
    }

    fn release(&mut self, socket: Socket) -> Socket {
        let _uncounted = counting::pause();
        self.world.borrow_mut().network.release(self.worker, socket);
        socket
    }

    fn finish(&mut self, socket: Socket) -> bool {
        let _uncounted = counting::pause();
        self.world.borrow_mut().network.finish_socket(self.worker, socket);
        true
    }

    fn close(&mut self, socket: Socket) {
        let _uncounted = counting::pause();
        self.world.borrow_mut().network.close_socket(self.worker, socket);
    }
}

fn station_moved(network: &mut crate::network::Network, worker: usize) {
    network.stations[worker].moved += 1;
}
