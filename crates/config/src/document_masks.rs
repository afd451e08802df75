//! Masks in place of the secrets of a document of the control plane.

use crate::Config;
use crate::error::{ConfigError, Problem, Report};
use crate::schema::{Kind, TABLES};
use crate::secret::MASK;
use crate::toml_text::string;
use crate::users::MASK_OF_HASH;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The text that is shown for a document that cannot be read: nobody knows what is secret in it.
const UNREADABLE: &str =
    "# This version of Keyway cannot read the document, and does not show it.\n";

impl Config {
    /// Returns a document with masks in place of passwords and hashes. It reads as the document does.
    pub fn masked_document(text: &str) -> String {
        let (document, errors) = DeTable::parse_recoverable(text);
        if !errors.is_empty() {
            return UNREADABLE.to_owned();
        }
        let mut masks = Vec::new();
        masks_of_table(document.get_ref(), &mut masks);
        masks.sort_by_key(|(place, _)| place.start);
        let mut masked = String::with_capacity(text.len());
        let mut end = 0;
        for (place, mask) in masks {
            let Some(before) = text.get(end..place.start) else { return UNREADABLE.to_owned() };
            masked.push_str(before);
            masked.push_str(&string(&mask));
            end = place.end;
        }
        match text.get(end..) {
            Some(rest) => masked + rest,
            None => UNREADABLE.to_owned(),
        }
    }

    /// Returns whether a document has masks in place of secrets.
    pub fn has_masks(text: &str) -> bool {
        is_mask(text)
    }

    /// Checks a document as [`Config::check_document`] does, that it has no masks in place of secrets,
    /// and that no server is in two groups: it is about to be stored.
    ///
    /// # Errors
    /// Returns everything wrong with it.
    pub fn check_new_document(name: &str, text: &str) -> Result<Config, Vec<ConfigError>> {
        let config = Config::check_document(name, text)?;
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut report = Report::new(name, text);
        for value in DeTable::parse_recoverable(text).0.get_ref().values() {
            refuse_masks(value, &mut report);
        }
        crate::group_servers::refuse_shared_servers(text, &mut report);
        report.finish().map(|_| config)
    }
}

/// Collects the places of secrets, each with its mask.
fn masks_of_table(table: &DeTable<'_>, masks: &mut Vec<(Range<usize>, String)>) {
    for (name, value) in table {
        masks_of_value(name.get_ref(), value, masks);
    }
}

fn masks_of_value(
    name: &str,
    value: &Spanned<DeValue<'_>>,
    masks: &mut Vec<(Range<usize>, String)>,
) {
    match value.get_ref() {
        DeValue::Table(table) => masks_of_table(table, masks),
        DeValue::Array(all) => {
            for (at, item) in all.iter().enumerate() {
                match item.get_ref() {
                    DeValue::String(_) if has_kind(name, |kind| matches!(kind, Kind::Hashes)) => {
                        masks.push((item.span(), mask_of_hash(at)));
                    }
                    _ => masks_of_value(name, item, masks),
                }
            }
        }
        DeValue::String(text) => {
            masks.extend(mask_of(name, text).map(|mask| (value.span(), mask)));
        }
        _ => {}
    }
}

/// Returns what stands in place of a text, if there is a secret in it.
fn mask_of(name: &str, text: &str) -> Option<String> {
    if has_kind(name, |kind| matches!(kind, Kind::Secret)) {
        return Some(MASK.to_owned());
    }
    if has_kind(name, |kind| matches!(kind, Kind::Primary)) {
        // The address may begin with a password.
        let (scheme, rest) = text.split_once("://").unwrap_or(("redis", text));
        let (_, host) = rest.rsplit_once('@')?;
        return Some(format!("{scheme}://:{MASK}@{host}"));
    }
    if has_kind(name, |kind| matches!(kind, Kind::Rules)) && text.contains('#') {
        let words = text.split(' ').enumerate();
        let words = words.map(|(at, word)| match word.starts_with('#') {
            true => mask_of_hash(at),
            false => word.to_owned(),
        });
        return Some(words.collect::<Vec<_>>().join(" "));
    }
    None
}

fn mask_of_hash(at: usize) -> String {
    format!("{MASK_OF_HASH}{:08x}", at as u32)
}

/// Returns whether a table has a key of this name and of such a kind.
fn has_kind(name: &str, is_it: impl Fn(&Kind) -> bool) -> bool {
    TABLES.iter().filter_map(|table| table.key(name)).any(|key| is_it(&key.kind))
}

fn is_mask(text: &str) -> bool {
    text.contains(MASK) || text.contains(MASK_OF_HASH)
}

/// Refuses the masks that shown settings have in place of secrets.
fn refuse_masks(value: &Spanned<DeValue<'_>>, report: &mut Report<'_>) {
    match value.get_ref() {
        DeValue::Table(table) => table.values().for_each(|value| refuse_masks(value, report)),
        DeValue::Array(all) => all.iter().for_each(|value| refuse_masks(value, report)),
        DeValue::String(text) if is_mask(text) => {
            let what = "the document has a mask, which is shown in place of a secret";
            let hint = "write the secret itself, its hash, or the name of a file with it";
            report.mistake(value.span().start, Problem::new(what, hint));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HASH: &str = "#248a997db5dbd534cbac4dfc0b88feab66fcf5c50223ae8c0fd4370fa6e818a9";

    #[test]
    fn secrets_are_masked_at_their_places_and_the_rest_stays() {
        let text = format!(
            "# a comment\n[[user]] # one\nname = \"app\"\nrules = \"+@read {HASH} ~*\"\n\
             password_hashes = [\n  \"{HASH}\", # old\n  '{HASH}',\n]\n[pool.p]\nkind = \"sharded\"\n\
             servers = [\"127.0.0.1:7001\"]\nclient_password = 'hush-1'\npassword = \"\"\"hush-2\"\"\"\n\
             [pool.r]\nkind = \"store\"\nreplica_of = \"redis://ann:hush-3@127.0.0.1:7\"\n"
        );
        let masked = Config::masked_document(&text);
        assert!(!masked.contains("hush") && !masked.contains("248a997d"), "{masked}");
        assert!(!masked.contains("ann"), "{masked}");
        for kept in ["# a comment", "# one", "# old", "+@read ", " ~*\"", "127.0.0.1:7\"\n"] {
            assert!(masked.contains(kept), "{masked}");
        }
        assert_eq!(text.lines().count(), masked.lines().count());
        assert!(Config::has_masks(&masked) && !Config::has_masks(&text));
        assert_eq!(Config::masked_document(&masked), masked);
        let shown = Config::check_document("d", &masked).unwrap();
        assert_eq!(shown.users.len(), 1);
        let errors = Config::check_new_document("d", &masked).unwrap_err();
        let lines: Vec<usize> = errors.iter().map(|error| error.line).collect();
        assert_eq!(lines, [4, 6, 7, 12, 13, 16]);
        assert!(Config::check_new_document("d", &text).is_ok());
        assert_eq!(Config::masked_document("[pool.\npassword = \"hush\""), UNREADABLE);
    }

    proptest! {
        /// Whatever a password is, it is not shown, and what stands around it is.
        #[test]
        fn no_password_is_shown(password in "[!-~é ]{1,40}", name in "[a-z]{1,8}") {
            let secret = string(&format!("<{password}>"));
            let around = format!("[pool.{name}]\nkind = \"sharded\"\nservers = [\"127.0.0.1:7001\"]\n");
            let masked = Config::masked_document(&format!("{around}password = {secret}\n"));
            prop_assert_eq!(masked, format!("{around}password = \"{MASK}\"\n"));
        }
    }
}
