//! The decoder, given anything. See [`quoit_corpus`].

use quoit_corpus::cuttings;

use super::decoder::{Decoder, Part};
use super::frame::{Kind, header};

/// However the stream is cut, the same frames are found in it and the same fault; and what was found, written
/// again, is what was read.
pub fn rpc_frames(bytes: &[u8]) {
    let mut seen = None;
    for pieces in cuttings(bytes) {
        let mut decoder = Decoder::new();
        let mut written = Vec::new();
        let mut fault = None;
        'pieces: for piece in pieces {
            let mut input = piece;
            loop {
                match decoder.next(&mut input) {
                    Ok(Some(Part::Control { stream, control })) => control.append(stream, &mut written),
                    Ok(Some(Part::Message {
                        stream,
                        size,
                        from,
                        bytes,
                    })) => {
                        if from == 0 {
                            written.extend_from_slice(&header(stream, Kind::Message, size));
                        }
                        assert!(!bytes.is_empty());
                        written.extend_from_slice(bytes);
                    }
                    Ok(None) => {
                        assert!(input.is_empty(), "bytes were left over");
                        break;
                    }
                    Err(what) => {
                        fault = Some(what);
                        break 'pieces;
                    }
                }
            }
        }
        assert!(
            bytes.starts_with(&written),
            "frames are written as they were read"
        );
        match &seen {
            None => seen = Some((written, fault)),
            Some(seen) => assert_eq!(*seen, (written, fault)),
        }
    }
}
