//! Commands of any words: `SET __key__ __data__ EX 10`.

use std::fmt;

/// One word of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word(pub Vec<Piece>);

/// A part of a word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// As it is.
    Bytes(Vec<u8>),
    /// `__key__`: a key, one for all places of a request.
    Key,
    /// `__data__`: a value.
    Data,
    /// `__rand__`: a number below that of keys, another one in each place.
    Rand,
    /// `__rand_int__`: the same with twelve digits, as redis-benchmark has it.
    RandInt,
    /// `__ttl__`: seconds, as the workload's expiry has it.
    Ttl,
    /// The name of one of YCSB's fields, by chance.
    YcsbField,
    /// What YCSB's index orders the key by.
    YcsbScore,
    /// How many records YCSB scans.
    YcsbScanLen,
}

const PLACES: [(&str, Piece); 5] = [
    ("__key__", Piece::Key),
    ("__data__", Piece::Data),
    ("__rand__", Piece::Rand),
    ("__rand_int__", Piece::RandInt),
    ("__ttl__", Piece::Ttl),
];

impl Word {
    /// A word as it is.
    pub fn text(text: &str) -> Word {
        Word(vec![Piece::Bytes(text.as_bytes().to_vec())])
    }

    /// A word that is replaced as a whole.
    pub fn of(piece: Piece) -> Word {
        Word(vec![piece])
    }

    /// Returns whether it has a value in it.
    pub fn has_data(&self) -> bool {
        self.0.contains(&Piece::Data)
    }
}

/// Why a text is no command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateError(String);

impl fmt::Display for TemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for TemplateError {}

/// Reads words with blanks between them; `"a word"` or `'a word'` has blanks of its own.
///
/// # Errors
/// When a quote does not end, a place is not known or there is no word.
pub fn parse_template(text: &str) -> Result<Vec<Word>, TemplateError> {
    let words: Vec<Word> =
        split(text)?.iter().map(|word| pieces(word)).collect::<Result<_, _>>()?;
    match words.first() {
        Some(_) => Ok(words),
        None => Err(TemplateError("a command has at least one word".to_owned())),
    }
}

fn split(text: &str) -> Result<Vec<String>, TemplateError> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for letter in text.chars() {
        match quote {
            Some(end) if letter == end => quote = None,
            Some(_) => word.get_or_insert_default().push(letter),
            None if letter == '"' || letter == '\'' => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            None if letter.is_whitespace() => words.extend(word.take()),
            None => word.get_or_insert_default().push(letter),
        }
    }
    if quote.is_some() {
        return Err(TemplateError(format!("{text:?} has a quote that does not end")));
    }
    words.extend(word);
    Ok(words)
}

fn pieces(word: &str) -> Result<Word, TemplateError> {
    let (mut pieces, mut rest) = (Vec::new(), word);
    while let Some(start) = rest.find("__") {
        let Some(len) = rest[start + 2..].find("__").map(|len| len + 4) else { break };
        let name = &rest[start..start + len];
        let Some((_, piece)) = PLACES.iter().find(|(known, _)| *known == name) else {
            let known = PLACES.iter().map(|(known, _)| *known).collect::<Vec<_>>().join(", ");
            return Err(TemplateError(format!("nothing stands for {name}: {known} are known")));
        };
        if start > 0 {
            pieces.push(Piece::Bytes(rest.as_bytes()[..start].to_vec()));
        }
        pieces.push(piece.clone());
        rest = &rest[start + len..];
    }
    if !rest.is_empty() || pieces.is_empty() {
        pieces.push(Piece::Bytes(rest.as_bytes().to_vec()));
    }
    Ok(Word(pieces))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_places_and_quotes_are_read() {
        let words = parse_template("HSET h:__key__:x 'two words' \"\" __data__ a__b").unwrap();
        let bytes = |text: &str| Piece::Bytes(text.as_bytes().to_vec());
        let expected = [
            Word::text("HSET"),
            Word(vec![bytes("h:"), Piece::Key, bytes(":x")]),
            Word::text("two words"),
            Word::text(""),
            Word::of(Piece::Data),
            Word::text("a__b"),
        ];
        assert_eq!(words, expected);
    }

    #[test]
    fn what_is_no_command_is_told() {
        for (text, told) in [
            ("", "at least one word"),
            ("   ", "at least one word"),
            ("GET 'a", "does not end"),
            ("GET __kay__", "nothing stands for __kay__"),
        ] {
            assert!(parse_template(text).unwrap_err().to_string().contains(told), "{text}");
        }
    }
}
