//! Pools of a document of the control plane in place of pools of a file.

use crate::error::{Problem, Report, quoted};
use crate::reader::read_table;
use crate::schema;
use crate::section::Section;
use crate::syntax;
use toml::de::{DeTable, DeValue};

/// Reads a file as [`crate::reader::read`] does, of a text that goes on with a document of the control plane from
/// `at` on. Pools of the document replace those that the file leaves to the control plane.
pub(crate) fn read_both(both: &str, at: usize, report: &mut Report<'_>) -> Section {
    let (file, document) = both.split_at_checked(at).unwrap_or((both, ""));
    // The document is read at its place, behind as many blanks as the file has bytes.
    let padded = " ".repeat(file.len()) + document;
    let (found, mut errors) = DeTable::parse_recoverable(file);
    let (mut over, more) = DeTable::parse_recoverable(&padded);
    errors.extend(more);
    syntax::report_all(both, &errors, report);
    let mut table = found.into_inner();
    for name in over.get_ref().keys().filter(|name| name.get_ref() != "pool") {
        let what = format!("{} stands in a document of the control plane", quoted(name.get_ref()));
        report.mistake(name.span().start, Problem::new(what, "it has [pool.NAME] tables only"));
    }
    let left: Vec<String> = left_to_control(&table);
    if let (Some(pools), Some(others)) = (pools_of(&mut table), pools_of(over.get_mut())) {
        for name in left {
            if let Some((key, value)) = others.remove_entry(name.as_str()) {
                pools.remove(name.as_str());
                pools.insert(key, value);
            }
        }
    }
    read_table(&schema::ROOT, &table, 0, "the file".to_owned(), report)
}

fn pools_of<'t, 'd>(table: &'t mut DeTable<'d>) -> Option<&'t mut DeTable<'d>> {
    match table.get_mut("pool")?.get_mut() {
        DeValue::Table(pools) => Some(pools),
        _ => None,
    }
}

/// Returns the pools that `[control]` leaves to the control plane.
fn left_to_control(table: &DeTable<'_>) -> Vec<String> {
    let control = table.get("control").and_then(|control| control.get_ref().as_table());
    let pools = control.and_then(|control| control.get("pools")?.get_ref().as_array());
    let names = pools.into_iter().flatten().filter_map(|name| name.get_ref().as_str());
    names.map(str::to_owned).collect()
}

/// Returns the names of the pools of a text, as far as it can be read.
pub(crate) fn pool_names(text: &str) -> Vec<String> {
    let (found, _) = DeTable::parse_recoverable(text);
    let pools = found.get_ref().get("pool").and_then(|pools| pools.get_ref().as_table());
    let names = pools.into_iter().flat_map(|pools| pools.keys());
    names.map(|name| name.get_ref().to_string()).collect()
}
