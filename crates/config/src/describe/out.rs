//! The text of a configuration file as it is written, and helpers for all tables.

use crate::model::SecretSource;
use crate::schema::Table;
use crate::secret::MASK;
use crate::toml_text::string;
use crate::value::format_duration;
use keyway_topology::Password;
use std::fmt::Write;
use std::time::Duration;

pub(super) struct Out {
    pub(super) text: String,
}

impl Out {
    pub(super) fn comment(&mut self, lines: &str) {
        for line in lines.lines() {
            let _ = writeln!(self.text, "# {line}");
        }
    }

    pub(super) fn header(&mut self, header: &str) {
        let _ = writeln!(self.text, "\n{header}");
    }

    pub(super) fn entry(&mut self, table: &Table, name: &str, value: &str) {
        debug_assert!(table.key(name).is_some(), "{name} is not in {}", table.header);
        let _ = writeln!(self.text, "{name} = {value}");
    }
}

pub(super) fn secret(
    table: &Table,
    [key, file_key, variable_key]: [&str; 3],
    password: &Option<Password>,
    source: &Option<SecretSource>,
    out: &mut Out,
) {
    match (password, source) {
        (_, Some(SecretSource::File(file))) => {
            out.entry(table, file_key, &string(&file.to_string_lossy()));
        }
        (_, Some(SecretSource::Variable(name))) => out.entry(table, variable_key, &string(name)),
        (Some(_), None) => out.entry(table, key, &string(MASK)),
        (None, None) => {}
    }
}

pub(super) fn slow_log(table: &Table, (slower_than, len_max): (Duration, u32), out: &mut Out) {
    let slower_than = match slower_than {
        Duration::MAX => "off".to_owned(),
        slower_than => format_duration(slower_than),
    };
    out.entry(table, "slowlog_log_slower_than", &string(&slower_than));
    out.entry(table, "slowlog_max_len", &len_max.to_string());
}
