//! Tables that stand in a document between marks of their own, and are written anew there.

use std::io::{Error, Result};
use std::path::Path;

/// Checks that a document has the region `name`.
///
/// # Errors
/// When it has not, or cannot be read.
pub fn find(file: &Path, name: &str) -> Result<()> {
    replaced(&read(file)?, file, name, "").map(drop)
}

/// Replaces what lies between the lines `<!-- NAME:begin -->` and `<!-- NAME:end -->`; every other
/// byte stays as it is.
///
/// # Errors
/// When the document has no such lines, or cannot be read or written.
pub fn replace(file: &Path, name: &str, body: &str) -> Result<()> {
    let text = replaced(&read(file)?, file, name, body)?;
    // Beside it first: who is interrupted leaves the old document.
    let beside = file.with_extension("md.new");
    let written = std::fs::write(&beside, text).and_then(|()| std::fs::rename(&beside, file));
    written.map_err(|why| told(&why, format!("cannot write {}", file.display())))
}

fn read(file: &Path) -> Result<String> {
    let text = std::fs::read_to_string(file);
    text.map_err(|why| told(&why, format!("cannot read {}", file.display())))
}

fn told(why: &Error, what: String) -> Error {
    Error::new(why.kind(), format!("{what}: {why}"))
}

fn replaced(text: &str, file: &Path, name: &str, body: &str) -> Result<String> {
    let marks = ["begin", "end"].map(|edge| format!("<!-- {name}:{edge} -->"));
    let mut ends = Vec::new();
    let mut offset = 0;
    for line in text.split_inclusive('\n') {
        // Lines that are nothing but the mark: prose may speak of it.
        if marks.get(ends.len()).is_some_and(|mark| line.trim_end() == mark) {
            ends.push(if ends.is_empty() { offset + line.len() } else { offset });
        }
        offset += line.len();
    }
    let [start, end] = ends[..] else {
        let (begin, end, file) = (&marks[0], &marks[1], file.display());
        let what = format!("{file} has no line \"{begin}\" with one \"{end}\" behind it");
        return Err(Error::other(what));
    };
    Ok(format!("{}{}\n{}", &text[..start], body.trim_end(), &text[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_between_the_marks_is_replaced() {
        let file = Path::new("x.md");
        let text =
            "a `<!-- t:begin -->`\n<!-- u:begin -->\n<!-- t:begin -->\nold\nold\n<!-- t:end -->\nz";
        let new =
            "a `<!-- t:begin -->`\n<!-- u:begin -->\n<!-- t:begin -->\nnew\n<!-- t:end -->\nz";
        assert_eq!(replaced(text, file, "t", "new\n\n").unwrap(), new);
        assert_eq!(replaced(new, file, "t", "new").unwrap(), new);
        for without in
            ["", "<!-- t:end -->\n<!-- t:begin -->\n", "<!-- u:begin -->\n<!-- u:end -->\n"]
        {
            let why = replaced(without, file, "t", "new").unwrap_err().to_string();
            assert!(why.starts_with("x.md has no line \"<!-- t:begin -->\""), "{why}");
        }
    }
}
