//! The number of messages of 128 bytes that a core relays, and the cost of frames alone. Prints
//! figures and asserts no times: `cargo test --release --package keyway-bus --test speed --
//! --ignored --nocapture`.

// It measures, so it reads the clock.
#![allow(clippy::disallowed_methods)]

use keyway_base::Time;
use keyway_bus::frame::{self, FRAME_BODY_MAX, Head, Kind, Parsed};
use keyway_bus::{Action, Line, Node, NodeId, PeerKey, SendOptions, Settings, Upstream};
use std::time::{Duration, Instant};

const NOW: Time = Time(1);
const ROUNDS: usize = 5;

fn best(mut run: impl FnMut() -> (u64, Duration)) -> (f64, f64) {
    let rates = (0..ROUNDS).map(|_| {
        let (count, span) = run();
        (count as f64 / span.as_secs_f64() / 1e6, span.as_nanos() as f64 / count as f64)
    });
    rates.fold((0.0, f64::MAX), |a, b| (a.0.max(b.0), a.1.min(b.1)))
}

#[test]
#[ignore = "measures"]
fn frames_composed_and_read() {
    let head =
        Head { kind: Kind::Message, flags: 0, seq: 1, src: NodeId(1), dst: NodeId(2), ttl: 16 };
    for len in [128, 1024, 16_384] {
        let body = vec![7; len];
        let (rate, ns) = best(|| {
            let count = 2_000_000_000 / (len as u64 + 900);
            let mut out = Vec::with_capacity(1 << 20);
            let mut sum = 0usize;
            let start = Instant::now();
            for seq in 0..count {
                frame::append(&mut out, &Head { seq, ..head }, &[], [&body, &[]]);
                let at = out.len() - len - frame::HEAD_LEN;
                match frame::parse(&out[at..], FRAME_BODY_MAX) {
                    Ok(Parsed::Frame(frame)) => sum += frame.body.len(),
                    _ => panic!(),
                }
                if out.len() > 900_000 {
                    out.clear();
                }
            }
            let span = start.elapsed();
            assert_eq!(sum as u64, count * len as u64);
            (count, span)
        });
        println!("compose and read {len} B: {rate:.2} M/s, {ns:.0} ns each");
    }
}

/// Three nodes, 1 - 0 - 2, of which 0 relays.
struct Chain {
    nodes: [Node; 3],
    /// The keys of 0 to 1, 1 to 0, 0 to 2, and 2 to 0.
    keys: [PeerKey; 4],
}

fn line(nonce: u8) -> Line {
    Line { binding: b"mem".to_vec(), vouch: None, nonce: [nonce; 32], ..Line::default() }
}

impl Chain {
    fn new() -> Self {
        let node = |id: u64| {
            let mut settings = Settings::of(NodeId(id));
            settings.windows = [1 << 20; 3];
            if id != 10 {
                let urls = vec!["mem://root".parse().unwrap()];
                settings.upstreams = vec![Upstream { id: NodeId(10), urls }];
            }
            Node::new(settings, id, NOW)
        };
        let mut nodes = [node(10), node(11), node(12)];
        let mut keys = Vec::new();
        for at in 1..3 {
            let Some(Action::Dial { dial, .. }) = nodes[at].poll_action() else { panic!() };
            keys.push(nodes[0].handle_accepted(&line(at as u8), NOW).unwrap());
            keys.push(nodes[at].handle_connected(dial, &line(9), NOW).unwrap());
        }
        let keys = keys.try_into().unwrap();
        let mut chain = Chain { nodes, keys };
        chain.exchange();
        chain
    }

    /// Moves bytes from a connection's end to the other. Returns how many.
    fn carry(&mut self, from: (usize, PeerKey), to: (usize, PeerKey), buf: &mut Vec<u8>) -> usize {
        buf.clear();
        self.nodes[from.0].poll_output(from.1, buf, 64 << 10, NOW);
        self.nodes[to.0].handle_input(to.1, buf, NOW);
        buf.len()
    }

    fn exchange(&mut self) {
        let mut buf = Vec::new();
        let [a, b, c, d] = self.keys;
        loop {
            let mut len = 0;
            for (from, to) in
                [((1, b), (0, a)), ((0, a), (1, b)), ((0, c), (2, d)), ((2, d), (0, c))]
            {
                len += self.carry(from, to, &mut buf);
            }
            if len == 0 {
                return;
            }
        }
    }
}

#[test]
#[ignore = "measures"]
fn a_relay_over_one_hop() {
    for len in [128, 1024, 16_384] {
        let mut chain = Chain::new();
        let body: Vec<u8> = (0..len).map(|at| (at * 7) as u8).collect();
        let mut relay_ns = 0u128;
        let (rate, ns) = best(|| {
            let (mut count, mut got) = (0u64, 0u64);
            let [a, b, c, d] = chain.keys;
            let mut buf = Vec::new();
            let (start, mut relaying) = (Instant::now(), Duration::ZERO);
            while start.elapsed() < Duration::from_secs(1) {
                for _ in 0..(60_000 / (len + 48)).max(1) {
                    chain.nodes[1].send(NodeId(12), &body, SendOptions::default(), NOW).unwrap();
                    count += 1;
                }
                buf.clear();
                chain.nodes[1].poll_output(b, &mut buf, 64 << 10, NOW);
                let begin = Instant::now();
                chain.nodes[0].handle_input(a, &buf, NOW);
                buf.clear();
                chain.nodes[0].poll_output(c, &mut buf, 64 << 10, NOW);
                relaying += begin.elapsed();
                chain.nodes[2].handle_input(d, &buf, NOW);
                while chain.nodes[2].poll_event().is_some() {
                    got += 1;
                }
                chain.exchange();
                while chain.nodes[2].poll_event().is_some() {
                    got += 1;
                }
            }
            let _ = got;
            relay_ns = relaying.as_nanos() / u128::from(count);
            (count, start.elapsed())
        });
        let relay = 1e3 / relay_ns as f64;
        println!(
            "{len} B over one hop, sender, relay and receiver on one core: {rate:.2} M/s, {ns:.0} ns each; \
             the relay alone {relay_ns} ns, {relay:.2} M/s"
        );
    }
}
