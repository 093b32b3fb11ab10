//! The very program that is shipped, under a name of this crate: cargo then builds it together with the
//! tests that run it, with the same features, and tells them where it is.

fn main() -> std::process::ExitCode {
    weir_node::cli::main()
}
