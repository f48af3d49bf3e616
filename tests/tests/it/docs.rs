//! docs/FAILURES.md names the test that proves each row: each of them exists.

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Text of every Rust file below `dir`, build output aside.
fn sources(dir: &Path, into: &mut String) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            sources(&path, into);
        } else if name.ends_with(".rs") {
            into.push_str(&std::fs::read_to_string(&path).unwrap());
        }
    }
}

#[test]
fn each_test_named_in_the_failures_exists() {
    let doc = std::fs::read_to_string(root().join("docs/FAILURES.md")).unwrap();
    let mut code = String::new();
    sources(&root(), &mut code);
    // A test's name is a sentence: in the last cell of a row, four words or more.
    let named: Vec<&str> = doc
        .lines()
        .filter(|line| line.starts_with("| "))
        .filter_map(|line| line.trim_end_matches(" |").rsplit("| ").next())
        .flat_map(|cell| cell.split(", "))
        .filter_map(|name| name.trim().strip_prefix('`')?.strip_suffix('`'))
        .filter(|name| name.matches('_').count() >= 4)
        .collect();
    assert!(named.len() >= 20, "the table was not read: {named:?}");
    let missing: Vec<_> = named
        .iter()
        .filter(|name| !code.contains(&format!("fn {name}(")))
        .collect();
    assert!(missing.is_empty(), "no such tests: {missing:#?}");
}
