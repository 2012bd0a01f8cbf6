//! Frames on their way out, which may be cut anywhere by the room there is.

use quoit_workload::rpc::FRAME_HEADER;
use quoit_workload::rpc::content::Content;
use quoit_workload::rpc::frame::{Kind, header};

/// A message of which a part is still to be produced.
#[derive(Debug)]
pub(super) struct Message {
    content: Content,
    size: u32,
    /// Bytes of the frame produced so far.
    position: usize,
}

impl Message {
    pub(super) fn new(content: Content, size: u32) -> Self {
        Self {
            content,
            size,
            position: 0,
        }
    }

    /// Appends all of it, for which there is room.
    pub(super) fn append_whole(content: &Content, size: u32, output: &mut Vec<u8>) {
        output.extend_from_slice(&header(content.stream, Kind::Message, size));
        content.append(0, size as usize, output);
    }

    /// Bytes of a frame with a message of this size.
    pub(super) fn frame(size: u32) -> usize {
        FRAME_HEADER + size as usize
    }

    /// Appends as much as there is room for. True when that was the rest.
    pub(super) fn append(&mut self, output: &mut Vec<u8>, room: usize) -> bool {
        let end = Self::frame(self.size).min(self.position + room);
        if self.position < FRAME_HEADER {
            let header = header(self.content.stream, Kind::Message, self.size);
            output.extend_from_slice(&header[self.position..end.min(FRAME_HEADER)]);
        }
        let from = self.position.max(FRAME_HEADER);
        if from < end {
            self.content
                .append(from - FRAME_HEADER, end - FRAME_HEADER, output);
        }
        self.position = end;
        end == Self::frame(self.size)
    }
}
