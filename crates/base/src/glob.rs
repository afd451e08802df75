//! Redis's glob patterns: `*`, `?`, `[a-z]`, `[^a-z]`, and `\` before a byte that stands for
//! itself. The only matcher of KEYS, SCAN, CONFIG GET and COMMAND LIST. Unusual patterns mean what
//! they mean in Redis.

/// One step of a pattern, and the number of its bytes.
enum Step {
    /// Any number of bytes.
    Star,
    /// One byte, and whether the byte of the text matches.
    One { fits: bool, len: usize },
}

/// How bytes are compared.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Case {
    Matters,
    Ignored,
}

impl Case {
    fn fold(self, byte: u8) -> u8 {
        match self {
            Case::Matters => byte,
            Case::Ignored => byte.to_ascii_lowercase(),
        }
    }
}

/// Returns whether `pattern` is free of wildcards, as CONFIG GET sees it.
pub fn is_literal(pattern: &[u8]) -> bool {
    !pattern.iter().any(|byte| b"*?[".contains(byte))
}

/// Returns whether `pattern` matches the whole of `text`.
///
/// Takes time at most proportional to the product of the lengths, whatever the pattern.
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    matches_with(pattern, text, Case::Matters)
}

/// Returns whether `pattern` matches `text` without regard to the case of ASCII letters, for names.
pub fn matches_ignoring_case(pattern: &[u8], text: &[u8]) -> bool {
    matches_with(pattern, text, Case::Ignored)
}

/// Matches with `case`. On a mismatch only the latest star is tried again, one byte further: what
/// matched before it cannot match better.
fn matches_with(pattern: &[u8], text: &[u8], case: Case) -> bool {
    if text.is_empty() {
        // Redis matches no wildcard against an empty text. Where a lone star means "no pattern",
        // the caller handles it.
        return pattern.is_empty();
    }
    let (mut at, mut byte_at) = (0, 0);
    // Positions after the latest star, and in `text` where it was last tried.
    let mut retry: Option<(usize, usize)> = None;
    while byte_at < text.len() {
        let step = (at < pattern.len()).then(|| step(&pattern[at..], text[byte_at], case));
        match step {
            Some(Step::Star) => {
                at += 1;
                retry = Some((at, byte_at));
            }
            Some(Step::One { fits: true, len }) => {
                at += len;
                byte_at += 1;
            }
            _ => {
                let Some((behind_star, from)) = retry else { return false };
                retry = Some((behind_star, from + 1));
                (at, byte_at) = (behind_star, from + 1);
            }
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

fn step(pattern: &[u8], byte: u8, case: Case) -> Step {
    let is = |literal: u8| case.fold(literal) == case.fold(byte);
    match pattern {
        [b'*', ..] => Step::Star,
        [b'?', ..] => Step::One { fits: true, len: 1 },
        [b'[', class @ ..] => {
            let (fits, len) = class_step(class, byte, case);
            Step::One { fits, len: len + 1 }
        }
        [b'\\', literal, ..] => Step::One { fits: is(*literal), len: 2 },
        [literal, ..] => Step::One { fits: is(*literal), len: 1 },
        [] => Step::One { fits: false, len: 0 },
    }
}

/// Returns whether `byte` is in the class that begins with `class`, after its opening bracket, and
/// the length of the class. A class that is not closed ends with the pattern.
fn class_step(class: &[u8], byte: u8, case: Case) -> (bool, usize) {
    let negated = class.first() == Some(&b'^');
    let mut at = usize::from(negated);
    let mut found = false;
    loop {
        match &class[at..] {
            // As in Redis, the case of an escaped byte in a class matters.
            [b'\\', literal, ..] => {
                found |= *literal == byte;
                at += 2;
            }
            [b']', ..] => {
                at += 1;
                break;
            }
            // As in Redis, the ends are put in order before case is ignored.
            [first, b'-', last, ..] => {
                let (low, high) = (*first.min(last), *first.max(last));
                found |= (case.fold(low)..=case.fold(high)).contains(&case.fold(byte));
                at += 3;
            }
            [literal, ..] => {
                found |= case.fold(*literal) == case.fold(byte);
                at += 1;
            }
            [] => break,
        }
    }
    (found != negated, at)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Matches by the plain definition, in exponential time.
    fn matches_plainly(pattern: &[u8], text: &[u8]) -> bool {
        let Some(first) = pattern.first() else { return text.is_empty() };
        if *first == b'*' {
            return (0..=text.len()).any(|skip| matches_plainly(&pattern[1..], &text[skip..]));
        }
        match text.first().map(|byte| step(pattern, *byte, Case::Matters)) {
            Some(Step::One { fits: true, len }) => matches_plainly(&pattern[len..], &text[1..]),
            _ => false,
        }
    }

    /// Returns every word over `alphabet` of up to `len_max` bytes.
    fn words(alphabet: &[u8], len_max: u32) -> Vec<Vec<u8>> {
        let mut all = vec![Vec::new()];
        let mut longest = all.clone();
        for _ in 0..len_max {
            longest = longest
                .iter()
                .flat_map(|word| alphabet.iter().map(|byte| [word, &[*byte][..]].concat()))
                .collect();
            all.extend_from_slice(&longest);
        }
        all
    }

    #[test]
    fn short_patterns_match_as_the_plain_rule_says() {
        let texts = words(b"ab-", 4);
        for pattern in words(b"*?ab[]^\\-", 4) {
            for text in texts.iter().filter(|text| !text.is_empty()) {
                let (plainly, shown) = (matches_plainly(&pattern, text), pattern.escape_ascii());
                assert_eq!(matches(&pattern, text), plainly, "{shown} {}", text.escape_ascii());
            }
        }
    }

    #[test]
    fn patterns_mean_what_redis_makes_of_them() {
        for (pattern, text, expected) in [
            ("h?llo", "hallo", true),
            ("h?llo", "hllo", false),
            ("h*llo", "heeeello", true),
            ("a*c", "abbd", false),
            ("*a*b*", "xxaxxbxx", true),
            ("h[ae]llo", "hillo", false),
            ("h[ae]llo", "HALLO", false),
            ("h[^e]llo", "hello", false),
            ("h[^e]llo", "hbllo", true),
            ("h[a-b]llo", "hbllo", true),
            ("h[b-a]llo", "hbllo", true),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("a\\", "a\\", true),
            ("", "", true),
            ("", "a", false),
            ("*", "", false),
            ("**", "", false),
            ("**", "a", true),
            ("?", "", false),
            ("[", "a", false),
            ("[a", "a", true),
            ("[^", "a", true),
            ("[a-", "-", true),
            ("[a-]", "]", true),
            ("[\\]]", "]", true),
            ("[]", "]", false),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn names_match_without_regard_to_case() {
        for (pattern, text, expected) in [
            ("MAX*", "maxmemory", true),
            ("max*", "MAXMEMORY", true),
            ("h[AE]llo", "hallo", true),
            ("h[A-C]llo", "hbllo", true),
            ("h[^A]llo", "hallo", false),
            ("\\A", "a", true),
            ("[\\A]", "a", false),
            ("[Z-a]", "m", false),
        ] {
            let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
            assert_eq!(
                matches_ignoring_case(pattern, text),
                expected,
                "{}",
                pattern.escape_ascii()
            );
        }
    }

    #[test]
    fn a_pattern_of_many_stars_is_answered_in_no_time() {
        let pattern = b"a*".repeat(5000);
        let text = vec![b'a'; 20_000];
        assert!(matches(&pattern, &text));
        assert!(!matches(&[&pattern[..], b"b"].concat(), &text));
    }
}
