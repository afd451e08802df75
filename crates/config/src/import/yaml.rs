//! Reads the part of YAML that configuration files use: scalars as written, lists and maps, each
//! with its place. One document, no aliases.

use crate::error::Problem;
use saphyr_parser::{Event, Parser, ScalarStyle, Span};

/// The position of a value in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The line, from 1.
    pub(super) line: usize,
    /// The column in characters, from 1.
    pub(super) column: usize,
}

/// A value and its place.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) place: Place,
    pub(super) content: Content,
}

/// A value.
#[derive(Debug)]
pub(super) enum Content {
    /// Nothing was written.
    Empty,
    /// Text without its quotes; numbers and booleans are text too.
    Scalar(String),
    List(Vec<Node>),
    /// A map, whose keys may repeat. The reader decides what that means.
    Map(Vec<(Node, Node)>),
}

/// Deepest nesting. No file of a proxy nests deeper than a few levels. The limit keeps hostile
/// files from exhausting the stack when the tree is dropped.
const DEPTH_MAX: usize = 16;

/// A list or map that is not yet closed.
struct Open {
    place: Place,
    items: Vec<Node>,
    is_map: bool,
}

/// Returns the only document of `text`; an empty node when there is none.
pub(super) fn parse(text: &str) -> Result<Node, (Place, Problem)> {
    let mut open: Vec<Open> = Vec::new();
    let mut document = None;
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| {
            let marker = error.marker();
            let place = Place { line: marker.line().max(1), column: marker.col() + 1 };
            let hint = "correct the syntax, or give the YAML file that the other proxy reads";
            (place, Problem::new(format!("not YAML: {}", error.info()), hint))
        })?;
        let place = place_of(span);
        let closed = match event {
            Event::Scalar(text, style, _, _) => {
                // The parser writes ~ for a missing value.
                let empty = style == ScalarStyle::Plain && (text == "~" || text.is_empty());
                let scalar = || Content::Scalar(text.into_owned());
                Some(Node { place, content: if empty { Content::Empty } else { scalar() } })
            }
            Event::SequenceStart(..) | Event::MappingStart(..) => {
                if open.len() == DEPTH_MAX {
                    let what = "lists and maps are nested too deeply";
                    return Err((place, Problem::new(what, "this is no proxy's configuration")));
                }
                let is_map = matches!(event, Event::MappingStart(..));
                open.push(Open { place, items: Vec::new(), is_map });
                None
            }
            Event::SequenceEnd | Event::MappingEnd => open.pop().map(close),
            Event::Alias(_) => {
                let what = "aliases (*name) are not supported";
                return Err((place, Problem::new(what, "write the value out")));
            }
            Event::DocumentStart(_) if document.is_some() => {
                let what = "a second document begins";
                return Err((place, Problem::new(what, "keep one document per file")));
            }
            _ => None,
        };
        match (closed, open.last_mut()) {
            (Some(node), Some(parent)) => parent.items.push(node),
            (Some(node), None) => document = Some(node),
            (None, _) => {}
        }
    }
    let nothing = Node { place: Place { line: 1, column: 1 }, content: Content::Empty };
    Ok(document.unwrap_or(nothing))
}

fn close(open: Open) -> Node {
    let content = if open.is_map {
        let mut items = open.items.into_iter();
        let mut pairs = Vec::new();
        while let (Some(key), Some(value)) = (items.next(), items.next()) {
            pairs.push((key, value));
        }
        Content::Map(pairs)
    } else {
        Content::List(open.items)
    };
    Node { place: open.place, content }
}

fn place_of(span: Span) -> Place {
    Place { line: span.start.line().max(1), column: span.start.col() + 1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shape(node: &Node) -> String {
        match &node.content {
            Content::Empty => "-".into(),
            Content::Scalar(text) => format!("{text}@{}", node.place.line),
            Content::List(items) => {
                format!("[{}]", items.iter().map(shape).collect::<Vec<_>>().join(" "))
            }
            Content::Map(pairs) => {
                let pairs = pairs.iter().map(|(k, v)| format!("{}={}", shape(k), shape(v)));
                format!("{{{}}}", pairs.collect::<Vec<_>>().join(" "))
            }
        }
    }

    #[test]
    fn scalars_keep_their_spelling_and_line() {
        let text = "a:\n  listen: 127.0.0.1:1\n  redis: \"true\"\n  x:\n  servers:\n   - h:1:1 n\n";
        let node = parse(text).unwrap();
        assert_eq!(
            shape(&node),
            "{a@1={listen@2=127.0.0.1:1@2 redis@3=true@3 x@4=- servers@5=[h:1:1 n@6]}}"
        );
    }

    #[test]
    fn what_proxies_do_not_use_is_refused() {
        assert_eq!(parse("a: &x 1\nb: *x\n").unwrap_err().0.line, 2);
        assert_eq!(parse("a: 1\n---\nb: 1\n").unwrap_err().0.line, 2);
        assert!(parse(&"[".repeat(10_000)).is_err());
        assert!(parse(&"- ".repeat(10_000)).is_err());
        assert!(matches!(parse("").unwrap().content, Content::Empty));
    }

    proptest! {
        #[test]
        fn no_text_brings_the_reader_down(text in "(?s)[\\x00-\\x7f ]{0,200}|.{0,60}") {
            let _ = parse(&text);
        }

        #[test]
        fn no_arrangement_of_yaml_signs_brings_the_reader_down(
            text in "[-:\\[\\]{},&*!|>'\"%@`#?~ \\na1]{0,120}",
        ) {
            let _ = parse(&text);
        }
    }
}
