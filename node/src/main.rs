//! `weir`: a node, a cluster for trying things, and the operator's command line.

fn main() -> std::process::ExitCode {
    weir_node::cli::main()
}
