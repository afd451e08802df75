use std::path::Path;

use crate::error::Error;

/// Replaces what lies between the lines `<!-- NAME:begin -->` and
/// `<!-- NAME:end -->` of the file at `path`. Every other byte is left as it
/// is; a file that is not there is made with just the region.
///
/// # Errors
/// [`Error::Region`] when the file has no such region, [`Error::Io`] when it
/// cannot be read or written.
pub fn replace_region(path: &Path, name: &'static str, body: &str) -> Result<(), Error> {
    let shown = path.display().to_string();
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            format!("{}\n{}\n", marker(name, "begin"), marker(name, "end"))
        }
        Err(why) => return Err(Error::Io { what: shown, why }),
    };
    let Some(text) = with_region(&text, name, body) else {
        return Err(Error::Region { path: path.to_owned(), name });
    };
    // Written beside it first: an interrupted run leaves the old document.
    let beside = path.with_extension("md.new");
    std::fs::write(&beside, text).map_err(Error::io(beside.display().to_string()))?;
    std::fs::rename(&beside, path).map_err(Error::io(shown))
}

fn marker(name: &str, edge: &str) -> String {
    format!("<!-- {name}:{edge} -->")
}

/// `text` with a new body in the region; none when there is no such region.
/// Only lines that are nothing but the marker count, so that prose and code
/// may speak of it.
fn with_region(text: &str, name: &str, body: &str) -> Option<String> {
    let (begin, end) = (marker(name, "begin"), marker(name, "end"));
    let mut offset = 0;
    let mut body_start = None;
    for line in text.split_inclusive('\n') {
        let content = line.trim_end();
        if content == begin && body_start.is_none() {
            body_start = Some(offset + line.len());
        } else if let Some(start) = body_start.filter(|_| content == end) {
            let (before, after) = (&text[..start], &text[offset..]);
            return Some(format!("{before}{}\n{after}", body.trim_end()));
        }
        offset += line.len();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOC: &str = "# Head\n\nThe marker `<!-- bench:begin -->` opens it.\n\
        <!-- bench:begin -->\nold\nlines\n<!-- bench:end -->\n\ntail without line end";

    #[test]
    fn only_the_region_changes() {
        let changed = with_region(DOC, "bench", "new\n\n").unwrap();
        assert_eq!(changed, DOC.replace("old\nlines\n", "new\n"));
    }

    #[test]
    fn writing_twice_is_writing_once() {
        let once = with_region(DOC, "bench", "| a |").unwrap();
        assert_eq!(with_region(&once, "bench", "| a |").unwrap(), once);
    }

    #[test]
    fn regions_do_not_touch_each_other() {
        let text = "<!-- a:begin -->\n<!-- a:end -->\n<!-- b:begin -->\nb\n<!-- b:end -->\n";
        let changed = with_region(text, "a", "x").unwrap();
        assert_eq!(changed, text.replacen("begin -->\n", "begin -->\nx\n", 1));
    }

    #[test]
    fn a_document_without_the_region_is_refused() {
        assert_eq!(with_region("text\n", "bench", "x"), None);
        assert_eq!(with_region("<!-- bench:begin -->\n", "bench", "x"), None);
        assert_eq!(with_region("<!-- bench:end -->\n<!-- bench:begin -->\n", "bench", "x"), None);
    }

    #[test]
    fn files_are_rewritten_in_place_or_made() {
        let scratch = crate::process::Scratch::new().unwrap();
        let path = scratch.write("performance.md", DOC).unwrap();
        replace_region(&path, "bench", "new").unwrap();
        assert!(std::fs::read_to_string(&path).unwrap().contains("\nnew\n<!-- bench:end -->"));
        assert!(matches!(replace_region(&path, "other", "x"), Err(Error::Region { .. })));
        let made = scratch.path("made.md");
        replace_region(&made, "bench", "x").unwrap();
        let text = std::fs::read_to_string(made).unwrap();
        assert_eq!(text, "<!-- bench:begin -->\nx\n<!-- bench:end -->\n");
    }
}
