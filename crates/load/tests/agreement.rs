//! Whether the figures are those that others find: redis-benchmark, and a client as memtier_benchmark
//! is one, written here with nothing in common with the generator. Servers that keep to the clock make
//! that a law on a busy machine, too: what they do does not depend on who else runs.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "servers of tests")]

mod support;

use keyway_load::{Flow, Plan, Protocol, Until, Workload, parse_mix, parse_template, run, suite};
use keyway_testkit::{RedisServer, skipped_for_want_of, tool_is_installed};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use support::target;

/// Clients of each tool.
const CLIENTS: usize = 50;

/// Reports of a run, in requests a second and milliseconds.
#[derive(Clone, Copy, Debug)]
struct Figures {
    per_second: f64,
    p50: f64,
    p95: f64,
    p99: f64,
}

/// When the reply to a request is due, that is the `number`th and came `now`.
type Schedule = Box<dyn FnMut(u64, Instant) -> Instant + Send>;

/// Answers every GET with a byte when it is due.
fn serve(schedule: Schedule) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (asked, questions) = channel();
    std::thread::spawn(move || answer(&questions, schedule));
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            stream.set_nodelay(true).unwrap();
            let asked = asked.clone();
            std::thread::spawn(move || read(stream, &asked));
        }
    });
    address
}

fn read(stream: TcpStream, asked: &Sender<TcpStream>) {
    let mut input = BufReader::new(stream.try_clone().unwrap());
    while let Some(verb) = request(&mut input) {
        let done = match verb.as_str() {
            "GET" => asked.send(stream.try_clone().unwrap()).is_ok(),
            "PING" => (&stream).write_all(b"+PONG\r\n").is_ok(),
            _ => (&stream).write_all(b"-ERR no such command\r\n").is_ok(),
        };
        if !done {
            return;
        }
    }
}

/// The first word of the next request.
fn request(input: &mut impl BufRead) -> Option<String> {
    let number = |input: &mut dyn BufRead| {
        let mut line = String::new();
        input.read_line(&mut line).ok()?;
        line.get(1..)?.trim().parse::<usize>().ok()
    };
    let count = number(input)?;
    let mut first = None;
    for _ in 0..count {
        let mut word = vec![0; number(input)? + 2];
        input.read_exact(&mut word).ok()?;
        first = first.or_else(|| Some(String::from_utf8_lossy(&word).trim().to_uppercase()));
    }
    first
}

fn answer(questions: &Receiver<TcpStream>, mut schedule: Schedule) {
    let mut waiting: BinaryHeap<Reverse<(Instant, u64)>> = BinaryHeap::new();
    let mut streams = std::collections::BTreeMap::new();
    for number in 0.. {
        let until = waiting.peek().map(|Reverse((due, _))| *due);
        let wait = until.map_or(Duration::from_secs(3600), |due| due - Instant::now().min(due));
        match questions.recv_timeout(wait) {
            Ok(stream) => {
                let now = Instant::now();
                waiting.push(Reverse((schedule(number, now), number)));
                streams.insert(number, stream);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        while let Some(&Reverse((due, number))) = waiting.peek()
            && due <= Instant::now()
        {
            waiting.pop();
            // Who has gone away is not told.
            let _ = streams.remove(&number).map(|mut stream| stream.write_all(b"$1\r\nx\r\n"));
        }
    }
}

fn ours(address: SocketAddr, requests: u64) -> Figures {
    let mut load = Workload::new("get", parse_mix("get").unwrap());
    load.keys.count = 1000;
    let plan = Plan { connections: CLIENTS, until: Until::Requests(requests), ..Plan::default() };
    let to = target(address, Protocol::Resp2);
    let found = run(&load, &to, &plan, &[], &mut |_| Flow::Continue).unwrap();
    assert_eq!((found.totals.requests, found.totals.errors), (requests, 0));
    let latency = &found.latency;
    let [p50, p95, p99] =
        [latency.p50_us, latency.p95_us, latency.p99_us].map(|micros| micros / 1000.0);
    Figures { per_second: found.totals.per_second, p50, p95, p99 }
}

fn of_redis_benchmark(address: SocketAddr, requests: u64) -> Figures {
    let (port, requests) = (address.port().to_string(), requests.to_string());
    let clients = CLIENTS.to_string();
    let arguments = ["-p", &port, "-t", "get", "-c", &clients, "-n", &requests, "--csv"];
    benchmarked(&arguments)
}

/// What redis-benchmark's last line tells.
fn benchmarked(arguments: &[&str]) -> Figures {
    let output = Command::new("redis-benchmark").args(arguments).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // Test, requests a second, mean, least, p50, p95, p99 and most.
    let numbers: Vec<f64> = text
        .lines()
        .last()
        .unwrap_or_default()
        .rsplit("\",\"")
        .map_while(|word| word.trim_matches('"').parse().ok())
        .collect();
    let [_, p99, p95, p50, _, _, per_second] = numbers[..] else { panic!("no figures: {text}") };
    Figures { per_second, p50, p95, p99 }
}

/// As memtier_benchmark has it: clients that wait for each reply, and note how long it took.
fn of_plain_clients(address: SocketAddr, requests: u64) -> Figures {
    let begun = Instant::now();
    let client = |_| {
        std::thread::spawn(move || {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.set_nodelay(true).unwrap();
            let mut took = Vec::new();
            for _ in 0..requests / CLIENTS as u64 {
                let sent = Instant::now();
                stream.write_all(b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n").unwrap();
                stream.read_exact(&mut [0; 7]).unwrap();
                took.push(sent.elapsed().as_secs_f64() * 1000.0);
            }
            took
        })
    };
    let clients: Vec<_> = (0..CLIENTS).map(client).collect();
    let mut all: Vec<f64> = clients.into_iter().flat_map(|one| one.join().unwrap()).collect();
    let seconds = begun.elapsed().as_secs_f64();
    all.sort_by(f64::total_cmp);
    let at = |share: f64| all[((all.len() as f64 * share) as usize).min(all.len() - 1)];
    Figures { per_second: all.len() as f64 / seconds, p50: at(0.5), p95: at(0.95), p99: at(0.99) }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Medians of three rounds, in which the tools take turns: ours, and the others' by their names.
fn rounds(address: SocketAddr, requests: u64) -> (Figures, Vec<(&'static str, Figures)>) {
    type Tool = fn(SocketAddr, u64) -> Figures;
    let mut tools: Vec<(&str, Tool)> = vec![("ours", ours), ("plain clients", of_plain_clients)];
    if tool_is_installed("redis-benchmark") {
        tools.push(("redis-benchmark", of_redis_benchmark));
    } else {
        skipped_for_want_of("redis-benchmark", "agreement with its figures");
    }
    let mut found: Vec<Vec<Figures>> = tools.iter().map(|_| Vec::new()).collect();
    for _ in 0..3 {
        for ((_, tool), found) in tools.iter().zip(&mut found) {
            found.push(tool(address, requests));
        }
    }
    let middle = |of: fn(&Figures) -> f64, all: &[Figures]| median(all.iter().map(of).collect());
    let middles = found.iter().map(|all| Figures {
        per_second: middle(|one| one.per_second, all),
        p50: middle(|one| one.p50, all),
        p95: middle(|one| one.p95, all),
        p99: middle(|one| one.p99, all),
    });
    let mut all = tools.iter().map(|(name, _)| *name).zip(middles);
    let (_, own) = all.next().unwrap();
    (own, all.collect())
}

/// The bucket of the heat maps that a latency is in: eight to an octave.
fn bucket(milliseconds: f64) -> i64 {
    (milliseconds.log2() * 8.0).floor() as i64
}

#[test]
fn throughput_is_that_of_others_where_the_server_is_the_limit() {
    // One request after the other, 2000 a second; what is late is made up for.
    let each = Duration::from_micros(500);
    let mut last = Instant::now();
    let address = serve(Box::new(move |_, now| {
        let idle = Duration::from_millis(100);
        last = if now > last + idle { now } else { last } + each;
        last
    }));
    let (own, others) = rounds(address, 1500);
    assert!((own.per_second / 2000.0 - 1.0).abs() < 0.1, "{own:?}");
    // As many as there are clients wait, each for all before it (Little's law).
    assert!((bucket(own.p50) - bucket(25.0)).abs() <= 1, "{own:?}");
    for (name, other) in others {
        let ratio = own.per_second / other.per_second;
        assert!((0.9..1.1).contains(&ratio), "{name}: {own:?} {other:?}");
        assert!((bucket(own.p50) - bucket(other.p50)).abs() <= 1, "{name}: {own:?} {other:?}");
    }
}

#[test]
fn percentiles_are_those_of_others_within_a_bucket() {
    // Of a hundred requests sixty take 100 ms, three 800 ms and all others 300 ms: long beside what a
    // busy machine adds.
    let address = serve(Box::new(|number, now| {
        now + Duration::from_millis(match number * 37 % 100 {
            0..60 => 100,
            60..97 => 300,
            _ => 800,
        })
    }));
    let (own, others) = rounds(address, 750);
    let of = |one: &Figures| [one.p50, one.p95, one.p99];
    let all = std::iter::once((
        "the server",
        Figures { per_second: 0.0, p50: 100.0, p95: 300.0, p99: 800.0 },
    ));
    for (name, other) in all.chain(others) {
        for (mine, theirs) in of(&own).into_iter().zip(of(&other)) {
            let apart = (bucket(mine) - bucket(theirs)).abs();
            assert!(apart <= 1, "{name}: {mine} {theirs}, {own:?} {other:?}");
        }
    }
}

/// The same with a real server, which is the limit where it has much to do for a request, or many
/// requests at once: `make agreement`.
#[test]
#[ignore = "wants a quiet machine with two cores"]
fn throughput_on_redis_is_that_of_redis_benchmark() {
    if !tool_is_installed("redis-benchmark") {
        return skipped_for_want_of("redis-benchmark", "agreement of figures");
    }
    const SCRIPT: &str = "local n = 0 for i = 1, 20000 do n = n + i end return n";
    let server = RedisServer::start();
    let (to, port) = (target(server.address(), Protocol::Resp2), server.port().to_string());
    let mut script = Workload::new("script", Vec::new());
    let words = parse_template(&format!("EVAL '{SCRIPT}' 0")).unwrap();
    let kind = keyway_load::CommandKind::Words(words);
    script.mix.push((keyway_load::Command { name: "eval".to_owned(), kind }, 1));
    let get = suite(&["get".to_owned()], 1, 3).unwrap().remove(0);
    for (load, depth, requests, test) in
        [(script, 1, 5_000, vec!["EVAL", SCRIPT, "0"]), (get, 64, 3_000_000, vec!["-t", "get"])]
    {
        let (count, pipeline) = (requests.to_string(), depth.to_string());
        let arguments = ["-p", &port, "-n", &count, "-P", &pipeline, "--csv"];
        let ratio = || {
            let plan =
                Plan { pipeline: depth, until: Until::Requests(requests), ..Plan::default() };
            let own = run(&load, &to, &plan, &[], &mut |_| Flow::Continue).unwrap();
            let other = benchmarked(&[&arguments[..], &test].concat());
            assert_eq!((own.totals.requests, own.totals.errors), (requests, 0));
            own.totals.per_second / other.per_second
        };
        let mut ratios: Vec<f64> = (0..7).map(|_| ratio()).collect();
        ratios.sort_by(f64::total_cmp);
        println!("{}: {:.3} ({:.3}-{:.3})", load.name, ratios[3], ratios[0], ratios[6]);
        assert!((0.9..1.1).contains(&ratios[3]), "{}: {ratios:?}", load.name);
    }
}
