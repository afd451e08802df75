//! Somebody who knocks at a listener of `shm://`, or answers there, and keeps to no rule: pieces of hellos,
//! answers, words over the memory that was handed over, rings at the socket. Nothing panics, no read goes on
//! for ever, who keeps to the rules beside it is served, and what is over leaves no descriptor.

use crate::Choices;
use keyway_net::{
    Accept, Address, Door, EpollIo, Event, Io, Listener, ListenerIndex, ListenerOptions, Mailbox,
    Recv, Ringed, Send, Socket, Token,
};
use keyway_ring::{CAPACITY_MIN, HELLO_LEN, HELLO_MAGIC, Hello, Pipe, Refusal, Shared, Spin};
use std::cell::RefCell;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::Duration;

const HONEST: Token = Token(7);
const HOSTILE: Token = Token(8);
const LINK: Token = Token(1 << 62 | 9);

/// Longest ring that is given.
const RING_MAX: usize = 128 << 10;

/// Reads of one socket that go on at most: as many as both rings and the socket hold.
const READS_MAX: usize = 64;

/// What is done to an input's connection at most.
const STEPS_MAX: usize = 64;

/// Answers begin so.
const ANSWER_MAGIC: [u8; 8] = *b"\0KWSHM1!";

/// A driver that listens, with one client that keeps to the rules; both stay for all inputs of a thread.
struct World {
    io: Ringed,
    path: PathBuf,
    /// Where somebody else listens.
    elsewhere: (PathBuf, UnixListener),
    honest: (Pipe, Socket),
    events: Vec<Event>,
    _mailbox: Mailbox<()>,
}

thread_local! {
    static WORLD: RefCell<Option<World>> = const { RefCell::new(None) };
}

/// Runs the target on one input.
pub fn run(data: &[u8]) {
    WORLD.with_borrow_mut(|world| {
        let world = world.get_or_insert_with(World::new);
        let mut choices = Choices::new(data);
        match choices.flip() {
            true => world.is_knocked_at(&mut choices),
            false => world.is_answered(&mut choices),
        }
        world.serves_the_honest();
    });
}

fn shake(pipe: &mut Pipe, io: &mut Ringed, socket: Socket) {
    pipe.write_all(b"ping").expect("it listens");
    pipe.flush().expect("it listens");
    match io.recv(socket) {
        Recv::Data { bytes, .. } => assert_eq!(bytes, b"ping"),
        other => panic!("who keeps to the rules is not heard: {other:?}"),
    }
    assert_eq!(io.send(socket, b"pong"), Send::Taken(4));
    let mut got = [0; 4];
    pipe.read_exact(&mut got).expect("it is answered");
    assert_eq!(&got, b"pong");
}

impl World {
    fn new() -> World {
        let name = format!("keyway-fuzz-{}-{:?}", std::process::id(), std::thread::current().id());
        let directory = std::env::temp_dir().join(name.replace(['(', ')'], "-"));
        std::fs::create_dir_all(&directory).expect("a place for sockets");
        let path = directory.join("here");
        let options = ListenerOptions {
            address: Address::Shm(path.clone()),
            backlog: 16,
            unix_mode: None,
            unix_owner: (None, None),
            tcp_keepalive: None,
            only_v6: false,
            door: Some(Door { allow_uids: Vec::new(), ring_max: RING_MAX }),
        };
        let elsewhere = directory.join("elsewhere");
        let _ = std::fs::remove_file(&elsewhere);
        let server = UnixListener::bind(&elsewhere).expect("it can be listened on");
        let mailbox = Mailbox::new(1).expect("a mailbox");
        let listener = Listener::bind(&options).expect("it can be listened on");
        let io = EpollIo::new(vec![listener], &mailbox).expect("a driver");
        let mut io = Ringed::new(io, Duration::ZERO);
        let mut events = Vec::new();
        let stream = UnixStream::connect(&path).expect("it listens");
        let hello = Hello::new(0, 0);
        keyway_ring::say(&stream, &hello).expect("it listens");
        let socket = accept(&mut io, &mut events, HONEST);
        assert!(matches!(io.recv(socket), Recv::Empty));
        let shared = keyway_ring::hear(&stream, &hello).expect("an answer").expect("rings");
        let pipe = Pipe::new(shared, stream, Spin::never());
        World {
            io,
            path,
            elsewhere: (elsewhere, server),
            honest: (pipe, socket),
            events,
            _mailbox: mailbox,
        }
    }

    fn serves_the_honest(&mut self) {
        shake(&mut self.honest.0, &mut self.io, self.honest.1);
    }

    /// What has happened to the connection of that token, read to its end; whether it is over.
    fn look(&mut self, token: Token, socket: Option<Socket>) -> bool {
        self.io.clock();
        self.events.clear();
        self.io.poll(Some(Duration::ZERO), &mut self.events);
        let is_told = |event: &Event| matches!(event, Event::Ready { token: told, readable: true, .. } if *told == token);
        match socket {
            Some(socket) if self.events.iter().any(is_told) => read(&mut self.io, socket),
            _ => false,
        }
    }

    fn is_knocked_at(&mut self, choices: &mut Choices<'_>) {
        let before = descriptors();
        let mut stream = UnixStream::connect(&self.path).expect("it listens");
        stream.set_nonblocking(true).expect("a socket");
        let socket = accept(&mut self.io, &mut self.events, HOSTILE);
        let (mut rings, mut is_over) = (None, false);
        for _ in 0..STEPS_MAX {
            if choices.is_over() || is_over {
                break;
            }
            match choices.below(8) {
                0 | 1 => drop(stream.write(&hello(choices))),
                2 => drop(stream.write(choices.bytes(40))),
                3 => {
                    let hello = Hello::new(choices.below(3) << 16, choices.below(3) << 16);
                    drop(stream.write(&hello.encode()));
                    is_over |= read(&mut self.io, socket);
                    rings = keyway_ring::hear(&stream, &hello).ok().and_then(Result::ok).or(rings);
                }
                4 => rings.iter().for_each(|rings| scribble(rings, choices)),
                5 => {
                    is_over |= self.io.send(socket, &vec![7; choices.below(60_000)]) == Send::Failed
                }
                6 => is_over |= read(&mut self.io, socket),
                _ => is_over |= self.look(HOSTILE, Some(socket)),
            }
            let _ = stream.read(&mut [0; 4096]);
        }
        drop((stream, rings));
        self.look(HOSTILE, (!is_over).then_some(socket));
        self.io.close(socket);
        assert_eq!(descriptors(), before);
    }

    fn is_answered(&mut self, choices: &mut Choices<'_>) {
        let before = descriptors();
        self.io.connect(&Address::Shm(self.elsewhere.0.clone()), LINK);
        let (mut stream, _) = self.elsewhere.1.accept().expect("it connects");
        stream.set_nonblocking(true).expect("a socket");
        let (mut rings, mut socket, mut is_over) = (Vec::new(), None, false);
        for _ in 0..STEPS_MAX {
            if choices.is_over() || is_over {
                break;
            }
            match choices.below(8) {
                0 => drop(stream.write(&answer(choices))),
                1 => drop(stream.write(choices.bytes(40))),
                2 => drop(keyway_ring::refuse(&stream, Refusal::Other(choices.below(7) as u16))),
                // With rings of these or other capacities, and a descriptor.
                3 | 4 => {
                    let hello = Hello::new(choices.pick(&[16, 20, 16]), CAPACITY_MIN);
                    let asked = last_hello(&mut stream).unwrap_or(hello);
                    let given = if choices.flip() { asked } else { hello };
                    rings.extend(
                        keyway_ring::answer(&stream, &given, 4 << 20).ok().and_then(Result::ok),
                    );
                }
                5 => rings.iter().for_each(|rings| scribble(rings, choices)),
                6 if socket.is_some() => {
                    let bytes = vec![7; choices.below(60_000)];
                    is_over = socket.is_some_and(|it| self.io.send(it, &bytes) == Send::Failed);
                }
                _ => is_over = self.look(LINK, socket),
            }
            for event in self.events.drain(..) {
                match event {
                    Event::Connected { token: LINK, socket: made } => socket = Some(made),
                    Event::ConnectFailed { token: LINK, .. } => is_over = true,
                    _ => {}
                }
            }
        }
        drop((stream, rings));
        match socket {
            Some(socket) => self.io.close(socket),
            // It may be connected by now.
            None if !is_over => self.io.cancel_connect(LINK),
            None => {}
        }
        assert_eq!(descriptors(), before);
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // The listener has removed its own by then, or does so at once.
        let _ = std::fs::remove_file(&self.elsewhere.0);
        let _ = std::fs::remove_file(&self.path);
        let _ = self.path.parent().map(std::fs::remove_dir);
    }
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

fn accept(io: &mut Ringed, events: &mut Vec<Event>, token: Token) -> Socket {
    io.clock();
    events.clear();
    io.poll(Some(Duration::ZERO), events);
    let Accept::Client { socket, .. } = io.accept(ListenerIndex(0)) else {
        panic!("a client waits");
    };
    assert!(io.watch(socket, token));
    socket
}

/// Reads until there is nothing; whether the connection is over.
fn read(io: &mut Ringed, socket: Socket) -> bool {
    for _ in 0..READS_MAX {
        match io.recv(socket) {
            Recv::Data { bytes, .. } => assert!(!bytes.is_empty()),
            Recv::Empty => return false,
            Recv::End | Recv::Failed => return true,
        }
    }
    panic!("it never ends");
}

/// Something like a hello.
fn hello(choices: &mut Choices<'_>) -> Vec<u8> {
    like(HELLO_MAGIC, choices)
}

/// Something like an answer.
fn answer(choices: &mut Choices<'_>) -> Vec<u8> {
    like(ANSWER_MAGIC, choices)
}

fn like(magic: [u8; 8], choices: &mut Choices<'_>) -> Vec<u8> {
    let mut bytes = [0; HELLO_LEN];
    bytes[..8].copy_from_slice(&magic);
    bytes[8] = choices.pick(&[0, 0, 0, 1, 2, 3, 5, 200]);
    for at in [16, 24] {
        let len: u64 = choices.pick(&[1 << 16, 1 << 17, 1 << 20, 1 << 31, u64::MAX, 0, 65_537]);
        bytes[at..at + 8].copy_from_slice(&len.to_le_bytes());
    }
    if choices.below(4) == 1 {
        let at = choices.below(HELLO_LEN);
        bytes[at] = choices.byte();
    }
    let len = if choices.below(4) == 1 { choices.below(HELLO_LEN) } else { HELLO_LEN };
    let mut said = bytes[..len].to_vec();
    said.extend_from_slice(choices.bytes(8));
    said
}

/// The last of what the other side has asked for by now.
fn last_hello(stream: &mut UnixStream) -> Option<Hello> {
    let mut last = None;
    loop {
        let mut bytes = [0; HELLO_LEN];
        match stream.read(&mut bytes) {
            Ok(HELLO_LEN) => last = Hello::decode(&bytes).or(last),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            _ => return last,
        }
    }
}

/// Writes over the memory of both rings what an input says, mostly where the words of headers are.
fn scribble(rings: &Shared, choices: &mut Choices<'_>) {
    let Ok(memory) = rings.segment.descriptor().try_clone_to_owned() else { return };
    let memory = File::from(memory);
    let len = memory.metadata().map_or(0, |it| it.len());
    let header = if choices.flip() { 0 } else { len / 2 };
    let word = choices.pick(&[0, 128, 256, 384, 388, 512, 516, 640, 768, 4096]);
    let at = match choices.below(4) {
        0 => choices.below(1 << 16) as u64,
        _ => header + word,
    };
    let value: u64 = match choices.below(6) {
        0 => u64::MAX,
        1 => 1 << 40,
        2 => 2,
        _ => choices.below(1 << 16) as u64,
    };
    let bytes = value.to_le_bytes();
    let len = if choices.flip() { 4 } else { 8 };
    memory.write_all_at(&bytes[..len], at).expect("it is writable");
}
