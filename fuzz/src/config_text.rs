//! Any text as a configuration file, and as twemproxy's: a list of mistakes or
//! a configuration, never a panic. What is accepted is described in words that
//! mean the same, and what is imported is accepted.

use keyway_config::{Config, ConfigError, describe, import};
use keyway_topology::ServerSet;

/// Runs the target on one input: the first byte chooses the reader.
pub fn run(data: &[u8]) {
    let Some((&reader, text)) = data.split_first() else { return };
    let text = String::from_utf8_lossy(text);
    if reader & 1 == 0 {
        match Config::from_str(&text, "fuzz.toml") {
            Ok(config) => describing_keeps_the_meaning(&config),
            Err(errors) => errors_are_told(&errors, &text),
        }
    } else {
        match import::twemproxy(&text, "nutcracker.yml") {
            Ok(import) => {
                if let Err(errors) = Config::from_str(&import.toml, "imported.toml") {
                    panic!("the import is refused: {errors:?}\n{}", import.toml);
                }
            }
            Err(errors) => errors_are_told(&errors, &text),
        }
    }
}

fn errors_are_told(errors: &[ConfigError], text: &str) {
    assert!(!errors.is_empty(), "refused without a reason: {text:?}");
    // YAML ends a line at either, and what is missing is missing behind the last.
    let lines = text.chars().filter(|end| "\r\n".contains(*end)).count() + 2;
    for error in errors {
        assert!(error.line <= lines, "line {} of {lines}", error.line);
        assert!(!error.what.is_empty());
        assert!(!error.to_string().is_empty());
    }
}

fn describing_keeps_the_meaning(config: &Config) {
    let described = describe(config);
    // Passwords are masked, and a mask is another password.
    if has_password(config) {
        return;
    }
    match Config::from_str(&described, "described.toml") {
        Ok(again) => assert_eq!(describe(&again), described),
        Err(errors) => panic!("the description is refused: {errors:?}\n{described}"),
    }
}

fn has_password(config: &Config) -> bool {
    let has_secret = |(set, _): (&ServerSet, _)| set.options.password.is_some();
    config.listeners.iter().any(|listener| listener.password.is_some())
        || config.pools.iter().filter_map(|pool| pool.kind.servers()).any(has_secret)
}
