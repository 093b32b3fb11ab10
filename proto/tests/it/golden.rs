//! Texts that are part of the contract.

use std::path::PathBuf;

/// Holds a text against its file under `tests`. With `WEIR_FREEZE=1` a missing file is written; none is
/// ever overwritten.
pub(crate) fn check(file: &str, text: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests")
        .join(file);
    if !path.exists() && std::env::var_os("WEIR_FREEZE").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text, "{file}");
}
