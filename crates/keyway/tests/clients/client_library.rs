//! The client library with Keyway itself: over shared memory, and its fallback without it.

#![allow(clippy::disallowed_methods, reason = "one that is to sleep is left alone for a while")]

use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use keyway_client::{Connection, Error, Options, Transport, Value};
use keyway_ring::{HELLO_LEN, Refusal};
use keyway_testkit::{Keyway, KeywayConfig, Pool, TempDir, watchdog};

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");

/// Starts a store in shared memory. Returns its directory and its URL.
fn store(settings: &str) -> (Keyway, TempDir, String) {
    let directory = TempDir::new();
    let url = format!("shm://{}/keyway.shm", directory.path().display());
    let listener = format!("[[listener]]\nbind = \"{url}\"\npool = \"local\"\n{settings}\n");
    let config = KeywayConfig::new(vec![Pool::store("local")]).with_tables(&listener);
    (Keyway::start(KEYWAY, config), directory, url)
}

fn bytes(text: &str) -> Value {
    Value::Bytes(text.into())
}

#[test]
fn commands_and_large_pipelines_go_through_shared_memory() {
    let _watch = watchdog(Duration::from_secs(120), "the client library");
    let (_keyway, _directory, url) = store("ring_max = \"64KiB\"");
    // The client asks for larger rings than it is given, and uses what it gets.
    let mut connection = Connection::open(&format!("{url}?ring=1m&spin=20us")).unwrap();
    assert_eq!(connection.stream().transport(), Transport::Shared);
    assert_eq!(connection.command(&["SET", "k", "v"]).unwrap(), Value::Status("OK".into()));
    for _ in 0..2000 {
        assert_eq!(connection.command(&["GET", "k"]).unwrap(), bytes("v"));
    }
    let large = "x".repeat(700_000);
    let mut pipeline = connection.pipeline();
    for nth in 0..60 {
        let key = format!("key:{nth}");
        pipeline.add(&["SET", &key, &large]).add(&["GET", &key]).add(&["LPUSH", &key, "y"]);
    }
    let replies = pipeline.run().unwrap();
    for three in replies.chunks_exact(3) {
        assert_eq!(three[1].as_bytes().map(<[u8]>::len), Some(large.len()));
        assert!(three[2].as_str().unwrap().starts_with("WRONGTYPE"));
    }
    assert_eq!(replies.len(), 180);
    // The wait is longer than the time for which the client polls before it sleeps.
    let mut other = Connection::open(&url).unwrap();
    connection.append(&["BLPOP", "list", "10"]).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| connection.reply().unwrap());
        std::thread::sleep(Duration::from_millis(100));
        other.command(&["RPUSH", "list", "late"]).unwrap();
        assert_eq!(waiting.join().unwrap(), Value::Array(vec![bytes("list"), bytes("late")]));
    });
}

#[test]
fn the_socket_is_there_when_memory_is_not() {
    let (keyway, _directory, url) = store("");
    let unix = url.replace("shm:", "unix:");
    let mut plain = Connection::open(&unix).unwrap();
    assert_eq!(plain.stream().transport(), Transport::Unix);
    assert_eq!(plain.command(&["ECHO", "x"]).unwrap(), bytes("x"));
    let mut connection = Connection::open(&url).unwrap();
    connection.set_timeout(Some(Duration::from_millis(200)));
    let late = connection.command(&["BLPOP", "nothing", "0"]).unwrap_err();
    assert!(matches!(&late, Error::Lost(why) if why.kind() == std::io::ErrorKind::TimedOut));
    let mut connection = Connection::open(&url).unwrap();
    connection.command(&["PING"]).unwrap();
    drop(keyway);
    assert!(matches!(connection.command(&["PING"]), Err(Error::Lost(_))));
    assert!(matches!(Connection::open(&url), Err(Error::Connect(..))));
}

#[test]
fn passwords_are_asked_for_there_as_anywhere() {
    let (_keyway, _directory, url) = store("password = \"secret\"");
    let refused = Connection::open(&url).unwrap().command(&["GET", "k"]).unwrap_err();
    assert!(refused.to_string().starts_with("NOAUTH"), "{refused}");
    let wrong = Options { password: Some("other".to_owned()), ..Options::default() };
    let refused = Connection::open_with(&url, &wrong).unwrap_err();
    assert!(refused.to_string().starts_with("WRONGPASS"), "{refused}");
    let options = Options { password: Some("secret".to_owned()), ..Options::default() };
    let mut connection = Connection::open_with(&url, &options).unwrap();
    assert_eq!(connection.stream().transport(), Transport::Shared);
    assert_eq!(connection.command(&["GET", "k"]).unwrap(), Value::Nil);
}

/// A server that does not share memory with this user, serves one request over the socket, and
/// ends.
#[test]
fn why_memory_was_refused_is_told_with_what_comes_of_it() {
    let _watch = watchdog(Duration::from_secs(60), "a user who is refused");
    let directory = TempDir::new();
    let path = directory.path().join("refuses.shm");
    let server = UnixListener::bind(&path).unwrap();
    let serving = std::thread::spawn(move || {
        let (mut socket, _) = server.accept().unwrap();
        socket.read_exact(&mut [0; HELLO_LEN]).unwrap();
        keyway_ring::refuse(&socket, Refusal::User).unwrap();
        socket.read_exact(&mut [0; 14]).unwrap();
        socket.write_all(b"+PONG\r\n").unwrap();
    });
    let mut connection = Connection::open(&format!("shm://{}", path.display())).unwrap();
    let stream = connection.stream();
    assert_eq!((stream.transport(), stream.refusal()), (Transport::Unix, Some(Refusal::User)));
    assert_eq!(connection.command(&["PING"]).unwrap(), Value::Status("PONG".into()));
    serving.join().unwrap();
    let lost = connection.command(&["PING"]).unwrap_err().to_string();
    assert!(lost.contains("the user of this process may not share memory there"), "{lost}");
}

/// The program of the C library's own tests.
#[test]
fn a_program_in_c_goes_through_shared_memory() {
    // This makes sure that the library is built.
    let _ = keyway_client_c::keyway_open;
    let (_keyway, directory, url) = store("");
    let libraries: PathBuf =
        std::env::current_exe().unwrap().parent().expect("a directory").to_owned();
    let program = directory.path().join("talk");
    let made = Command::new("cc")
        .current_dir("../client-c")
        .args(["-std=c11", "-Iinclude", "tests/talk.c", "-o"])
        .arg(&program)
        .arg(libraries.join("libkeyway_client_c.a"))
        .args(["-lpthread", "-ldl", "-lm"])
        .output()
        .expect("a C compiler, which the toolchain needs too");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let output = Command::new(&program).arg(&url).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    assert_eq!(output.stdout, b"transport 2\n");
}
