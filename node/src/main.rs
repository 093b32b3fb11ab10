//! `weir`: a node, a cluster for trying things, and the operator's command line.

/// Records of a busy target are made and forgotten by the thousand every second, in no order. This
/// allocator keeps records of one size side by side, which saves misses of cache and page table.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    weir_node::cli::main()
}
