//! Durations and sizes: text with a unit in, exact text out.

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
    /// A number to show when the reader gave none.
    sample: &'static str,
    /// The three units most often meant.
    common: [&'static str; 3],
    /// What to write instead of a fraction.
    no_fraction: &'static str,
}

const DURATION: Measure = Measure {
    units: &DURATION_UNITS,
    unit_names: "us, ms, s, m, h or d",
    sample: "400",
    common: ["ms", "s", "m"],
    no_fraction: "use a smaller unit: \"1500ms\", not \"1.5s\"",
};

const SIZE: Measure = Measure {
    units: &SIZE_UNITS,
    unit_names: "B, KB, KiB, MB, MiB, GB, GiB, TB or TiB",
    sample: "64",
    common: ["B", "KiB", "MiB"],
    no_fraction: "use a smaller unit: \"1536MiB\", not \"1.5GiB\"",
};

/// `"400ms"`: a whole number and us, ms, s, m, h or d, nothing between.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, Problem> {
    DURATION.parse(text).map(Duration::from_micros)
}

/// `"64MiB"`: a whole number and B, KB, KiB … TB, TiB, nothing between.
pub(crate) fn parse_size(text: &str) -> Result<u64, Problem> {
    SIZE.parse(text)
}

impl Measure {
    fn parse(&self, text: &str) -> Result<u64, Problem> {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        if number.is_empty() {
            let what = format!("{} does not start with a number", quoted(text));
            return Err(Problem::new(what, self.hint(self.sample)));
        }
        if unit.is_empty() {
            let shown = if digits <= 12 { number } else { self.sample };
            return Err(Problem::new(format!("{number} has no unit"), self.hint(shown)));
        }
        if unit.starts_with(['.', ',']) {
            let what = format!("{} is not a whole number", quoted(text));
            return Err(Problem::new(what, self.no_fraction));
        }
        let Some((_, factor)) = self.units.iter().find(|(name, _)| *name == unit) else {
            return Err(self.unknown_unit(text, number, unit.trim()));
        };
        let product = number.parse::<u64>().ok().and_then(|count| count.checked_mul(*factor));
        product.ok_or_else(|| {
            Problem::new(format!("{} is far too large", quoted(text)), self.hint(self.sample))
        })
    }

    fn hint(&self, number: &str) -> String {
        let [first, second, third] = self.common;
        format!("write \"{number}{first}\", \"{number}{second}\" or \"{number}{third}\"")
    }

    fn unknown_unit(&self, text: &str, number: &str, unit: &str) -> Problem {
        let spellings = ["", "B", "iB"].map(|end| format!("{unit}{end}"));
        let close = self.units.iter().map(|(name, _)| *name);
        let close = close.filter(|name| spellings.iter().any(|s| s.eq_ignore_ascii_case(name)));
        let close: Vec<String> = close.map(|name| format!("{number}{name}")).collect();
        let hint = match close.as_slice() {
            [] => format!("units are {}", self.unit_names),
            close => format!("write {}", any_of(close.iter().map(String::as_str))),
        };
        Problem::new(format!("{} has no known unit", quoted(text)), hint)
    }
}

/// The shortest exact text that [`parse_duration`] reads back.
pub(crate) fn format_duration(duration: Duration) -> String {
    let micros = duration.as_micros() as u64;
    let (unit, factor) = largest_exact(micros, DURATION_UNITS.iter().rev(), "ms");
    format!("{}{unit}", micros / factor)
}

/// The shortest exact text that [`parse_size`] reads back.
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations_are_read_in_their_unit() {
        for (text, micros) in
            [("7us", 7), ("400ms", 400_000), ("30s", 30_000_000), ("10m", 600_000_000)]
        {
            assert_eq!(parse_duration(text), Ok(Duration::from_micros(micros)), "{text}");
        }
        assert_eq!(parse_duration("2h"), Ok(Duration::from_secs(7200)));
        assert_eq!(parse_duration("1d"), Ok(Duration::from_secs(86400)));
    }

    #[test]
    fn binary_and_decimal_sizes_differ() {
        assert_eq!(parse_size("64MiB"), Ok(64 << 20));
        assert_eq!(parse_size("1GB"), Ok(1_000_000_000));
        assert_eq!(parse_size("1GiB"), Ok(1 << 30));
        assert_eq!(parse_size("0B"), Ok(0));
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
            ("1.5s", "use a smaller unit: \"1500ms\", not \"1.5s\""),
            ("5 weeks", "units are us, ms, s, m, h or d"),
            ("soon", "write \"400ms\", \"400s\" or \"400m\""),
        ] {
            assert_eq!(parse_duration(text).unwrap_err().hint, hint, "{text}");
        }
        assert_eq!(parse_size("64mb").unwrap_err().hint, "write \"64MB\"");
        assert_eq!(parse_size("64M").unwrap_err().hint, "write \"64MB\" or \"64MiB\"");
        assert!(parse_size("99999999999999999999TiB").unwrap_err().what.contains("too large"));
        assert!(parse_size("18446744073709551615KiB").unwrap_err().what.contains("too large"));
    }

    proptest! {
        #[test]
        fn every_duration_reads_back_as_itself(micros in 0u64..=u64::MAX) {
            let duration = Duration::from_micros(micros);
            prop_assert_eq!(parse_duration(&format_duration(duration)), Ok(duration));
        }

        #[test]
        fn every_size_reads_back_as_itself(bytes: u64) {
            prop_assert_eq!(parse_size(&format_size(bytes)), Ok(bytes));
        }
    }
}
