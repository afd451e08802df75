//! Measures the cost of parsing a request, in nanoseconds. With an argument, it parses only the
//! request of that name, for a count of instructions: `valgrind --tool=callgrind
//! target/release/examples/parse_cost "get k"`.
#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use keyway_memcache::{ParseLimits, Parsed, Request, Wire, parse_request};
use std::hint::black_box;
use std::time::Instant;

/// Number of requests that are parsed under a profiler. Nothing else is done there.
const COUNTED: u32 = 100_000;

fn requests() -> Vec<(&'static str, Vec<u8>)> {
    let value = "v".repeat(100);
    let mut packet = vec![0x80, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1];
    packet.extend_from_slice(&[0; 12]);
    packet.push(b'k');
    vec![
        ("get k", b"get k\r\n".to_vec()),
        ("get of 20 bytes", b"get user:0000000000:name\r\n".to_vec()),
        ("get of 100 keys", format!("get{}\r\n", " key:0000000000".repeat(100)).into_bytes()),
        ("set k 0 0 100", format!("set k 0 0 100\r\n{value}\r\n").into_bytes()),
        ("mg k v", b"mg k v\r\n".to_vec()),
        ("ms k 100 T0", format!("ms k 100 T0\r\n{value}\r\n").into_bytes()),
        ("binary get k", packet),
    ]
}

fn parse(buf: &[u8], limits: &ParseLimits, request: &mut Request, times: u32) {
    let wire = Wire::of(buf[0]);
    for _ in 0..times {
        let parsed = parse_request(black_box(buf), wire, limits, request);
        assert_eq!(black_box(parsed), Parsed::Ready { consumed: buf.len() });
    }
}

fn main() {
    let limits =
        ParseLimits { value_len_max: 1 << 20, keys_max: 1 << 20, keys_line_len_max: 1 << 20 };
    let mut request = Request::default();
    if let Some(name) = std::env::args().nth(1) {
        for (_, buf) in requests().iter().filter(|(known, _)| *known == name) {
            parse(buf, &limits, &mut request, COUNTED);
        }
        return;
    }
    for (name, buf) in requests() {
        let rounds = (0..15).map(|_| {
            let start = Instant::now();
            parse(&buf, &limits, &mut request, COUNTED);
            start.elapsed().as_nanos() as f64 / f64::from(COUNTED)
        });
        println!("{name}: {:.1} ns", rounds.fold(f64::INFINITY, f64::min));
    }
}
