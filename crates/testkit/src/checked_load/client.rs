//! One client of the load.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::ledger::{Counter, Ledger, Miscount, Seen};
use super::{LoadReport, LoadShape};
use crate::client::{Client, ReplyFault, encode};
use crate::random::Random;
use crate::value::Value;

/// Between two tries to connect.
const RETRY_AFTER: Duration = Duration::from_millis(10);

/// What was asked, with what is needed to judge its answer.
enum ExpectedReply {
    /// SET or MSET: keys with the versions written.
    Write(Vec<(usize, u64)>),
    /// GET or MGET: keys with the oldest versions that may be shown.
    Read { keys: Vec<(usize, u64)>, is_many: bool },
    /// INCR of the client's own counter.
    Count,
}

pub(super) struct LoadClient {
    address: SocketAddr,
    shape: LoadShape,
    /// Its own keys are those from `number * keys_each` on.
    number: usize,
    ledger: Arc<Ledger>,
    random: Random,
    connection: Option<Client>,
    counter: Counter,
    report: LoadReport,
    last_success: Instant,
}

impl LoadClient {
    pub fn new(
        address: SocketAddr,
        shape: &LoadShape,
        number: usize,
        ledger: Arc<Ledger>,
    ) -> LoadClient {
        LoadClient {
            address,
            number,
            ledger,
            random: Random::new(shape.seed.wrapping_mul(1009).wrapping_add(number as u64)),
            shape: shape.clone(),
            connection: None,
            counter: Counter::default(),
            report: LoadReport::default(),
            last_success: Instant::now(),
        }
    }

    pub fn run(mut self, is_over: &AtomicBool) -> LoadReport {
        while !is_over.load(Ordering::Relaxed) {
            self.turn();
        }
        self.note_pause();
        self.report
    }

    /// Sends a pipeline and judges every reply.
    fn turn(&mut self) {
        let Some(mut connection) = self.connection.take().or_else(|| self.connect()) else {
            std::thread::sleep(RETRY_AFTER);
            return;
        };
        let depth = 1 + self.random.below(self.shape.depth_max);
        let (mut bytes, mut asked) = (Vec::new(), Vec::new());
        for _ in 0..depth {
            asked.push(self.ask(&mut bytes));
        }
        // Where sending fails there may be replies all the same.
        let _ = connection.try_send(&bytes);
        let mut asked = asked.into_iter();
        while let Some(one) = asked.next() {
            match connection.try_reply() {
                Ok(reply) => self.judge(one, &reply),
                Err(fault) => {
                    self.note_fault(&fault);
                    std::iter::once(one).chain(asked).for_each(|one| self.give_up(&one));
                    return;
                }
            }
        }
        self.connection = Some(connection);
    }

    fn connect(&mut self) -> Option<Client> {
        let Ok(mut connection) = Client::try_connect(self.address) else {
            self.note_error("(refused)");
            return None;
        };
        connection.set_reply_within(self.shape.reply_within);
        if let Some(password) = &self.shape.password {
            let reply = connection
                .try_send(&encode(&["AUTH", password]))
                .ok()
                .and_then(|()| connection.try_reply().ok());
            if reply != Some(Value::simple("OK")) {
                self.note_error("(not authenticated)");
                return None;
            }
        }
        Some(connection)
    }

    /// Appends a request drawn by chance.
    fn ask(&mut self, bytes: &mut Vec<u8>) -> ExpectedReply {
        let many = if self.shape.batch_max > 1 {
            2 + self.random.below(self.shape.batch_max - 1)
        } else {
            1
        };
        match self.random.below(10) {
            0 => {
                bytes.extend(encode(&["INCR", &self.counter_name()]));
                ExpectedReply::Count
            }
            1..=3 => self.ask_write(1, bytes),
            4 => self.ask_write(many, bytes),
            5..=8 => self.ask_read(1, bytes),
            _ => self.ask_read(many, bytes),
        }
    }

    fn ask_write(&mut self, count: usize, bytes: &mut Vec<u8>) -> ExpectedReply {
        let first = self.number * self.shape.keys_each;
        let mut keys: Vec<usize> =
            (0..count).map(|_| first + self.random.below(self.shape.keys_each)).collect();
        keys.sort_unstable();
        keys.dedup();
        let mut words = vec![if keys.len() > 1 { "MSET" } else { "SET" }.to_owned()];
        let mut written = Vec::new();
        for key in keys {
            let version = self.ledger.send(key);
            words.extend([self.ledger.name(key), self.ledger.value(key, version)]);
            written.push((key, version));
        }
        bytes.extend(encode(&words));
        ExpectedReply::Write(written)
    }

    fn ask_read(&mut self, count: usize, bytes: &mut Vec<u8>) -> ExpectedReply {
        let mut words = vec![if count > 1 { "MGET" } else { "GET" }.to_owned()];
        let mut keys = Vec::new();
        for _ in 0..count {
            let key = self.random.below(self.ledger.key_count());
            words.push(self.ledger.name(key));
            keys.push((key, self.oldest(key)));
        }
        bytes.extend(encode(&words));
        ExpectedReply::Read { keys, is_many: count > 1 }
    }

    fn oldest(&self, key: usize) -> u64 {
        if self.shape.may_read_old { 0 } else { self.ledger.oldest(key) }
    }

    fn counter_name(&self) -> String {
        format!("{}:count:{}", self.shape.prefix, self.number)
    }

    fn judge(&mut self, asked: ExpectedReply, reply: &Value) {
        if reply.is_error() {
            let text = reply.error_text();
            self.note_error(&kind_of(&text));
            self.give_up(&asked);
            return;
        }
        self.note_success();
        match asked {
            ExpectedReply::Write(written) if *reply == Value::simple("OK") => {
                self.report.writes += 1;
                written.iter().for_each(|&(key, version)| self.ledger.acknowledge(key, version));
            }
            ExpectedReply::Write(written) => {
                self.report.wrong.push(format!("a write of {written:?} gave {reply:?}"));
            }
            ExpectedReply::Count => self.judge_count(reply),
            ExpectedReply::Read { keys, is_many: false } => self.judge_values(&keys, &[reply]),
            ExpectedReply::Read { keys, is_many: true } => match reply {
                Value::Array(values) => {
                    self.judge_values(&keys, &values.iter().collect::<Vec<_>>())
                }
                _ => self.report.wrong.push(format!("MGET gave {reply:?}")),
            },
        }
    }

    fn judge_values(&mut self, keys: &[(usize, u64)], values: &[&Value]) {
        self.report.reads += 1;
        if keys.len() != values.len() {
            self.report.wrong.push(format!("{} values for {} keys", values.len(), keys.len()));
            return;
        }
        for (&(key, oldest), value) in keys.iter().zip(values) {
            match self.seen(key, oldest, value) {
                Seen::Right => {}
                Seen::Late => self.report.late += 1,
                Seen::Stale => {
                    let name = self.ledger.name(key);
                    self.report.stale.push(format!("{name}: {value:?}, at least {oldest}"));
                }
                Seen::Wrong => {
                    self.report.wrong.push(format!("{}: {value:?}", self.ledger.name(key)));
                }
            }
        }
    }

    fn seen(&self, key: usize, oldest: u64, value: &Value) -> Seen {
        match value {
            Value::Bulk(bytes) => self.ledger.judge(key, oldest, Some(bytes)),
            Value::Nil => self.ledger.judge(key, oldest, None),
            _ => Seen::Wrong,
        }
    }

    fn judge_count(&mut self, reply: &Value) {
        let Value::Integer(number) = *reply else {
            self.report.wrong.push(format!("INCR gave {reply:?}"));
            return;
        };
        self.report.writes += 1;
        let name = self.counter_name();
        match self.counter.judge(number) {
            None => {}
            Some(Miscount::TooMany) => self.report.doubled.push(format!("{name} is {number}")),
            Some(Miscount::TooFew) => self.report.lost.push(format!("{name} is {number}")),
        }
    }

    fn give_up(&mut self, asked: &ExpectedReply) {
        match asked {
            ExpectedReply::Write(written) => {
                written.iter().for_each(|&(key, version)| self.ledger.give_up(key, version));
            }
            ExpectedReply::Count => self.counter.give_up(),
            ExpectedReply::Read { .. } => {}
        }
    }

    /// Reads every key, again where there is an error, and says which have lost
    /// their last write.
    pub fn read_all(&mut self, bound: Duration) -> LoadReport {
        let end = Instant::now() + bound;
        let mut report = LoadReport::default();
        for key in 0..self.ledger.key_count() {
            let (name, oldest) = (self.ledger.name(key), self.ledger.oldest(key));
            let Some(value) = self.read_until(&name, end) else {
                report.lost.push(format!("{name}: cannot be read at the end"));
                continue;
            };
            match self.seen(key, oldest, &value) {
                Seen::Right => {}
                Seen::Late => report.late += 1,
                Seen::Stale => report.lost.push(format!("{name}: {value:?}, not {oldest}")),
                Seen::Wrong => report.wrong.push(format!("{name}: {value:?} at the end")),
            }
        }
        report
    }

    fn read_until(&mut self, name: &str, end: Instant) -> Option<Value> {
        loop {
            if let Some(mut connection) = self.connection.take().or_else(|| self.connect()) {
                let _ = connection.try_send(&encode(&["GET", name]));
                if let Ok(reply) = connection.try_reply() {
                    self.connection = Some(connection);
                    if !reply.is_error() {
                        return Some(reply);
                    }
                }
            }
            if Instant::now() >= end {
                return None;
            }
            std::thread::sleep(RETRY_AFTER);
        }
    }

    fn note_success(&mut self) {
        self.note_pause();
        self.last_success = Instant::now();
        self.ledger.count_reply();
    }

    fn note_pause(&mut self) {
        let pause = self.last_success.elapsed();
        self.report.longest_pause = self.report.longest_pause.max(pause);
    }

    fn note_fault(&mut self, fault: &ReplyFault) {
        match fault {
            ReplyFault::Closed => self.note_error("(closed)"),
            ReplyFault::Late => self.note_error("(late)"),
            ReplyFault::Garbage(what) => self.report.wrong.push(format!("not a reply: {what}")),
        }
    }

    fn note_error(&mut self, text: &str) {
        self.ledger.count_error();
        *self.report.errors.entry(text.to_owned()).or_default() += 1;
    }
}

/// What an error is counted as: its code, and the words of an ERR, in which
/// numbers and addresses would make each a kind of its own.
fn kind_of(text: &str) -> String {
    let mut words = text.split(' ');
    let code = words.next().unwrap_or_default();
    if code != "ERR" {
        return code.to_owned();
    }
    let plain = words.filter(|word| !word.contains(|char: char| char.is_ascii_digit()));
    std::iter::once(code).chain(plain).take(8).collect::<Vec<_>>().join(" ")
}
