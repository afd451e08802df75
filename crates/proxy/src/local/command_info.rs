//! COMMAND and its subcommands.
