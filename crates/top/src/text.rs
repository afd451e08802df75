//! Numbers as people read them, at most six characters wide.

/// A count or a rate: `0.4`, `37`, `1.2k`, `38.1k`, `2.3M`.
pub fn number(value: f64) -> String {
    const UNITS: [&str; 5] = ["", "k", "M", "G", "T"];
    if value <= 0.0 {
        return "0".to_owned();
    }
    scaled(value, 1000.0, &UNITS, value < 9.95)
}

/// A number of things: `0`, `7`, `1.2k`.
pub fn count(value: f64) -> String {
    if value < 999.5 { format!("{:.0}", value.max(0.0)) } else { number(value) }
}

/// Bytes: `0`, `512B`, `1.5K`, `64.0M`, by 1024.
pub fn bytes(value: f64) -> String {
    const UNITS: [&str; 6] = ["B", "K", "M", "G", "T", "P"];
    if value <= 0.0 {
        return "0".to_owned();
    }
    scaled(value, 1024.0, &UNITS, false)
}

fn scaled(value: f64, step: f64, units: &[&str], has_decimal: bool) -> String {
    let mut value = value;
    let mut unit = 0;
    // What would round up to a full step is written in the next unit.
    while value >= step - 0.5 && unit + 1 < units.len() {
        value /= step;
        unit += 1;
    }
    let decimals = usize::from(has_decimal || (unit > 0 && value < 99.95));
    format!("{value:.decimals$}{}", units[unit])
}

/// A latency: `85us`, `1.2ms`, `3.40s`; `>8.2s` above the last bound that is counted, `-`
/// without any request.
pub fn latency(seconds: Option<f64>) -> String {
    match seconds {
        None => "-".to_owned(),
        Some(seconds) if seconds.is_infinite() => ">8.2s".to_owned(),
        Some(seconds) if seconds < 0.000_999_5 => format!("{:.0}us", seconds * 1e6),
        Some(seconds) if seconds < 0.009_95 => format!("{:.1}ms", seconds * 1e3),
        Some(seconds) if seconds < 0.999_5 => format!("{:.0}ms", seconds * 1e3),
        Some(seconds) => format!("{seconds:.2}s"),
    }
}

/// A share as per cent.
pub fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), |share| format!("{:.1}%", share * 100.0))
}

/// A stretch of time: `12s`, `5m`, `3h`, `2d`.
pub fn age(seconds: f64) -> String {
    match seconds.max(0.0) as u64 {
        seconds @ 0..120 => format!("{seconds}s"),
        seconds @ 120..7_200 => format!("{}m", seconds / 60),
        seconds @ 7_200..172_800 => format!("{}h", seconds / 3_600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

/// The time of the day by UTC: `21:40:05Z`.
pub fn time_of_day(unix_seconds: u64) -> String {
    let of_day = unix_seconds % 86_400;
    format!("{:02}:{:02}:{:02}Z", of_day / 3600, of_day / 60 % 60, of_day % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_short() {
        for (value, text) in [
            (0.0, "0"),
            (-1.0, "0"),
            (0.44, "0.4"),
            (9.94, "9.9"),
            (37.2, "37"),
            (999.4, "999"),
            (999.6, "1.0k"),
            (38_100.0, "38.1k"),
            (123_400.0, "123k"),
            (2_345_678.0, "2.3M"),
        ] {
            assert_eq!(number(value), text);
        }
        for (value, text) in [(0.0, "0"), (7.0, "7"), (999.0, "999"), (1000.0, "1.0k")] {
            assert_eq!(count(value), text);
        }
        for (value, text) in
            [(0.0, "0"), (512.0, "512B"), (1536.0, "1.5K"), (67_108_864.0, "64.0M")]
        {
            assert_eq!(bytes(value), text);
        }
        for exponent in 0..15 {
            for factor in [1.0, 9.9499, 9.9999, 99.9] {
                let value = factor * 10_f64.powi(exponent);
                assert!(number(value).len() <= 6, "{}", number(value));
                assert!(bytes(value).len() <= 6, "{}", bytes(value));
            }
        }
    }

    #[test]
    fn times_are_in_the_unit_that_fits() {
        for (seconds, text) in [
            (None, "-"),
            (Some(0.000_085), "85us"),
            (Some(0.000_999_9), "1.0ms"),
            (Some(0.001_24), "1.2ms"),
            (Some(0.25), "250ms"),
            (Some(3.4), "3.40s"),
            (Some(f64::INFINITY), ">8.2s"),
        ] {
            assert_eq!(latency(seconds), text);
        }
        for (seconds, text) in [(12.4, "12s"), (300.0, "5m"), (10_800.0, "3h"), (172_800.0, "2d")] {
            assert_eq!(age(seconds), text);
        }
        assert_eq!(time_of_day(86_400 + 3_661), "01:01:01Z");
        assert_eq!(percent(Some(0.123)), "12.3%");
    }
}
