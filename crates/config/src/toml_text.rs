//! Writing TOML.

use std::fmt::Write;

/// Returns a TOML basic string that reads back as `text`.
pub(crate) fn string(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            c if c.is_control() => {
                let _ = write!(quoted, "\\u{:04X}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// Returns a key, in quotes where TOML wants them.
pub(crate) fn key(name: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if !name.is_empty() && name.chars().all(bare) { name.to_owned() } else { string(name) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_text_and_key_read_back_as_themselves(name: String, text: String) {
            let document = format!("{} = {}", key(&name), string(&text));
            let table = toml::de::DeTable::parse(&document).unwrap();
            let (read_name, read_text) = table.get_ref().iter().next().unwrap();
            prop_assert_eq!(read_name.get_ref().as_ref(), name.as_str());
            prop_assert_eq!(read_text.get_ref().as_str(), Some(text.as_str()));
        }
    }
}
