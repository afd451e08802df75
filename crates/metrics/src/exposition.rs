//! The Prometheus text format, version 0.0.4: families of samples.

use std::fmt::{Display, Write};

use crate::catalogue::{Label, Metric};
use crate::histogram::Snapshot;

/// Begins a family. All its samples must follow before the next one begins.
pub(crate) fn family<'a>(out: &'a mut String, metric: &'static Metric) -> Family<'a> {
    let Metric { name, kind, measures, leaves_out, .. } = metric;
    let space = if leaves_out.is_empty() { "" } else { " " };
    let _ = writeln!(out, "# HELP {name} {measures}{space}{leaves_out}");
    let _ = writeln!(out, "# TYPE {name} {}", kind.as_str());
    Family { out, metric }
}

pub(crate) struct Family<'a> {
    out: &'a mut String,
    metric: &'static Metric,
}

impl Family<'_> {
    /// Writes one sample. `values` are in the order of the metric's labels.
    pub(crate) fn sample(&mut self, values: &[&str], number: impl Display) {
        self.line("", values, None, number);
    }

    /// Writes the series of one histogram.
    pub(crate) fn histogram(&mut self, values: &[&str], snapshot: &Snapshot) {
        for (bound, count) in snapshot.cumulative() {
            self.line("_bucket", values, Some(&bound), count);
        }
        let count = snapshot.count();
        self.line("_bucket", values, Some(&"+Inf"), count);
        self.line("_sum", values, None, snapshot.sum());
        self.line("_count", values, None, count);
    }

    fn line(
        &mut self,
        suffix: &str,
        values: &[&str],
        bound: Option<&dyn Display>,
        number: impl Display,
    ) {
        let labels = self.metric.labels;
        assert_eq!(labels.len(), values.len(), "{} takes these labels", self.metric.name);
        self.out.push_str(self.metric.name);
        self.out.push_str(suffix);
        let mut separator = '{';
        for (label, value) in labels.iter().zip(values) {
            self.out.push(separator);
            self.label(*label, value);
            separator = ',';
        }
        if let Some(bound) = bound {
            let _ = write!(self.out, "{separator}le=\"{bound}\"");
            separator = ',';
        }
        if separator == ',' {
            self.out.push('}');
        }
        let _ = writeln!(self.out, " {number}");
    }

    fn label(&mut self, label: Label, value: &str) {
        self.out.push_str(label.as_str());
        self.out.push_str("=\"");
        for c in value.chars() {
            match c {
                '\\' => self.out.push_str("\\\\"),
                '"' => self.out.push_str("\\\""),
                '\n' => self.out.push_str("\\n"),
                c => self.out.push(c),
            }
        }
        self.out.push('"');
    }
}
