//! Every file of the fuzzer's corpora, through the function that the fuzzer calls.

use std::fs;
use std::path::Path;

/// Gives `decode` each file of `fuzz/corpus/{target}`.
///
/// # Panics
/// There is none, or `decode` panics.
pub fn replay(target: &str, decode: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(target);
    let mut files = 0;
    for entry in fs::read_dir(&folder).expect("each target has a corpus") {
        let path = entry.expect("a file").path();
        eprintln!("{}", path.display());
        decode(&fs::read(&path).expect("a file"));
        files += 1;
    }
    assert!(files > 0, "{} is empty", folder.display());
}

/// A test for each of the functions that it names, in a module whose parent has them: with the files of its corpus.
#[macro_export]
macro_rules! replay {
    ($($target:ident)*) => { $(
        #[test]
        fn $target() {
            $crate::replay(stringify!($target), super::$target);
        }
    )* };
}
