//! Tests that cannot run everywhere, and saying so.

use std::io::Write;

/// Set by `make test`: what it installs must be there, so that a test which
/// would be left out fails instead.
const TOOLS_REQUIRED: &str = "KEYWAY_TEST_TOOLS_REQUIRED";

/// Says that a test is left out, and why. Past the capture of the test's
/// output, so that it is seen though the test passes; `make test` repeats
/// these lines at its end.
pub fn skipped(what: &str) {
    // One write, that lines of tests side by side stay whole.
    let _ = std::io::stderr().write_all(format!("\nSKIPPED: {what}\n").as_bytes());
}

/// The same for want of a program that `make test` installs: there it is a
/// failure.
///
/// # Panics
/// Under `make test`.
pub fn skipped_for_want_of(program: &str, what: &str) {
    let is_required = std::env::var_os(TOOLS_REQUIRED).is_some();
    assert!(!is_required, "{program} is missing: {what}");
    skipped(&format!("{what}: {program} is missing"));
}
