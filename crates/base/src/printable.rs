/// Makes outside text safe for a terminal, a log or a page. Characters that would have an effect
/// there are written as escapes: control characters (`\x1b`), bytes that are not UTF-8, invisible
/// characters, and characters that change the direction of the text (`\u{202e}`).
pub fn printable(text: &[u8]) -> String {
    let mut shown = String::with_capacity(text.len());
    for chunk in text.utf8_chunks() {
        for letter in chunk.valid().chars() {
            match letter {
                '\n' | '\r' | '\t' => shown.extend(letter.escape_default()),
                letter if letter.is_ascii_control() => {
                    shown.push_str(&format!("\\x{:02x}", letter as u32));
                }
                letter if letter.is_control() || is_unseen(letter) => {
                    shown.extend(letter.escape_unicode());
                }
                letter => shown.push(letter),
            }
        }
        for byte in chunk.invalid() {
            shown.push_str(&format!("\\x{byte:02x}"));
        }
    }
    shown
}

/// Returns whether a letter is invisible: line and paragraph separators, marks of direction,
/// joiners and the like.
fn is_unseen(letter: char) -> bool {
    matches!(
        letter,
        '\u{ad}'
            | '\u{61c}'
            | '\u{180e}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_terminal_acts_upon_is_left() {
        for (text, wanted) in [
            (&b"ERR plain: 'x' \\ \"y\""[..], "ERR plain: 'x' \\ \"y\""),
            (b"\x1b[2Jgone\x07\x7f", "\\x1b[2Jgone\\x07\\x7f"),
            (b"a\r\nb\t\0", "a\\r\\nb\\t\\x00"),
            (b"\xff\x9b1m", "\\xff\\x9b1m"),
            ("\u{9b}1m".as_bytes(), "\\u{9b}1m"),
            ("a\u{202e}b\u{200b}".as_bytes(), "a\\u{202e}b\\u{200b}"),
            ("Zürich 代理".as_bytes(), "Zürich 代理"),
        ] {
            assert_eq!(printable(text), wanted);
        }
        let all: Vec<u8> = (0..=255).collect();
        assert!(!printable(&all).chars().any(char::is_control));
    }
}
