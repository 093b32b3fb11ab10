//! Tells what an input of a fuzz target is taken for, one log entry after the other:
//! `cargo run --example tell apply INPUT`, or without libFuzzer whether it holds:
//! `cargo run --example tell TARGET INPUT...`.

use std::error::Error;
use weir_admission::State;
use weir_fuzz::plan::Plan;
use weir_fuzz::{apply, client_frame, peer_frame, policy_file, snapshot, stored};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let target = args.next().ok_or("which target?")?;
    let run = match target.as_str() {
        "apply" => apply::run,
        "client_frame" => client_frame::run,
        "peer_frame" => peer_frame::run,
        "policy_file" => policy_file::run,
        "snapshot" => snapshot::run,
        "stored" => stored::run,
        other => return Err(format!("no target {other}").into()),
    };
    for path in args {
        let bytes = std::fs::read(&path)?;
        println!("{path}: {} bytes", bytes.len());
        if target == "apply" {
            tell(&bytes);
        }
        run(&bytes);
    }
    Ok(())
}

/// The history of an input, with its answers.
fn tell(bytes: &[u8]) {
    let mut plan = Plan::new(bytes);
    let mut state = State::default();
    while let Some(entry) = plan.entry() {
        println!("entry {} at {} us", entry.index, entry.stamp.as_micros());
        let outcomes = state.apply(entry.index, entry.stamp, &entry.batch);
        for (operation, outcome) in entry.batch.iter().zip(&outcomes) {
            println!("  {operation:?}\n    -> {outcome:?}");
        }
        plan.note(&outcomes);
    }
}
