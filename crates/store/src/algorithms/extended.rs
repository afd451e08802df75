//! Numbers of INCRBYFLOAT: Redis computes in the 80-bit floats of x86 and
//! prints them with 17 decimals, so the last decimals of a sum show how they
//! round. Computed here with integers, alike on every machine.

use std::cmp::Ordering;

/// Longest text that is read as a number, as in Redis.
const TEXT_LEN_MAX: usize = 5 * 1024 - 1;
/// Exponent of the largest value: `mantissa < 2^64`, value `< 2^16384`.
const EXPONENT_MAX: i32 = 16384 - 64;
/// Exponent below which a value is zero: the smallest is `2^-16445`.
const EXPONENT_MIN: i32 = -16445 - 63;
/// Decimals printed.
const DECIMALS: u32 = 17;

/// A float with a 64-bit mantissa: `mantissa * 2^exponent`, the mantissa's top
/// bit set unless the value is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extended {
    negative: bool,
    mantissa: u64,
    exponent: i32,
}

/// Why there is no number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Not the text of a number, or of one out of range.
    Invalid,
    /// Infinity, which can be read but not added to.
    Infinite,
}

impl Extended {
    const ZERO: Self = Self { negative: false, mantissa: 0, exponent: 0 };

    /// The same number, which is finite.
    pub(crate) fn of(number: f64) -> Self {
        const FRACTION_BITS: i32 = 52;
        let (bits, negative) = (number.to_bits(), number.is_sign_negative());
        let fraction = bits & ((1 << FRACTION_BITS) - 1);
        let mantissa = match (bits >> FRACTION_BITS & 0x7ff) as i32 {
            0 => Self::round(fraction.into(), -1022 - FRACTION_BITS, false),
            biased => {
                let mantissa = u128::from(fraction | 1 << FRACTION_BITS);
                Self::round(mantissa, biased - 1023 - FRACTION_BITS, false)
            }
        };
        Self { negative, ..mantissa.unwrap_or(Self::ZERO) }
    }

    /// The number nearest to what `text` says, in the syntax of C's `strtold`.
    pub(crate) fn parse(text: &[u8]) -> Result<Self, Fault> {
        if text.len() > TEXT_LEN_MAX {
            return Err(Fault::Invalid);
        }
        let (negative, digits) = split_sign(text);
        if digits.eq_ignore_ascii_case(b"inf") || digits.eq_ignore_ascii_case(b"infinity") {
            return Err(Fault::Infinite);
        }
        let number = match digits {
            [b'0', b'x' | b'X', rest @ ..] => parse_hexadecimal(rest),
            _ => parse_decimal(digits),
        };
        number.map(|number| Self { negative, ..number }).ok_or(Fault::Invalid)
    }

    /// `mantissa * 2^exponent`, plus less than one unit of it when `more`,
    /// rounded to the nearest, ties to even. `None` out of range. With `more`,
    /// the mantissa must have more than 64 bits.
    fn round(mut mantissa: u128, mut exponent: i32, more: bool) -> Option<Self> {
        if mantissa == 0 {
            return Some(Self::ZERO);
        }
        let excess = 64 - mantissa.leading_zeros() as i32;
        exponent += excess;
        if excess > 0 {
            let dropped = mantissa & ((1 << excess) - 1);
            let half = 1 << (excess - 1);
            mantissa >>= excess;
            let up = match dropped.cmp(&half) {
                Ordering::Greater => true,
                Ordering::Less => false,
                Ordering::Equal => more || mantissa & 1 == 1,
            };
            mantissa += u128::from(up);
            if mantissa >> 64 != 0 {
                mantissa >>= 1;
                exponent += 1;
            }
        } else {
            mantissa <<= -excess;
        }
        (EXPONENT_MIN..=EXPONENT_MAX).contains(&exponent).then_some(Self {
            negative: false,
            mantissa: mantissa as u64,
            exponent,
        })
    }

    /// The sum, rounded; `None` when it is infinite.
    pub(crate) fn add(self, other: Self) -> Option<Self> {
        if self.mantissa == 0 || other.mantissa == 0 {
            let sum = if self.mantissa == 0 { other } else { self };
            return Some(sum);
        }
        let (high, low) =
            if self.exponent >= other.exponent { (self, other) } else { (other, self) };
        // 62 bits below the mantissa, of which the last stands for all that is
        // further down; one above for the carry.
        const GUARD: u32 = 62;
        let distance = (high.exponent - low.exponent) as u32;
        let wide = u128::from(low.mantissa) << GUARD;
        let shifted = wide.checked_shr(distance).unwrap_or(0);
        let lost = shifted.checked_shl(distance) != Some(wide) || distance >= 128;
        let (one, two) = (u128::from(high.mantissa) << GUARD, shifted | u128::from(lost));
        let (negative, sum) = if high.negative == low.negative {
            (high.negative, one + two)
        } else if one >= two {
            (high.negative, one - two)
        } else {
            (low.negative, two - one)
        };
        let sum = Self::round(sum, high.exponent - GUARD as i32, false)?;
        Some(Self { negative: negative && sum.mantissa != 0, ..sum })
    }

    /// The number, about.
    pub(crate) fn to_f64(self) -> f64 {
        let size = self.mantissa as f64 * 2f64.powi(self.exponent);
        if self.negative { -size } else { size }
    }

    /// The number with 17 decimals, less trailing zeros.
    pub(crate) fn format(self) -> Vec<u8> {
        let (mut whole, fraction) = self.whole_and_fraction();
        let scale = 10u128.pow(DECIMALS);
        let mut text = Vec::new();
        let decimals = if fraction == scale {
            whole.add_small(1);
            0
        } else {
            fraction
        };
        if self.negative && (decimals != 0 || !whole.is_zero()) {
            text.push(b'-');
        }
        whole.write_decimal(&mut text);
        if decimals != 0 {
            let digits = format!(".{decimals:017}");
            text.extend_from_slice(digits.trim_end_matches('0').as_bytes());
        }
        text
    }

    /// The whole part, and the rest in units of the last decimal, rounded to
    /// even: it may be a full one.
    fn whole_and_fraction(self) -> (Natural, u128) {
        let mut whole = Natural::default();
        if self.exponent >= 0 {
            whole.add_small(self.mantissa as u32);
            let mut top = Natural::default();
            top.add_small((self.mantissa >> 32) as u32);
            top.shift_left(32);
            whole.add(&top);
            whole.shift_left(self.exponent as u32);
            return (whole, 0);
        }
        let bits = self.exponent.unsigned_abs();
        let integer = self.mantissa.checked_shr(bits).unwrap_or(0);
        let rest = self.mantissa - integer.checked_shl(bits).unwrap_or(0);
        let mut top = Natural::default();
        top.add_small((integer >> 32) as u32);
        top.shift_left(32);
        whole.add_small(integer as u32);
        whole.add(&top);
        // Below 2^121, so nothing is left of it at 2^-122 and further down.
        let scaled = u128::from(rest) * 10u128.pow(DECIMALS);
        if bits > 121 {
            return (whole, 0);
        }
        let (mut fraction, dropped) = (scaled >> bits, scaled & ((1 << bits) - 1));
        let half = 1u128 << (bits - 1);
        if dropped > half || dropped == half && fraction & 1 == 1 {
            fraction += 1;
        }
        (whole, fraction)
    }
}

/// Digits with a point among them, and an exponent behind a mark.
struct Digits {
    number: Natural,
    /// The number of digits, and the number of digits behind the point.
    count: i64,
    decimals: i64,
    exponent: i64,
}

impl Digits {
    /// `None` when it is no number. The mark is in lower case.
    fn parse(text: &[u8], radix: u32, mark: u8) -> Option<Self> {
        let (digits, exponent) =
            match text.iter().position(|byte| byte.to_ascii_lowercase() == mark) {
                Some(at) => (&text[..at], parse_exponent(&text[at + 1..])?),
                None => (text, 0),
            };
        let mut parsed = Self { number: Natural::default(), count: 0, decimals: 0, exponent };
        let mut point = false;
        for byte in digits {
            match char::from(*byte).to_digit(radix) {
                Some(digit) => {
                    parsed.number.multiply_add(radix, digit);
                    parsed.count += 1;
                    parsed.decimals += i64::from(point);
                }
                None if *byte == b'.' && !point => point = true,
                None => return None,
            }
        }
        (parsed.count > 0).then_some(parsed)
    }
}

/// A decimal number; `None` when it is none or out of range.
fn parse_decimal(text: &[u8]) -> Option<Extended> {
    let Digits { number, count, decimals, exponent } = Digits::parse(text, 10, b'e')?;
    scale(number, exponent - decimals, count)
}

/// `number * 10^exponent`, rounded.
fn scale(mut number: Natural, exponent: i64, digit_count: i64) -> Option<Extended> {
    if number.is_zero() {
        return Some(Extended::ZERO);
    }
    // Beyond any value, and beyond what is worth computing.
    if exponent + digit_count > 6000 || exponent < -12_000 {
        return None;
    }
    if exponent >= 0 {
        (0..exponent).for_each(|_| number.multiply_add(10, 0));
        let excess = number.bit_len().saturating_sub(127);
        let (top, more) = number.top_bits(excess);
        return Extended::round(top, excess as i32, more);
    }
    let mut divisor = Natural::default();
    divisor.add_small(1);
    (0..-exponent).for_each(|_| divisor.multiply_add(10, 0));
    // A quotient of 66 to 67 bits: two more than the mantissa has.
    let shift = 66 + divisor.bit_len() as i32 - number.bit_len() as i32;
    if shift >= 0 {
        number.shift_left(shift as u32);
    } else {
        divisor.shift_left(shift.unsigned_abs());
    }
    let (quotient, more) = number.divide(divisor);
    Extended::round(quotient, -shift, more)
}

/// Returns whether a number is negative, and what follows its sign.
fn split_sign(text: &[u8]) -> (bool, &[u8]) {
    match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    }
}

/// The exponent behind an `e`, within what can matter.
fn parse_exponent(text: &[u8]) -> Option<i64> {
    let (negative, digits) = split_sign(text);
    if digits.is_empty() {
        return None;
    }
    let mut value = 0i64;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        value = (value * 10 + i64::from(digit - b'0')).min(1_000_000);
    }
    Some(if negative { -value } else { value })
}

/// A hexadecimal number, whose exponent is binary.
fn parse_hexadecimal(text: &[u8]) -> Option<Extended> {
    let Digits { number, decimals, exponent, .. } = Digits::parse(text, 16, b'p')?;
    let excess = number.bit_len().saturating_sub(127);
    let (top, more) = number.top_bits(excess);
    let exponent = exponent - 4 * decimals + i64::from(excess);
    Extended::round(top, i32::try_from(exponent).ok()?, more)
}

/// A natural number of any size, in base 2^32, least digit first and no zero
/// digit last.
#[derive(Clone, Default)]
struct Natural {
    digits: Vec<u32>,
}

impl Natural {
    fn is_zero(&self) -> bool {
        self.digits.is_empty()
    }

    fn trim(&mut self) {
        while self.digits.last() == Some(&0) {
            self.digits.pop();
        }
    }

    fn bit_len(&self) -> u32 {
        match self.digits.last() {
            Some(last) => self.digits.len() as u32 * 32 - last.leading_zeros(),
            None => 0,
        }
    }

    fn multiply_add(&mut self, factor: u32, summand: u32) {
        let mut carry = u64::from(summand);
        for digit in &mut self.digits {
            carry += u64::from(*digit) * u64::from(factor);
            *digit = carry as u32;
            carry >>= 32;
        }
        if carry != 0 {
            self.digits.push(carry as u32);
        }
    }

    fn add_small(&mut self, summand: u32) {
        self.multiply_add(1, summand);
    }

    fn add(&mut self, other: &Natural) {
        let len = self.digits.len().max(other.digits.len());
        self.digits.resize(len, 0);
        let mut carry = 0u64;
        for (index, digit) in self.digits.iter_mut().enumerate() {
            carry += u64::from(*digit) + u64::from(other.digits.get(index).copied().unwrap_or(0));
            *digit = carry as u32;
            carry >>= 32;
        }
        if carry != 0 {
            self.digits.push(carry as u32);
        }
    }

    fn shift_left(&mut self, bits: u32) {
        if self.is_zero() {
            return;
        }
        self.multiply_add(1 << (bits % 32), 0);
        let zeros = std::iter::repeat_n(0, (bits / 32) as usize);
        self.digits.splice(..0, zeros);
    }

    fn shift_right_one(&mut self) {
        let mut carry = 0;
        for digit in self.digits.iter_mut().rev() {
            let low = *digit & 1;
            *digit = *digit >> 1 | carry << 31;
            carry = low;
        }
        self.trim();
    }

    /// All bits from bit `from` on, of which there are at most 127, and
    /// whether any bit below is set.
    fn top_bits(&self, from: u32) -> (u128, bool) {
        let (skip, shift) = ((from / 32) as usize, from % 32);
        let mut top = 0u128;
        for (index, digit) in self.digits.iter().enumerate().skip(skip) {
            let offset = (index - skip) as u32 * 32;
            top |= if offset >= shift {
                u128::from(*digit) << (offset - shift)
            } else {
                u128::from(*digit) >> (shift - offset)
            };
        }
        let below = self.digits.iter().take(skip).any(|digit| *digit != 0);
        let partly = self.digits.get(skip).is_some_and(|digit| digit & ((1 << shift) - 1) != 0);
        (top, below || partly)
    }

    fn compare(&self, other: &Natural) -> Ordering {
        let by_len = self.digits.len().cmp(&other.digits.len());
        by_len.then_with(|| self.digits.iter().rev().cmp(other.digits.iter().rev()))
    }

    /// Subtracts `other`, which is not larger.
    fn subtract(&mut self, other: &Natural) {
        let mut borrow = false;
        for (index, digit) in self.digits.iter_mut().enumerate() {
            let subtrahend = other.digits.get(index).copied().unwrap_or(0);
            let (difference, under) = digit.overflowing_sub(subtrahend);
            let (difference, under_again) = difference.overflowing_sub(u32::from(borrow));
            *digit = difference;
            borrow = under || under_again;
        }
        self.trim();
    }

    /// The quotient, which must be below 2^68, and whether there is a rest.
    fn divide(mut self, mut divisor: Natural) -> (u128, bool) {
        const BITS: u32 = 68;
        divisor.shift_left(BITS - 1);
        let mut quotient = 0;
        for _ in 0..BITS {
            quotient <<= 1;
            if self.compare(&divisor) != Ordering::Less {
                self.subtract(&divisor);
                quotient |= 1;
            }
            divisor.shift_right_one();
        }
        (quotient, !self.is_zero())
    }

    fn write_decimal(&self, text: &mut Vec<u8>) {
        let mut rest = self.clone();
        let mut groups = Vec::new();
        while !rest.is_zero() {
            let mut remainder = 0u64;
            for digit in rest.digits.iter_mut().rev() {
                remainder = remainder << 32 | u64::from(*digit);
                *digit = (remainder / 1_000_000_000) as u32;
                remainder %= 1_000_000_000;
            }
            rest.trim();
            groups.push(remainder);
        }
        text.extend_from_slice(groups.pop().unwrap_or(0).to_string().as_bytes());
        for group in groups.iter().rev() {
            text.extend_from_slice(format!("{group:09}").as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sum(one: &str, other: &str) -> String {
        let (one, other) = (Extended::parse(one.as_bytes()), Extended::parse(other.as_bytes()));
        let text = one.unwrap().add(other.unwrap()).unwrap().format();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn floats_print_with_17_decimals_at_most() {
        for (number, expected) in [
            (0.0, "0"),
            (-0.0, "0"),
            (-180.0, "-180"),
            (13.361_389_338_970_184, "13.36138933897018433"),
            (38.115_556_395_496_3, "38.11555639549629859"),
            (5e-324, "0"),
            // Half of the last decimal.
            (0.000_003_814_697_265_625, "0.00000381469726562"),
            (0.000_011_444_091_796_875, "0.00001144409179688"),
        ] {
            let text = String::from_utf8(Extended::of(number).format()).unwrap();
            assert_eq!(text, expected, "{number}");
        }
    }

    #[test]
    fn sums_print_as_redis_prints_them() {
        for (one, other, expected) in [
            ("10.5", "0.1", "10.6"),
            ("5.0e3", "2.0e2", "5200"),
            ("0", "-0", "0"),
            ("1", "-1", "0"),
            (".5", "5.", "5.5"),
            ("0x10", "0x1.8p1", "19"),
            ("1e30", "1", "1000000000000000000024696061952"),
            ("3.1415926535897932384", "0", "3.14159265358979324"),
            ("-1e-17", "0", "-0.00000000000000001"),
            ("1e-18", "0", "0"),
            ("0.999999999999999999", "0", "1"),
            ("9007199254740993", "0.5", "9007199254740993.5"),
            ("18446744073709551615", "1", "18446744073709551616"),
        ] {
            assert_eq!(sum(one, other), expected, "{one} + {other}");
        }
    }

    #[test]
    fn what_is_no_number_is_refused() {
        for text in
            ["", "-", ".", "e5", "1e", "1e+", " 1", "1 ", "1x", "0x", "--1", "nan", "1e9999"]
        {
            assert_eq!(Extended::parse(text.as_bytes()), Err(Fault::Invalid), "{text}");
        }
        assert_eq!(Extended::parse(b"1e-9999"), Err(Fault::Invalid));
        assert_eq!(Extended::parse(b"-Infinity"), Err(Fault::Infinite));
        let largest = Extended::parse(b"1.18973149535723176e4932").unwrap();
        assert_eq!(largest.add(largest), None);
    }

    proptest! {
        #[test]
        fn integers_add_up_exactly(one in -(1i64 << 61)..1 << 61, other in -(1i64 << 61)..1 << 61) {
            prop_assert_eq!(sum(&one.to_string(), &other.to_string()), (one + other).to_string());
        }

        #[test]
        fn quarters_add_up_exactly(one in -(1i64 << 40)..1 << 40, other in -(1i64 << 40)..1 << 40) {
            let (one, other) = (one as f64 / 4.0, other as f64 / 4.0);
            prop_assert_eq!(sum(&one.to_string(), &other.to_string()), (one + other).to_string());
        }

        #[test]
        fn no_text_makes_it_panic(text in "[-+0-9.eExXpP]{0,40}") {
            if let Ok(number) = Extended::parse(text.as_bytes()) {
                let again = Extended::parse(&number.format());
                prop_assert!(again.is_ok());
            }
        }
    }
}
