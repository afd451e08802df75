/// One step of a pattern, and how many bytes of it that took.
enum Step {
    /// Any number of bytes.
    Star,
    /// One byte, and whether the byte asked about fits.
    One { fits: bool, len: usize },
}

/// Whether `text` fits Redis's glob `pattern`: `*`, `?`, `[a-z]`, `[^a-z]` and
/// `\` before a byte that stands for itself.
///
/// On a mismatch only the latest star is tried anew, one byte further: what
/// matched before it cannot match better. So the time is bounded by the
/// product of the lengths, whatever the pattern.
pub(crate) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut byte_at) = (0, 0);
    // Behind the latest star, and where in `text` it was last tried from.
    let mut retry: Option<(usize, usize)> = None;
    while byte_at < text.len() {
        let step = (at < pattern.len()).then(|| step(&pattern[at..], text[byte_at]));
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
    pattern[at.min(pattern.len())..].iter().all(|byte| *byte == b'*')
}

fn step(pattern: &[u8], byte: u8) -> Step {
    match pattern {
        [b'*', ..] => Step::Star,
        [b'?', ..] => Step::One { fits: true, len: 1 },
        [b'[', class @ ..] => {
            let (fits, len) = class_step(class, byte);
            Step::One { fits, len: len + 1 }
        }
        [b'\\', literal, ..] => Step::One { fits: *literal == byte, len: 2 },
        [literal, ..] => Step::One { fits: *literal == byte, len: 1 },
        [] => Step::One { fits: false, len: 0 },
    }
}

/// Whether `byte` is in the class that `class` starts with, behind its
/// opening bracket, and how long that is. A class that is not closed ends with
/// the pattern.
fn class_step(class: &[u8], byte: u8) -> (bool, usize) {
    let negated = class.first() == Some(&b'^');
    let mut at = usize::from(negated);
    let mut found = false;
    loop {
        match &class[at.min(class.len())..] {
            [b'\\', literal, ..] => {
                found |= *literal == byte;
                at += 2;
            }
            [b']', ..] => {
                at += 1;
                break;
            }
            [first, b'-', last, ..] => {
                found |= (*first.min(last)..=*first.max(last)).contains(&byte);
                at += 3;
            }
            [literal, ..] => {
                found |= *literal == byte;
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
    use proptest::prelude::*;

    /// The rule as it is told, exponential.
    fn matches_plainly(pattern: &[u8], text: &[u8]) -> bool {
        let Some(first) = pattern.first() else { return text.is_empty() };
        if *first == b'*' {
            return (0..=text.len()).any(|skip| matches_plainly(&pattern[1..], &text[skip..]));
        }
        match text.first().map(|byte| step(pattern, *byte)) {
            Some(Step::One { fits: true, len }) => matches_plainly(&pattern[len..], &text[1..]),
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn patterns_match_as_the_plain_rule_says(
            pattern in "[*?ab\\[\\]^\\\\c-]{0,9}",
            text in "[abc^-]{0,9}",
        ) {
            let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
            prop_assert_eq!(matches(pattern, text), matches_plainly(pattern, text));
        }
    }

    #[test]
    fn patterns_mean_what_the_manual_says() {
        for (pattern, text, expected) in [
            ("h?llo", "hallo", true),
            ("h*llo", "heeeello", true),
            ("h[ae]llo", "hillo", false),
            ("h[^e]llo", "hello", false),
            ("h[a-b]llo", "hbllo", true),
            ("h[b-a]llo", "hbllo", true),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("", "", true),
            ("*", "", true),
            ("?", "", false),
            ("[", "a", false),
            ("[a", "a", true),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
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
