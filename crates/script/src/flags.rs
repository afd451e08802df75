//! The first line of a script, `#!lua flags=...`.

/// The flags that a script declares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScriptFlags {
    /// True if there is such a line. Without it, permissions are checked command by command.
    pub is_declared: bool,
    /// True if it sends no command that writes.
    pub no_writes: bool,
    /// True if it may run, and write, although the memory is full.
    pub allow_oom: bool,
}

/// Sets the flag of a library's function with this name. Returns `None` if there is no such flag.
pub(crate) fn set_flag(flags: &mut ScriptFlags, name: &[u8]) -> Option<()> {
    match name {
        b"no-writes" => flags.no_writes = true,
        b"allow-oom" => flags.allow_oom = true,
        // Nothing is stale or on another node here.
        b"allow-stale" | b"no-cluster" | b"allow-cross-slot-keys" => {}
        _ => return None,
    }
    Some(())
}

/// Returns the flags of a script, and the index at which its text begins.
///
/// # Errors
/// Returns Redis's text for what is wrong with the line.
pub(crate) fn parse(body: &[u8]) -> Result<(ScriptFlags, usize), String> {
    let mut flags = ScriptFlags::default();
    if !body.starts_with(b"#!") {
        return Ok((flags, 0));
    }
    flags.is_declared = true;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let Some(end) = body.iter().position(|byte| *byte == b'\n') else {
        return Err("Invalid script shebang".to_owned());
    };
    let mut words = body[..end].split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let engine = words.next().unwrap_or_default();
    if engine != b"#!lua" {
        return Err(format!("Unexpected engine in script shebang: {}", text(engine)));
    }
    for word in words {
        let Some(names) = word.strip_prefix(b"flags=") else {
            return Err(format!("Unknown lua shebang option: {}", text(word)));
        };
        for name in names.split(|byte| *byte == b',').filter(|name| !name.is_empty()) {
            set_flag(&mut flags, name)
                .ok_or_else(|| format!("Unexpected flag in script shebang: {}", text(name)))?;
        }
    }
    // The line stays, but empty, so that later lines keep their numbers.
    Ok((flags, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_without_the_line_declares_nothing() {
        assert_eq!(parse(b"return 1"), Ok((ScriptFlags::default(), 0)));
    }

    #[test]
    fn flags_are_read_by_name_and_unknown_ones_refused() {
        let (flags, start) = parse(b"#!lua flags=no-writes,allow-oom\nreturn 1").unwrap();
        assert!(flags.is_declared && flags.no_writes && flags.allow_oom);
        assert_eq!(start, 31);
        assert_eq!(parse(b"#!lua"), Err("Invalid script shebang".to_owned()));
        assert!(parse(b"#!js\n").unwrap_err().ends_with("shebang: #!js"));
        assert!(parse(b"#!lua flags=bad\n").unwrap_err().ends_with("shebang: bad"));
        assert!(parse(b"#!lua bad=1\n").unwrap_err().ends_with("option: bad=1"));
    }
}
