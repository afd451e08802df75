//! The client with a real redis-server, over TCP and over a unix socket.

#![allow(clippy::disallowed_methods, reason = "waiting is measured")]

use keyway_client::{
    Connection, Endpoint, Error, Options, Refusal, Stream, Transport, Value, on_fallback,
};
use keyway_testkit::{RedisServer, TempDir};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpListener;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

fn bytes(text: &str) -> Value {
    Value::Bytes(text.into())
}

/// A server with a unix socket beside its port, and the URLs of both.
fn server() -> (RedisServer, TempDir, [String; 2]) {
    let directory = TempDir::new();
    let socket = format!("{}/redis.sock", directory.path().display());
    let server = RedisServer::start_with(&["--unixsocket", &socket]);
    let urls = [format!("tcp://{}", server.address()), format!("unix://{socket}")];
    (server, directory, urls)
}

#[test]
fn commands_are_answered_over_tcp_and_unix_sockets() {
    let (_server, _directory, urls) = server();
    for (url, transport) in urls.iter().zip([Transport::Tcp, Transport::Unix]) {
        let mut connection = Connection::open(url).unwrap();
        assert_eq!(connection.stream().transport(), transport);
        assert_eq!(connection.command(&["SET", "k", url]).unwrap(), Value::Status("OK".into()));
        assert_eq!(connection.command(&["GET", "k"]).unwrap(), bytes(url));
        assert_eq!(connection.command(&["GET", "none"]).unwrap(), Value::Nil);
        let refused = connection.command(&["LPUSH", "k", "x"]).unwrap_err();
        assert!(matches!(refused, Error::Refused(text) if text.starts_with("WRONGTYPE")));
        // An error leaves the connection as it is.
        assert_eq!(
            connection.command(&[&b"STRLEN"[..], b"k"]).unwrap().as_integer(),
            Some(url.len() as i64)
        );
    }
}

#[test]
fn who_knows_nothing_of_shared_memory_is_told_of() {
    let (_server, _directory, urls) = server();
    let url = urls[1].replace("unix:", "shm:");
    let options =
        Options { connect_timeout: Some(Duration::from_millis(200)), ..Options::default() };
    let error = Connection::open_with(&url, &options).unwrap_err();
    assert!(error.to_string().contains("is it a listener of shm://?"), "{error}");
}

#[test]
fn pipelines_larger_than_every_buffer_are_answered_in_order() {
    let (_server, _directory, urls) = server();
    let large = "v".repeat(3 << 20);
    for url in &urls {
        let mut connection = Connection::open(url).unwrap();
        let mut pipeline = connection.pipeline();
        for nth in 0..40 {
            let key = format!("key:{nth}");
            pipeline.add(&["SET", &key, &large]).add(&["GET", &key]).add(&["ECHO", &key]);
        }
        pipeline.add(&["INCR", "key:1"]);
        let replies = pipeline.run().unwrap();
        assert_eq!(replies.len(), 121);
        for (nth, three) in replies.chunks_exact(3).enumerate() {
            assert_eq!(three[0], Value::Status("OK".into()));
            assert_eq!(three[1].as_bytes().map(<[u8]>::len), Some(large.len()));
            assert_eq!(three[2], bytes(&format!("key:{nth}")));
        }
        assert!(replies[120].is_error());
    }
}

#[test]
fn what_is_not_run_is_not_sent_and_what_is_no_command_is_told() {
    let (_server, _directory, [url, _]) = server();
    let mut connection = Connection::open(&url).unwrap();
    connection.append(&["SET", "k", "1"]).unwrap();
    connection.pipeline().add(&["SET", "k", "2"]);
    let mut wrong = connection.pipeline();
    wrong.add(&["SET", "k", "3"]).add::<&str>(&[]);
    assert!(matches!(wrong.run(), Err(Error::Refused(_))));
    assert!(matches!(connection.command::<&str>(&[]), Err(Error::Refused(_))));
    assert_eq!(connection.reply().unwrap(), Value::Status("OK".into()));
    assert_eq!(connection.command(&["GET", "k"]).unwrap(), bytes("1"));
    assert!(connection.pipeline().run().unwrap().is_empty());
}

#[test]
fn messages_between_replies_are_kept() {
    let (server, _directory, [url, _]) = server();
    let mut connection = Connection::open(&url).unwrap();
    let hello = connection.command(&["HELLO", "3"]).unwrap();
    assert!(matches!(hello, Value::Map(_)), "{hello:?}");
    connection.append(&["SUBSCRIBE", "news"]).unwrap();
    assert_eq!(connection.receive().unwrap().elements().unwrap()[0], bytes("subscribe"));
    assert_eq!(server.client().words("PUBLISH news paper").integer(), 1);
    let end = Instant::now() + Duration::from_secs(10);
    let push = loop {
        assert_eq!(connection.command(&["ECHO", "x"]).unwrap(), bytes("x"));
        if let Some(push) = connection.take_push() {
            break push;
        }
        assert!(Instant::now() < end, "the message does not come");
    };
    assert_eq!(push, Value::Push(vec![bytes("message"), bytes("news"), bytes("paper")]));
}

#[test]
fn who_must_log_in_logs_in_and_selects() {
    let server = RedisServer::start_with(&["--requirepass", "secret"]);
    let url = format!("tcp://{}", server.address());
    let refused = Connection::open(&url).unwrap().command(&["PING"]).unwrap_err();
    assert!(refused.to_string().starts_with("NOAUTH"), "{refused}");
    let password = Some("secret".to_owned());
    for username in [None, Some("default".to_owned())] {
        let options =
            Options { password: password.clone(), username, database: 3, ..Options::default() };
        let mut connection = Connection::open_with(&url, &options).unwrap();
        let info = connection.command(&["CLIENT", "INFO"]).unwrap();
        assert!(info.as_str().unwrap().contains(" db=3 "));
    }
    let options = Options { password: Some("wrong".to_owned()), ..Options::default() };
    let refused = Connection::open_with(&url, &options).unwrap_err();
    assert!(refused.to_string().starts_with("WRONGPASS"), "{refused}");
}

#[test]
fn a_connection_that_is_lost_says_so_from_then_on() {
    let (mut server, _directory, urls) = server();
    for url in &urls {
        let mut connection = Connection::open(url).unwrap();
        connection.set_timeout(Some(Duration::from_millis(100)));
        let late = connection.command(&["BLPOP", "nothing", "0"]).unwrap_err();
        assert!(matches!(&late, Error::Lost(why) if why.kind() == ErrorKind::TimedOut));
        assert!(matches!(connection.command(&["PING"]), Err(Error::Closed)));
        let mut pipeline = connection.pipeline();
        pipeline.add(&["PING"]);
        assert!(matches!(pipeline.run(), Err(Error::Closed)));
    }
    let mut ended = Connection::open(&urls[0]).unwrap();
    ended.command(&["QUIT"]).unwrap();
    let told = ended.receive().unwrap_err().to_string();
    assert_eq!(told, "the connection is lost: the server has ended it");
    let mut connection = Connection::open(&urls[0]).unwrap();
    server.kill();
    assert!(matches!(connection.command(&["PING"]), Err(Error::Lost(_))));
    let nobody = Connection::open(&urls[0]).unwrap_err();
    assert!(nobody.to_string().starts_with("cannot connect to tcp://127.0.0.1:"), "{nobody}");
}

/// Servers that say what no server says.
#[test]
fn what_is_no_reply_ends_the_connection() {
    let said: [(&[u8], &str); 5] = [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "this is not Redis's protocol"),
        (b"$2147483000\r\n", "longer than is accepted"),
        (&b"*1\r\n".repeat(200), "nests deeper"),
        (b",one\r\n", "a value that is none"),
        (b"$5\r\nab", "connection is lost"),
    ];
    for (said, expected) in said {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("tcp://{}", listener.local_addr().unwrap());
        let said = said.to_vec();
        let serving = thread::spawn(move || {
            let mut socket = listener.accept().unwrap().0;
            let _ = socket.read(&mut [0; 100]).unwrap();
            socket.write_all(&said).unwrap();
        });
        let mut connection = Connection::open(&url).unwrap();
        let error = connection.command(&["PING"]).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert!(matches!(connection.command(&["PING"]), Err(Error::Closed)));
        serving.join().unwrap();
    }
}

/// A listener whose backlog is full, or that never answers, holds nobody for longer than was said.
#[test]
fn connecting_ends_when_its_time_is_up() {
    let directory = TempDir::new();
    let path = directory.path().join("silent.sock");
    let _listener = UnixListener::bind(&path).unwrap();
    let options =
        Options { connect_timeout: Some(Duration::from_millis(200)), ..Options::default() };
    let start = Instant::now();
    let url = format!("shm://{}", path.display());
    let error = Connection::open_with(&url, &options).unwrap_err();
    assert!(matches!(&error, Error::Connect(_, why) if why.kind() == ErrorKind::TimedOut));
    assert!(error.to_string().contains("is it a listener of shm://?"), "{error}");
    let full: Vec<_> = (0..5000)
        .map(|_| Connection::open_with(&url.replace("shm:", "unix:"), &options))
        .take_while(Result::is_ok)
        .collect();
    assert!(full.len() < 5000, "a backlog of no end");
    assert!(start.elapsed() < Duration::from_secs(5));
}

/// A server of one connection, which does `serve` with it; its path.
fn one(
    serve: impl FnOnce(UnixStream) + Send + 'static,
) -> (TempDir, PathBuf, thread::JoinHandle<()>) {
    let directory = TempDir::new();
    let path = directory.path().join("one.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let serving = thread::spawn(move || serve(listener.accept().unwrap().0));
    (directory, path, serving)
}

/// A connection to a server that has ended with these words before it was asked anything.
fn ended_with(words: &'static [u8]) -> (TempDir, Connection) {
    let (directory, path, serving) = one(move |mut socket| socket.write_all(words).unwrap());
    let connection = Connection::open(&format!("unix://{}", path.display())).unwrap();
    serving.join().unwrap();
    (directory, connection)
}

#[test]
fn the_last_words_of_a_server_are_heard() {
    let (_directory, mut connection) = ended_with(b"-ERR max number of clients reached\r\n");
    let refused = connection.command(&["PING"]).unwrap_err();
    assert_eq!(refused.to_string(), "ERR max number of clients reached");
    assert!(matches!(connection.command(&["PING"]), Err(Error::Lost(_))));
    assert!(matches!(connection.command(&["PING"]), Err(Error::Closed)));
    // A flush leaves them to who receives.
    let (_directory, mut connection) = ended_with(b"-ERR bye\r\n");
    connection.append(&["PING"]).unwrap();
    connection.flush().unwrap();
    assert_eq!(connection.receive().unwrap(), Value::Error("ERR bye".into()));
    assert!(matches!(connection.receive(), Err(Error::Lost(_))));
}

#[test]
fn a_time_of_zero_looks_once() {
    let (_server, _directory, urls) = server();
    for url in &urls {
        let mut stream = Stream::connect(&url.parse::<Endpoint>().unwrap(), None).unwrap();
        stream.set_timeout(Some(Duration::ZERO));
        let start = Instant::now();
        for _ in 0..1000 {
            assert_eq!(stream.read(&mut [0; 10]).unwrap_err().kind(), ErrorKind::TimedOut);
        }
        // At a millisecond each it would be a second.
        assert!(start.elapsed() < Duration::from_millis(500), "{:?}", start.elapsed());
        stream.write_all(b"PING\r\n").unwrap();
        stream.set_timeout(Some(Duration::from_secs(10)));
        assert_eq!(stream.read(&mut [0; 10]).unwrap(), 7);
        // Writing goes on until there is no room, and then does not wait either.
        stream.set_timeout(Some(Duration::ZERO));
        let blocked = loop {
            match stream.write(&[b'*'; 1 << 16]) {
                Ok(len) => assert!(len > 0),
                Err(error) => break error,
            }
        };
        assert!(blocked.kind() != ErrorKind::WouldBlock, "{blocked}");
    }
}

#[test]
fn a_wait_has_one_end_however_often_it_is_woken() {
    let (_directory, path, serving) = one(|mut socket| {
        // Whoever waits for room is woken by what comes, for which it has none.
        for _ in 0..40 {
            if socket.write_all(b"x").is_err() {
                return;
            }
            thread::sleep(Duration::from_millis(50));
        }
    });
    let url = format!("unix://{}", path.display());
    let mut stream = Stream::connect(&url.parse::<Endpoint>().unwrap(), None).unwrap();
    stream.set_timeout(Some(Duration::from_millis(200)));
    let start = Instant::now();
    let error = loop {
        match stream.write(&[b'*'; 1 << 20]) {
            Ok(len) => assert!(len > 0),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    drop(stream);
    serving.join().unwrap();
}

#[test]
fn what_is_flushed_is_sent_and_waits_can_be_short() {
    let (server, _directory, urls) = server();
    let short = Duration::from_millis(50);
    for url in &urls {
        let mut connection = Connection::open(url).unwrap();
        connection.append(&["SUBSCRIBE", "news"]).unwrap();
        connection.flush().unwrap();
        let mut other = server.client();
        let end = Instant::now() + Duration::from_secs(10);
        while other.words("PUBLISH news first").integer() == 0 {
            assert!(Instant::now() < end, "what was flushed does not come");
        }
        assert_eq!(connection.receive().unwrap().elements().unwrap()[0], bytes("subscribe"));
        assert_eq!(connection.receive().unwrap().elements().unwrap()[2], bytes("first"));
        for wait in [Duration::ZERO, short] {
            let start = Instant::now();
            assert_eq!(connection.receive_within(wait).unwrap(), None);
            assert!(start.elapsed() >= wait && start.elapsed() < Duration::from_secs(2));
        }
        other.words("PUBLISH news paper");
        let came = connection.receive_within(Duration::from_secs(10)).unwrap().unwrap();
        assert_eq!(came.elements().unwrap()[2], bytes("paper"));
        // The reply to a command that is late comes later.
        let mut connection = Connection::open(url).unwrap();
        connection.append(&["BLPOP", "list", "0"]).unwrap();
        assert_eq!(connection.reply_within(short).unwrap(), None);
        other.words("RPUSH list x");
        let late = connection.reply_within(Duration::from_secs(10)).unwrap();
        assert_eq!(late, Some(Value::Array(vec![bytes("list"), bytes("x")])));
        assert_eq!(connection.command(&["PING"]).unwrap(), Value::Status("PONG".into()));
    }
}

/// A flush receives while it sends, so that a server that answers much goes on reading.
#[test]
fn a_flush_of_much_that_is_answered_by_much_ends() {
    let (_server, _directory, [url, _]) = server();
    let large = "v".repeat(1 << 20);
    let mut connection = Connection::open(&url).unwrap();
    for _ in 0..20 {
        connection.append(&["ECHO", &large]).unwrap();
    }
    connection.flush().unwrap();
    for _ in 0..20 {
        assert_eq!(connection.reply().unwrap().as_bytes().map(<[u8]>::len), Some(large.len()));
    }
}

#[test]
fn a_user_without_a_password_is_told() {
    let options = Options { username: Some("u".to_owned()), ..Options::default() };
    let refused = Connection::open_with("unix:///nowhere/at.all", &options).unwrap_err();
    assert!(refused.to_string().contains("without a password"), "{refused}");
}

/// What is said instead of an answer to a hello.
#[test]
fn who_gives_no_memory_is_quoted() {
    for (words, told) in [
        (&b"-ERR max number of clients reached\r\n"[..], "ERR max number of clients reached"),
        (
            b"-ERR unknown command '', with args beginning with: 'KWSHM1'\r\n",
            "a server of unix:// listens there, not of shm:// (it answers \"ERR unknown command",
        ),
        (b"HTTP/1.1 400 Bad Request\r\nA: b\r\n", "it answers \"HTTP/1.1 400 Bad Request\""),
        (b"-ERR cut", "ERR cut"),
    ] {
        for reads in [false, true] {
            let (_directory, path, serving) = one(move |mut socket| {
                if reads {
                    let _ = socket.read(&mut [0; 64]).unwrap();
                }
                socket.write_all(words).unwrap();
            });
            let error = Connection::open(&format!("shm://{}", path.display())).unwrap_err();
            assert!(matches!(&error, Error::Connect(..)), "{error}");
            assert!(error.to_string().contains(told), "{error}");
            serving.join().unwrap();
        }
    }
}

/// Who begins to answer a hello and does not go on holds nobody for longer than was said.
#[test]
fn an_answer_that_does_not_end_is_none() {
    let (_directory, path, serving) = one(|mut socket| {
        socket.write_all(b"\0KWSHM1!").unwrap();
        // Until the client is gone.
        let _ = socket.read_to_end(&mut Vec::new());
    });
    let options =
        Options { connect_timeout: Some(Duration::from_millis(200)), ..Options::default() };
    let start = Instant::now();
    let error = Connection::open_with(&format!("shm://{}", path.display()), &options).unwrap_err();
    assert!(matches!(error, Error::Connect(..)), "{error}");
    assert!(start.elapsed() < Duration::from_secs(5));
    serving.join().unwrap();
}

/// The unit tests have a hook of their own; here a server refuses.
#[test]
fn who_is_refused_shared_memory_is_told_so_once_and_served_over_the_socket() {
    let directory = TempDir::new();
    let path = directory.path().join("refuses.shm");
    let server = UnixListener::bind(&path).unwrap();
    let serving = thread::spawn(move || {
        for _ in 0..2 {
            let (mut socket, _) = server.accept().unwrap();
            socket.read_exact(&mut [0; keyway_ring::HELLO_LEN]).unwrap();
            keyway_ring::refuse(&socket, Refusal::User).unwrap();
            socket.read_exact(&mut [0; 14]).unwrap();
            socket.write_all(b"+PONG\r\n").unwrap();
        }
    });
    let (told, heard) = std::sync::mpsc::channel();
    on_fallback(move |path, why| told.send((path.to_owned(), why)).unwrap());
    for _ in 0..2 {
        let mut connection = Connection::open(&format!("shm://{}", path.display())).unwrap();
        let stream = connection.stream();
        assert_eq!((stream.transport(), stream.refusal()), (Transport::Unix, Some(Refusal::User)));
        assert_eq!(connection.command(&["PING"]).unwrap(), Value::Status("PONG".into()));
    }
    serving.join().unwrap();
    assert_eq!(heard.try_iter().collect::<Vec<_>>(), [(path, Refusal::User)]);
}
