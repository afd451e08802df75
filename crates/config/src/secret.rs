//! Passwords and tokens: in the file, in a file that it names, or in the environment.

use crate::error::{Problem, Report};
use crate::model::SecretSource;
use crate::section::{Section, Value};
use keyway_topology::Password;
use std::path::Path;

/// Reads a password file: returns its text, or the reason why it cannot be read.
pub(crate) type ReadFile<'f> = &'f dyn Fn(&Path) -> Result<String, String>;

/// The text in place of a password when a configuration is shown. It shows that there is one.
pub(crate) const MASK: &str = "********";

/// The keys of most passwords.
pub(crate) const PASSWORD: [&str; 3] = ["password", "password_file", "password_env"];

/// Reads a password. The first key holds it in the file, the second names a file, and the third
/// names an environment variable. An empty first key means that there is no such key.
pub(crate) fn password(
    section: &Section,
    [key, file_key, variable_key]: [&str; 3],
    read_file: Option<ReadFile<'_>>,
    report: &mut Report<'_>,
) -> (Option<Password>, Option<SecretSource>) {
    let key = Some(key).filter(|key| !key.is_empty());
    let written = match key.and_then(|key| section.value(key)) {
        Some(Value::Secret(password)) => Some(password.clone()),
        _ => None,
    };
    if let (Some(key), Some(written)) = (key, &written)
        && written.expose() == MASK
    {
        let what = format!(
            "{key} in {} is the mask that `keyway ctl config` and `keyway check` print in place of \
             a password",
            section.header
        );
        let hint = format!("write the password itself, or name its file: {file_key} = \"FILE\"");
        tell_of_mask(read_file, section.place(key), Problem::new(what, hint), report);
    }
    let keys = key.into_iter().chain([file_key, variable_key]);
    let given = keys.filter(|key| section.given(key).is_some());
    if let [one, .., other] = given.collect::<Vec<_>>()[..] {
        let what = format!("{} has both {one} and {other}", section.header);
        report.consequence(section.place(other), Problem::new(what, "keep one of them"));
    }
    if let Some(name) = section.text(variable_key) {
        let source = Some(SecretSource::Variable(name.to_owned()));
        let read = read_file.and_then(|_| read_variable(section, (variable_key, name), report));
        return (read.or(written), source);
    }
    let Some(Value::Path(path)) = section.value(file_key) else { return (written, None) };
    let at = section.place(file_key);
    let source = Some(SecretSource::File(path.clone()));
    let Some(read_file) = read_file else { return (written, source) };
    let read = read_file(path).map_err(|why| (why, PASSWORD_FILE_HINT));
    let password = read
        .and_then(|text| one_line(&text))
        .map_err(|(why, hint)| {
            let what = format!("{file_key} in {}: {}: {why}", section.header, path.display());
            report.consequence(at, Problem::new(what, hint));
        })
        .ok();
    (password.or(written), source)
}

const PASSWORD_FILE_HINT: &str = "give a readable file with the password and nothing else in it";

/// Returns the password of a file: its only line.
fn one_line(text: &str) -> Result<Password, (String, &'static str)> {
    let line = text.strip_suffix('\n').unwrap_or(text);
    let line = line.strip_suffix('\r').unwrap_or(line);
    match line.matches('\n').count() {
        0 => check_password(line).map_err(|why| (why, PASSWORD_FILE_HINT)),
        ends => {
            let hint = "keep the line with the password, and remove the others";
            Err((format!("it has {} lines", ends + 1), hint))
        }
    }
}

/// Reports a mask in place of a secret. It is only a warning if the process does not serve with
/// this file, because it needs no secrets then.
pub(crate) fn tell_of_mask(
    read_file: Option<ReadFile<'_>>,
    at: usize,
    problem: Problem,
    report: &mut Report<'_>,
) {
    match read_file {
        Some(_) => report.mistake(at, problem),
        None => report.warning(at, problem),
    }
}

fn read_variable(
    section: &Section,
    (key, name): (&str, &str),
    report: &mut Report<'_>,
) -> Option<Password> {
    #[allow(clippy::disallowed_methods, reason = "the file says that a secret is there")]
    let read = std::env::var(name).map_err(|error| match error {
        std::env::VarError::NotPresent => "it is not set".to_owned(),
        std::env::VarError::NotUnicode(_) => "it is not UTF-8".to_owned(),
    });
    let checked = read.and_then(|text| check_password(&text));
    let tell = |why: &String| {
        let what = format!("{key} in {}: {name}: {why}", section.header);
        let hint = "set the variable to the secret for the process that reads this file";
        report.consequence(section.place(key), Problem::new(what, hint));
    };
    checked.inspect_err(tell).ok()
}

/// Longest password. There is room for any token, and AUTH stays one small request.
pub(crate) const PASSWORD_LEN_MAX: usize = 4096;

pub(crate) fn check_password(text: &str) -> Result<Password, String> {
    match text.len() {
        0 => Err("it is empty".to_owned()),
        1..=PASSWORD_LEN_MAX => Ok(Password::new(text)),
        _ => Err(format!("it is longer than {PASSWORD_LEN_MAX} bytes")),
    }
}
