//! Redis's glob patterns over names, without regard to case: `*`, `?`,
//! `[a-z]`, `[^a-z]`, `\x`.

/// Whether `pattern` means itself alone, as CONFIG GET sees it.
pub(super) fn is_literal(pattern: &[u8]) -> bool {
    !pattern.iter().any(|byte| b"*?[".contains(byte))
}

/// Whether `pattern` matches the whole of `text`.
///
/// After a mismatch only the last star takes one byte more, so the time is at
/// most the product of both lengths, whatever the pattern.
pub(super) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut pos) = (0, 0);
    let mut last_star: Option<(usize, usize)> = None;
    while pos < text.len() {
        if pattern.get(at) == Some(&b'*') {
            last_star = Some((at + 1, pos));
            at += 1;
        } else if let Some(next) = step(pattern, at, text[pos]) {
            at = next;
            pos += 1;
        } else if let Some((behind, taken)) = last_star {
            last_star = Some((behind, taken + 1));
            (at, pos) = (behind, taken + 1);
        } else {
            return false;
        }
    }
    pattern[at..].iter().all(|&byte| byte == b'*')
}

/// Where the pattern goes on when its element at `at` takes `byte`.
fn step(pattern: &[u8], at: usize, byte: u8) -> Option<usize> {
    let is = |other: u8| other.eq_ignore_ascii_case(&byte);
    match *pattern.get(at)? {
        b'?' => Some(at + 1),
        b'[' => {
            let (takes, next) = class(pattern, at + 1, byte);
            takes.then_some(next)
        }
        b'\\' if at + 1 < pattern.len() => is(pattern[at + 1]).then_some(at + 2),
        literal => is(literal).then_some(at + 1),
    }
}

/// Whether the class whose inside starts at `at` takes `byte`, and where it
/// ends. One without its bracket ends with the pattern.
fn class(pattern: &[u8], mut at: usize, byte: u8) -> (bool, usize) {
    let byte = byte.to_ascii_lowercase();
    let negated = pattern.get(at) == Some(&b'^');
    at += usize::from(negated);
    let mut found = false;
    while let Some(&first) = pattern.get(at) {
        if first == b']' {
            return (found != negated, at + 1);
        }
        if first == b'\\' && at + 1 < pattern.len() {
            found |= pattern[at + 1].to_ascii_lowercase() == byte;
            at += 2;
        } else if pattern.get(at + 1) == Some(&b'-') && at + 2 < pattern.len() {
            let ends = [first.to_ascii_lowercase(), pattern[at + 2].to_ascii_lowercase()];
            found |= (ends[0].min(ends[1])..=ends[0].max(ends[1])).contains(&byte);
            at += 3;
        } else {
            found |= first.to_ascii_lowercase() == byte;
            at += 1;
        }
    }
    (found != negated, at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_redis() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("a*c", "abbc", true),
            ("a*c", "abbd", false),
            ("*a*b*", "xxaxxbxx", true),
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h[ae]llo", "HALLO", true),
            ("h[^e]llo", "hello", false),
            ("h[^e]llo", "hbllo", true),
            ("[z-a]", "m", true),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("[a", "a", true),
            ("a\\", "a\\", true),
            ("MAX*", "maxmemory", true),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn many_stars_do_not_take_forever() {
        let pattern = b"*a".repeat(2_000);
        assert!(!matches(&pattern, &b"a".repeat(1_999)));
        assert!(matches(&pattern, &b"a".repeat(2_000)));
    }
}
