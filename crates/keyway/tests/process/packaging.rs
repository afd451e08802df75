//! The contents of packages, made from the program under test and used as installed.

use keyway_testkit::certificates::CertificateFiles;
use keyway_testkit::{
    Keyway, KeywayConfig, Pool, Signal, TempDir, ToolOutput, keyway_binary, run_keyway, run_tool,
    skipped, tool_is_installed, watchdog,
};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const BOUND: Duration = Duration::from_secs(60);

fn run(program: &str, arguments: &[&str]) -> ToolOutput {
    run_tool(program, arguments, b"", BOUND)
}

fn shell(script: &str) -> String {
    run("bash", &["-euc", script]).expect_success(script).stdout
}

fn program() -> String {
    keyway_binary(KEYWAY).to_string_lossy().into_owned()
}

/// Returns whether this machine has a tool that no test installs, but most machines have.
fn has(tool: &str, what: &str) -> bool {
    let is_there = tool_is_installed(tool);
    if !is_there {
        skipped(&format!("{what}: {tool} is missing"));
    }
    is_there
}

/// Makes the packages in a directory of their own.
fn packages(directory: &TempDir, name: &str) -> PathBuf {
    let papers = directory.path().join("papers");
    fs::create_dir_all(&papers).expect("a fresh directory");
    for paper in ["sbom.cdx.json", "THIRD-PARTY"] {
        fs::write(papers.join(paper), "of a test\n").expect("a fresh directory");
    }
    let out = directory.path().join(name);
    let script = format!("{ROOT}/scripts/package.sh");
    let path = |path: &Path| path.to_string_lossy().into_owned();
    // The program of tests has all debug information, which takes long to pack.
    let small = directory.path().join("keyway");
    let _ = run("objcopy", &["--strip-all", &program(), &path(&small)]).expect_success("objcopy");
    let arguments = ["PACKAGE_LEVEL=1", &script, &path(&small), &path(&papers), &path(&out)];
    let _ = run("env", &arguments).expect_success("package.sh");
    out
}

/// Returns the file in `directory` whose name ends with `end`.
fn ending(directory: &Path, end: &str) -> PathBuf {
    let entries = fs::read_dir(directory).expect("a directory").flatten();
    let mut paths = entries.map(|entry| entry.path());
    paths.find(|path| path.to_string_lossy().ends_with(end)).unwrap_or_else(|| panic!("no {end}"))
}

#[test]
fn packages_hold_everything_and_are_the_same_each_time() {
    let _watch = watchdog(Duration::from_secs(180), "packages");
    let directory = TempDir::new();
    let (one, two) = (packages(&directory, "one"), packages(&directory, "two"));
    let sums = |out: &Path| fs::read_to_string(out.join("SHA256SUMS")).expect("sums");
    assert_eq!(sums(&one), sums(&two), "the same input, the same packages");
    let unpacked = directory.path().join("unpacked");
    fs::create_dir(&unpacked).expect("a fresh directory");
    let tar = ending(&one, "-linux.tar.gz");
    shell(&format!("tar -xf '{}' -C '{}'", tar.display(), unpacked.display()));
    for file in [
        "usr/bin/keyway",
        "usr/lib/systemd/system/keyway.service",
        "usr/lib/systemd/system/keyway-control.service",
        "usr/lib/sysusers.d/keyway.conf",
        "usr/lib/tmpfiles.d/keyway.conf",
        "etc/keyway/keyway.toml",
        "usr/share/man/man1/keyway.1.gz",
        "usr/share/man/man1/keyway-serve.1.gz",
        "usr/share/man/man1/keyway-control.1.gz",
        "usr/share/man/man1/keyway-bench-load.1.gz",
        "usr/share/bash-completion/completions/keyway",
        "usr/share/zsh/vendor-completions/_keyway",
        "usr/share/fish/vendor_completions.d/keyway.fish",
        "usr/share/keyway/grafana/keyway.json",
        "usr/share/keyway/prometheus/keyway.rules.yml",
        "usr/share/doc/keyway/NOTICE",
        "usr/share/doc/keyway/THIRD-PARTY",
        "usr/share/doc/keyway/sbom.cdx.json",
        "usr/share/doc/keyway/install.md",
    ] {
        let length = fs::metadata(unpacked.join(file)).map_or(0, |about| about.len());
        assert!(length > 0, "{file} is missing or empty");
    }
    assert!(unpacked.join("etc/keyway/tls").is_dir(), "a place for certificates");
    assert_eq!(dead_links(&unpacked, &unpacked.join("usr/share/doc/keyway")), Vec::<String>::new());
    let packed = unpacked.join("usr/bin/keyway").to_string_lossy().into_owned();
    let _ = run(&format!("{ROOT}/scripts/check_release.sh"), &[&packed])
        .expect_success("check_release.sh");
    if has("dpkg-deb", "the Debian package") {
        debian_package(&ending(&one, ".deb"));
    }
}

/// Returns links of the pages below `at` to files that are not under `root`.
fn dead_links(root: &Path, at: &Path) -> Vec<String> {
    let mut dead = Vec::new();
    for path in fs::read_dir(at).expect("a directory").flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            dead.extend(dead_links(root, &path));
        }
        if path.extension().is_none_or(|extension| extension != "md") {
            continue;
        }
        let text = fs::read_to_string(&path).expect("a page");
        for link in text.split("](").skip(1).filter_map(|rest| rest.split([')', ' ', '`']).next()) {
            let file = link.split('#').next().unwrap_or_default();
            let is_file = !file.is_empty() && !file.contains("://");
            let target = match file.strip_prefix('/') {
                Some(absolute) => root.join(absolute),
                None => at.join(file),
            };
            if is_file && !target.exists() {
                dead.push(format!("{}: {link}", path.display()));
            }
        }
    }
    dead
}

fn debian_package(file: &Path) {
    let file = file.to_string_lossy().into_owned();
    let fields = run("dpkg-deb", &["--field", &file]).expect_success("dpkg-deb").stdout;
    let version = format!("Version: {}\n", env!("CARGO_PKG_VERSION"));
    assert!(fields.contains("Package: keyway\n") && fields.contains(&version), "{fields}");
    let contents = run("dpkg-deb", &["--contents", &file]).expect_success("dpkg-deb").stdout;
    let configuration = contents.lines().find(|line| line.ends_with("./etc/keyway/keyway.toml"));
    assert!(
        configuration.is_some_and(|line| line.starts_with("-rw-r----- root/root")),
        "{contents}"
    );
    let about = run("dpkg-deb", &["--info", &file]).expect_success("dpkg-deb").stdout;
    for part in ["conffiles", "postinst", "prerm", "postrm"] {
        assert!(about.contains(part), "{about}");
    }
    for script in ["postinst", "prerm", "postrm"] {
        shell(&format!("sh -n '{ROOT}/deploy/debian/{script}'"));
    }
}

#[test]
fn a_program_that_does_not_serve_is_not_released() {
    let _watch = watchdog(BOUND, "check_release.sh");
    let directory = TempDir::new();
    let script = format!("{ROOT}/scripts/check_release.sh");
    for (name, text) in [("ends", "exit 0"), ("refuses", "exit 2"), ("hangs", "exec sleep 5")] {
        let broken = directory.write(name, format!("#!/bin/sh\n{text}\n"));
        shell(&format!("chmod +x '{}'", broken.display()));
        let output = run(&script, &[&broken.to_string_lossy()]);
        assert_eq!(output.status.code(), Some(1), "{name}: {}", output.text);
        assert!(output.text.contains("does not get ready"), "{name}: {}", output.text);
    }
}

#[test]
fn installed_configurations_are_right() {
    for file in ["deploy/keyway.toml", "deploy/container/keyway.toml"] {
        let path = format!("{ROOT}/{file}");
        let output = run_keyway(KEYWAY, &["check", &path]).expect_success(file);
        // A container's listener is for every client that can reach the container.
        let warnings = output.text.lines().filter(|line| line.starts_with("warning"));
        let of_others = warnings.filter(|line| !line.contains("asks for no password")).count();
        assert!(output.text.contains("no errors") && of_others == 0, "{file}: {}", output.text);
    }
}

/// Runs the unit's command before SIGHUP, with this program and this file.
fn reload_check(file: &Path) -> ToolOutput {
    let unit = unit("keyway");
    let mut commands = unit.lines().filter_map(|line| line.strip_prefix("ExecReload="));
    let check = commands.next().expect("a check ahead of the signal");
    assert_eq!(commands.next(), Some("/bin/kill -HUP $MAINPID"));
    let served = "/etc/keyway/keyway.toml";
    assert!(unit.contains(&format!("ExecStart=/usr/bin/keyway serve {served}\n")), "{unit}");
    let check = check.strip_prefix("/usr/bin/keyway ").expect("the program").to_owned();
    let words = check.replace(served, &file.to_string_lossy());
    run_keyway(KEYWAY, &words.split(' ').collect::<Vec<_>>())
}

#[test]
fn a_reload_of_the_unit_fails_where_the_file_is_wrong() {
    let folder = TempDir::new();
    let right = reload_check(Path::new(&format!("{ROOT}/deploy/keyway.toml")));
    let right = right.expect_success("the file as installed");
    assert_eq!(right.text, "", "the log has no page of settings for each reload");
    let wrong = folder.write("wrong.toml", "[server]\nworkers = \"many\"\n");
    let wrong = reload_check(&wrong);
    assert_eq!(wrong.status.code(), Some(2), "{}", wrong.text);
    assert!(wrong.text.contains("workers"), "{}", wrong.text);
}

/// Runs the container's HEALTHCHECK, with this program and this file.
fn health_of_a_container(file: &Path) -> ToolOutput {
    let text = fs::read_to_string(format!("{ROOT}/deploy/container/Containerfile"));
    let text = text.expect("a Containerfile").replace("\\\n", " ");
    let check = text.lines().find_map(|line| line.strip_prefix("HEALTHCHECK ")).expect("a check");
    let command = check.split_once("CMD ").expect("a command").1;
    let words: Vec<String> = serde_json::from_str(command).expect("a list of words");
    assert_eq!(words[0], "/usr/bin/keyway");
    let mounted = "/etc/keyway/keyway.toml";
    assert!(text.contains(&format!("CMD [\"serve\", \"{mounted}\"]")), "{text}");
    let file = file.to_string_lossy();
    let words = words[1..].iter().map(|word| if word == mounted { &*file } else { word });
    run_keyway(KEYWAY, &words.collect::<Vec<_>>())
}

#[test]
fn a_container_is_healthy_whatever_its_file_says_of_the_admin_listener() {
    let _watch = watchdog(Duration::from_secs(120), "health of a container");
    let files = CertificateFiles::default();
    // The certificate has the name by which others ask, and not the one by which the container
    // itself asks.
    files.add("server", &files.authority.issue(&["cache.example"]));
    let ca = files.path("ca.pem");
    let token = files.write("token", "open-sesame-open-sesame");
    let pair = format!(
        "cert_file = {:?}, key_file = {:?}",
        files.path("server.pem"),
        files.path("server.key")
    );
    let token = ("admin_token_file", format!("{token:?}"));
    let tls = |more: &str| ("admin_tls", format!("{{ {pair}{more} }}"));
    let known = tls(&format!(", ca_file = {ca:?}"));
    for settings in [vec![], vec![token.clone()], vec![token, tls("")], vec![known]] {
        let mut config = KeywayConfig::new(vec![Pool::store("local")]);
        for (key, value) in &settings {
            config = config.with_server(key, value);
        }
        let mut keyway = Keyway::start(KEYWAY, config);
        let file = keyway.directory().join("keyway.toml");
        let _ = health_of_a_container(&file).expect_success(&format!("{settings:?}"));
        keyway.process_mut().signal(Signal::TERM);
        let _ = keyway.process_mut().wait_exit(BOUND);
        let ended = health_of_a_container(&file);
        assert!(!ended.status.success(), "{settings:?}: nobody answers: {}", ended.text);
    }
}

#[test]
fn a_container_that_cannot_be_asked_is_not_taken_for_ill() {
    let folder = TempDir::new();
    let text =
        "[[listener]]\nbind = \"tcp://127.0.0.1:6380\"\npool = \"a\"\n[pool.a]\nkind = \"store\"\n";
    let off = folder.write("off.toml", format!("[server]\nadmin = \"off\"\n{text}"));
    let asked = health_of_a_container(&off).expect_success("without an admin listener");
    assert!(asked.text.contains("not known"), "{}", asked.text);
    let wrong = folder.write("wrong.toml", format!("[server]\nadmin = 7\n{text}"));
    let asked = health_of_a_container(&wrong);
    assert_eq!(asked.status.code(), Some(2), "{}", asked.text);
    assert!(asked.text.contains("admin"), "{}", asked.text);
}

/// Returns the text of a unit of ours.
fn unit(name: &str) -> String {
    fs::read_to_string(format!("{ROOT}/deploy/systemd/{name}.service")).expect("a unit")
}

#[test]
fn systemd_understands_the_units_and_finds_them_confined() {
    if !has("systemd-analyze", "the units as systemd reads them") {
        return;
    }
    let directory = TempDir::new();
    for name in ["keyway", "keyway-control"] {
        let unit = unit(name);
        let installed = unit.replace("/usr/bin/keyway", &program());
        assert_ne!(installed, unit);
        // The manual page is not installed where this runs.
        let lines = installed.lines().filter(|line| !line.starts_with("Documentation="));
        let installed: Vec<&str> = lines.collect();
        let file = format!("{name}.service");
        let path = directory.write(&file, installed.join("\n")).to_string_lossy().into_owned();
        let verified = run("systemd-analyze", &["verify", &path]).expect_success("verify");
        let of_ours: Vec<&str> =
            verified.text.lines().filter(|line| line.contains(&file)).collect();
        assert!(of_ours.is_empty(), "{}", verified.text);
        // The score goes from 0 (confined) to 100. A unit without any such settings has 96.
        let bound = "--threshold=15";
        let judged = run("systemd-analyze", &["security", "--offline=true", bound, &path]);
        println!("{}", judged.text.lines().last().unwrap_or_default());
        let judged = judged.expect_success("security");
        assert!(judged.text.contains("exposure level"), "{}", judged.text);
    }
}

#[test]
fn the_units_share_data_and_nothing_that_one_of_them_removes() {
    let (serve, control) = (unit("keyway"), unit("keyway-control"));
    for unit in [&serve, &control] {
        assert!(unit.contains("\nStateDirectory=keyway\n"), "{unit}");
        assert!(unit.contains("\nUser=keyway\n"), "one owner of what is there: {unit}");
    }
    // systemd removes a runtime directory with the service that has it.
    assert!(serve.contains("\nRuntimeDirectory=keyway\n"), "{serve}");
    assert!(!control.contains("\nRuntimeDirectory=keyway\n"), "{control}");
    // Both ask the program, which tells the kind of file by itself, ahead of the signal.
    let check = "\nExecReload=/usr/bin/keyway check --quiet /etc/keyway/control.toml\n\
                 ExecReload=/bin/kill -HUP $MAINPID\n";
    assert!(control.contains(check), "{control}");
}

#[test]
fn the_unit_allows_what_settings_of_sockets_need() {
    let unit = unit("keyway");
    // With users of its own, the ids of clients would not be those that `allow_uids` names.
    assert!(!unit.contains("PrivateUsers=yes"), "{unit}");
    // `owner` and `group` need system calls that are among the privileged ones, which are removed.
    let filters: Vec<&str> =
        unit.lines().filter_map(|line| line.strip_prefix("SystemCallFilter=")).collect();
    let taken =
        filters.iter().position(|names| names.starts_with("~") && names.contains("@privileged"));
    let given = filters.iter().position(|names| names.split(' ').any(|name| name == "@chown"));
    assert!(given.is_some() && given > taken, "{filters:?}");
}

#[test]
fn systemd_makes_the_user_and_the_modes() {
    if !has("systemd-sysusers", "the user as systemd reads it") {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        return skipped("the modes of what systemd makes: nobody but root gives files away");
    }
    let directory = TempDir::new();
    let root = format!("--root={}", directory.path().display());
    fs::create_dir_all(directory.path().join("etc/keyway/tls")).expect("a fresh directory");
    directory.write("etc/keyway/keyway.toml", "");
    let users = format!("{ROOT}/deploy/systemd/keyway.sysusers");
    let _ = run("systemd-sysusers", &[&root, &users]).expect_success("systemd-sysusers");
    let passwd = fs::read_to_string(directory.path().join("etc/passwd")).expect("users");
    assert!(passwd.lines().any(|line| line.starts_with("keyway:")), "{passwd}");
    let modes = format!("{ROOT}/deploy/systemd/keyway.tmpfiles");
    let _ =
        run("systemd-tmpfiles", &[&root, "--create", &modes]).expect_success("systemd-tmpfiles");
    let listed = shell(&format!(
        "stat -c %a '{0}' '{0}/tls' '{0}/keyway.toml' '{1}'",
        directory.path().join("etc/keyway").display(),
        directory.path().join("var/lib/keyway").display()
    ));
    assert_eq!(listed.split_whitespace().collect::<Vec<_>>(), ["750", "750", "640", "750"]);
}

#[test]
fn there_is_a_manual_page_for_each_command_without_a_fault() {
    let directory = TempDir::new();
    let pages = directory.path().join("man");
    let path = pages.to_string_lossy().into_owned();
    let _ = run_keyway(KEYWAY, &["generate", "man", &path]).expect_success("generate man");
    let help = run_keyway(KEYWAY, &["--help"]).expect_success("help").stdout;
    let commands = help.split("Commands:").nth(1).and_then(|rest| rest.split("\n\n").next());
    let names: Vec<&str> = commands
        .expect("commands")
        .lines()
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .collect();
    assert!(names.contains(&"serve") && names.contains(&"top"), "{names:?}");
    for name in &names {
        let page = fs::read_to_string(pages.join(format!("keyway-{name}.1")));
        let page = page.unwrap_or_else(|error| panic!("keyway-{name}.1: {error}"));
        assert!(page.contains(".SH DESCRIPTION") && page.contains(".SH SYNOPSIS"), "{page}");
    }
    if !has("groff", "manual pages as groff reads them") {
        return;
    }
    for entry in fs::read_dir(&pages).expect("pages").flatten() {
        let page = entry.path().to_string_lossy().into_owned();
        let said = run("groff", &["-man", "-ww", "-z", "-Tutf8", "-k", &page]);
        assert!(said.status.success() && said.text.is_empty(), "{page}: {}", said.text);
    }
}

#[test]
fn shells_complete_what_can_be_typed() {
    let directory = TempDir::new();
    let script = |shell: &str| {
        let output = run_keyway(KEYWAY, &["generate", "completions", shell]);
        directory.write(shell, &output.expect_success(shell).stdout).to_string_lossy().into_owned()
    };
    let bash = script("bash");
    for (words, completed) in [
        ("keyway ser", "serve"),
        ("keyway top --onc", "--once"),
        ("keyway bench lo", "load"),
        ("keyway generate completions f", "fish"),
    ] {
        let count = words.split(' ').count() - 1;
        let said = shell(&format!(
            "source '{bash}'; COMP_WORDS=({words}); COMP_CWORD={count}; \
             _keyway keyway \"${{COMP_WORDS[-1]}}\" \"${{COMP_WORDS[-2]}}\"; echo \"${{COMPREPLY[@]}}\""
        ));
        assert_eq!(said.trim(), completed, "{words}");
    }
    for (shell, check) in [("zsh", "-n"), ("fish", "--no-execute")] {
        let file = script(shell);
        if has(shell, "its completions") {
            let _ = run(shell, &[check, &file]).expect_success(shell);
        }
    }
}
