//! `weir`: a node, a cluster for trying things, and the operator's command line.

use clap::Parser;
use std::process::ExitCode;
use weir_node::cli::Cli;
use weir_node::exit::Exit;

fn main() -> ExitCode {
    let cli = Cli::parse();
    // One thread for raft, peers and clients: measured faster than several on two cores, and the log has
    // a writer thread of its own.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    match runtime {
        Ok(runtime) => runtime.block_on(cli.run()).into(),
        Err(error) => {
            eprintln!("error: the async runtime does not start: {error}");
            Exit::Failed.into()
        }
    }
}
