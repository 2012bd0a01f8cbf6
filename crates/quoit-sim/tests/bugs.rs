//! The bugs that prove that the simulator finds any: each still applies to the sources of today. That each is found
//! is shown by `make hunt-proof`, which builds them one by one and takes some minutes.

use std::path::Path;
use std::process::Command;

#[test]
fn the_seeded_bugs_still_apply() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = here.join("../..");
    let mut count = 0;
    for entry in std::fs::read_dir(here.join("bugs")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "patch") {
            continue;
        }
        let output = Command::new("git")
            .args(["apply", "--check"])
            .arg(&path)
            .current_dir(&root)
            .output();
        let output = match output {
            Ok(output) => output,
            Err(error) => {
                println!("skipped: git is not there to check the patches: {error}");
                return;
            }
        };
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {message}", path.display());
        count += 1;
    }
    assert!(count >= 10, "only {count} patches were found");
}
