//! The pages of this repository that show results.

use std::path::Path;

use crate::results::lab;

#[test]
fn committed_pages_are_what_the_result_files_give() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = |name: &str| root.join(name).display().to_string();
    let output = lab(
        "pages",
        &[],
        &[
            "--check",
            "--results",
            &folder("lab/results"),
            "--docs",
            &folder("docs"),
        ],
    );
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
