//! The `tidegate` program under test, built once for each test process.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Names a program that is there already, and so needs no build.
const GIVEN: &str = "TIDEGATE_TEST_BIN";

/// The program, of the same profile and target directory as the test that asks.
pub(crate) fn tidegate() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| match std::env::var_os(GIVEN) {
        Some(given) => PathBuf::from(given),
        None => build(),
    })
}

/// Of the whole workspace, so that it is the very build of `cargo build --workspace`, which may be there already.
fn build() -> PathBuf {
    let profile_dir = profile_dir();
    let target_dir = profile_dir
        .parent()
        .expect("a profile is a folder of the target directory");
    let profile = match profile_dir.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(other) => other,
    };
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo)
        .args(["build", "--quiet", "--workspace", "--bin", "tidegate"])
        .args(["--profile", profile, "--target-dir"])
        .arg(target_dir)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo is there: it built this test");
    assert!(
        built.status.success(),
        "tidegate does not build:\n{}",
        String::from_utf8_lossy(&built.stderr)
    );
    profile_dir.join("tidegate")
}

/// Where cargo puts what it builds in this program's profile: `<target>/<profile>`.
pub(crate) fn profile_dir() -> PathBuf {
    let program = std::env::current_exe().expect("a program knows its own file");
    let built = |dir: &Path| dir.ends_with("debug") || dir.ends_with("release");
    let dir = program.ancestors().find(|dir| built(dir));
    dir.expect("cargo keeps programs in <target>/<profile>")
        .into()
}
