//! Generates the wire types from `schema/`. protox compiles the schema in Rust, so that nobody needs
//! protoc.

use prost::Message;
use std::path::PathBuf;

const SCHEMA: &str = "schema";
const FILES: [&str; 6] = [
    "weir/v1/admission.proto",
    "weir/v1/targets.proto",
    "weir/v1/cluster.proto",
    "weir/v1/history.proto",
    "weir/v1/session.proto",
    "weir/peer/v1/peer.proto",
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed={SCHEMA}");
    let descriptors = protox::compile(FILES, [SCHEMA])?;
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("weir.binpb"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure()
        // Ordered maps encode to the same bytes every time.
        .btree_map(".")
        .bytes(".")
        .emit_rerun_if_changed(false)
        .compile_fds(descriptors)?;
    Ok(())
}
