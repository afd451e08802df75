//! A table, and how it looks on a terminal and in Markdown.

use crate::statistics::Spread;
use std::fmt::Write;
use unicode_width::UnicodeWidthStr;

/// Rows under columns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// What stands above it; may be empty.
    pub title: String,
    /// Its columns.
    pub columns: Vec<Column>,
    /// Its rows. One that is shorter than the columns ends with a remark instead of figures.
    pub rows: Vec<Row>,
    /// What stands below it.
    pub notes: Vec<String>,
}

/// A column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its head.
    pub title: String,
    /// To which side its values are.
    pub align: Align,
}

/// To which side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Words.
    Left,
    /// Figures.
    Right,
}

/// A row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    /// Its values, at most as many as there are columns.
    pub values: Vec<Value>,
    /// Said instead of the values that are not there.
    pub remark: Option<String>,
}

/// What stands in one place of a table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Value {
    /// As it is printed.
    pub text: String,
    /// What is printed behind it, or below it where there is room: the least and the most.
    pub spread: Option<String>,
    /// What the text was made of, if that is a number: for programs that read the page.
    pub number: Option<f64>,
    /// Whether Markdown shows it in bold.
    pub is_strong: bool,
}

impl Value {
    /// Words.
    pub fn text(text: impl Into<String>) -> Value {
        Value { text: text.into(), ..Value::default() }
    }

    /// A number, as `text`.
    pub fn number(number: f64, text: impl Into<String>) -> Value {
        Value { number: Some(number), ..Value::text(text) }
    }

    /// A median, and the ends of what it is of where they differ, as `text` writes them.
    pub(crate) fn spread(spread: Spread, text: impl Fn(f64) -> String) -> Value {
        let Spread { median, min, max } = spread;
        let ends = (min < max).then(|| format!("({}-{})", text(min), text(max)));
        Value { spread: ends, ..Value::number(median, text(median)) }
    }

    /// In one line.
    pub fn line(&self) -> String {
        match &self.spread {
            Some(spread) => format!("{} {spread}", self.text),
            None => self.text.clone(),
        }
    }

    /// Not measured.
    pub fn absent() -> Value {
        Value::text("-")
    }
}

impl Table {
    /// For a terminal of `width` columns: a row for each row where it fits, else a block of
    /// lines for each, so that no line is wrapped in the middle of a figure.
    pub fn terminal(&self, width: usize) -> String {
        let widths = self.widths();
        let sum = widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1);
        let mut out = String::new();
        if !self.title.is_empty() {
            let _ = writeln!(out, "{}\n", self.title);
        }
        match sum <= width {
            true => self.lines(&mut out, &widths),
            false => self.blocks(&mut out),
        }
        for note in &self.notes {
            let _ = writeln!(out, "\n{note}");
        }
        out
    }

    fn widths(&self) -> Vec<usize> {
        let column = |(nth, column): (usize, &Column)| {
            let values = self.rows.iter().filter_map(|row| row.values.get(nth));
            let widest = values.map(|value| value.line().width()).max().unwrap_or_default();
            widest.max(column.title.width())
        };
        self.columns.iter().enumerate().map(column).collect()
    }

    fn lines(&self, out: &mut String, widths: &[usize]) {
        let heads = self.columns.iter().map(|column| column.title.as_str());
        self.line(out, widths, heads, None);
        let rules: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
        self.line(out, widths, rules.iter().map(String::as_str), None);
        for row in &self.rows {
            let values: Vec<String> = row.values.iter().map(Value::line).collect();
            self.line(out, widths, values.iter().map(String::as_str), row.remark.as_deref());
        }
    }

    fn line<'a>(
        &self,
        out: &mut String,
        widths: &[usize],
        values: impl Iterator<Item = &'a str>,
        remark: Option<&str>,
    ) {
        let mut line = String::new();
        for ((value, width), column) in values.zip(widths).zip(&self.columns) {
            let room = " ".repeat(width.saturating_sub(value.width()));
            let _ = match column.align {
                Align::Left => write!(line, "{value}{room}  "),
                Align::Right => write!(line, "{room}{value}  "),
            };
        }
        line.push_str(remark.unwrap_or_default());
        let _ = writeln!(out, "{}", line.trim_end());
    }

    fn blocks(&self, out: &mut String) {
        let head = self.columns.iter().map(|column| column.title.width()).max().unwrap_or_default();
        for (nth, row) in self.rows.iter().enumerate() {
            if nth > 0 {
                out.push('\n');
            }
            for (value, column) in row.values.iter().zip(&self.columns) {
                let room = " ".repeat(head - column.title.width());
                let _ = writeln!(out, "{}{room}  {}", column.title, value.line());
            }
            if let Some(remark) = &row.remark {
                let _ = writeln!(out, "{}  {remark}", " ".repeat(head));
            }
        }
    }

    /// As Markdown.
    pub fn markdown(&self) -> String {
        let mut out = String::new();
        if !self.title.is_empty() {
            let _ = writeln!(out, "### {}\n", escaped(&self.title));
        }
        let heads = self.columns.iter().map(|column| escaped(&column.title));
        bar(&mut out, heads);
        let rules = self.columns.iter().map(|column| match column.align {
            Align::Left => "---".to_owned(),
            Align::Right => "---:".to_owned(),
        });
        bar(&mut out, rules);
        for row in &self.rows {
            let values = row.values.iter().map(|value| match value.is_strong {
                true => format!("**{}**", escaped(&value.line())),
                false => escaped(&value.line()),
            });
            let remark = row.remark.iter().map(|remark| escaped(remark));
            let empty = std::iter::repeat_n(String::new(), self.columns.len());
            bar(&mut out, values.chain(remark).chain(empty).take(self.columns.len()));
        }
        for note in &self.notes {
            let _ = writeln!(out, "\n{}", escaped(note));
        }
        out
    }
}

fn bar(out: &mut String, values: impl Iterator<Item = String>) {
    out.push('|');
    for value in values {
        let _ = write!(out, " {value} |");
    }
    out.push('\n');
}

/// Names come from files: none may end its place in the table, be a link or be HTML.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            // Within a word it is nothing but itself.
            '_' if out.ends_with(char::is_alphanumeric)
                && letters.peek().is_some_and(|next| next.is_alphanumeric()) =>
            {
                out.push(letter);
            }
            '|' | '\\' | '`' | '*' | '_' | '[' | ']' | '#' | '~' => out.extend(['\\', letter]),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            _ => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let column = |title: &str, align| Column { title: title.to_owned(), align };
        let row = |name: &str, figure: f64| Row {
            values: vec![Value::text(name), Value::number(figure, format!("{figure}"))],
            remark: None,
        };
        Table {
            title: "Depth 1".to_owned(),
            columns: vec![column("System", Align::Left), column("Ops/sec", Align::Right)],
            rows: vec![
                row("keyway", 91.5),
                row("代理", 7.0),
                Row {
                    values: vec![Value::text("nut|x")],
                    remark: Some("not installed".to_owned()),
                },
            ],
            notes: vec!["Medians.".to_owned()],
        }
    }

    #[test]
    fn columns_line_up_by_what_is_seen() {
        let wanted = "\
Depth 1

System  Ops/sec
------  -------
keyway     91.5
代理          7
nut|x   not installed

Medians.
";
        assert_eq!(table().terminal(80), wanted);
    }

    #[test]
    fn a_narrow_terminal_gets_blocks() {
        let shown = table().terminal(10);
        assert!(shown.contains("System   keyway\nOps/sec  91.5\n\nSystem   代理\n"), "{shown}");
    }

    #[test]
    fn markdown_cannot_be_broken_by_a_name() {
        let shown = table().markdown();
        assert!(shown.contains("| --- | ---: |\n| keyway | 91.5 |\n"), "{shown}");
        assert!(shown.contains("| nut\\|x | not installed |\n"), "{shown}");
        assert_eq!(escaped("<b>[x](y)"), "&lt;b&gt;\\[x\\](y)");
        assert_eq!(escaped("_io_uring_"), "\\_io_uring\\_");
    }
}
