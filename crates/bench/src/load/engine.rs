use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};

use super::memcached::TextCounter;
use super::reply::{Framing, ReplyCounter};
use super::requests::{Dialect, Requests};
use crate::clock;
use crate::error::Error;
use crate::interrupt;

/// Shared by all connections; larger than the replies of one batch in every
/// row but the 16 KiB ones, so that one read usually empties a socket.
const READ_BYTES: usize = 256 << 10;
/// A system that answers nothing for this long is taken as stuck.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// How often the loop looks up when nothing happens.
const WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
const EVENTS_PER_WAIT: usize = 1024;

/// When a run stops sending. Requests already sent are always answered first.
pub enum Limit<'a> {
    /// After this many requests, rounded up to whole batches.
    Requests(u64),
    /// When the function says so; it is asked after every turn of the loop.
    Until(Stop<'a>),
}

/// Says when to stop sending.
pub type Stop<'a> = &'a mut dyn FnMut() -> Result<bool, Error>;

/// What a run sent and got. Every request has its reply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Requests sent and answered.
    pub requests: u64,
    /// Error replies among the answers.
    pub errors: u64,
    /// Null replies: keys that were not there.
    pub missing: u64,
    /// The text of the first error.
    pub first_error: String,
}

impl Totals {
    /// What was counted after `before`.
    fn since(self, before: &Totals) -> Totals {
        Totals {
            requests: self.requests - before.requests,
            errors: self.errors - before.errors,
            missing: self.missing - before.missing,
            first_error: self.first_error,
        }
    }

    /// Refuses answers that are not what the work calls for: every key exists,
    /// so an error or a null means that something else was measured.
    ///
    /// # Errors
    /// [`Error::Answers`].
    pub fn check(&self) -> Result<(), Error> {
        let of = self.requests;
        if self.errors > 0 {
            let (errors, first) = (self.errors, &self.first_error);
            return Err(Error::Answers(format!("{errors} errors in {of} replies, first: {first}")));
        }
        if self.missing > 0 {
            let missing = self.missing;
            return Err(Error::Answers(format!("{missing} keys not found in {of} requests")));
        }
        Ok(())
    }
}

/// Counts the replies of one connection in its dialect.
enum Counter {
    Redis(ReplyCounter),
    Memcached(TextCounter),
}

impl Counter {
    fn new(dialect: Dialect) -> Counter {
        match dialect {
            Dialect::Redis => Counter::Redis(ReplyCounter::default()),
            Dialect::Memcached => Counter::Memcached(TextCounter::default()),
        }
    }

    fn feed(&mut self, bytes: &[u8]) -> Result<(), Framing> {
        match self {
            Counter::Redis(counter) => counter.feed(bytes),
            Counter::Memcached(counter) => counter.feed(bytes),
        }
    }

    fn replies(&self) -> u64 {
        match self {
            Counter::Redis(counter) => counter.replies(),
            Counter::Memcached(counter) => counter.replies(),
        }
    }

    fn errors(&self) -> u64 {
        match self {
            Counter::Redis(counter) => counter.errors(),
            Counter::Memcached(counter) => counter.errors(),
        }
    }

    fn missing(&self) -> u64 {
        match self {
            Counter::Redis(counter) => counter.missing(),
            Counter::Memcached(counter) => counter.missing(),
        }
    }

    fn first_error(&self) -> String {
        match self {
            Counter::Redis(counter) => counter.first_error(),
            Counter::Memcached(counter) => counter.first_error(),
        }
    }
}

/// One client: sends a batch, waits for all its replies, sends the next.
struct Connection {
    stream: TcpStream,
    counter: Counter,
    /// The request the next batch starts with.
    next: usize,
    /// Bytes of the current batch the socket did not take yet.
    unsent: Range<usize>,
    /// The counter's value when the current batch is answered; equal to the
    /// counter when the connection is idle.
    answered_at: u64,
}

impl Connection {
    fn is_idle(&self) -> bool {
        self.counter.replies() == self.answered_at
    }
}

/// Many connections to one address, driven by one thread.
///
/// Legal order: [`Loader::connect`], then any number of [`Loader::run`]; every
/// run begins and ends with all connections idle.
pub struct Loader<'a> {
    connections: Vec<Connection>,
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
    read_buf: Vec<u8>,
    requests: &'a Requests,
    depth: usize,
    /// Batches that may still be sent.
    batches_left: u64,
    busy: usize,
    sent: u64,
}

impl<'a> Loader<'a> {
    /// Opens `connections` connections to `addr`; each will keep `depth`
    /// requests in flight, sent as one batch.
    ///
    /// # Errors
    /// [`Error::Load`] when a connection is refused, [`Error::Io`] when this
    /// process runs out of descriptors.
    pub fn connect(
        addr: SocketAddr,
        connections: usize,
        depth: usize,
        requests: &'a Requests,
    ) -> Result<Loader<'a>, Error> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|errno| Error::io("epoll_create")(errno.into()))?;
        let mut loader = Loader {
            connections: Vec::with_capacity(connections),
            epoll,
            events: Vec::with_capacity(EVENTS_PER_WAIT),
            read_buf: vec![0; READ_BYTES],
            requests,
            depth,
            batches_left: 0,
            busy: 0,
            sent: 0,
        };
        for index in 0..connections {
            interrupt::check()?;
            let next = index * requests.count() / connections;
            let connection = open(addr, next, requests.dialect()).map_err(|source| {
                Error::Load(format!("connection {index} of {connections} to {addr}: {source}"))
            })?;
            loader.register(index, &connection)?;
            loader.connections.push(connection);
        }
        Ok(loader)
    }

    fn register(&self, index: usize, connection: &Connection) -> Result<(), Error> {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::ET;
        let data = epoll::EventData::new_u64(index as u64);
        epoll::add(&self.epoll, &connection.stream, data, flags)
            .map_err(|errno| Error::io("epoll_ctl")(errno.into()))
    }

    /// Sends and counts until `limit`, then waits for the last reply.
    ///
    /// # Errors
    /// [`Error::Load`] when a connection breaks, the system falls silent or
    /// answers out of protocol; whatever `limit` fails with. Error replies are
    /// no failure here: see [`Totals::check`].
    pub fn run(&mut self, limit: Limit<'_>) -> Result<Totals, Error> {
        let before = self.send_first(&limit)?;
        self.finish(limit, &before)
    }

    /// Sends one request on each connection, each after the reply to the one
    /// before it.
    ///
    /// # Errors
    /// As [`Loader::run`].
    pub fn run_in_turn(&mut self) -> Result<Totals, Error> {
        let before = self.totals();
        for index in 0..self.connections.len() {
            self.batches_left = 1;
            self.start_batch(index)?;
            self.drain(None)?;
        }
        Ok(self.totals().since(&before))
    }

    /// Sends one request on each connection before `answer` is called, which
    /// lets the system answer: it has all of them at once.
    ///
    /// # Errors
    /// As [`Loader::run`], and what `answer` fails with.
    pub fn run_at_once(
        &mut self,
        answer: impl FnOnce() -> Result<(), Error>,
    ) -> Result<Totals, Error> {
        let limit = Limit::Requests((self.connections.len() * self.depth) as u64);
        let before = self.send_first(&limit)?;
        answer()?;
        self.finish(limit, &before)
    }

    /// Starts a run; returns what was counted before it.
    fn send_first(&mut self, limit: &Limit<'_>) -> Result<Totals, Error> {
        let before = self.totals();
        self.batches_left = match limit {
            Limit::Requests(requests) => requests.div_ceil(self.depth as u64),
            Limit::Until(_) => u64::MAX,
        };
        for index in 0..self.connections.len() {
            self.start_batch(index)?;
        }
        Ok(before)
    }

    fn finish(&mut self, limit: Limit<'_>, before: &Totals) -> Result<Totals, Error> {
        match limit {
            Limit::Requests(_) => self.drain(None)?,
            Limit::Until(stop) => self.drain(Some(stop))?,
        }
        Ok(self.totals().since(before))
    }

    /// Sends what may still be sent, until `stop`, and waits for the replies.
    fn drain(&mut self, mut stop: Option<Stop<'_>>) -> Result<(), Error> {
        let mut last_reply = clock::now();
        while self.busy > 0 {
            self.turn(&mut last_reply)?;
            if let Some(stop) = &mut stop
                && stop()?
            {
                self.batches_left = 0;
            }
        }
        Ok(())
    }

    fn totals(&self) -> Totals {
        let mut totals = Totals { requests: self.sent, ..Totals::default() };
        for Connection { counter, .. } in &self.connections {
            if counter.errors() > 0 && totals.errors == 0 {
                totals.first_error = counter.first_error();
            }
            totals.errors += counter.errors();
            totals.missing += counter.missing();
        }
        totals
    }

    fn turn(&mut self, last_reply: &mut Instant) -> Result<(), Error> {
        let mut events = std::mem::take(&mut self.events);
        events.clear();
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&WAIT)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(Error::io("epoll_wait")(errno.into())),
        }
        interrupt::check()?;
        if events.is_empty() {
            if clock::now() - *last_reply > SILENCE_MAX {
                return Err(Error::Load(format!("no reply for {} s", SILENCE_MAX.as_secs())));
            }
        } else {
            *last_reply = clock::now();
        }
        for event in &events {
            // Copied out: the kernel's struct is packed.
            let (data, flags) = (event.data, event.flags);
            let index = data.u64() as usize;
            if flags.contains(epoll::EventFlags::OUT) {
                self.send(index)?;
            }
            // Everything but pure writability, so that errors are read too.
            if flags != epoll::EventFlags::OUT {
                self.receive(index)?;
            }
        }
        self.events = events;
        Ok(())
    }

    fn start_batch(&mut self, index: usize) -> Result<(), Error> {
        if self.batches_left == 0 {
            return Ok(());
        }
        self.batches_left -= 1;
        let connection = &mut self.connections[index];
        let (range, count) = self.requests.batch(connection.next, self.depth);
        connection.unsent = range;
        connection.next = (connection.next + count) % self.requests.count();
        connection.answered_at += count as u64;
        self.sent += count as u64;
        self.busy += 1;
        self.send(index)
    }

    fn send(&mut self, index: usize) -> Result<(), Error> {
        let connection = &mut self.connections[index];
        while !connection.unsent.is_empty() {
            match connection.stream.write(self.requests.bytes(connection.unsent.clone())) {
                Ok(written) => connection.unsent.start += written,
                Err(source) if source.kind() == ErrorKind::WouldBlock => break,
                Err(source) if source.kind() == ErrorKind::Interrupted => {}
                Err(source) => return Err(Error::Load(format!("sending: {source}"))),
            }
        }
        Ok(())
    }

    fn receive(&mut self, index: usize) -> Result<(), Error> {
        loop {
            let connection = &mut self.connections[index];
            let length = match connection.stream.read(&mut self.read_buf) {
                Ok(0) => return Err(Error::Load("the connection was closed".into())),
                Ok(length) => length,
                Err(source) if source.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(source) if source.kind() == ErrorKind::Interrupted => continue,
                Err(source) => return Err(Error::Load(format!("receiving: {source}"))),
            };
            let was_idle = connection.is_idle();
            let framed = connection.counter.feed(&self.read_buf[..length]);
            if framed.is_err() || connection.counter.replies() > connection.answered_at {
                return Err(Error::Load("bytes that answer no request".into()));
            }
            if connection.is_idle() && !was_idle {
                self.busy -= 1;
                self.start_batch(index)?;
            }
            // Edge-triggered, but no second read is needed: a short read
            // emptied the socket, and what comes later is a new edge.
            if length < READ_BYTES {
                return Ok(());
            }
        }
    }
}

fn open(addr: SocketAddr, next: usize, dialect: Dialect) -> std::io::Result<Connection> {
    let stream = TcpStream::connect(addr)?;
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    let counter = Counter::new(dialect);
    Ok(Connection { stream, counter, next, unsent: 0..0, answered_at: 0 })
}

#[cfg(test)]
mod tests {
    use super::super::requests::{Dataset, Work};
    use super::*;
    use std::net::TcpListener;

    /// A server that answers every `\r\n` line count of a GET with `reply`.
    fn serve(reply: &'static [u8]) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                std::thread::spawn(move || {
                    let (mut lines, mut buf) = (0, [0; 4096]);
                    while let Ok(length @ 1..) = stream.read(&mut buf) {
                        lines += buf[..length].iter().filter(|&&byte| byte == b'\n').count();
                        while lines >= 5 {
                            lines -= 5;
                            stream.write_all(reply).unwrap();
                        }
                    }
                });
            }
        });
        addr
    }

    fn gets() -> Requests {
        Requests::random(Work::Get, Dataset::SMALL, Dialect::Redis, 1)
    }

    #[test]
    fn every_request_sent_is_counted_with_its_reply() {
        let requests = gets();
        let mut loader = Loader::connect(serve(b"$2\r\nhi\r\n"), 7, 3, &requests).unwrap();
        let totals = loader.run(Limit::Requests(300)).unwrap();
        assert_eq!(totals, Totals { requests: 300, ..Totals::default() });
        let again = loader.run(Limit::Requests(1)).unwrap();
        assert_eq!(again.requests, 3, "whole batches");
    }

    #[test]
    fn a_turn_each_is_one_request_per_connection() {
        let requests = gets();
        let mut loader = Loader::connect(serve(b"+OK\r\n"), 9, 1, &requests).unwrap();
        assert_eq!(loader.run_in_turn().unwrap().requests, 9);
        let mut answered = false;
        let totals = loader.run_at_once(|| {
            answered = true;
            Ok(())
        });
        let totals = totals.unwrap();
        assert_eq!((totals.requests, answered), (9, true));
    }

    #[test]
    fn a_run_until_a_condition_ends_idle() {
        let requests = gets();
        let mut loader = Loader::connect(serve(b"+OK\r\n"), 4, 16, &requests).unwrap();
        let mut turns = 0;
        let mut stop = || {
            turns += 1;
            Ok(turns > 20)
        };
        let totals = loader.run(Limit::Until(&mut stop)).unwrap();
        assert!(totals.requests >= 64 && totals.check().is_ok());
        assert_eq!(loader.busy, 0);
    }

    #[test]
    fn errors_and_missing_keys_fail_the_check() {
        let requests = gets();
        for reply in [&b"-ERR no\r\n"[..], b"$-1\r\n"] {
            let mut loader = Loader::connect(serve(reply), 1, 2, &requests).unwrap();
            let totals = loader.run(Limit::Requests(2)).unwrap();
            assert!(matches!(totals.check(), Err(Error::Answers(_))));
        }
    }

    #[test]
    fn a_reply_nobody_asked_for_is_an_error() {
        let requests = gets();
        let mut loader = Loader::connect(serve(b"+OK\r\n+OK\r\n"), 1, 1, &requests).unwrap();
        assert!(matches!(loader.run(Limit::Requests(50)), Err(Error::Load(_))));
    }

    #[test]
    fn a_closed_connection_is_an_error() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        std::thread::spawn(move || drop(listener.accept()));
        let requests = gets();
        let mut loader = Loader::connect(addr, 1, 1, &requests).unwrap();
        assert!(matches!(loader.run(Limit::Requests(1)), Err(Error::Load(_))));
    }
}
