//! `tidegate completions SHELL`.

use clap_complete::Shell;

use crate::exit::Failure;
use crate::output;

/// Flags of `completions`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints the script.
pub(crate) fn run(args: &Args, mut command: clap::Command) -> Result<(), Failure> {
    // Into memory first: the generator panics where its writer fails, and standard output may be closed.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "tidegate", &mut script);
    output::bytes(&script)
}
