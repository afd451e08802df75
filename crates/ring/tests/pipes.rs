//! Rings that are handed over through a socket, and connections over them.

#![allow(clippy::disallowed_methods, reason = "children that are killed after a while")]

use keyway_ring::{
    Bell, CAPACITY_MAX, CAPACITY_MIN, Consumer, HELLO_LEN, Hello, Pipe, Producer, Refusal, Segment,
    Spin, answer, ask, hear, peer_uid, refuse, say,
};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

const BYTES_MAX: usize = 8 << 20;

fn read_hello(socket: &mut UnixStream) -> Hello {
    let mut bytes = [0; HELLO_LEN];
    socket.read_exact(&mut bytes).unwrap();
    Hello::decode(&bytes).unwrap()
}

/// Returns both ends of a connection.
fn pipes(up: usize, down: usize) -> (Pipe, Pipe) {
    let (client, mut server) = UnixStream::pair().unwrap();
    let serving = thread::spawn(move || {
        let hello = read_hello(&mut server);
        let shared = answer(&server, &hello, BYTES_MAX).unwrap().unwrap();
        Pipe::new(shared, server, Spin::never())
    });
    let shared = ask(&client, &Hello::new(up, down)).unwrap().unwrap();
    let client = Pipe::new(shared, client, Spin::never());
    (client, serving.join().unwrap())
}

fn bytes(len: usize, salt: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + salt + (at >> 9)) as u8).collect()
}

#[test]
fn bytes_go_both_ways_and_more_of_them_than_fit() {
    let (mut client, mut server) = pipes(CAPACITY_MIN, CAPACITY_MIN * 2);
    let (asked, answered) = (bytes(1_000_000, 1), bytes(3_000_000, 2));
    let (expected, reply) = (asked.clone(), answered.clone());
    let serving = thread::spawn(move || {
        let mut got = vec![0; expected.len()];
        server.read_exact(&mut got).unwrap();
        assert!(got == expected);
        server.write_all(&reply).unwrap();
        server.flush().unwrap();
        // It has ended once the client has.
        assert_eq!(server.read(&mut [0]).unwrap(), 0);
    });
    client.write_all(&asked).unwrap();
    client.flush().unwrap();
    let mut got = vec![0; answered.len()];
    client.read_exact(&mut got).unwrap();
    assert!(got == answered);
    client.finish();
    serving.join().unwrap();
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
    assert!(client.write_all(&bytes(2 * CAPACITY_MIN, 0)).is_err());
}

#[test]
fn who_writes_and_reads_at_once_is_not_stopped_by_one_who_does_the_same() {
    let (mut client, mut server) = pipes(CAPACITY_MIN, CAPACITY_MIN);
    // The server answers as it reads, and reads no more while its answers are not read.
    let serving = thread::spawn(move || {
        let mut some = vec![0; 40_000];
        loop {
            match server.read(&mut some).unwrap() {
                0 => return,
                len => server.write_all(&some[..len]).unwrap(),
            }
            server.flush().unwrap();
        }
    });
    let asked = bytes(3_000_000, 7);
    let (mut written, mut got, mut some) = (0, Vec::new(), vec![0; 50_000]);
    client.set_timeout(Some(Duration::from_secs(20)));
    while got.len() < asked.len() {
        let (more, read) = client.exchange(&asked[written..], &mut some).unwrap();
        assert!(more + read > 0, "it has ended");
        written += more;
        got.extend_from_slice(&some[..read]);
    }
    assert!(got == asked);
    client.finish();
    serving.join().unwrap();
    assert_eq!(client.exchange(&[], &mut some).unwrap(), (0, 0));
}

#[test]
fn without_any_time_nothing_is_waited_for() {
    let (mut client, mut server) = pipes(CAPACITY_MIN, CAPACITY_MIN);
    client.set_timeout(Some(Duration::ZERO));
    let start = std::time::Instant::now();
    for _ in 0..1000 {
        assert_eq!(client.read(&mut [0; 8]).unwrap_err().kind(), ErrorKind::TimedOut);
        assert_eq!(client.exchange(&[], &mut [0; 8]).unwrap_err().kind(), ErrorKind::TimedOut);
    }
    assert!(start.elapsed() < Duration::from_millis(500));
    assert_eq!(client.write(&bytes(CAPACITY_MIN + 1, 0)).unwrap(), CAPACITY_MIN);
    assert_eq!(client.write(b"x").unwrap_err().kind(), ErrorKind::TimedOut);
    server.write_all(b"there").unwrap();
    server.flush().unwrap();
    assert_eq!(client.read(&mut [0; 8]).unwrap(), 5);
}

/// A peer that sends needless wake-ups makes no wait longer.
#[test]
fn a_wait_ends_in_its_time_whoever_rings() {
    let (mut client, server) = pipes(CAPACITY_MIN, CAPACITY_MIN);
    client.set_timeout(Some(Duration::from_millis(200)));
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let socket = server.socket();
    let ringing = thread::spawn(move || {
        while stopped.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
            let _ = rustix::io::write(&socket, b"!");
            thread::sleep(Duration::from_millis(5));
        }
    });
    let start = std::time::Instant::now();
    assert_eq!(client.read(&mut [0; 8]).unwrap_err().kind(), ErrorKind::TimedOut);
    let took = start.elapsed();
    assert!(took >= Duration::from_millis(190) && took < Duration::from_secs(5), "{took:?}");
    drop(stop);
    ringing.join().unwrap();
}

#[test]
fn many_small_questions_are_answered_one_by_one() {
    let (mut client, mut server) = pipes(CAPACITY_MIN, CAPACITY_MIN);
    let serving = thread::spawn(move || {
        let mut some = [0; 64];
        loop {
            match server.read(&mut some).unwrap() {
                0 => return,
                len => server.write_all(&some[..len]).unwrap(),
            }
            server.flush().unwrap();
        }
    });
    for nth in 0..3000 {
        let question = bytes(1 + nth % 60, nth);
        client.write_all(&question).unwrap();
        client.flush().unwrap();
        let mut got = vec![0; question.len()];
        client.read_exact(&mut got).unwrap();
        assert_eq!(got, question);
    }
    drop(client);
    serving.join().unwrap();
}

#[test]
fn a_wait_is_as_long_as_it_may_be() {
    let (mut client, _server) = pipes(CAPACITY_MIN, CAPACITY_MIN);
    client.set_timeout(Some(Duration::from_millis(20)));
    assert_eq!(client.read(&mut [0]).unwrap_err().kind(), std::io::ErrorKind::TimedOut);
    let full = client.write_all(&bytes(CAPACITY_MIN + 1, 0)).unwrap_err();
    assert_eq!(full.kind(), std::io::ErrorKind::TimedOut);
}

#[test]
fn refusals_leave_the_socket_as_it_was() {
    let (client, mut server) = UnixStream::pair().unwrap();
    assert_eq!(peer_uid(&server).unwrap(), peer_uid(&client).unwrap());
    let serving = thread::spawn(move || {
        for _ in 0..2 {
            let hello = read_hello(&mut server);
            assert_eq!(answer(&server, &hello, BYTES_MAX).unwrap().unwrap_err(), Refusal::Capacity);
        }
        read_hello(&mut server);
        refuse(&server, Refusal::User).unwrap();
        server.write_all(b"+plain\r\n").unwrap();
    });
    let refused = |hello: Hello| ask(&client, &hello).unwrap().unwrap_err();
    assert_eq!(refused(Hello { up: 12345, down: CAPACITY_MIN }), Refusal::Capacity);
    assert_eq!(refused(Hello::new(CAPACITY_MAX, CAPACITY_MAX)), Refusal::Capacity);
    assert_eq!(refused(Hello::new(0, 0)), Refusal::User);
    let mut rest = String::new();
    (&client).read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "+plain\r\n");
    serving.join().unwrap();
}

#[test]
fn what_is_no_answer_is_refused() {
    for wrong in [&b"+OK\r\n"[..], &[0; HELLO_LEN], b"\0KWSHM1!"] {
        let (client, mut server) = UnixStream::pair().unwrap();
        let serving = thread::spawn(move || {
            read_hello(&mut server);
            server.write_all(wrong).unwrap();
        });
        assert!(ask(&client, &Hello::new(0, 0)).is_err(), "{}", wrong.escape_ascii());
        serving.join().unwrap();
    }
    // The answer is right, but its descriptor is missing.
    let (client, mut server) = UnixStream::pair().unwrap();
    let serving = thread::spawn(move || {
        let mut bytes = read_hello(&mut server).encode();
        bytes[7] = b'!';
        server.write_all(&bytes).unwrap();
    });
    assert!(
        ask(&client, &Hello::new(0, 0)).unwrap_err().to_string().contains("without its descriptor")
    );
    serving.join().unwrap();
}

/// The variable that tells a process started by these tests that it is a client, and on which
/// descriptor.
const CLIENT: &str = "KEYWAY_RING_TEST_CLIENT";

/// The client, which is not a test of its own.
#[test]
fn client() {
    let Ok(told) = std::env::var(CLIENT) else { return };
    // SAFETY: the descriptor is inherited from the test, for this process alone.
    let socket = unsafe { OwnedFd::from_raw_fd(told.parse().unwrap()) };
    let socket = UnixStream::from(socket);
    let shared = ask(&socket, &Hello::new(CAPACITY_MIN, CAPACITY_MIN)).unwrap().unwrap();
    let mut pipe = Pipe::new(shared, socket, Spin::never());
    pipe.write_all(b"here").unwrap();
    pipe.flush().unwrap();
    thread::sleep(Duration::from_secs(60));
}

#[test]
fn a_process_that_is_killed_is_gone_at_once_and_leaves_nothing() {
    let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let before = open();
    for _ in 0..20 {
        let (mut own, theirs) = UnixStream::pair().unwrap();
        let theirs = OwnedFd::from(theirs);
        rustix::io::fcntl_setfd(&theirs, rustix::io::FdFlags::empty()).unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "client", "--test-threads=1"])
            .env(CLIENT, theirs.as_raw_fd().to_string())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        drop(theirs);
        let hello = read_hello(&mut own);
        let shared = answer(&own, &hello, BYTES_MAX).unwrap().unwrap();
        let mut pipe = Pipe::new(shared, own, Spin::never());
        let mut got = [0; 4];
        pipe.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"here");
        let killer = thread::spawn(move || {
            thread::sleep(Duration::from_millis(5));
            child.kill().unwrap();
            child.wait().unwrap();
        });
        pipe.set_timeout(Some(Duration::from_secs(10)));
        assert_eq!(pipe.read(&mut got).unwrap(), 0);
        assert_eq!(pipe.write(b"x").unwrap_err().kind(), std::io::ErrorKind::BrokenPipe);
        killer.join().unwrap();
    }
    // Other tests of this process open and close descriptors meanwhile.
    assert!(open() < before + 40, "{before} descriptors have become {}", open());
}

#[test]
fn a_hello_of_any_version_is_told_from_what_other_clients_say() {
    let mut hello = Hello::new(0, 0).encode();
    for len in 0..=HELLO_LEN {
        assert!(Hello::may_begin(&hello[..len]), "{len} bytes of it");
    }
    hello[6] = b'9';
    assert!(Hello::may_begin(&hello) && Hello::decode(&hello).is_none());
    let others: [&[u8]; 6] =
        [b"*", b"*1\r\n$4\r\nPING\r\n", b"PING\r\n", b"\x80", b"\0KWS*", b"\0\0"];
    for said in others {
        assert!(!Hello::may_begin(said), "{said:?}");
    }
}

#[test]
fn an_answer_is_heard_without_waiting_for_it() {
    let (client, mut server) = UnixStream::pair().unwrap();
    client.set_nonblocking(true).unwrap();
    let hello = Hello::new(0, 0);
    say(&client, &hello).unwrap();
    assert_eq!(hear(&client, &hello).unwrap_err().kind(), ErrorKind::WouldBlock);
    assert_eq!(read_hello(&mut server), hello);
    refuse(&server, Refusal::Version).unwrap();
    assert_eq!(hear(&client, &hello).unwrap().err(), Some(Refusal::Version));
    say(&client, &hello).unwrap();
    assert_eq!(read_hello(&mut server), hello);
    let _shared = answer(&server, &hello, BYTES_MAX).unwrap().unwrap();
    assert!(hear(&client, &hello).unwrap().is_ok());
}

/// Returns the blocks of the memory that the system has provided.
fn blocks(segment: &Segment) -> u64 {
    let file = std::fs::File::from(segment.descriptor().try_clone_to_owned().unwrap());
    std::os::unix::fs::MetadataExt::blocks(&file.metadata().unwrap())
}

#[test]
fn memory_without_content_is_given_back_by_who_writes_it() {
    let segment = Segment::create(&[CAPACITY_MIN]).unwrap();
    let mut producer = Producer::new(segment.ring(0).unwrap());
    let mut consumer = Consumer::new(segment.ring(0).unwrap());
    let bell = Bell::default();
    let empty = blocks(&segment);
    let mut got = vec![0; CAPACITY_MIN];
    for round in 0..5 {
        let said = bytes(CAPACITY_MIN - round * 1_000, round);
        assert_eq!(producer.write(&said), Ok(said.len()));
        assert!(!producer.discard(), "it is not published");
        producer.flush(&bell);
        assert!(!producer.discard(), "it is not read");
        assert_eq!(consumer.read(&mut got), Ok(said.len()));
        assert!(got[..said.len()] == said);
        assert!(!producer.discard(), "its room is not given back");
        consumer.give_back(&bell);
        assert!(blocks(&segment) > empty);
        assert!(producer.discard());
        assert_eq!(blocks(&segment), empty);
    }
}
