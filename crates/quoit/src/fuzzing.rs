//! What decodes texts that others chose, one function for each: they take any bytes, and panic where the decoder does
//! not keep its promises. The fuzz targets in `fuzz/` call them with what the fuzzer invents, and the tests here with
//! the files of its corpora.

/// [`Address`](crate::Address) from a text.
pub fn address(bytes: &[u8]) {
    crate::address::fuzzing(bytes);
}

/// [`inherited`](crate::listen::inherited) with the variables `LISTEN_PID`, `LISTEN_FDS` and `LISTEN_FDNAMES` as
/// lines, in the process 7.
pub fn listen_environment(bytes: &[u8]) {
    crate::listen::fuzzing(bytes);
}

/// A header of the PROXY protocol ([`decode`](crate::proxy_protocol::decode)): the first two bytes are the limit.
pub fn proxy_header(bytes: &[u8]) {
    crate::proxy_protocol::fuzzing(bytes);
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    /// Replays `fuzz/corpus/{target}`.
    fn replay(target: &str, decode: fn(&[u8])) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../fuzz/corpus")
            .join(target);
        let mut files = 0;
        for entry in fs::read_dir(&folder).expect("each target has a corpus") {
            decode(&fs::read(entry.expect("a file").path()).expect("a file"));
            files += 1;
        }
        assert!(files > 0, "{} is empty", folder.display());
    }

    #[test]
    fn address() {
        replay("address", super::address);
    }

    #[test]
    fn listen_environment() {
        replay("listen_environment", super::listen_environment);
    }

    #[test]
    fn proxy_header() {
        replay("proxy_header", super::proxy_header);
    }
}
