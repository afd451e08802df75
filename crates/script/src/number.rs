//! Numbers in C's formats.

/// Formats `number` like `%.<digits>g`.
pub(crate) fn general(number: f64, digits: usize) -> String {
    if number.is_nan() {
        return if number.is_sign_negative() { "-nan" } else { "nan" }.to_owned();
    }
    if number.is_infinite() {
        return if number < 0.0 { "-inf" } else { "inf" }.to_owned();
    }
    let digits = digits.max(1);
    let scientific = format!("{number:.*e}", digits - 1);
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trimmed = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    if exponent < -4 || exponent >= digits as i32 {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", trimmed(mantissa), exponent.abs());
    }
    let decimals = (digits as i32 - 1 - exponent).max(0) as usize;
    trimmed(&format!("{number:.decimals$}"))
}

/// Converts `number` to an integer like x86 processors: to the smallest integer if it is out of
/// range or no number.
pub(crate) fn truncate(number: f64) -> i64 {
    const BOUND: f64 = 9_223_372_036_854_775_808.0;
    if (-BOUND..BOUND).contains(&number) { number as i64 } else { i64::MIN }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_c_does() {
        for (number, text) in [
            (0.1, "0.10000000000000001"),
            (1e15, "1000000000000000"),
            (12_345_678_901_234_567_890.0, "1.2345678901234567e+19"),
            (9_007_199_254_740_992.0, "9007199254740992"),
            (-0.0, "-0"),
            (1.5, "1.5"),
            (1e-7, "9.9999999999999995e-08"),
            (f64::INFINITY, "inf"),
            (-f64::NAN, "-nan"),
        ] {
            assert_eq!(general(number, 17), text);
        }
        assert_eq!(general(std::f64::consts::PI, 14), "3.1415926535898");
    }

    #[test]
    fn what_is_no_whole_number_becomes_the_smallest() {
        assert_eq!((truncate(-3.9), truncate(1e20), truncate(f64::NAN)), (-3, i64::MIN, i64::MIN));
    }
}
