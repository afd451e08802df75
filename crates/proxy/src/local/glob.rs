//! Redis's glob patterns, without regard to case, for names of settings.

/// Whether `text` matches `pattern` (`*`, `?`, `[a-z]`, `\x`). Linear in the
/// length of the text times the number of stars at worst.
pub(super) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    // Where to go on after a mismatch: behind the last star, one byte later.
    let mut retry: Option<(usize, usize)> = None;
    while t < text.len() {
        match one(&pattern[p..], text[t]) {
            Step::Star => {
                p += 1;
                retry = Some((p, t));
                continue;
            }
            Step::Matched(len) => {
                p += len;
                t += 1;
                continue;
            }
            Step::Failed => {}
        }
        let Some((after_star, from)) = retry else { return false };
        retry = Some((after_star, from + 1));
        p = after_star;
        t = from + 1;
    }
    pattern[p..].iter().all(|&byte| byte == b'*')
}

enum Step {
    Star,
    Matched(usize),
    Failed,
}

fn one(pattern: &[u8], byte: u8) -> Step {
    let same = |a: u8| a.eq_ignore_ascii_case(&byte);
    let (hit, len) = match pattern {
        [] => (false, 0),
        [b'*', ..] => return Step::Star,
        [b'?', ..] => (true, 1),
        [b'\\', escaped, ..] => (same(*escaped), 2),
        [b'[', class @ ..] => match class.iter().position(|&end| end == b']') {
            Some(end) => (in_class(&class[..end], byte), end + 2),
            None => (same(b'['), 1),
        },
        [literal, ..] => (same(*literal), 1),
    };
    if hit { Step::Matched(len) } else { Step::Failed }
}

fn in_class(class: &[u8], byte: u8) -> bool {
    let byte = byte.to_ascii_lowercase();
    let (negated, mut rest) = match class {
        [b'^', rest @ ..] => (true, rest),
        _ => (false, class),
    };
    let mut found = false;
    while let Some((&first, after)) = rest.split_first() {
        if let [b'-', last, beyond @ ..] = after {
            let (low, high) = (first.min(*last), first.max(*last));
            found |= (low.to_ascii_lowercase()..=high.to_ascii_lowercase()).contains(&byte);
            rest = beyond;
        } else {
            found |= first.eq_ignore_ascii_case(&byte);
            rest = after;
        }
    }
    found != negated
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_match_as_in_redis() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("max*", "maxmemory-policy", true),
            ("*policy", "maxmemory-policy", true),
            ("MAX?emory", "maxmemory", true),
            ("m[a-c]x", "max", true),
            ("m[^a]x", "max", false),
            ("a\\*", "a*", true),
            ("a\\*", "ab", false),
            ("", "a", false),
            ("[", "[", true),
            ("a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
        }
    }
}
