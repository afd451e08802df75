//! Pools of kind `"slots"` from the topology that Codis 3 keeps in its coordinator.

mod convert;
mod source;

pub use source::Source;

use anyhow::Result;

/// A configuration file, and what an operator has to know of it.
#[derive(Debug, PartialEq, Eq)]
pub struct Imported {
    pub toml: String,
    pub notes: Vec<String>,
}

/// Reads a product of Codis, and converts it.
///
/// # Errors
/// Returns why the source cannot be read, or everything for which the product cannot be converted, a
/// line each.
pub fn import(product: &str, source: &Source) -> Result<Imported> {
    let entries = source.read(product)?;
    convert::convert(product, &source.to_string(), &entries).map_err(|faults| {
        let lines: Vec<String> = faults.iter().map(|fault| format!("{product}: {fault}")).collect();
        anyhow::anyhow!(lines.join("\n"))
    })
}
