//! Figures as people read them.

/// Four digits at most that mean something: `412,345`, `35.6`, `0.0123`.
pub fn plain(value: f64) -> String {
    let size = value.abs();
    match size {
        _ if size == 0.0 => "0".to_owned(),
        _ if size >= 999.5 => grouped(value),
        _ if size >= 99.95 => format!("{value:.0}"),
        _ if size >= 9.995 => format!("{value:.1}"),
        _ if size >= 0.9995 => format!("{value:.2}"),
        _ => {
            let digits = (2 - size.log10().floor() as i32).clamp(3, 9) as usize;
            let text = format!("{value:.digits$}");
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        }
    }
}

/// A ratio: always two digits behind the point below ten.
pub fn ratio(value: f64) -> String {
    match value {
        _ if value >= 99.95 => grouped(value),
        _ if value >= 9.995 => format!("{value:.1}"),
        _ if value >= 0.1 || value == 0.0 => format!("{value:.2}"),
        _ => plain(value),
    }
}

/// Whole, with commas between thousands.
fn grouped(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut out = String::with_capacity(digits.len() * 4 / 3 + 1);
    if value < 0.0 {
        out.push('-');
    }
    for (nth, digit) in digits.chars().enumerate() {
        if nth > 0 && (digits.len() - nth) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Short, for the axes of plots: `250k`, `1.5M`.
pub fn short(value: f64) -> String {
    for (unit, suffix) in [(1e9, "G"), (1e6, "M"), (1e3, "k")] {
        if value.abs() >= unit {
            return format!("{}{suffix}", trimmed(value / unit));
        }
    }
    trimmed(value)
}

/// Nanoseconds in the unit that suits them: `850 ns`, `120 µs`, `1.5 ms`, `2 s`.
pub fn time_ns(value: f64) -> String {
    for (unit, suffix) in [(1e9, "s"), (1e6, "ms"), (1e3, "µs")] {
        if value >= unit * 0.9995 {
            return format!("{} {suffix}", trimmed(value / unit));
        }
    }
    format!("{} ns", trimmed(value))
}

/// Bytes: `5.8 MB`, `1.56 GB`; thousands, as the reports have them.
pub fn bytes(value: f64) -> String {
    for (unit, suffix) in [(1e9, "GB"), (1e6, "MB"), (1e3, "kB")] {
        if value >= unit * 0.9995 {
            return format!("{} {suffix}", trimmed(value / unit));
        }
    }
    format!("{} B", trimmed(value))
}

fn trimmed(value: f64) -> String {
    let text = match value.abs() {
        size if size >= 99.95 => format!("{value:.0}"),
        size if size >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    };
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_keep_the_digits_that_mean_something() {
        let cases = [
            (0.0, "0"),
            (412_345.4, "412,345"),
            (1000.0, "1,000"),
            (999.6, "1,000"),
            (35.61, "35.6"),
            (0.0123, "0.0123"),
            (1.0, "1.00"),
            (-1234.0, "-1,234"),
        ];
        for (value, wanted) in cases {
            assert_eq!(plain(value), wanted);
        }
    }

    #[test]
    fn units_change_where_the_next_one_begins() {
        assert_eq!(time_ns(850.0), "850 ns");
        assert_eq!(time_ns(1_500_000.0), "1.5 ms");
        assert_eq!(time_ns(999_999.0), "1 ms");
        assert_eq!(short(250_000.0), "250k");
        assert_eq!(short(0.5), "0.5");
        assert_eq!(bytes(1.56e9), "1.56 GB");
        assert_eq!(ratio(0.02), "0.02");
        assert_eq!(ratio(1.375), "1.38");
    }
}
