//! What Keyway is made of, read from `cargo metadata` and `Cargo.lock`, without the network:
//!
//! - `supply licences` fails when a crate is under terms that `deny.toml` does not allow, or comes
//!   from anywhere but the public registry. (`cargo deny check` reads the same file and looks up
//!   advisories too; this needs nothing installed.)
//! - `supply sbom TARGET` prints a bill of materials in CycloneDX's JSON, version 1.5.
//! - `supply notices TARGET` prints the licence texts that the crates in the program ask to keep.

#![forbid(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use serde_json::{Value, json};

/// The program that is shipped.
const PROGRAM: &str = "keyway";
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";
/// Crates whose C is linked though only a build script needs them. (luajit-src comes with lua-src, and
/// nothing of it is built.)
const SOURCES: &[&str] = &["lua-src"];
/// Longest licence text that is taken, in bytes.
const TEXT_LEN_MAX: u64 = 256 << 10;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["licences"] => licences(),
        ["sbom", target] => Crates::read(Some(target)).and_then(|crates| crates.sbom()),
        ["notices", target] => Crates::read(Some(target)).map(|crates| crates.notices()),
        _ => Err("write: supply licences | supply sbom TARGET | supply notices TARGET".into()),
    };
    match done {
        Ok(text) => {
            println!("{}", text.trim_end());
            ExitCode::SUCCESS
        }
        Err(what) => {
            eprintln!("supply: {what}");
            ExitCode::FAILURE
        }
    }
}

/// The workspace's crates and all they need.
struct Crates {
    packages: BTreeMap<String, Value>,
    /// For each package by its id: those it needs, and whether while building only.
    needs: BTreeMap<String, Vec<(String, bool)>>,
    checksums: BTreeMap<(String, String), String>,
}

impl Crates {
    /// For one target, or for all there are.
    fn read(target: Option<&str>) -> Result<Crates, String> {
        let metadata = metadata(target)?;
        let lock = std::fs::read_to_string(root().join("Cargo.lock"));
        let lock = lock.map_err(|error| format!("Cargo.lock: {error}"))?;
        Ok(Crates::new(&metadata, checksums(&lock)))
    }

    fn new(metadata: &Value, checksums: BTreeMap<(String, String), String>) -> Crates {
        let id = |package: &Value| text(package, "id").to_owned();
        let packages = list(metadata, "packages").iter().map(|one| (id(one), one.clone()));
        let nodes = list(&metadata["resolve"], "nodes").iter().map(|node| {
            let needs = list(node, "deps").iter().filter_map(|dep| {
                let kinds: Vec<Option<&str>> =
                    list(dep, "dep_kinds").iter().map(|kind| kind["kind"].as_str()).collect();
                let is_normal = kinds.contains(&None);
                let is_wanted = is_normal || kinds.contains(&Some("build"));
                is_wanted.then(|| (text(dep, "pkg").to_owned(), !is_normal))
            });
            (id(node), needs.collect())
        });
        Crates { packages: packages.collect(), needs: nodes.collect(), checksums }
    }

    /// What the program needs: by id, whether only while it is built (macros are, too).
    fn shipped(&self) -> BTreeMap<String, bool> {
        let is_program = |package: &&Value| text(package, "name") == PROGRAM;
        let program = self.packages.values().find(is_program).map(|package| text(package, "id"));
        let mut found = BTreeMap::new();
        let mut queue: VecDeque<(String, bool)> =
            program.map(|id| (id.to_owned(), false)).into_iter().collect();
        while let Some((id, at_build)) = queue.pop_front() {
            let at_build = at_build || self.packages.get(&id).is_some_and(is_macro);
            // What is in the program is so, however else it is needed.
            if found.get(&id).is_some_and(|known| !known || at_build) {
                continue;
            }
            found.insert(id.clone(), at_build);
            for (needed, only_at_build) in self.needs.get(&id).into_iter().flatten() {
                let at_build = at_build || *only_at_build || self.is_source(&id);
                queue.push_back((needed.clone(), at_build && !self.is_source(needed)));
            }
        }
        found
    }

    /// Whether it holds the source in C of a library that the program links.
    fn is_source(&self, id: &str) -> bool {
        self.packages.get(id).is_some_and(|package| SOURCES.contains(&text(package, "name")))
    }

    fn sbom(&self) -> Result<String, String> {
        let shipped = self.shipped();
        let component = |id: &str| self.packages.get(id).map(|it| self.component(it, &shipped));
        let program = shipped.keys().find(|id| text(&self.packages[*id], "name") == PROGRAM);
        let program = program.ok_or("the workspace has no package keyway")?;
        let others = shipped.keys().filter(|id| *id != program);
        let components: Vec<Value> = others.filter_map(|id| component(id)).collect();
        let dependencies: Vec<Value> = shipped
            .keys()
            .map(|id| {
                let needs = self.needs.get(id).into_iter().flatten().map(|(needed, _)| needed);
                let on: BTreeSet<String> =
                    needs.filter_map(|id| self.packages.get(id)).map(purl).collect();
                json!({ "ref": purl(&self.packages[id]), "dependsOn": on })
            })
            .collect();
        let mut about = component(program).unwrap_or_default();
        about["type"] = "application".into();
        let bom = json!({
            "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
            "bomFormat": "CycloneDX",
            "specVersion": "1.5",
            "version": 1,
            "metadata": { "component": about },
            "components": components,
            "dependencies": dependencies,
        });
        serde_json::to_string_pretty(&bom).map_err(|error| error.to_string())
    }

    fn component(&self, package: &Value, shipped: &BTreeMap<String, bool>) -> Value {
        let (name, version) = (text(package, "name"), text(package, "version"));
        let at_build = shipped.get(text(package, "id")).is_some_and(|at_build| *at_build);
        let mut component = json!({
            "type": "library",
            "bom-ref": purl(package),
            "name": name,
            "version": version,
            "purl": purl(package),
            "scope": if at_build { "excluded" } else { "required" },
            "licenses": [{ "expression": expression(package) }],
        });
        if let Some(sum) = self.checksums.get(&(name.to_owned(), version.to_owned())) {
            component["hashes"] = json!([{ "alg": "SHA-256", "content": sum }]);
        }
        component
    }

    /// Licence texts of what is in the program, each with those under it.
    fn notices(&self) -> String {
        let mut by_text = BTreeMap::<String, BTreeSet<String>>::new();
        let mut without = BTreeSet::new();
        let in_program = self.shipped().into_iter().filter(|(_, at_build)| !at_build);
        for package in in_program.filter_map(|(id, _)| self.packages.get(&id)) {
            if package["source"].is_null() {
                continue;
            }
            let who = format!("{} {}", text(package, "name"), text(package, "version"));
            let manifest = PathBuf::from(text(package, "manifest_path"));
            let texts = licence_texts(manifest.parent().unwrap_or(Path::new(".")));
            if texts.is_empty() {
                without.insert(format!("{who}: {}", expression(package)));
            }
            for text in texts {
                by_text.entry(text).or_default().insert(who.clone());
            }
        }
        let mut page =
            "What Keyway is made of besides its own code, and under which terms.\n".to_owned();
        for (text, who) in by_text {
            let who: Vec<String> = who.into_iter().collect();
            let _ =
                write!(page, "\n{}\n{}\n\n{}\n", "-".repeat(74), who.join(", "), text.trim_end());
        }
        if !without.is_empty() {
            let lines: Vec<String> = without.into_iter().collect();
            let _ = write!(
                page,
                "\n{}\nWithout a text of their own:\n{}\n",
                "-".repeat(74),
                lines.join("\n")
            );
        }
        page
    }
}

fn licence_texts(directory: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let is_licence = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
        ["LICENSE", "LICENCE", "COPYING", "NOTICE", "UNLICENSE", "COPYRIGHT"]
            .iter()
            .any(|start| name.starts_with(start))
    };
    let mut paths: Vec<PathBuf> =
        entries.flatten().map(|entry| entry.path()).filter(is_licence).collect();
    paths.sort();
    let is_short = |path: &PathBuf| {
        path.metadata().is_ok_and(|about| about.is_file() && about.len() <= TEXT_LEN_MAX)
    };
    paths
        .into_iter()
        .filter(is_short)
        .filter_map(|path| std::fs::read_to_string(path).ok())
        .collect()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn metadata(target: Option<&str>) -> Result<Value, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["metadata", "--format-version", "1", "--locked"]).current_dir(root());
    if let Some(target) = target {
        command.args(["--filter-platform", target]);
    }
    let output = command.output().map_err(|error| format!("cannot run cargo metadata: {error}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    serde_json::from_slice(&output.stdout).map_err(|error| format!("cargo metadata: {error}"))
}

fn text<'v>(value: &'v Value, field: &str) -> &'v str {
    value[field].as_str().unwrap_or_default()
}

fn list<'v>(value: &'v Value, field: &str) -> &'v [Value] {
    value[field].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn is_macro(package: &Value) -> bool {
    let kinds = list(package, "targets").iter().flat_map(|target| list(target, "kind"));
    kinds.filter_map(Value::as_str).any(|kind| kind == "proc-macro")
}

/// Its name among packages of all kinds.
fn purl(package: &Value) -> String {
    format!("pkg:cargo/{}@{}", text(package, "name"), text(package, "version"))
}

/// Its terms, in SPDX's words; a slash is an old form of OR.
fn expression(package: &Value) -> String {
    text(package, "license").replace(" / ", "/").replace('/', " OR ")
}

/// The checksums of Cargo.lock by name and version.
fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let field = |block: &str, name: &str| {
        let begin = format!("{name} = \"");
        let line = block.lines().find_map(|line| line.strip_prefix(&begin))?;
        line.strip_suffix('"').map(str::to_owned)
    };
    let one = |block: &str| {
        Some(((field(block, "name")?, field(block, "version")?), field(block, "checksum")?))
    };
    lock.split("[[package]]").filter_map(one).collect()
}

/// Checks every crate of the graph, those of tests and other systems too.
fn licences() -> Result<String, String> {
    let file = std::fs::read_to_string(root().join("deny.toml"));
    let allowed = allowed(&file.map_err(|error| format!("deny.toml: {error}"))?)?;
    let crates = Crates::read(None)?;
    let mut faults = Vec::new();
    for package in crates.packages.values() {
        faults.extend(fault(package, &allowed));
    }
    if faults.is_empty() && !crates.packages.is_empty() {
        return Ok(format!("supply: the licences of {} crates are allowed", crates.packages.len()));
    }
    Err(faults.join("\nsupply: "))
}

fn fault(package: &Value, allowed: &BTreeSet<String>) -> Option<String> {
    let (name, version) = (text(package, "name"), text(package, "version"));
    let source = package["source"].as_str();
    if source.is_some_and(|source| source != REGISTRY) {
        return Some(format!("{name} {version} comes from {}", source.unwrap_or_default()));
    }
    let terms = expression(package);
    match is_allowed(&terms, allowed) {
        Some(true) => None,
        Some(false) => Some(format!(
            "{name} {version} is under `{terms}`, which deny.toml does not allow: do without it, or \
             decide in docs/dependencies.md and allow it"
        )),
        None => Some(format!("{name} {version} says `{terms}` of its licence, which is no SPDX")),
    }
}

/// `licenses.allow` of deny.toml.
fn allowed(file: &str) -> Result<BTreeSet<String>, String> {
    let table: toml::Table = file.parse().map_err(|error| format!("deny.toml: {error}"))?;
    let list = table.get("licenses").and_then(|it| it.get("allow")).and_then(|it| it.as_array());
    let list = list.ok_or("deny.toml: licenses.allow is missing")?;
    Ok(list.iter().filter_map(|one| one.as_str()).map(str::to_owned).collect())
}

/// Whether an expression of SPDX holds under these licences; `None` when it is none.
fn is_allowed(expression: &str, allowed: &BTreeSet<String>) -> Option<bool> {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = &words[..];
    let is_allowed = either(&mut rest, allowed)?;
    rest.is_empty().then_some(is_allowed)
}

fn either(words: &mut &[&str], allowed: &BTreeSet<String>) -> Option<bool> {
    let mut holds = all(words, allowed)?;
    while let ["OR", rest @ ..] = *words {
        *words = rest;
        holds |= all(words, allowed)?;
    }
    Some(holds)
}

fn all(words: &mut &[&str], allowed: &BTreeSet<String>) -> Option<bool> {
    let mut holds = single(words, allowed)?;
    while let ["AND", rest @ ..] = *words {
        *words = rest;
        holds &= single(words, allowed)?;
    }
    Some(holds)
}

fn single(words: &mut &[&str], allowed: &BTreeSet<String>) -> Option<bool> {
    match *words {
        ["(", rest @ ..] => {
            *words = rest;
            let holds = either(words, allowed)?;
            let [")", rest @ ..] = *words else { return None };
            *words = rest;
            Some(holds)
        }
        ["OR" | "AND" | "WITH" | ")", ..] | [] => None,
        [name, "WITH", exception, rest @ ..] => {
            *words = rest;
            Some(allowed.contains(&format!("{name} WITH {exception}")))
        }
        [name, rest @ ..] => {
            *words = rest;
            Some(allowed.contains(*name))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_hold_as_spdx_says() {
        let allowed: BTreeSet<String> =
            ["MIT", "ISC", "Apache-2.0 WITH LLVM-exception"].map(str::to_owned).into();
        for (terms, holds) in [
            ("MIT", Some(true)),
            ("GPL-3.0-only", Some(false)),
            ("GPL-3.0-only OR MIT", Some(true)),
            ("GPL-3.0-only AND MIT", Some(false)),
            ("MIT AND ISC", Some(true)),
            ("(GPL-3.0-only OR MIT) AND ISC", Some(true)),
            ("MIT OR GPL-3.0-only AND ISC", Some(true)),
            ("Apache-2.0 WITH LLVM-exception", Some(true)),
            ("Apache-2.0", Some(false)),
            ("MIT WITH LLVM-exception", Some(false)),
            ("", None),
            ("MIT OR", None),
            ("(MIT", None),
            ("MIT ISC", None),
        ] {
            assert_eq!(is_allowed(terms, &allowed), holds, "{terms}");
        }
    }

    #[test]
    fn a_crate_that_is_not_allowed_is_named() {
        let allowed = allowed("[licenses]\nallow = [\"MIT\"]\n").expect("a list");
        let package = |license: &str, source: Value| json!({ "name": "a", "version": "1", "license": license, "source": source });
        assert_eq!(fault(&package("MIT", REGISTRY.into()), &allowed), None);
        assert_eq!(fault(&package("Apache-2.0/MIT", Value::Null), &allowed), None);
        for (license, source, why) in [
            ("AGPL-3.0-only", REGISTRY, "AGPL-3.0-only"),
            ("MIT", "git+https://example.org/a", "comes from git"),
            ("", REGISTRY, "is no SPDX"),
        ] {
            let fault = fault(&package(license, source.into()), &allowed).expect("a fault");
            assert!(fault.contains(why), "{fault}");
        }
    }

    #[test]
    fn the_bill_has_what_is_in_the_program_and_what_built_it() {
        let crates = Crates::read(Some("x86_64-unknown-linux-gnu")).expect("the workspace");
        let bom: Value = serde_json::from_str(&crates.sbom().expect("a bill")).expect("JSON");
        let components = list(&bom, "components");
        let named = |name: &str| components.iter().find(|one| text(one, "name") == name);
        let scope = |name: &str| named(name).map(|one| text(one, "scope").to_owned());
        assert_eq!(scope("tokio").as_deref(), Some("required"));
        assert_eq!(scope("keyway-store").as_deref(), Some("required"));
        // Lua is built from C by a build script, and is in the program all the same.
        assert_eq!(scope("lua-src").as_deref(), Some("required"));
        assert_eq!(scope("cc").as_deref(), Some("excluded"));
        assert_eq!(scope("luajit-src").as_deref(), Some("excluded"));
        assert_eq!(scope("serde_derive").as_deref(), Some("excluded"));
        // Tests and other systems are not in it.
        for name in ["keyway-testkit", "proptest", "winapi", "windows-sys"] {
            assert!(named(name).is_none(), "{name}");
        }
        let refs: BTreeSet<&str> = components.iter().map(|one| text(one, "bom-ref")).collect();
        assert_eq!(refs.len(), components.len(), "two components have the same name");
        for one in list(&bom, "dependencies") {
            for on in list(one, "dependsOn").iter().filter_map(Value::as_str) {
                assert!(refs.contains(on), "{on}, needed by {}", text(one, "ref"));
            }
        }
        let tokio = named("tokio").expect("it is there");
        assert_eq!(tokio["hashes"][0]["content"].as_str().map(str::len), Some(64));
        assert!(bom["metadata"]["component"]["version"].is_string());
    }

    #[test]
    fn notices_have_the_texts_of_what_is_linked() {
        let crates = Crates::read(Some("x86_64-unknown-linux-gnu")).expect("the workspace");
        let notices = crates.notices();
        for part in ["tokio 1.", "ring 0.", "ratatui 0.", "Permission is hereby granted"] {
            assert!(notices.contains(part), "{part}");
        }
        assert!(!notices.contains("proptest 1."), "a crate of tests");
    }
}
