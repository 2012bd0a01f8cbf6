//! The command line.

use clap::{Args, Parser, Subcommand};

/// Pack Quoit, and try the packages where they are to run
#[derive(Debug, Parser)]
#[command(name = "quoit-dist")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Build all packages into target/dist
    Build(BuildArguments),
    /// Look into the packages of target/dist: what each holds, asks for and weighs
    Verify,
    /// Install and use the packages of target/dist in root file systems of distributions
    Check(CheckArguments),
    /// Keep what a check of everything has found in dist/results.json, and write the tables of docs/install.md from it
    Page,
    /// Build all packages in two clean copies of the commit, and compare them
    Twice,
}

#[derive(Debug, Args)]
pub(crate) struct BuildArguments {
    /// Only what is made by this crate: nothing of dist/go, dist/java and dist/dotnet
    #[arg(long)]
    pub(crate) native: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CheckArguments {
    /// Only these distributions
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub(crate) only: Vec<String>,

    /// Print the distributions, and try nothing
    #[arg(long)]
    pub(crate) list: bool,
}
