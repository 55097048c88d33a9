//! The tests of the Python drivers, run with the machine's own interpreter.

use std::path::Path;
use std::process::Command;

#[test]
fn drivers_hold_against_every_attack() {
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("python");
    let run = Command::new("python3").arg("test_drivers.py").current_dir(python).output();
    let run = run.expect("python3 has to be installed, as set-up needs it too");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
}
