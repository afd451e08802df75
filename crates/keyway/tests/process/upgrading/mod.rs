//! A Keyway that is replaced while clients are served, for all tests of upgrades.
#![allow(dead_code, reason = "each test uses its part")]

use std::net::SocketAddr;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use keyway_testkit::{
    Keyway, KeywayConfig, Pool, Signal, TempDir, keyway_binary, run_keyway, serving_process,
    wait_for,
};

pub const KEYWAY: &str = env!("CARGO_BIN_EXE_keyway");
pub const SOON: Duration = Duration::from_secs(30);

/// A Keyway whose successors are ended with it.
pub struct Upgrading {
    pub keyway: Keyway,
    pub text: String,
    pub folder: TempDir,
}

impl Upgrading {
    /// Starts it. `more` is appended to the file; `{}` in it is a folder for sockets.
    pub fn start(pools: Vec<Pool>, server: &[(&str, &str)], more: &str) -> Upgrading {
        let folder = TempDir::new();
        let binary = folder.path().join("keyway");
        symlink(keyway_binary(KEYWAY), &binary).unwrap();
        let more = more.replace("{}", &folder.path().display().to_string());
        let mut config = KeywayConfig::new(pools).with_tables(&more);
        for (key, value) in server {
            config = config.with_server(key, value);
        }
        let text = config.toml();
        let keyway = Keyway::start(&binary.to_string_lossy(), config);
        Upgrading { keyway, text, folder }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn log(&self) -> String {
        self.keyway.process().log()
    }

    pub fn count(&self, words: &str) -> usize {
        self.log().matches(words).count()
    }

    pub fn write(&self, text: &str) {
        std::fs::write(self.keyway.directory().join("keyway.toml"), text).unwrap();
    }

    /// Installs another program, which is used from here on.
    pub fn install(&self, program: &Path) {
        let next = self.path("next");
        symlink(program, &next).unwrap();
        std::fs::rename(&next, self.path("keyway")).unwrap();
    }

    pub fn install_script(&self, name: &str, text: &str) {
        let script = self.path(name);
        std::fs::write(&script, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        self.install(&script);
    }

    pub fn repair(&self) {
        self.install(&keyway_binary(KEYWAY));
    }

    /// Returns the id of the process that answers at the admin address.
    pub fn pid(&self) -> u32 {
        serving(self.keyway.admin())
    }

    pub fn signal(&self, pid: u32, signal: Signal) {
        let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    pub fn ctl(&self, arguments: &[&str]) -> (i32, String) {
        let admin = self.keyway.admin().to_string();
        let output = run_keyway(KEYWAY, &[&["ctl", "--admin", &admin][..], arguments].concat());
        (output.status.code().unwrap_or(-1), output.text)
    }

    /// Upgrades by signal, and waits until another process serves.
    pub fn upgrade(&self) -> u32 {
        let before = self.pid();
        self.signal(before, Signal::USR2);
        let what = format!("another process than {before} serves");
        wait_for(&what, SOON, || Some(self.pid()).filter(|pid| *pid != before))
    }

    pub fn is_alive(&self, pid: u32) -> bool {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let file = self.keyway.directory().display().to_string();
        String::from_utf8_lossy(&line).contains(&file)
    }
}

impl Drop for Upgrading {
    fn drop(&mut self) {
        // The log has the id of each process that was started.
        let log = self.log();
        let ids = log.split("pid=").skip(1);
        let ids = ids.filter_map(|rest| rest.split(|it: char| !it.is_ascii_digit()).next());
        for pid in ids.filter_map(|digits| digits.parse().ok()) {
            if self.is_alive(pid) {
                let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
                let _ = rustix::process::kill_process(pid, Signal::KILL);
            }
        }
    }
}

pub fn serving(admin: SocketAddr) -> u32 {
    // A question may reach a process that is ending; the next one does not.
    wait_for("somebody answers at the admin address", SOON, || serving_process(admin))
}
