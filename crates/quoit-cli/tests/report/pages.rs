//! The pages of this repository that show results.

use std::path::Path;

use crate::results::{Files, lab};

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

/// Pages belong to result files. A folder that was mistyped is none without files, by which all pages would go.
#[test]
fn a_folder_of_results_that_is_not_there_takes_no_page_away() {
    let files = Files::new();
    let page = files.path("docs/results/plaintext.md");
    std::fs::create_dir_all(page.parent().unwrap()).unwrap();
    std::fs::write(&page, "what was measured").unwrap();
    let (docs, results) = (files.path("docs"), files.path("reslts"));
    let folders = [
        "--docs",
        docs.to_str().unwrap(),
        "--results",
        results.to_str().unwrap(),
    ];
    for check in [&[][..], &["--check"]] {
        let output = lab("pages", &[], &[&folders, check].concat());
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(
            text.contains("reslts of result files; start it where the repository is"),
            "{text}"
        );
        assert_eq!(std::fs::read_to_string(&page).unwrap(), "what was measured");
    }
}
