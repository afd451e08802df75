//! What a thread counts, and what it hands over each second.

use crate::error::Error;
use crate::outcome::{ErrorCount, Verification};
use crate::reply::Told;
use crate::shape::shape;
use crate::verify;
use hdrhistogram::Histogram;

/// The longest latency that is told apart from longer ones: ten minutes.
const NANOS_MAX: u64 = 600_000_000_000;

/// Largest number of error shapes that are kept apart. Servers have few.
const ERROR_SHAPES_MAX: usize = 32;

/// Bytes kept of an error: its beginning, and its end, which says whether the request was sent.
const ERROR_HEAD_MAX: usize = 400;
const ERROR_TAIL_MAX: usize = 100;

/// A histogram of latencies in nanoseconds, told apart to three digits.
pub(crate) fn histogram() -> Result<Histogram<u64>, Error> {
    Histogram::new_with_bounds(1, NANOS_MAX, 3).map_err(|error| Error::system("a histogram", error))
}

/// One second of one thread.
#[derive(Debug)]
pub(crate) struct Slice {
    pub(crate) second: u64,
    pub(crate) requests: u64,
    pub(crate) errors: u64,
    /// Latency of good replies, to two digits.
    pub(crate) latency: Histogram<u32>,
}

impl Slice {
    pub(crate) fn new(second: u64) -> Result<Slice, Error> {
        let latency = Histogram::new_with_bounds(1, NANOS_MAX, 2)
            .map_err(|error| Error::system("a histogram", error))?;
        Ok(Slice { second, requests: 0, errors: 0, latency })
    }
}

/// One class of commands.
#[derive(Debug)]
pub(crate) struct ClassRecord {
    pub(crate) requests: u64,
    pub(crate) errors: u64,
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    /// Latency of good replies.
    pub(crate) latency: Histogram<u64>,
    /// Latency of error replies.
    pub(crate) failed_latency: Histogram<u64>,
}

impl ClassRecord {
    fn new() -> Result<ClassRecord, Error> {
        Ok(ClassRecord {
            requests: 0,
            errors: 0,
            hits: 0,
            misses: 0,
            latency: histogram()?,
            failed_latency: histogram()?,
        })
    }

    pub(crate) fn add(&mut self, other: &ClassRecord) {
        self.requests += other.requests;
        self.errors += other.errors;
        self.hits += other.hits;
        self.misses += other.misses;
        // Their bounds are alike.
        let _ = self.latency.add(&other.latency);
        let _ = self.failed_latency.add(&other.failed_latency);
    }

    fn clear(&mut self) {
        (self.requests, self.errors, self.hits, self.misses) = (0, 0, 0, 0);
        self.latency.reset();
        self.failed_latency.reset();
    }
}

/// Replies of one class and one time that came together.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    class: u16,
    nanos: u64,
    count: u32,
    is_failed: bool,
}

/// All that a thread counts.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) classes: Vec<ClassRecord>,
    pub(crate) slice: Slice,
    pub(crate) errors: Vec<ErrorCount>,
    pub(crate) connect: Histogram<u64>,
    /// Of connections that had all their calls: from the call that connects to the close.
    pub(crate) lifetime: Histogram<u64>,
    pub(crate) verification: Verification,
    pub(crate) bytes_sent: u64,
    pub(crate) bytes_received: u64,
    pub(crate) unanswered: u64,
    pub(crate) unsent: u64,
    pub(crate) redirected: u64,
    pub(crate) opened: u64,
    pub(crate) lost: u64,
    pub(crate) failed: u64,
    run: Run,
}

impl Record {
    pub(crate) fn new(classes: usize) -> Result<Record, Error> {
        Ok(Record {
            classes: (0..classes).map(|_| ClassRecord::new()).collect::<Result<_, _>>()?,
            slice: Slice::new(0)?,
            errors: Vec::new(),
            connect: histogram()?,
            lifetime: histogram()?,
            verification: Verification::default(),
            bytes_sent: 0,
            bytes_received: 0,
            unanswered: 0,
            unsent: 0,
            redirected: 0,
            opened: 0,
            lost: 0,
            failed: 0,
            run: Run::default(),
        })
    }

    /// Forgets what the warm-up brought, but for the connections it opened.
    pub(crate) fn begin(&mut self) -> Result<(), Error> {
        self.run = Run::default();
        self.classes.iter_mut().for_each(ClassRecord::clear);
        self.slice = Slice::new(0)?;
        self.errors.clear();
        self.lifetime.reset();
        self.verification = Verification::default();
        (self.bytes_sent, self.bytes_received, self.unanswered) = (0, 0, 0);
        (self.unsent, self.redirected, self.lost, self.failed) = (0, 0, 0, 0);
        Ok(())
    }

    /// Counts a reply that took so long.
    #[inline]
    pub(crate) fn reply(&mut self, class: u16, nanos: u64, told: &Told<'_>) {
        let is_failed = told.is_failed();
        if class != self.run.class || nanos != self.run.nanos || is_failed != self.run.is_failed {
            self.settle();
            self.run = Run { class, nanos, count: 0, is_failed };
        }
        self.run.count += 1;
        let record = &mut self.classes[usize::from(class)];
        record.hits += u64::from(told.hits);
        record.misses += u64::from(told.misses);
        if let Some(text) = told.error {
            self.note(text);
        }
    }

    /// Notes the text of an error reply. [`Record::reply`] counts its request.
    #[cold]
    pub(crate) fn note(&mut self, text: &[u8]) {
        let mut example = keyway_base::printable(&text[..text.len().min(ERROR_HEAD_MAX)]);
        if text.len() > ERROR_HEAD_MAX {
            let tail = text.len().saturating_sub(ERROR_TAIL_MAX).max(ERROR_HEAD_MAX);
            example.push_str(if tail > ERROR_HEAD_MAX { " … " } else { "" });
            example.push_str(&keyway_base::printable(&text[tail..]));
        }
        let kind = example.split(' ').next().unwrap_or_default().to_owned();
        let shape = shape(&example);
        note_error(&mut self.errors, ErrorCount { kind, shape, example, count: 1 });
    }

    /// Puts replies that came together into the histograms.
    #[inline]
    pub(crate) fn settle(&mut self) {
        let Run { class, nanos, count, is_failed } = std::mem::take(&mut self.run);
        if count == 0 {
            return;
        }
        let record = &mut self.classes[usize::from(class)];
        record.requests += u64::from(count);
        self.slice.requests += u64::from(count);
        if is_failed {
            record.errors += u64::from(count);
            record.failed_latency.saturating_record_n(nanos.max(1), u64::from(count));
            self.slice.errors += u64::from(count);
            return;
        }
        record.latency.saturating_record_n(nanos.max(1), u64::from(count));
        self.slice.latency.saturating_record_n(nanos.max(1), count);
    }

    /// Hands a second over that has ended.
    pub(crate) fn end_second(&mut self, next: u64) -> Result<Slice, Error> {
        self.settle();
        Ok(std::mem::replace(&mut self.slice, Slice::new(next)?))
    }

    /// Adds what another thread counted.
    pub(crate) fn add(&mut self, other: &Record) {
        for (class, part) in self.classes.iter_mut().zip(&other.classes) {
            class.add(part);
        }
        for error in &other.errors {
            note_error(&mut self.errors, error.clone());
        }
        let _ = self.connect.add(&other.connect);
        let _ = self.lifetime.add(&other.lifetime);
        verify::add(&mut self.verification, &other.verification);
        self.bytes_sent += other.bytes_sent;
        self.bytes_received += other.bytes_received;
        self.unanswered += other.unanswered;
        self.unsent += other.unsent;
        self.redirected += other.redirected;
        self.opened += other.opened;
        self.lost += other.lost;
        self.failed += other.failed;
    }
}

/// Counts an error with those of its shape. Errors beyond the largest number of shapes are counted
/// together.
fn note_error(errors: &mut Vec<ErrorCount>, error: ErrorCount) {
    if let Some(known) = errors.iter_mut().find(|known| known.shape == error.shape) {
        known.count += error.count;
    } else if errors.len() < ERROR_SHAPES_MAX {
        errors.push(error);
    } else if let Some(others) = errors.iter_mut().find(|known| known.shape == OTHERS) {
        others.count += error.count;
    } else {
        errors.push(ErrorCount { kind: OTHERS.to_owned(), shape: OTHERS.to_owned(), ..error });
    }
}

/// The shape of all errors beyond the first shapes. No server sends this word alone in small
/// letters.
pub(crate) const OTHERS: &str = "other";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Latency;

    #[test]
    fn percentiles_of_a_known_distribution_are_within_a_bucket() {
        let mut record = Record::new(1).unwrap();
        // Each microsecond from 1 to 100,000 once: every percentile is known.
        for micros in 1..=100_000u64 {
            record.reply(0, micros * 1000, &Told::default());
        }
        record.settle();
        let latency = Latency::of(&record.classes[0].latency);
        for (found, expected) in [
            (latency.p25_us, 25_000.0),
            (latency.p50_us, 50_000.0),
            (latency.p75_us, 75_000.0),
            (latency.p90_us, 90_000.0),
            (latency.p95_us, 95_000.0),
            (latency.p99_us, 99_000.0),
            (latency.p99_9_us, 99_900.0),
            (latency.p99_99_us, 99_990.0),
            (latency.max_us, 100_000.0),
            (latency.mean_us, 50_000.5),
            (latency.deviation_us, 28_867.5),
        ] {
            let off: f64 = found / expected;
            assert!((0.999..1.001).contains(&off), "{found} {expected}");
        }
        assert_eq!((latency.count, latency.min_us), (100_000, 1.0));
        assert_eq!(latency.histogram.iter().map(|(_, count)| count).sum::<u64>(), 100_000);
        assert!((latency.share_above(90_000.0) - 0.1).abs() < 0.001);
    }

    #[test]
    fn an_exponential_distribution_has_its_percentiles() {
        let mut record = Record::new(1).unwrap();
        let mut random = crate::random::Random::new(3);
        for _ in 0..1_000_000 {
            let nanos = -(1.0 - random.unit()).ln() * 200_000.0;
            record.reply(0, nanos as u64, &Told::default());
        }
        record.settle();
        let latency = Latency::of(&record.classes[0].latency);
        for (found, quantile) in
            [(latency.p50_us, 0.5), (latency.p99_us, 0.99), (latency.p99_9_us, 0.999f64)]
        {
            let expected = -(1.0 - quantile).ln() * 200.0;
            assert!((0.97..1.03).contains(&(found / expected)), "{found} {expected}");
        }
        // Its mean and its deviation are the same.
        for found in [latency.mean_us, latency.deviation_us] {
            assert!((198.0..202.0).contains(&found), "{latency:?}");
        }
    }

    #[test]
    fn replies_that_came_together_count_each() {
        let mut record = Record::new(2).unwrap();
        let miss = Told { misses: 1, ..Told::default() };
        let error = Told { error: Some(b"OOM no room"), ..Told::default() };
        let piece = Told { has_failed_piece: true, ..Told::default() };
        for _ in 0..3 {
            record.reply(0, 500, &miss);
        }
        record.reply(1, 500, &error);
        record.reply(1, 500, &Told::default());
        record.reply(1, 700, &piece);
        record.reply(0, 500, &Told::default());
        record.reply(0, u64::MAX, &Told::default());
        let slice = record.end_second(4).unwrap();
        assert_eq!((slice.second, slice.requests, slice.errors), (0, 8, 2));
        assert_eq!(slice.latency.len(), 6);
        assert_eq!((record.classes[0].requests, record.classes[0].misses), (5, 3));
        assert_eq!((record.classes[1].requests, record.classes[1].errors), (3, 2));
        let latencies = (record.classes[1].latency.len(), record.classes[1].failed_latency.len());
        assert_eq!(latencies, (1, 2), "good and failed are apart");
        assert_eq!(record.errors[0].kind, "OOM");
        assert_eq!(record.slice.second, 4);
    }

    #[test]
    fn errors_are_counted_by_their_shape_and_shown_as_text() {
        let mut record = Record::new(1).unwrap();
        let server = |port: u16, end: &str| {
            format!("ERR server 127.0.0.1:{port} closed the connection; the request {end}")
        };
        for port in 7001..7004 {
            record.note(server(port, "was not sent").as_bytes());
            record.note(server(port, "may have been executed").as_bytes());
            record.note(server(port, "may have been executed").as_bytes());
        }
        record.note(b"ERR \x1b]0;title\x07 gone");
        let long = format!("ERR {}; the request was not sent", "x".repeat(2000));
        record.note(long.as_bytes());
        let counts: Vec<u64> = record.errors.iter().map(|error| error.count).collect();
        assert_eq!(counts, [3, 6, 1, 1], "{:?}", record.errors);
        assert_eq!(record.errors[0].example, server(7001, "was not sent"));
        assert_eq!(record.errors[2].example, "ERR \\x1b]0;title\\x07 gone");
        assert!(record.errors[3].example.ends_with("x; the request was not sent"));
        for letter in ('a'..='z').chain('A'..='Z') {
            record.note(format!("ERR {letter}").as_bytes());
        }
        let last = record.errors.last().unwrap();
        assert_eq!(record.errors.len(), ERROR_SHAPES_MAX + 1);
        assert_eq!((last.shape.as_str(), last.count), ("other", 52 - (32 - 4)));
    }
}
