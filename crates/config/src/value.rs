//! Durations and sizes: reads text with a unit, and writes exact text.

use crate::error::{Problem, any_of, quoted};
use std::time::Duration;

const DURATION_UNITS: [(&str, u64); 6] = [
    ("us", 1),
    ("ms", 1_000),
    ("s", 1_000_000),
    ("m", 60_000_000),
    ("h", 3_600_000_000),
    ("d", 86_400_000_000),
];

const SIZE_UNITS: [(&str, u64); 9] = [
    ("B", 1),
    ("KB", 1_000),
    ("KiB", 1 << 10),
    ("MB", 1_000_000),
    ("MiB", 1 << 20),
    ("GB", 1_000_000_000),
    ("GiB", 1 << 30),
    ("TB", 1_000_000_000_000),
    ("TiB", 1 << 40),
];

/// A family of units, and how to explain it.
struct Measure {
    units: &'static [(&'static str, u64)],
    unit_names: &'static str,
    /// The three most usual units.
    common: [&'static str; 3],
    /// Returns the shortest exact text of a value.
    format: fn(u64) -> String,
}

const DURATION: Measure = Measure {
    units: &DURATION_UNITS,
    unit_names: "us, ms, s, m, h or d",
    common: ["ms", "s", "m"],
    format: |micros| format_duration(Duration::from_micros(micros)),
};

const SIZE: Measure = Measure {
    units: &SIZE_UNITS,
    unit_names: "B, KB, KiB, MB, MiB, GB, GiB, TB or TiB",
    common: ["B", "KiB", "MiB"],
    format: format_size,
};

/// Reads a duration such as `"400ms"`: a whole number directly followed by us, ms, s, m, h or d.
/// Errors suggest values within `range`; the caller checks whether the value is within it.
pub(crate) fn parse_duration(text: &str, range: (Duration, Duration)) -> Result<Duration, Problem> {
    let micros = |bound: Duration| u64::try_from(bound.as_micros()).unwrap_or(u64::MAX);
    DURATION.parse(text, (micros(range.0), micros(range.1))).map(Duration::from_micros)
}

/// Reads a size such as `"64MiB"`: a whole number directly followed by B, KB, KiB … TB, TiB.
/// `range` is as in [`parse_duration`].
pub(crate) fn parse_size(text: &str, range: (u64, u64)) -> Result<u64, Problem> {
    SIZE.parse(text, range)
}

impl Measure {
    fn parse(&self, text: &str, range: (u64, u64)) -> Result<u64, Problem> {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        if number.is_empty() {
            let what = format!("{} does not start with a number", quoted(text));
            return Err(Problem::new(what, self.bounds(range)));
        }
        if unit.is_empty() {
            let what = format!("{} has no unit", number.get(..40).unwrap_or(number));
            return Err(Problem::new(what, self.suggest(number, &self.common, range)));
        }
        if unit.starts_with(['.', ',']) {
            let what = format!("{} is not a whole number", quoted(text));
            return Err(Problem::new(what, self.whole(number, &unit[1..], range)));
        }
        let Some((_, factor)) = self.units.iter().find(|(name, _)| *name == unit) else {
            return Err(self.unknown_unit(text, number, unit.trim(), range));
        };
        let product = number.parse::<u64>().ok().and_then(|count| count.checked_mul(*factor));
        product.ok_or_else(|| {
            Problem::new(format!("{} is far too large", quoted(text)), self.bounds(range))
        })
    }

    fn bounds(&self, (min, max): (u64, u64)) -> String {
        format!("write \"{}\" to \"{}\"", (self.format)(min), (self.format)(max))
    }

    /// Returns `number` with those of `units` that keep it within `range`.
    fn suggest(&self, number: &str, units: &[&str], range: (u64, u64)) -> String {
        let fits = |factor: u64| {
            let value = number.parse::<u64>().ok().and_then(|count| count.checked_mul(factor));
            value.is_some_and(|value| value >= range.0 && value <= range.1)
        };
        let known = self.units.iter().filter(|(name, _)| units.contains(name));
        let fitting = known.filter(|(_, factor)| fits(*factor));
        let texts: Vec<String> = fitting.map(|(name, _)| format!("{number}{name}")).collect();
        match texts.as_slice() {
            [] => self.bounds(range),
            texts => format!("write {}", any_of(texts.iter().map(String::as_str))),
        }
    }

    /// Returns a suggestion for `number.rest`, where `rest` is more digits and a unit.
    fn whole(&self, number: &str, rest: &str, range: (u64, u64)) -> String {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (fraction, unit) = rest.split_at(digits);
        let exact = || {
            let (_, factor) = self.units.iter().find(|(name, _)| *name == unit)?;
            let scale = 10u64.checked_pow(u32::try_from(digits).ok()?)?;
            let scaled: u64 = format!("{number}{fraction}").parse().ok()?;
            let product = scaled.checked_mul(*factor)?;
            let value = product.is_multiple_of(scale).then(|| product / scale)?;
            (value >= range.0 && value <= range.1).then_some(value)
        };
        match exact() {
            Some(value) => format!("use a smaller unit: \"{}\"", (self.format)(value)),
            None => format!("{}, a whole number and a unit", self.bounds(range)),
        }
    }

    fn unknown_unit(&self, text: &str, number: &str, unit: &str, range: (u64, u64)) -> Problem {
        let spellings = ["", "B", "iB"].map(|end| format!("{unit}{end}"));
        let close = self.units.iter().map(|(name, _)| *name);
        let close = close.filter(|name| spellings.iter().any(|s| s.eq_ignore_ascii_case(name)));
        let close: Vec<&str> = close.collect();
        let hint = match close.as_slice() {
            [] => format!("units are {}", self.unit_names),
            close => self.suggest(number, close, range),
        };
        Problem::new(format!("{} has no known unit", quoted(text)), hint)
    }
}

/// Returns the shortest exact text that [`parse_duration`] reads back.
pub(crate) fn format_duration(duration: Duration) -> String {
    let micros = duration.as_micros() as u64;
    let (unit, factor) = largest_exact(micros, DURATION_UNITS.iter().rev(), "ms");
    format!("{}{unit}", micros / factor)
}

/// Returns `bytes` as in a file, such as `64MiB`: the shortest exact text.
pub fn size_text(bytes: u64) -> String {
    format_size(bytes)
}

/// Returns the shortest exact text that [`parse_size`] reads back.
pub(crate) fn format_size(bytes: u64) -> String {
    let binary = SIZE_UNITS.iter().rev().filter(|(unit, _)| unit.contains('i'));
    let decimal = SIZE_UNITS.iter().rev().filter(|(unit, _)| !unit.contains('i'));
    let binary = largest_exact(bytes, binary, "B");
    let decimal = largest_exact(bytes, decimal, "B");
    let (unit, factor) = if binary.1 >= decimal.1 { binary } else { decimal };
    format!("{}{unit}", bytes / factor)
}

fn largest_exact<'u>(
    value: u64,
    mut units: impl Iterator<Item = &'u (&'u str, u64)>,
    unit_of_zero: &'u str,
) -> (&'u str, u64) {
    let exact = units.find(|(_, factor)| value != 0 && value.is_multiple_of(*factor));
    exact.copied().unwrap_or((unit_of_zero, 1))
}

/// Returns `1 error` or `2 errors`.
pub fn counted(count: usize, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn duration(text: &str) -> Result<Duration, Problem> {
        parse_duration(text, (Duration::ZERO, Duration::MAX))
    }

    fn size(text: &str) -> Result<u64, Problem> {
        parse_size(text, (0, u64::MAX))
    }

    #[test]
    fn durations_are_read_in_their_unit() {
        for (text, micros) in
            [("7us", 7), ("400ms", 400_000), ("30s", 30_000_000), ("10m", 600_000_000)]
        {
            assert_eq!(duration(text), Ok(Duration::from_micros(micros)), "{text}");
        }
        assert_eq!(duration("2h"), Ok(Duration::from_secs(7200)));
        assert_eq!(duration("1d"), Ok(Duration::from_secs(86400)));
    }

    #[test]
    fn binary_and_decimal_sizes_differ() {
        assert_eq!(size("64MiB"), Ok(64 << 20));
        assert_eq!(size("1GB"), Ok(1_000_000_000));
        assert_eq!(size("1GiB"), Ok(1 << 30));
        assert_eq!(size("0B"), Ok(0));
        assert_eq!(format_size(80_000_000), "80MB");
        assert_eq!(format_size(64 << 20), "64MiB");
        assert_eq!(format_size(1001), "1001B");
    }

    #[test]
    fn a_wrong_unit_is_told_the_right_one() {
        for (text, hint) in [
            ("400", "write \"400ms\", \"400s\" or \"400m\""),
            ("400 ms", "write \"400ms\""),
            ("5S", "write \"5s\""),
            ("1.5s", "use a smaller unit: \"1500ms\""),
            ("5 weeks", "units are us, ms, s, m, h or d"),
            ("1.0000001s", "write \"0ms\" to \"1d\", a whole number and a unit"),
            ("soon", "write \"0ms\" to \"1d\""),
        ] {
            let read = parse_duration(text, (Duration::ZERO, Duration::from_secs(86_400)));
            assert_eq!(read.unwrap_err().hint, hint, "{text}");
        }
        let small = |text: &str| parse_size(text, (1 << 10, 1 << 30)).unwrap_err().hint;
        assert_eq!(small("0"), "write \"1KiB\" to \"1GiB\"");
        assert_eq!(small("512"), "write \"512KiB\" or \"512MiB\"");
        assert_eq!(small("1.5GiB"), "write \"1KiB\" to \"1GiB\", a whole number and a unit");
        assert_eq!(small("0.5gib"), "write \"1KiB\" to \"1GiB\", a whole number and a unit");
        assert_eq!(size("64mb").unwrap_err().hint, "write \"64MB\"");
        assert_eq!(size("64M").unwrap_err().hint, "write \"64MB\" or \"64MiB\"");
        assert!(size("99999999999999999999TiB").unwrap_err().what.contains("too large"));
        assert!(size("18446744073709551615KiB").unwrap_err().what.contains("too large"));
    }

    proptest! {
        #[test]
        fn every_duration_reads_back_as_itself(micros in 0u64..=u64::MAX) {
            let time = Duration::from_micros(micros);
            prop_assert_eq!(duration(&format_duration(time)), Ok(time));
        }

        #[test]
        fn every_size_reads_back_as_itself(bytes: u64) {
            prop_assert_eq!(size(&format_size(bytes)), Ok(bytes));
        }
    }
}
