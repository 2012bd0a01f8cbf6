//! The command line.

use std::path::PathBuf;

use clap::Parser;

const EXAMPLES: &str = "\
Examples:
  quoit-kernels                                        every check on every kernel
  quoit-kernels --list                                 what there is
  quoit-kernels --kernel debian-13 --check parking     one cell
  quoit-kernels --kernel debian-12,debian-13 --repeat 3 --check conformance
  quoit-kernels --image mine=/boot/vmlinuz --kernel mine
  quoit-kernels --keep target/kernels/runs/*           keep these runs' results

Exit status: 0 if every cell passed, 1 if one failed or hung, 2 for wrong usage, 3 if all that could be
run passed, but a kernel could not be fetched or booted (said above).";

/// Boot other kernels in virtual machines, and run the suites and the programs there
#[derive(Debug, Parser)]
#[command(name = "quoit-kernels", after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Only these kernels
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub(crate) kernel: Vec<String>,

    /// Only these checks: all whose names begin so
    #[arg(long, value_name = "NAME", value_delimiter = ';')]
    pub(crate) check: Vec<String>,

    /// Two kernels and the checks that find most: some minutes, for before every commit
    #[arg(long)]
    pub(crate) quick: bool,

    /// How often each check is run
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) repeat: u32,

    /// Machines at once [default: one per processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) jobs: Option<u32>,

    /// A kernel of one's own, or one that is not fetched: its vmlinuz
    #[arg(long, value_name = "NAME=PATH", value_parser = image)]
    pub(crate) image: Vec<(String, PathBuf)>,

    /// Memory of each machine, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 2048, value_parser = clap::value_parser!(u32).range(512..))]
    pub(crate) memory: u32,

    /// How the processor is made: as QEMU's -accel wants it. Emulated by one thread by default, as that works everywhere
    #[arg(long, value_name = "HOW", default_value = "tcg,thread=single")]
    pub(crate) accelerator: String,

    /// Where results and logs go [default: a new folder in target/kernels/runs]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) out: Option<PathBuf>,

    /// Print the kernels and the checks, and run nothing
    #[arg(long)]
    pub(crate) list: bool,

    /// Print the results as JSON in place of the table
    #[arg(long)]
    pub(crate) json: bool,

    /// Add the results of these runs to lab/kernels/results.json and write docs/kernels.md, and run nothing
    #[arg(long, value_name = "FOLDER", num_args = 0..)]
    pub(crate) keep: Option<Vec<PathBuf>>,
}

fn image(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((name, path)) if !name.is_empty() && !path.is_empty() => Ok((name.to_owned(), path.into())),
        _ => Err("it is NAME=PATH, such as mine=/boot/vmlinuz".to_owned()),
    }
}
