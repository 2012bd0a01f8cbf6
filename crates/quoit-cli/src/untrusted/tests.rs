//! Every file of the fuzzer's corpora, through the function that the fuzzer calls.

use std::fs;
use std::path::Path;

/// Replays `fuzz/corpus/{target}`.
fn replay(target: &str, decode: fn(&[u8])) {
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

macro_rules! replay {
    ($($target:ident)*) => { $(
        #[test]
        fn $target() {
            replay(stringify!($target), super::$target);
        }
    )* };
}

replay!(dns_query experiment http_chunks http_head http_reply http_server results rpc_client rpc_frames rpc_server);
