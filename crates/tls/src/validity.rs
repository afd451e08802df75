//! The time in which a certificate is valid. It is the only part of it that we parse ourselves, to
//! warn about files before a server does.

/// The validity of a certificate, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Validity {
    pub(crate) not_before: i64,
    pub(crate) not_after: i64,
}

const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// Reads it from the DER of a certificate (RFC 5280, 4.1). Returns `None` if it is not where it
/// should be.
pub(crate) fn of(certificate: &[u8]) -> Option<Validity> {
    let (certificate, _) = take(certificate, SEQUENCE)?;
    let (to_be_signed, _) = take(certificate, SEQUENCE)?;
    let rest = match take(to_be_signed, VERSION) {
        Some((_, rest)) => rest,
        None => to_be_signed,
    };
    // Serial number, algorithm, issuer.
    let rest = skip(skip(skip(rest)?)?)?;
    let (validity, _) = take(rest, SEQUENCE)?;
    let (not_before, rest) = time(validity)?;
    let (not_after, _) = time(rest)?;
    Some(Validity { not_before, not_after })
}

/// Returns the tag, the content and what follows.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (len, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (digits.iter().fold(0, |len, &digit| len << 8 | usize::from(digit)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(len)?;
    Some((tag, content, rest))
}

fn take(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (found, content, rest) = element(bytes)?;
    (found == tag).then_some((content, rest))
}

fn skip(bytes: &[u8]) -> Option<&[u8]> {
    element(bytes).map(|(_, _, rest)| rest)
}

fn time(bytes: &[u8]) -> Option<(i64, &[u8])> {
    let (tag, text, rest) = element(bytes)?;
    let text = text.strip_suffix(b"Z")?;
    let (year, text) = match tag {
        UTC_TIME => {
            let (year, text) = number(text, 2)?;
            (if year < 50 { 2000 + year } else { 1900 + year }, text)
        }
        GENERALIZED_TIME => number(text, 4)?,
        _ => return None,
    };
    let (month, text) = number(text, 2)?;
    let (day, text) = number(text, 2)?;
    let (hour, text) = number(text, 2)?;
    let (minute, text) = number(text, 2)?;
    let (second, _) = number(text, 2)?;
    let of_day = (hour * 60 + minute) * 60 + second;
    Some((days(year, month, day)? * 86_400 + of_day, rest))
}

fn number(text: &[u8], digits: usize) -> Option<(i64, &[u8])> {
    let (digits, rest) = text.split_at_checked(digits)?;
    let value = digits.iter().try_fold(0i64, |value, digit| {
        digit.is_ascii_digit().then(|| value * 10 + i64::from(digit - b'0'))
    })?;
    Some((value, rest))
}

/// Returns the number of days from 1970 to a date of the Gregorian calendar.
fn days(year: i64, month: i64, day: i64) -> Option<i64> {
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // Years are counted from March, so that the leap day is the last one.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * month + 2) / 5 + day - 1;
    Some(era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468)
}

#[cfg(test)]
mod tests {
    use super::*;
    use keyway_testkit::certificates::{Authority, Span};
    use proptest::prelude::*;

    #[test]
    fn dates_are_days_since_1970() {
        assert_eq!(days(1970, 1, 1), Some(0));
        assert_eq!(days(2000, 3, 1), Some(11_017));
        assert_eq!(days(2024, 2, 29), Some(19_782));
        assert_eq!(days(1969, 12, 31), Some(-1));
        assert_eq!(days(2024, 13, 1), None);
    }

    #[test]
    fn a_certificates_times_are_read() {
        let authority = Authority::new("keyway tests");
        for (span, (from, to)) in [
            (Span::Current, ("2020-01-01", "2049-12-31")),
            (Span::Expired, ("2019-01-01", "2019-12-31")),
            // From 2050 on, times have four digits for the year.
            (Span::Future, ("2050-01-01", "2060-12-31")),
        ] {
            let issued = authority.issue_for(&["a.example"], span);
            let der = pem(&issued.certificate);
            let date = |text: &str| {
                let part = |range: std::ops::Range<usize>| text[range].parse().unwrap();
                days(part(0..4), part(5..7), part(8..10)).unwrap() * 86_400
            };
            let expected = Validity { not_before: date(from), not_after: date(to) };
            assert_eq!(of(&der), Some(expected), "{span:?}");
        }
    }

    fn pem(text: &str) -> Vec<u8> {
        use rustls::pki_types::{CertificateDer, pem::PemObject};
        CertificateDer::from_pem_slice(text.as_bytes()).unwrap().to_vec()
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn what_is_no_certificate_is_none(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = of(&bytes);
        }

        #[test]
        fn a_damaged_certificate_does_no_harm(at in 0usize..400, byte: u8) {
            let mut der = pem(&Authority::new("t").issue(&["a.example"]).certificate);
            let at = at % der.len();
            der[at] = byte;
            let _ = of(&der);
        }
    }
}
