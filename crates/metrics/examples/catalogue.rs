//! Prints `docs/metrics.md`.

fn main() {
    print!("{}", keyway_metrics::catalogue_markdown());
}
