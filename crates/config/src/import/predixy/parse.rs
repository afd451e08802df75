//! The form of predixy's files: lines of a key and a value, scopes in braces, and included files.
//!
//! ```text
//! Name example          # a comment
//! Include servers.conf
//! Group shard1 {
//!     + 10.0.0.1:6379
//! }
//! ```

use crate::error::{ConfigError, Problem, quoted};
use std::path::{Path, PathBuf};

/// Deepest nesting of scopes. predixy's own scopes are five deep.
const DEPTH_MAX: usize = 16;

/// Deepest nesting of included files. Each file stays open while the next one is read.
const INCLUDES_MAX: usize = 256;

/// Most entries of a file with all the files it includes.
const ENTRIES_MAX: usize = 100_000;

/// Reads an included file: returns its text, or the reason why it cannot be read.
pub(super) type ReadFile<'f> = &'f dyn Fn(&Path) -> Result<String, String>;

/// One line, with the lines of its scope.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) key: String,
    pub(super) value: String,
    pub(super) at: At,
    /// The lines between its braces; `None` without braces.
    pub(super) scope: Option<Vec<Node>>,
}

/// A line of a file.
#[derive(Clone, Debug)]
pub(super) struct At {
    pub(super) path: std::rc::Rc<str>,
    pub(super) line: usize,
}

impl At {
    pub(super) fn error(&self, problem: Problem) -> ConfigError {
        ConfigError {
            path: self.path.to_string(),
            line: self.line,
            column: 1,
            what: problem.what,
            hint: problem.hint,
        }
    }
}

impl Node {
    pub(super) fn is(&self, key: &str) -> bool {
        self.key.eq_ignore_ascii_case(key)
    }

    /// Returns the lines between its braces, if there are any.
    pub(super) fn inner(&self) -> &[Node] {
        self.scope.as_deref().unwrap_or_default()
    }
}

/// Reads the lines of a text that came from `path`.
pub(super) fn parse(text: &str, path: &str, read: ReadFile<'_>) -> Result<Vec<Node>, ConfigError> {
    let mut parser = Parser {
        read,
        open: vec![(id_of(Path::new(path)), PathBuf::from(path))],
        scopes: vec![Vec::new()],
        heads: Vec::new(),
        entries: 0,
    };
    parser.file(text, path)?;
    if let Some(head) = parser.heads.last() {
        let what = format!("the braces of {} are not closed", quoted(&head.key));
        return Err(head.at.error(Problem::new(what, "add \"}\" on a line of its own")));
    }
    Ok(parser.scopes.pop().unwrap_or_default())
}

struct Parser<'f> {
    read: ReadFile<'f>,
    /// The file that is being read, after the files that include it: the id of each, and its path
    /// as written.
    open: Vec<(PathBuf, PathBuf)>,
    /// The lines read so far of each open scope. The scope of the whole file comes first.
    scopes: Vec<Vec<Node>>,
    /// The lines that opened the scopes, except that of the file.
    heads: Vec<Node>,
    entries: usize,
}

impl Parser<'_> {
    fn file(&mut self, text: &str, path: &str) -> Result<(), ConfigError> {
        let path: std::rc::Rc<str> = path.into();
        for (index, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
            let at = At { path: path.clone(), line: index + 1 };
            match read_line(line).map_err(|problem| at.error(problem))? {
                Line::Nothing => {}
                Line::End => self.end(&at)?,
                Line::Entry { key, value, .. } if key.eq_ignore_ascii_case("include") => {
                    self.include(&value, &at)?;
                }
                Line::Entry { key, value, opens } => {
                    self.entries += 1;
                    if self.entries > ENTRIES_MAX || self.scopes.len() > DEPTH_MAX {
                        let what = "there is too much in this file, or it is nested too deeply";
                        return Err(at.error(Problem::new(what, "see whether it is predixy's")));
                    }
                    let node = Node { key, value, at, scope: opens.then(Vec::new) };
                    match opens {
                        true => {
                            self.heads.push(node);
                            self.scopes.push(Vec::new());
                        }
                        false => self.add(node),
                    }
                }
            }
        }
        Ok(())
    }

    fn add(&mut self, node: Node) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.push(node);
        }
    }

    fn end(&mut self, at: &At) -> Result<(), ConfigError> {
        let Some(mut head) = self.heads.pop() else {
            let what = "this brace closes nothing";
            return Err(at.error(Problem::new(what, "remove it, or open a scope with \"KEY {\"")));
        };
        head.scope = self.scopes.pop();
        self.add(head);
        Ok(())
    }

    /// Reads a file that another file names, by a path relative to the other's folder.
    fn include(&mut self, name: &str, at: &At) -> Result<(), ConfigError> {
        let from = self.open.last().and_then(|(_, path)| path.parent()).unwrap_or(Path::new(""));
        let path = from.join(name);
        let refuse = |what: String, hint: &str| Err(at.error(Problem::new(what, hint)));
        if name.is_empty() {
            return refuse("Include names no file".to_owned(), "write \"Include FILE\"");
        }
        // A file may have several names: `servers.conf` and `../conf/servers.conf`.
        let id = id_of(&path);
        if let Some(first) = self.open.iter().position(|(open, _)| *open == id) {
            let what = match first + 1 == self.open.len() {
                true => format!("{} includes itself", quoted(name)),
                false => {
                    let files = self.open.len() - first;
                    format!("{} leads back to itself over {files} files", quoted(name))
                }
            };
            return refuse(what, "remove one Include");
        }
        if self.open.len() > INCLUDES_MAX {
            let what = format!("more than {INCLUDES_MAX} files include each other in a row");
            return refuse(what, "put the lines of some of them into the file that names them");
        }
        let text = match (self.read)(&path) {
            Ok(text) => text,
            Err(why) => {
                let what = format!("Include {}: {why}", quoted(name));
                return refuse(what, "put the file where its Include says, or remove that");
            }
        };
        let shown = path.display().to_string();
        self.open.push((id, path));
        let read = self.file(&text, &shown);
        self.open.pop();
        read
    }
}

/// Returns an id that is the same for every name of a file; the path as written if there is no such
/// file.
fn id_of(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

enum Line {
    Nothing,
    /// `}`
    End,
    /// A key and its value; `{` behind them opens a scope.
    Entry {
        key: String,
        value: String,
        opens: bool,
    },
}

fn read_line(line: &str) -> Result<Line, Problem> {
    let line = line.trim_matches([' ', '\t', '\r']);
    let (key, rest) = match line.find([' ', '\t', '#']) {
        Some(end) => (&line[..end], line[end..].trim_start_matches([' ', '\t', '\r'])),
        None => (line, ""),
    };
    match key {
        "" => return Ok(Line::Nothing),
        "}" => return Ok(Line::End),
        _ => {}
    }
    let (value, opens) = match rest.strip_prefix('"') {
        Some(quoted) => read_quoted(quoted)?,
        None => {
            let plain = rest.split('#').next().unwrap_or_default().trim_end();
            match plain.strip_suffix('{') {
                Some(value) => (value.trim_end().to_owned(), true),
                None => (plain.to_owned(), false),
            }
        }
    };
    Ok(Line::Entry { key: key.to_owned(), value, opens })
}

/// Reads a value after its opening quote. Returns it and whether a scope follows.
fn read_quoted(text: &str) -> Result<(String, bool), Problem> {
    let mut value = String::new();
    let mut chars = text.chars();
    loop {
        match chars.next() {
            Some('"') => break,
            Some('\\') => value.extend(chars.next()),
            Some(other) => value.push(other),
            None => {
                return Err(Problem::new("the quotes are not closed", "add \" behind the value"));
            }
        }
    }
    let rest = chars.as_str().split('#').next().unwrap_or_default().trim();
    match rest {
        "" => Ok((value, false)),
        "{" => Ok((value, true)),
        _ => Err(Problem::new(
            "something is behind the quotes",
            "leave only \"{\" or a comment there",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn none(_: &Path) -> Result<String, String> {
        Err("there is none".to_owned())
    }

    #[test]
    fn a_line_has_a_key_a_value_and_maybe_a_scope() {
        let text = "A one two # three\n B \"x # \\\" y\" { # c\n\t+ 1:2\r\n}\nC{\nD {\n}\n# E";
        let nodes = parse(text, "file", &none).expect("right");
        let seen: Vec<(&str, &str, Option<usize>)> = nodes
            .iter()
            .map(|node| (node.key.as_str(), node.value.as_str(), node.scope.as_ref().map(Vec::len)))
            .collect();
        let expected = [
            ("A", "one two", None),
            ("B", "x # \" y", Some(1)),
            ("C{", "", None),
            ("D", "", Some(0)),
        ];
        assert_eq!(seen, expected);
        assert_eq!(nodes[1].inner()[0].value, "1:2");
        assert_eq!((nodes[3].at.line, nodes[1].inner()[0].at.line), (6, 3));
    }

    #[test]
    fn what_is_open_is_told_by_its_line() {
        let told = |text: &str| parse(text, "file", &none).expect_err("wrong").to_string();
        assert!(told("A {\nB 1\n").starts_with("file:1: the braces of \"A\" are not closed"));
        assert!(told("A 1\n}\n").starts_with("file:2: this brace closes nothing"));
        assert!(told("A \"x\n").starts_with("file:1: the quotes are not closed"));
        assert!(told("A \"x\" y\n").starts_with("file:1: something is behind the quotes"));
        assert!(
            told("\nInclude x.conf\n").starts_with("file:2: Include \"x.conf\": there is none")
        );
        assert!(told(&"A {\n".repeat(40)).contains("nested too deeply"));
    }

    #[test]
    fn an_included_file_is_found_beside_the_one_that_names_it() {
        let read = |path: &Path| match path.to_str() {
            Some("dir/sub/b.conf") => Ok("B 1\nInclude c.conf".to_owned()),
            Some("dir/sub/c.conf") => Ok("C 1\n".to_owned()),
            Some("dir/self.conf") => Ok("Include self.conf".to_owned()),
            _ => Err("no such file".to_owned()),
        };
        let nodes = parse("Include sub/b.conf\nA 1", "dir/a.conf", &read).expect("right");
        let keys: Vec<&str> = nodes.iter().map(|node| node.key.as_str()).collect();
        assert_eq!(keys, ["B", "C", "A"]);
        assert_eq!((&*nodes[1].at.path, nodes[1].at.line), ("dir/sub/c.conf", 1));
        let error = parse("Include self.conf", "dir/a.conf", &read).expect_err("for ever");
        assert!(error.to_string().starts_with("dir/self.conf:1: \"self.conf\" includes itself"));
    }

    #[test]
    fn a_long_row_of_includes_is_no_circle_and_a_circle_of_several_is_one() {
        let number = |path: &Path| path.to_str().and_then(|path| path.parse::<usize>().ok());
        let next = |path: &Path| match number(path) {
            Some(100) => Ok("A 1".to_owned()),
            Some(number) => Ok(format!("Include {}", number + 1)),
            None => Err("no such file".to_owned()),
        };
        let nodes = parse("Include 1", "0", &next).expect("a hundred files in a row");
        assert_eq!((nodes.len(), &*nodes[0].at.path), (1, "100"));
        let round = |path: &Path| Ok(format!("Include {}", number(path).unwrap_or(0) % 3 + 1));
        let error = parse("Include 1", "0", &round).expect_err("for ever").to_string();
        assert!(error.starts_with("3:1: \"1\" leads back to itself over 3 files"), "{error}");
        let onward = |path: &Path| Ok(format!("Include {}", number(path).unwrap_or(0) + 1));
        let error = parse("Include 1", "0", &onward).expect_err("for ever").to_string();
        assert!(error.contains("more than 256 files include each other in a row"), "{error}");
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "([A-C{}\" +#\\\\\n]|Include x){0,60}") {
            let _ = parse(&text, "file", &|_: &Path| Ok("Include x\nA {".to_owned()));
        }
    }
}
