//! The Prometheus text format, read line by line.

/// One sample: a name, its labels as they are written, and a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample<'t> {
    /// The name, with `_bucket`, `_sum` or `_count` for parts of a histogram.
    pub name: &'t str,
    labels: &'t str,
    /// The number.
    pub value: f64,
}

impl Sample<'_> {
    /// The value of a label; `None` when the sample has no such label.
    pub fn label(&self, wanted: &str) -> Option<String> {
        let mut rest = self.labels;
        while let Some((name, behind)) = rest.split_once("=\"") {
            let end = closing_quote(behind)?;
            if name.trim_start_matches([',', ' ']) == wanted {
                return Some(unescaped(&behind[..end]));
            }
            rest = &behind[end + 1..];
        }
        None
    }
}

/// Where the quote is that ends a value.
fn closing_quote(text: &str) -> Option<usize> {
    let mut is_escaped = false;
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            b'"' if !is_escaped => return Some(index),
            b'\\' => is_escaped = !is_escaped,
            _ => is_escaped = false,
        }
    }
    None
}

/// A label's value as it was meant, but with `?` for what would move a terminal's cursor.
fn unescaped(text: &str) -> String {
    let mut value = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        let meant = match c {
            '\\' => match chars.next() {
                Some('n') => '\n',
                Some(c) => c,
                None => '\\',
            },
            c => c,
        };
        value.push(if meant.is_control() { '?' } else { meant });
    }
    value
}

/// Every sample of a page. Lines that are neither samples nor comments are left out: what a
/// later version adds must not blind an older viewer.
pub fn samples(page: &str) -> impl Iterator<Item = Sample<'_>> {
    page.lines().filter(|line| !line.starts_with('#')).filter_map(sample)
}

fn sample(line: &str) -> Option<Sample<'_>> {
    let (series, value) = line.trim_end().rsplit_once(' ')?;
    let value = value.parse().ok()?;
    let (name, labels) = match series.split_once('{') {
        Some((name, labels)) => (name, labels.strip_suffix('}')?),
        None => (series, ""),
    };
    Some(Sample { name, labels, value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_have_their_labels_with_escapes_undone() {
        let page = concat!(
            "# HELP a b\n",
            "a{pool=\"x, y=\\\"z\\\"\",le=\"0.5\"} 3\n",
            "b 1e3\n",
            "c{pool=\"back\\\\\",fault=\"n\\nl\"} +Inf\n",
        );
        let all: Vec<_> = samples(page).collect();
        assert_eq!(all.len(), 3);
        assert_eq!(all[0].label("pool").as_deref(), Some("x, y=\"z\""));
        assert_eq!(all[0].label("le").as_deref(), Some("0.5"));
        assert_eq!((all[1].name, all[1].value), ("b", 1000.0));
        assert_eq!(all[1].label("pool"), None);
        assert_eq!(all[2].label("pool").as_deref(), Some("back\\"));
        assert_eq!(all[2].label("fault").as_deref(), Some("n?l"));
    }

    #[test]
    fn a_label_is_not_found_by_part_of_its_name_or_in_a_value() {
        let all: Vec<_> = samples("a{xpool=\"1\",other=\"pool=\\\"2\\\"\",pool=\"3\"} 4").collect();
        assert_eq!(all[0].label("pool").as_deref(), Some("3"));
        assert_eq!(all[0].label("ool"), None);
    }

    #[test]
    fn lines_that_are_no_samples_are_left_out() {
        assert_eq!(samples("garbage\n\na{b=\"c\" 1\na{} x\n{\n").count(), 0);
        assert_eq!(samples("a{b=\"c} 1\n").next().and_then(|it| it.label("b")), None);
    }
}
