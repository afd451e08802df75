//! Servers that are not as they should be, made for the tests: what is sent to them is looked at,
//! and what they say wrongly is found.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "servers of tests")]

mod support;

use keyway_load::outcome::Verification;
use keyway_load::{Error, Flow, Pattern, Plan, Protocol, Sizes, run};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::{go, plan, target, workload};

/// What a server does to the value of a key that is read: how often it was read before, what was
/// written last, and before that.
type Answer = fn(u64, Option<&[u8]>, Option<&[u8]>) -> Option<Vec<u8>>;

#[derive(Default)]
struct Memory {
    last: BTreeMap<Vec<u8>, Vec<u8>>,
    before: BTreeMap<Vec<u8>, Vec<u8>>,
    reads: u64,
}

/// Serves SET, GET and MGET as `answer` has it; keeps what each connection but the first sent.
struct Server {
    address: SocketAddr,
    heard: Arc<Mutex<Vec<Vec<u8>>>>,
}

fn serve(answer: Answer) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let memory: Arc<Mutex<Memory>> = Arc::default();
    let heard: Arc<Mutex<Vec<Vec<u8>>>> = Arc::default();
    let told = Arc::clone(&heard);
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            stream.set_nodelay(true).unwrap();
            let (memory, heard) = (Arc::clone(&memory), Arc::clone(&told));
            std::thread::spawn(move || {
                let (mut bytes, mut input) = (Vec::new(), BufReader::new(&stream));
                while let Some(words) = request(&mut input, &mut bytes) {
                    let mut reply = Vec::new();
                    respond(&words, &mut memory.lock().unwrap(), answer, &mut reply);
                    if (&stream).write_all(&reply).is_err() {
                        break;
                    }
                }
                heard.lock().unwrap().push(bytes);
            });
        }
    });
    Server { address, heard }
}

fn request(stream: &mut BufReader<&TcpStream>, heard: &mut Vec<u8>) -> Option<Vec<Vec<u8>>> {
    let mut head = Vec::new();
    stream.read_until(b'\n', &mut head).ok()?;
    heard.extend_from_slice(&head);
    let count: usize = std::str::from_utf8(head.get(1..)?).ok()?.trim().parse().ok()?;
    let mut words = Vec::new();
    for _ in 0..count {
        let mut head = Vec::new();
        stream.read_until(b'\n', &mut head).ok()?;
        heard.extend_from_slice(&head);
        let len: usize = std::str::from_utf8(head.get(1..)?).ok()?.trim().parse().ok()?;
        let mut word = vec![0; len + 2];
        stream.read_exact(&mut word).ok()?;
        heard.extend_from_slice(&word);
        word.truncate(len);
        words.push(word);
    }
    Some(words)
}

fn respond(words: &[Vec<u8>], memory: &mut Memory, answer: Answer, reply: &mut Vec<u8>) {
    match words[0].as_slice() {
        b"PING" => reply.extend_from_slice(b"+PONG\r\n"),
        b"SET" => {
            if let Some(before) = memory.last.insert(words[1].clone(), words[2].clone()) {
                memory.before.insert(words[1].clone(), before);
            }
            reply.extend_from_slice(b"+OK\r\n");
        }
        _ => {
            if words[0] == b"MGET" {
                reply.extend_from_slice(format!("*{}\r\n", words.len() - 1).as_bytes());
            }
            for key in &words[1..] {
                memory.reads += 1;
                let (last, before) = (memory.last.get(key), memory.before.get(key));
                let value =
                    answer(memory.reads, last.map(Vec::as_slice), before.map(Vec::as_slice));
                match value {
                    Some(value) => {
                        reply.extend_from_slice(format!("${}\r\n", value.len()).as_bytes());
                        reply.extend_from_slice(&value);
                        reply.extend_from_slice(b"\r\n");
                    }
                    None => reply.extend_from_slice(b"$-1\r\n"),
                }
            }
        }
    }
}

fn honest(_: u64, last: Option<&[u8]>, _: Option<&[u8]>) -> Option<Vec<u8>> {
    last.map(<[u8]>::to_vec)
}

/// A run of reads and writes against such a server, and what was found.
fn found(answer: Answer) -> Verification {
    let server = serve(answer);
    let mut load = workload("set:2,get:2,mget_3:1", 40);
    load.is_verified = true;
    load.sizes = Sizes::Range(48, 90);
    let outcome = go(&load, &target(server.address, Protocol::Resp2), &plan(3000));
    assert_eq!(outcome.totals.requests, 3000);
    outcome.verification.unwrap()
}

#[test]
fn an_honest_server_is_found_honest() {
    let found = found(honest);
    assert!(found.is_clean() && found.foreign == 0 && found.checked > 1000, "{found:?}");
}

#[test]
fn broken_values_are_found() {
    let found = found(|reads, last, _| {
        let mut value = last?.to_vec();
        if reads % 10 == 0 {
            let at = reads as usize % value.len();
            value[at] ^= 0x20;
        }
        Some(value)
    });
    assert!(found.wrong > 50 && found.stale == 0 && found.missing == 0, "{found:?}");
}

#[test]
fn values_of_other_keys_are_found() {
    static OTHER: Mutex<Vec<u8>> = Mutex::new(Vec::new());
    let found = found(|reads, last, _| {
        let mut other = OTHER.lock().unwrap();
        let value = std::mem::replace(&mut *other, last?.to_vec());
        if reads % 10 == 0 && !value.is_empty() { Some(value) } else { Some(other.clone()) }
    });
    assert!(found.wrong > 50, "{found:?}");
}

#[test]
fn stale_values_are_found() {
    let found = found(|reads, last, before| {
        let value = if reads % 10 == 0 { before.or(last) } else { last };
        value.map(<[u8]>::to_vec)
    });
    assert!(found.stale > 20 && found.wrong == 0 && found.missing == 0, "{found:?}");
}

#[test]
fn missing_values_are_found() {
    let found =
        found(|reads, last, _| if reads % 10 == 0 { None } else { last.map(<[u8]>::to_vec) });
    assert!(found.missing > 50 && found.wrong == 0 && found.stale == 0, "{found:?}");
}

/// What one connection sends, by seed.
fn sent(seed: u64) -> Vec<u8> {
    let server = serve(honest);
    let mut load = workload("set:1,get:2,mget_3:1", 1000);
    load.sizes = Sizes::Range(10, 200);
    load.read_pattern = Pattern::Zipf { theta: 0.9 };
    load.expiry = Some((10, 100));
    let plan = Plan { threads: 1, connections: 1, seed, ..plan(500) };
    go(&load, &target(server.address, Protocol::Resp2), &plan);
    keyway_testkit::wait_for("both connections to end", Duration::from_secs(10), || {
        let mut heard = server.heard.lock().unwrap();
        // The first is that which asks whether it is there.
        (heard.len() == 2).then(|| heard.pop().unwrap())
    })
}

#[test]
fn the_same_seed_sends_the_same_bytes() {
    let first = sent(7);
    assert!(first.len() > 20_000);
    assert!(first == sent(7), "the same seed");
    assert!(first != sent(8), "another seed");
}

#[test]
fn what_is_no_reply_is_told() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let _ = stream.read(&mut [0; 100]);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    for protocol in [Protocol::Resp2, Protocol::MemcachedText, Protocol::MemcachedBinary] {
        let outcome =
            run(&workload("get", 10), &target(address, protocol), &plan(10), &[], &mut |_| {
                Flow::Continue
            });
        let error = outcome.unwrap_err();
        assert!(matches!(&error, Error::Protocol { what, .. } if what.contains("HTTP")), "{error}");
    }
}
