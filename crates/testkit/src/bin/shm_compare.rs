//! GETs over unix sockets and shared memory side by side: round trips, requests per second, and
//! processor time of the server for each.
//!
//! `shm_compare SECONDS ROUNDS LABEL:KIND:PATH:PID…`, where KIND is `unix`, `shm` (the client looks
//! before it sleeps) or `parked` (it sleeps at once), and PID that of the server at PATH; `shm*8` is
//! eight clients at once, each on a thread, whose figures are for one of them. Each
//! round plays every depth on every system in turn; what is printed are medians over the rounds.

#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "it measures")]

use keyway_ring::{Hello, Pipe, Spin, ask};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

const DEPTHS: [usize; 3] = [1, 16, 64];
const KEYS: usize = 2_000;
const VALUE_LEN: usize = 100;

/// `$100\r\n`, the value and its end.
const REPLY_LEN: usize = 6 + VALUE_LEN + 2;

struct System {
    label: String,
    kind: String,
    clients: usize,
    path: String,
    pid: u32,
}

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

impl System {
    fn parse(text: &str) -> System {
        let parts: Vec<&str> = text.split(':').collect();
        let [label, kind, path, pid] = parts[..] else { panic!("not LABEL:KIND:PATH:PID: {text}") };
        let pid = pid.parse().expect("the number of a process");
        let (kind, clients) = kind.split_once('*').unwrap_or((kind, "1"));
        let clients = clients.parse().expect("how many clients");
        System { label: label.into(), kind: kind.into(), clients, path: path.into(), pid }
    }

    fn connect(&self) -> Box<dyn Stream> {
        let socket = UnixStream::connect(&self.path).expect("it listens");
        let spin = match self.kind.as_str() {
            "unix" => return Box::new(socket),
            "shm" => Spin::adaptive(Duration::from_micros(20)),
            _ => Spin::never(),
        };
        let shared = ask(&socket, &Hello::new(0, 0)).expect("it answers").expect("it shares");
        Box::new(Pipe::new(shared, socket, spin))
    }

    /// Time on processors of all its threads, in nanoseconds.
    fn cpu_nanos(&self) -> u64 {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.pid)).expect("it runs");
        let on_cpu = |task: std::io::Result<std::fs::DirEntry>| {
            let text = std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
            text.split_whitespace().next()?.parse::<u64>().ok()
        };
        tasks.filter_map(on_cpu).sum()
    }
}

fn get(key: usize) -> Vec<u8> {
    format!("*2\r\n$3\r\nGET\r\n$10\r\nkey:{key:06}\r\n").into_bytes()
}

fn fill(stream: &mut dyn Stream) {
    let value = "x".repeat(VALUE_LEN);
    for key in 0..KEYS {
        let set = format!("*3\r\n$3\r\nSET\r\n$10\r\nkey:{key:06}\r\n${VALUE_LEN}\r\n{value}\r\n");
        stream.write_all(set.as_bytes()).expect("it takes it");
        stream.flush().expect("it takes it");
        stream.read_exact(&mut [0; 5]).expect("it answers");
    }
}

/// Microseconds for a batch, and nanoseconds of the server's processors for a request.
struct Figures {
    batch_micros: f64,
    server_nanos: f64,
}

fn play(system: &System, depth: usize, span: Duration) -> Figures {
    let cpu = system.cpu_nanos();
    let (count, took) = std::thread::scope(|scope| {
        let clients: Vec<_> =
            (0..system.clients).map(|_| scope.spawn(|| play_one(system, depth, span))).collect();
        let each = clients.into_iter().map(|client| client.join().expect("a client"));
        each.fold((0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    });
    Figures {
        batch_micros: took * 1e6 / count as f64,
        server_nanos: (system.cpu_nanos() - cpu) as f64 / (count * depth) as f64,
    }
}

/// How many batches one client was answered, and in how many seconds.
fn play_one(system: &System, depth: usize, span: Duration) -> (usize, f64) {
    let mut stream = system.connect();
    let batches: Vec<Vec<u8>> = (0..64)
        .map(|nth| (0..depth).flat_map(|at| get((nth * 31 + at * 7) % KEYS)).collect())
        .collect();
    let mut replies = vec![0; REPLY_LEN * depth];
    let mut ask = |count: usize| {
        for nth in 0..count {
            stream.write_all(&batches[nth % 64]).expect("it takes it");
            stream.flush().expect("it takes it");
            stream.read_exact(&mut replies).expect("it answers");
        }
    };
    ask(50);
    let start = Instant::now();
    let mut count = 0;
    while start.elapsed() < span {
        ask(16);
        count += 16;
    }
    (count, start.elapsed().as_secs_f64())
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number = || arguments.next().and_then(|text| text.parse::<f64>().ok());
    let (Some(seconds), Some(rounds)) = (number(), number()) else {
        eprintln!("shm_compare SECONDS ROUNDS LABEL:KIND:PATH:PID…");
        std::process::exit(2);
    };
    let systems: Vec<System> = arguments.map(|text| System::parse(&text)).collect();
    for system in &systems {
        fill(&mut *system.connect());
    }
    let span = Duration::from_secs_f64(seconds);
    let mut all: Vec<Vec<Vec<Figures>>> =
        DEPTHS.iter().map(|_| systems.iter().map(|_| Vec::new()).collect()).collect();
    for _ in 0..rounds as usize {
        for (of_depth, depth) in all.iter_mut().zip(DEPTHS) {
            for (figures, system) in of_depth.iter_mut().zip(&systems) {
                figures.push(play(system, depth, span));
            }
        }
    }
    println!("depth system          us/batch  requests/s  server ns/request  requests/CPU-second");
    for (of_depth, depth) in all.iter().zip(DEPTHS) {
        for (figures, system) in of_depth.iter().zip(&systems) {
            let micros = median(figures.iter().map(|one| one.batch_micros).collect());
            let nanos = median(figures.iter().map(|one| one.server_nanos).collect());
            println!(
                "{depth:5} {:15} {micros:8.2}  {:10.0}  {nanos:17.0}  {:19.0}",
                system.label,
                depth as f64 * 1e6 / micros,
                1e9 / nanos
            );
        }
    }
}
