//! What holds for all frames, however the stream is cut.

use proptest::prelude::*;
use proptest::sample::Index;

use super::content::{Checker, Content};
use super::decoder::{Decoder, Part};
use super::frame::{Control, End, Kind, OpenRequest, OpenResponse, Pace, header};
use super::{MAX_ERROR_TEXT, MAX_FRAME};

/// A frame with memory of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Frame {
    Control(u32, Control<'static>),
    Error(u32, u32, String),
    Message(u32, Vec<u8>),
}

impl Frame {
    fn append(&self, output: &mut Vec<u8>) {
        match self {
            Frame::Control(stream, control) => control.append(*stream, output),
            Frame::Error(stream, code, text) => Control::Error(*code, text).append(*stream, output),
            Frame::Message(stream, content) => {
                output.extend_from_slice(&header(*stream, Kind::Message, content.len() as u32));
                output.extend_from_slice(content);
            }
        }
    }
}

fn open_response() -> impl Strategy<Value = OpenResponse> {
    let pace = (1_u32.., 1_u64..).prop_map(|(batch, period)| Pace { batch, period });
    let numbers = (any::<u32>(), any::<u64>(), any::<u32>(), any::<u32>());
    (numbers, prop::option::of(pace), any::<bool>()).prop_map(
        |((tag, messages, size, credit), pace, timed)| OpenResponse {
            tag,
            messages,
            size,
            credit,
            pace,
            timed,
        },
    )
}

fn frame() -> impl Strategy<Value = Frame> {
    let open_request = (any::<u32>(), any::<u64>(), any::<u32>())
        .prop_map(|(tag, messages, size)| OpenRequest { tag, messages, size });
    let end = (any::<u64>(), any::<u32>()).prop_map(|(messages, checksum)| End { messages, checksum });
    let control = prop_oneof![
        open_response().prop_map(Control::OpenResponse),
        open_request.prop_map(Control::OpenRequest),
        (1_u32..).prop_map(Control::Credit),
        Just(Control::Cancel),
        end.prop_map(Control::End),
    ];
    prop_oneof![
        (any::<u32>(), control).prop_map(|(stream, control)| Frame::Control(stream, control)),
        (any::<u32>(), any::<u32>(), "\\PC{0,60}")
            .prop_map(|(stream, code, text)| Frame::Error(stream, code, text)),
        (any::<u32>(), prop::collection::vec(any::<u8>(), 24..300))
            .prop_map(|(stream, content)| Frame::Message(stream, content)),
    ]
}

/// The frames of a stream that is cut there, and what is wrong with the rest.
fn decode(stream: &[u8], cuts: &[Index]) -> (Vec<Frame>, Option<&'static str>) {
    let mut bounds: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
    bounds.extend([0, stream.len()]);
    bounds.sort_unstable();
    let mut decoder = Decoder::new();
    let mut frames = Vec::new();
    let mut content = Vec::new();
    for piece in bounds.windows(2) {
        let mut input = &stream[piece[0]..piece[1]];
        loop {
            match decoder.next(&mut input) {
                Ok(None) => break,
                Ok(Some(Part::Control { stream, control })) => frames.push(match control {
                    Control::Error(code, text) => Frame::Error(stream, code, text.to_owned()),
                    Control::OpenResponse(open) => Frame::Control(stream, Control::OpenResponse(open)),
                    Control::OpenRequest(open) => Frame::Control(stream, Control::OpenRequest(open)),
                    Control::Credit(messages) => Frame::Control(stream, Control::Credit(messages)),
                    Control::Cancel => Frame::Control(stream, Control::Cancel),
                    Control::End(end) => Frame::Control(stream, Control::End(end)),
                }),
                Ok(Some(Part::Message {
                    stream,
                    size,
                    from,
                    bytes,
                })) => {
                    assert!(!bytes.is_empty());
                    assert_eq!(from as usize, content.len());
                    content.extend_from_slice(bytes);
                    if content.len() == size as usize {
                        frames.push(Frame::Message(stream, std::mem::take(&mut content)));
                    }
                }
                Err(what) => return (frames, Some(what)),
            }
        }
        assert!(input.is_empty(), "bytes left over");
    }
    (frames, None)
}

proptest! {
    #[test]
    fn any_cutting_gives_the_frames_that_were_written(
        frames in prop::collection::vec(frame(), 0..20),
        cuts in prop::collection::vec(any::<Index>(), 0..40),
    ) {
        let mut stream = Vec::new();
        frames.iter().for_each(|frame| frame.append(&mut stream));
        prop_assert_eq!(decode(&stream, &cuts), (frames, None));
    }

    #[test]
    fn any_bytes_give_the_same_however_they_are_cut(
        frames in prop::collection::vec(frame(), 1..6),
        changed in prop::collection::vec((any::<Index>(), any::<u8>()), 1..4),
        cuts in prop::collection::vec(any::<Index>(), 0..40),
    ) {
        let mut stream = Vec::new();
        frames.iter().for_each(|frame| frame.append(&mut stream));
        for (place, byte) in changed {
            let place = place.index(stream.len());
            stream[place] = byte;
        }
        prop_assert_eq!(decode(&stream, &cuts), decode(&stream, &[]));
    }

    #[test]
    fn content_is_the_same_in_pieces_and_every_changed_byte_is_found(
        (sequence, stream, tag, time) in any::<(u64, u32, u32, u64)>(),
        size in 24_usize..40_000,
        cuts in prop::collection::vec(any::<Index>(), 0..6),
        place in any::<Index>(),
        change in 1_u8..,
    ) {
        let content = Content { sequence, stream, tag, time };
        let mut whole = Vec::new();
        content.append(0, size, &mut whole);
        prop_assert_eq!(whole.len(), size);
        let mut bounds: Vec<usize> = cuts.iter().map(|cut| cut.index(size + 1)).collect();
        bounds.extend([0, size]);
        bounds.sort_unstable();
        let check = |bytes: &[u8]| {
            let mut checker = Checker::default();
            let result = bounds.windows(2).try_for_each(|piece| {
                checker.check(&content, piece[0], &bytes[piece[0]..piece[1]])
            });
            (result, checker.time())
        };
        prop_assert_eq!(check(&whole), (Ok(()), (time != 0).then_some(time)));
        let mut pieces = Vec::new();
        bounds.windows(2).for_each(|piece| content.append(piece[0], piece[1], &mut pieces));
        prop_assert_eq!(&pieces, &whole);
        let place = place.index(size);
        whole[place] ^= change;
        let (result, found) = check(&whole);
        if (16..24).contains(&place) {
            prop_assert_ne!(found, (time != 0).then_some(time));
        } else {
            prop_assert_eq!(result, Err(place));
        }
    }
}

#[test]
fn a_frame_looks_as_the_description_says() {
    let mut bytes = Vec::new();
    Control::OpenResponse(OpenResponse {
        tag: 0x0102_0304,
        messages: 3,
        size: 128,
        credit: 10,
        pace: Some(Pace {
            batch: 2,
            period: 1_000_000,
        }),
        timed: true,
    })
    .append(7, &mut bytes);
    #[rustfmt::skip]
    let expected = [
        0, 0, 0, 38, 0, 0, 0, 7, 1,
        1, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 128, 0, 0, 0, 10,
        0, 0, 0, 2, 0, 0, 0, 0, 0, 0x0f, 0x42, 0x40,
    ];
    assert_eq!(bytes, expected);

    let mut content = Vec::new();
    Content {
        sequence: 5,
        stream: 6,
        tag: 250,
        time: 1,
    }
    .append(0, 26, &mut content);
    #[rustfmt::skip]
    let expected = [
        0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 6, 0, 0, 0, 250, 0, 0, 0, 0, 0, 0, 0, 1,
        (5 + 6 + 250 + 24 - 251) as u8, (5 + 6 + 250 + 25 - 251) as u8,
    ];
    assert_eq!(content, expected);
}

#[test]
fn what_no_frame_may_be_is_malformed() {
    let frame = |length: u32, kind: u8, payload: &[u8]| {
        [&length.to_be_bytes()[..], &[0, 0, 0, 1, kind], payload].concat()
    };
    for (bytes, what) in [
        (frame(4, 4, &[]), "length"),
        (frame(0, 4, &[]), "length"),
        (frame(MAX_FRAME + 1, 5, &[]), "length"),
        (frame(u32::MAX, 5, &[]), "length"),
        (frame(5, 0, &[]), "kind"),
        (frame(5, 8, &[]), "kind"),
        (frame(6, 4, &[0]), "does not fit"),
        (frame(28, 5, &[0; 23]), "does not fit"),
        (frame(9, 3, &[0; 4]), "grants nothing"),
        (frame(38, 1, &[2; 33]), "unknown flags"),
        (frame(22, 2, &[1; 17]), "unknown flags"),
        (frame(10, 7, &[0, 0, 0, 1, 0xff]), "UTF-8"),
    ] {
        let (frames, wrong) = decode(&bytes, &[]);
        assert!(frames.is_empty());
        assert!(
            wrong.is_some_and(|text| text.contains(what)),
            "{bytes:?}: {wrong:?}"
        );
    }
}

#[test]
fn a_long_text_is_cut_between_characters() {
    let mut bytes = Vec::new();
    Control::Error(1, &"\u{20ac}".repeat(200)).append(0, &mut bytes);
    let (frames, wrong) = decode(&bytes, &[]);
    assert_eq!(wrong, None);
    assert!(
        matches!(&frames[..], [Frame::Error(0, 1, text)] if *text == "\u{20ac}".repeat(MAX_ERROR_TEXT / 3)),
        "{frames:?}"
    );
}
