//! Parses typed durations, sizes, ranges and patterns.

use keyway_load::{Pattern, Protocol, Sizes};
use std::time::Duration;

/// Parses `250ms`, `10s`, `5m` or `1h`, with units as in a configuration.
pub fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = match text.find(|letter: char| letter.is_ascii_alphabetic()) {
        Some(at) => text.split_at(at),
        None if text.parse::<f64>().is_ok_and(|number| number >= 0.0) => {
            return Err(format!(
                "a time has a unit: write {text}s for seconds, {text}ms or {text}m"
            ));
        }
        None => (text, "s"),
    };
    let factor = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(format!("{unit:?} is no unit of time: us, ms, s, m and h are")),
    };
    let seconds = number.parse::<f64>().map(|number| number * factor);
    let is_right = |seconds: &f64| (0.0..=1e6).contains(seconds);
    let seconds = seconds.ok().filter(is_right).ok_or("a time is as 250ms, 10s or 5m")?;
    Ok(Duration::from_secs_f64(seconds))
}

/// Parses `100`, `8-128`, or `64:9,4k:1`: sizes with their weights.
pub fn sizes(text: &str) -> Result<Sizes, String> {
    text.parse()
}

/// Parses seconds: `60`, or `10-60`.
pub fn expiry(text: &str) -> Result<(u32, u32), String> {
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    let number = |text: &str| {
        text.parse().map_err(|_| format!("{text:?} is no number of seconds, as 60 or 10-60"))
    };
    Ok((number(from)?, number(to)?))
}

/// Parses the ratio of sets to gets: `1:10`.
pub fn ratio(text: &str) -> Result<(u32, u32), String> {
    let numbers = text
        .split_once(':')
        .and_then(|(sets, gets)| Some((sets.parse::<u32>().ok()?, gets.parse::<u32>().ok()?)));
    numbers.ok_or_else(|| format!("{text:?} is no ratio of sets to gets, as 1:10"))
}

/// Limit on failed requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ErrorsMax {
    /// A number of requests.
    Count(u64),
    /// A percentage of all requests.
    Percent(f64),
}

impl ErrorsMax {
    /// Returns whether `failed` of `all` requests are within the limit.
    pub fn allows(self, failed: u64, all: u64) -> bool {
        match self {
            ErrorsMax::Count(max) => failed <= max,
            ErrorsMax::Percent(max) => failed as f64 * 100.0 <= all.max(failed) as f64 * max,
        }
    }
}

impl std::fmt::Display for ErrorsMax {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ErrorsMax::Count(max) => write!(f, "{max}"),
            ErrorsMax::Percent(max) => write!(f, "{max}%"),
        }
    }
}

/// Parses `100`, or a share: `1%`, `0.5%`.
pub fn errors_max(text: &str) -> Result<ErrorsMax, String> {
    let wrong = || format!("{text:?} is no number of requests, as 100, nor a share, as 1%");
    match text.strip_suffix('%') {
        None => text.parse().map(ErrorsMax::Count).map_err(|_| wrong()),
        Some(share) => {
            let share = share.trim_end().parse::<f64>().ok();
            let share = share.filter(|share| (0.0..=100.0).contains(share));
            share.map(ErrorsMax::Percent).ok_or_else(wrong)
        }
    }
}

/// Parses the name of a protocol.
pub fn protocol(text: &str) -> Result<Protocol, String> {
    text.parse()
}

/// The numbers of patterns, if they were given.
#[derive(Clone, Copy, Debug)]
pub struct PatternNumbers {
    /// Exponent of the zipf distribution.
    pub theta: f64,
    /// Median of the normal distribution.
    pub median: Option<f64>,
    /// Standard deviation of the normal distribution.
    pub deviation: Option<f64>,
}

/// Parses the patterns of writes and of reads: `random`, `S:R`, `sequential:zipf`.
pub fn patterns(text: &str, numbers: PatternNumbers) -> Result<(Pattern, Pattern), String> {
    let one = |name: &str| match name.to_ascii_lowercase().as_str() {
        "r" | "random" => Ok(Pattern::Random),
        "s" | "sequential" => Ok(Pattern::Sequential),
        "p" | "parallel" => Ok(Pattern::Parallel),
        "g" | "gaussian" => {
            Ok(Pattern::Gaussian { median: numbers.median, deviation: numbers.deviation })
        }
        "z" | "zipf" => Ok(Pattern::Zipf { theta: numbers.theta }),
        _ => Err(format!(
            "{name:?} is no pattern: random, sequential, parallel, gaussian and zipf are"
        )),
    };
    let (writes, reads) = text.split_once(':').unwrap_or((text, text));
    Ok((one(writes)?, one(reads)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_typed_is_read() {
        assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(duration("1.5s"), Ok(Duration::from_millis(1500)));
        assert!(duration("1").unwrap_err().contains("write 1s"));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(sizes("64k"), Ok(Sizes::Fixed(65536)));
        assert_eq!(sizes("8-128"), Ok(Sizes::Range(8, 128)));
        assert_eq!(sizes("64:9,4k:1"), Ok(Sizes::Weighted(vec![(64, 9), (4096, 1)])));
        assert_eq!(expiry("10-60"), Ok((10, 60)));
        assert_eq!(ratio("1:10"), Ok((1, 10)));
        let numbers = PatternNumbers { theta: 0.5, median: None, deviation: None };
        assert_eq!(patterns("S:R", numbers), Ok((Pattern::Sequential, Pattern::Random)));
        assert_eq!(patterns("zipf", numbers).unwrap().0, Pattern::Zipf { theta: 0.5 });
        for wrong in ["", "5x", "-1s", "s", "nan"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
        for wrong in ["", "a", "8-", "99999999999", "5000m", "64:x"] {
            assert!(sizes(wrong).is_err(), "{wrong}");
        }
        assert!(ratio("1").is_err() && expiry("x").is_err() && patterns("q", numbers).is_err());
    }
}
