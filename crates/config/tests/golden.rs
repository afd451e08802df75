//! Files, and the output of Keyway for each of them. After a wanted change of messages, run with
//! `BLESS=1` to write the expected files anew, and read the diff.

use keyway_config::{Config, ConfigError, ControlNodeConfig, describe, import, reference};
use std::fs;
use std::path::{Path, PathBuf};

#[allow(clippy::disallowed_methods, reason = "a switch for developers, not a setting")]
fn blessing() -> bool {
    std::env::var("BLESS").is_ok()
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name)
}

fn files(name: &str, extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder(name)).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|e| e == extension)).collect();
    paths.sort();
    paths
}

/// Returns the difference from the expected file, if there is any.
fn difference(expected_path: &Path, actual: &str) -> Option<String> {
    if blessing() {
        fs::write(expected_path, actual).unwrap();
    }
    let expected = fs::read_to_string(expected_path).unwrap_or_default();
    (expected != actual).then(|| {
        format!("{}:\n--- expected\n{expected}--- actual\n{actual}", expected_path.display())
    })
}

fn assert_none_differ(differences: Vec<Option<String>>) {
    let differences: Vec<String> = differences.into_iter().flatten().collect();
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

fn lines<T: ToString>(items: &[T]) -> String {
    items.iter().map(|item| item.to_string() + "\n").collect()
}

#[test]
fn every_mistake_is_told_with_its_line_and_remedy() {
    let paths = files("bad", "toml");
    assert!(paths.len() >= 20);
    let differences = paths.iter().map(|path| {
        let name = path.file_name().unwrap().to_string_lossy();
        let errors = Config::from_str(&fs::read_to_string(path).unwrap(), &name)
            .expect_err(&format!("{name} is accepted"));
        assert!(errors.iter().all(|e| !e.what.is_empty() && !e.hint.is_empty()), "{name}");
        assert!(errors.iter().all(|e| e.line >= 1 && e.column >= 1), "{name}");
        assert!(errors.is_sorted_by_key(|e| e.line), "{name}");
        let text = lines(&errors);
        assert!(!text.contains("hunter"), "{name} shows a secret: {text}");
        difference(&path.with_extension("err"), &text)
    });
    assert_none_differ(differences.collect());
}

#[test]
fn a_good_file_resolves_as_expected() {
    let differences = files("good", "toml").into_iter().map(|path| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let config = Config::from_str(&fs::read_to_string(&path).unwrap(), &name)
            .unwrap_or_else(|errors| panic!("{}", lines(&errors)));
        let text = format!("{}{}", describe(&config), lines(&config.warnings));
        assert!(!text.contains("hunter"), "{name} shows a secret: {text}");
        assert!(!format!("{config:?}").contains("hunter"), "{name} shows a secret in Debug");
        difference(&path.with_extension("resolved"), &text)
    });
    assert_none_differ(differences.collect());
}

#[test]
fn a_twemproxy_file_becomes_a_valid_file_of_ours() {
    let differences = files("import/good", "yml").into_iter().map(|path| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let imported = import::twemproxy(&fs::read_to_string(&path).unwrap(), &name)
            .unwrap_or_else(|errors| panic!("{}", lines(&errors)));
        Config::from_str(&imported.toml, "imported.toml")
            .unwrap_or_else(|errors| panic!("{}", lines(&errors)));
        for note in &imported.notes {
            let text = note.split_once(": ").map_or(note.as_str(), |(_, text)| text);
            assert!(imported.toml.contains(text), "{name}: a note is not in the file: {note}");
        }
        difference(&path.with_extension("toml"), &imported.toml)
    });
    assert_none_differ(differences.collect());
}

#[test]
fn every_mistake_in_a_twemproxy_file_is_told_with_its_line() {
    let differences = files("import/bad", "yml").into_iter().map(|path| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let errors = import::twemproxy(&fs::read_to_string(&path).unwrap(), &name)
            .expect_err(&format!("{name} is accepted"));
        assert!(errors.iter().all(|e| e.line >= 1 && !e.hint.is_empty()), "{name}: {errors:?}");
        let text = lines(&errors);
        assert!(!text.contains("hunter"), "{name} shows a secret: {text}");
        difference(&path.with_extension("err"), &text)
    });
    assert_none_differ(differences.collect());
}

/// Reads a file of another proxy: takes its path and its shown name.
type Importer = fn(&Path, &str) -> Result<import::Import, Vec<ConfigError>>;

/// Each importer besides twemproxy's, with its folder and its files' extension.
const IMPORTERS: [(&str, &str, Importer); 2] =
    [("predixy", "conf", from_predixy), ("overlord", "toml", from_overlord)];

fn from_predixy(path: &Path, name: &str) -> Result<import::Import, Vec<ConfigError>> {
    let folder = path.parent().unwrap();
    let read = |included: &Path| {
        fs::read_to_string(folder.join(included)).map_err(|_| "cannot be read".to_owned())
    };
    import::predixy(&fs::read_to_string(path).unwrap(), name, &read)
}

fn from_overlord(path: &Path, name: &str) -> Result<import::Import, Vec<ConfigError>> {
    import::overlord(&fs::read_to_string(path).unwrap(), name)
}

#[test]
fn files_of_predixy_and_overlord_become_valid_files_of_ours() {
    let mut differences = Vec::new();
    for (of, extension, importer) in IMPORTERS {
        for path in files(&format!("import/{of}/good"), extension) {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let imported =
                importer(&path, &name).unwrap_or_else(|errors| panic!("{}", lines(&errors)));
            let config = Config::from_str(&imported.toml, "imported.toml")
                .unwrap_or_else(|errors| panic!("{}", lines(&errors)));
            assert!(!config.pools.is_empty());
            for note in &imported.notes {
                let text = note.split_once(": ").map_or(note.as_str(), |(_, text)| text);
                assert!(imported.toml.contains(text), "{name}: a note is not in the file: {note}");
                assert!(!note.contains("hunter"), "{name} shows a secret: {note}");
            }
            differences.push(difference(&path.with_extension("imported"), &imported.toml));
        }
    }
    assert_none_differ(differences);
}

#[test]
fn every_mistake_in_a_file_of_predixy_or_overlord_is_told_with_its_line() {
    let mut differences = Vec::new();
    for (of, extension, importer) in IMPORTERS {
        for path in files(&format!("import/{of}/bad"), extension) {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let errors = importer(&path, &name).expect_err(&format!("{name} is accepted"));
            assert!(errors.iter().all(|e| e.line >= 1 && !e.hint.is_empty()), "{name}: {errors:?}");
            let text = lines(&errors);
            assert!(!text.contains("hunter"), "{name} shows a secret: {text}");
            differences.push(difference(&path.with_extension("err"), &text));
        }
    }
    assert_none_differ(differences);
}

#[test]
fn the_reference_page_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/config.md");
    assert_none_differ(vec![difference(&path, &reference())]);
}

#[test]
fn the_example_file_is_valid_and_draws_no_warning() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples/keyway.toml");
    let config = Config::load(&path).unwrap_or_else(|errors| panic!("{}", lines(&errors)));
    assert_eq!(config.warnings, []);
}

#[test]
fn the_example_of_a_control_node_is_valid() {
    let text = fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples/control.toml"),
    );
    let folder = std::env::temp_dir().join(format!("keyway-example-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    // The token is the only file that it reads.
    let text = text.unwrap().replace("/etc/keyway/bus.token", "bus.token");
    fs::write(folder.join("control.toml"), text).unwrap();
    fs::write(folder.join("bus.token"), "a token that is long enough\n").unwrap();
    let path = folder.join("control.toml");
    assert!(ControlNodeConfig::is_one(&path));
    let read = ControlNodeConfig::load(&path);
    fs::remove_dir_all(&folder).unwrap();
    let config = read.unwrap_or_else(|errors| panic!("{}", lines(&errors)));
    assert_eq!(lines(&config.warnings), "");
    assert_eq!(config.cluster, "prod");
}

/// Returns the values that a hint suggests: those in quotes that do not contain placeholders.
fn suggestions(hint: &str) -> Vec<&str> {
    let quoted = hint.split('"').skip(1).step_by(2);
    let stands_for_other = ["HOST", "PATH", "NAME", "PORT", "…"];
    quoted.filter(|text| !stands_for_other.iter().any(|word| text.contains(word))).collect()
}

/// Returns `line` with the value of `key` replaced. Of a list, its only element is replaced.
fn with_value(line: &str, key: &str, value: &str) -> Option<String> {
    if ["servers", "cluster_announce", "proxy_from", "allow", "deny"].contains(&key) {
        let (before, rest) = line.split_once('"')?;
        let (_, after) = rest.rsplit_once('"')?;
        return (!rest.contains("\", \"")).then(|| format!("{before}\"{value}\"{after}"));
    }
    let assignment = format!("{key} = ");
    let at = line.match_indices(&assignment).find(|(at, _)| {
        line[..*at].chars().next_back().is_none_or(|before| before == ' ' || before == '{')
    });
    let start = at?.0 + assignment.len();
    let in_table = line[..start].contains('{');
    let end = if in_table { line[start..].find([',', '}'])? } else { line.len() - start };
    Some(format!("{}\"{value}\"{}", &line[..start], &line[start + end..]))
}

#[test]
fn every_value_that_a_message_suggests_is_accepted_in_its_place() {
    let mut tried = 0;
    for path in files("bad", "toml") {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        for error in Config::from_str(&text, &name).unwrap_err() {
            let Some((key, _)) = error.what.split_once(" in ") else { continue };
            if !error.hint.starts_with("write ") && !error.hint.starts_with("use a smaller") {
                continue;
            }
            for value in suggestions(&error.hint) {
                let Some(line) = with_value(lines[error.line - 1], key, value) else { continue };
                let mut changed = lines.clone();
                changed[error.line - 1] = &line;
                let again = Config::from_str(&changed.join("\n"), &name).err().unwrap_or_default();
                let own = format!("{key} in ");
                let refused = again.iter().find(|e| {
                    e.line == error.line && e.what.starts_with(&own) && e.what.contains("]: ")
                });
                assert!(refused.is_none(), "{error}\n  {line}\n  {}", refused.unwrap());
                tried += 1;
            }
        }
    }
    assert!(tried >= 60, "only {tried} suggestions were tried");
}
