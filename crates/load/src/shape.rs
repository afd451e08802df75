//! The shape of an error: its words without the parts that differ between requests.

/// Stands for a number, a key, an address or a quoted text.
const MASK: char = '*';

/// Masks the words of an error that name something: words with a digit, paths, URLs and quoted
/// text. Errors of one fault then have one shape, whichever key, slot, server or time they are
/// about. `not sent` and `may have been executed` stay different shapes.
pub(crate) fn shape(text: &str) -> String {
    let mut shape = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let len = match first {
            '\'' | '"' | '`' if at_start_of_word(&shape) => quoted_len(rest, first),
            first if first.is_whitespace() => None,
            _ => None,
        };
        if let Some(len) = len {
            push_mask(&mut shape);
            rest = &rest[len..];
            continue;
        }
        let len = rest.find(|letter: char| is_end(letter)).unwrap_or(rest.len());
        if len == 0 {
            shape.push(first);
            rest = &rest[first.len_utf8()..];
            continue;
        }
        let (word, behind) = rest.split_at(len);
        // Punctuation behind a word belongs to the sentence: `127.0.0.1:7001:` and `slot 5.`
        let bare = word.trim_end_matches(['.', ':', '!', '?']);
        match names_something(bare) {
            true => {
                push_mask(&mut shape);
                shape.push_str(&word[bare.len()..]);
            }
            false => shape.push_str(word),
        }
        rest = behind;
    }
    shape
}

fn push_mask(shape: &mut String) {
    if !shape.ends_with(MASK) {
        shape.push(MASK);
    }
}

fn is_end(letter: char) -> bool {
    letter.is_whitespace() || matches!(letter, ';' | ',' | '(' | ')' | '\'' | '"' | '`' | '=')
}

fn at_start_of_word(shape: &str) -> bool {
    shape
        .chars()
        .next_back()
        .is_none_or(|last| last.is_whitespace() || matches!(last, '(' | '=' | ','))
}

/// Length of a quoted text with its quotes, or none if the quotes are not closed.
fn quoted_len(text: &str, quote: char) -> Option<usize> {
    let inner = &text[quote.len_utf8()..];
    inner.find(quote).map(|at| at + 2 * quote.len_utf8())
}

fn names_something(word: &str) -> bool {
    word.bytes().any(|byte| byte.is_ascii_digit())
        || word.contains("://")
        || word.starts_with('/')
        || word.starts_with('[')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_one_fault_have_one_shape() {
        for (one, other) in [
            ("MOVED 5 127.0.0.1:7001", "MOVED 16383 [::1]:7002"),
            (
                "ERR server 127.0.0.1:7001 cannot be reached; the request was not sent",
                "ERR server cache:6379 cannot be reached; the request was not sent",
            ),
            ("ERR no such key user:42", "ERR no such key user:7"),
            ("ERR unknown command 'a', with args", "ERR unknown command 'b c', with args"),
            ("ERR took 17 ms.", "ERR took 1.5 ms."),
            ("ERR at unix:///run/a: gone", "ERR at unix:///run/b/c: gone"),
            ("x=1,y=2", "x=33,y=4"),
        ] {
            assert_eq!(shape(one), shape(other));
        }
        assert_eq!(shape("MOVED 5 127.0.0.1:7001"), "MOVED * *");
        assert_eq!(shape("ERR 'a' took 17 ms (limit=5)."), "ERR * took * ms (limit=*).");
    }

    #[test]
    fn what_was_not_sent_is_told_from_what_may_have_been_executed() {
        let of =
            |end: &str| shape(&format!("ERR server 127.0.0.1:7001 closed the connection; {end}"));
        assert_ne!(of("the request was not sent"), of("the request may have been executed"));
        assert_ne!(shape("ERR a"), shape("ERR b"));
        // Neither an apostrophe nor an unclosed quote begins a quoted text.
        assert_eq!(shape("the user can't run it isn't"), "the user can't run it isn't");
        assert_eq!(shape("ERR 'open"), "ERR 'open");
    }
}
