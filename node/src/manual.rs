//! Completions and manual pages, made from the flags themselves.

use crate::cli::Cli;
use crate::exit::Exit;
use crate::output;
use anyhow::Context as _;
use clap::{CommandFactory as _, ValueEnum};
use std::path::Path;

/// A shell that completes commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shell {
    /// For ~/.local/share/bash-completion/completions/weir.
    Bash,
    /// For a file _weir in a directory of $fpath.
    Zsh,
    /// For ~/.config/fish/completions/weir.fish.
    Fish,
}

/// Prints what a shell reads to complete `weir`.
pub(crate) fn completions(shell: Shell) -> anyhow::Result<Exit> {
    let shell = match shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Zsh => clap_complete::Shell::Zsh,
        Shell::Fish => clap_complete::Shell::Fish,
    };
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "weir", &mut text);
    print(&text)
}

/// Prints weir(1), or writes the pages of all commands into a directory.
pub(crate) fn pages(dir: Option<&Path>) -> anyhow::Result<Exit> {
    let command = Cli::command();
    match dir {
        Some(dir) => {
            std::fs::create_dir_all(dir)
                .and_then(|()| clap_mangen::generate_to(command, dir))
                .with_context(|| dir.display().to_string())?;
            Ok(Exit::Success)
        }
        None => {
            let mut text = Vec::new();
            clap_mangen::Man::new(command).render(&mut text)?;
            print(&text)
        }
    }
}

/// Prints a text as the answer of a command.
pub(crate) fn print(text: &[u8]) -> anyhow::Result<Exit> {
    output::print(text).context("stdout")?;
    Ok(Exit::Success)
}
