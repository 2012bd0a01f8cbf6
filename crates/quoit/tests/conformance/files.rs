//! Files that are sent: whole, and cut short.

use std::fs::File;
use std::os::unix::fs::FileExt;

use bytes::Bytes;
use quoit::{CloseReason, Config, Errno, FileRange, OnShort, Token};

use crate::driver::{drive, drive_with};
use crate::levels::Level;
use crate::sending::ascending;
use crate::sockets::pattern;

macro_rules! files {
    ($level:ident) => {
        tests! { $level, files:
            a_file_between_other_sends
            a_file_range_beyond_two_gibibytes
            a_file_cut_short
            a_file_cut_short_while_it_is_sent
            what_is_behind_a_short_file_follows
            a_file_cut_short_while_it_is_sent_and_told_of
            a_close_behind_a_short_file
            files_that_cannot_be_sent
        }
    };
}

/// A file with `length` bytes of a pattern.
fn patterned_file(start: usize, length: usize) -> File {
    let file = tempfile::tempfile().unwrap();
    file.write_all_at(&pattern(start, length), 0).unwrap();
    file
}

pub(crate) fn a_file_between_other_sends(level: &Level) {
    drive(level, |driver| {
        let (mut client, id) = driver.new_pair();
        let file = patterned_file(50, 3_000_000);
        driver.send(id, b"head", Token::NONE).unwrap();
        let range = FileRange {
            file: file.try_clone().unwrap(),
            offset: 1_000,
            length: 2_500_000,
            on_short: OnShort::Abort,
        };
        driver.send_file(id, range, Token(1)).unwrap();
        driver.send(id, Bytes::from_static(b"middle"), Token(2)).unwrap();
        let range = FileRange {
            file,
            offset: 7,
            length: 10,
            on_short: OnShort::Abort,
        };
        driver.send_file(id, range, Token(3)).unwrap();
        driver.send(id, b"tail", Token::NONE).unwrap();
        driver.shutdown(id).unwrap();
        let reader = driver.beside(move || client.receive_rest().0);
        let bytes = driver.join(reader);
        let expected = [
            b"head".to_vec(),
            pattern(1_050, 2_500_000),
            b"middle".to_vec(),
            pattern(57, 10),
            b"tail".to_vec(),
        ]
        .concat();
        assert!(bytes == expected, "{} bytes of {}", bytes.len(), expected.len());
        assert!(ascending(&driver.seen(id).sent));
        assert_eq!(driver.seen(id).sent.last(), Some(&Token(3)));
    });
}

pub(crate) fn a_file_range_beyond_two_gibibytes(level: &Level) {
    drive(level, |driver| {
        let (mut client, id) = driver.new_pair();
        let file = tempfile::tempfile().unwrap();
        let offset = (5 << 30) + 123;
        file.write_all_at(&pattern(9, 10_000), offset).unwrap();
        let range = FileRange {
            file,
            offset: offset - 100,
            length: 10_100,
            on_short: OnShort::Abort,
        };
        driver.send_file(id, range, Token(1)).unwrap();
        driver.until("it is acknowledged", |driver| driver.seen(id).sent == [Token(1)]);
        let bytes = client.receive(10_100);
        assert!(bytes[..100] == [0; 100] && bytes[100..] == pattern(9, 10_000));
    });
}

/// No deadline helps a connection that should end by itself.
fn at_once(config: &mut Config) {
    config.close_deadline = std::time::Duration::from_secs(3600);
}

pub(crate) fn a_file_cut_short(level: &Level) {
    drive_with(level, at_once, |driver| {
        let (mut client, id) = driver.new_pair();
        let range = FileRange {
            file: patterned_file(0, 1000),
            offset: 0,
            length: 1001,
            on_short: OnShort::Abort,
        };
        driver.send_file(id, range, Token(1)).unwrap();
        let no_data = Errno::new(libc::ENODATA);
        assert_eq!(driver.wait_closed(id), CloseReason::Error(no_data));
        assert!(driver.seen(id).sent.is_empty());
        client.expect_reset();
    });
}

pub(crate) fn a_file_cut_short_while_it_is_sent(level: &Level) {
    drive_with(level, at_once, |driver| {
        let (mut client, id) = driver.new_pair();
        let file = patterned_file(0, 12 << 20);
        let range = FileRange {
            file: file.try_clone().unwrap(),
            offset: 0,
            length: 12 << 20,
            on_short: OnShort::Abort,
        };
        driver.send(id, b"before", Token::NONE).unwrap();
        driver.send_file(id, range, Token(1)).unwrap();
        driver.until_quiet();
        file.set_len(4096).unwrap();
        let reader = driver.beside(move || client.receive_rest().1.map_err(|error| error.kind()));
        assert_eq!(driver.join(reader), Err(std::io::ErrorKind::ConnectionReset));
        let no_data = Errno::new(libc::ENODATA);
        assert_eq!(driver.wait_closed(id), CloseReason::Error(no_data));
    });
}

/// What is to be told of in its place if a file is short.
fn told(file: File, offset: u64, length: u64) -> FileRange {
    FileRange {
        file,
        offset,
        length,
        on_short: OnShort::Tell,
    }
}

/// The connection goes on, whether the file has a part of the range or nothing.
pub(crate) fn what_is_behind_a_short_file_follows(level: &Level) {
    drive_with(level, at_once, |driver| {
        let (mut client, id) = driver.new_pair();
        driver.send(id, b"head", Token::NONE).unwrap();
        driver
            .send_file(id, told(patterned_file(0, 1000), 10, 1001), Token(1))
            .unwrap();
        driver.send(id, Bytes::new(), Token(2)).unwrap();
        driver
            .send_file(id, told(patterned_file(0, 1000), 1000, 5), Token::NONE)
            .unwrap();
        driver.send(id, Bytes::from_static(b"tail"), Token(3)).unwrap();
        driver.until("all is sent", |driver| {
            driver.seen(id).sent.last() == Some(&Token(3))
        });
        let expected = [b"head".to_vec(), pattern(10, 990), b"tail".to_vec()].concat();
        assert!(client.receive(expected.len()) == expected);
        assert_eq!(
            driver.seen(id).files_short,
            [(Token(1), 11, None), (Token::NONE, 5, None)]
        );
        assert!(!driver.seen(id).sent.contains(&Token(1)));
        // Both directions go on.
        driver.send(id, b"more", Token::NONE).unwrap();
        driver.until_quiet();
        assert_eq!(client.receive(4), b"more");
        driver.shutdown(id).unwrap();
        driver.until_quiet();
        client.expect_end();
    });
}

pub(crate) fn a_file_cut_short_while_it_is_sent_and_told_of(level: &Level) {
    drive_with(level, at_once, |driver| {
        let (mut client, id) = driver.new_pair();
        let file = patterned_file(0, 12 << 20);
        driver
            .send_file(id, told(file.try_clone().unwrap(), 0, 12 << 20), Token(1))
            .unwrap();
        driver.send(id, b"behind", Token::NONE).unwrap();
        driver.until_quiet();
        file.set_len(4096).unwrap();
        driver.shutdown(id).unwrap();
        let reader = driver.beside(move || client.receive_rest());
        let (bytes, end) = driver.join(reader);
        end.unwrap();
        let [(Token(1), missing, None)] = driver.seen(id).files_short[..] else {
            panic!("{:?}", driver.seen(id).files_short);
        };
        // Not what the bytes are: pages of a file that is cut are cut while the kernel sends from them.
        assert_eq!(bytes.len() as u64 + missing, (12 << 20) + 6);
        assert!(bytes.ends_with(b"behind"));
    });
}

/// A graceful close goes on behind it, and then tells of it, too.
pub(crate) fn a_close_behind_a_short_file(level: &Level) {
    drive_with(level, at_once, |driver| {
        let (mut client, id) = driver.new_pair();
        driver
            .send_file(id, told(patterned_file(0, 1000), 0, 2000), Token(1))
            .unwrap();
        driver.close(id, None).unwrap();
        let reader = driver.beside(move || client.receive_rest());
        let (bytes, end) = driver.join(reader);
        end.unwrap();
        assert!(bytes == pattern(0, 1000));
        assert_eq!(driver.wait_closed(id), CloseReason::Local);
        assert_eq!(driver.seen(id).files_short, [(Token(1), 1000, None)]);
    });
}

/// The error is the file's, and the socket as good as before; without telling, it ends the connection.
pub(crate) fn files_that_cannot_be_sent(level: &Level) {
    drive_with(level, at_once, |driver| {
        let (mut client, id) = driver.new_pair();
        let path = tempfile::NamedTempFile::new().unwrap();
        path.as_file().write_all_at(b"something", 0).unwrap();
        let write_only = || File::options().write(true).open(path.path()).unwrap();
        // `sendfile(2)`: "EINVAL ... or an mmap(2)-like operation is not available for in_fd".
        let pipe = || File::from(std::os::fd::OwnedFd::from(std::io::pipe().unwrap().0));
        driver.send_file(id, told(pipe(), 0, 100), Token(1)).unwrap();
        driver.send_file(id, told(write_only(), 0, 9), Token(2)).unwrap();
        driver.send(id, b"behind", Token::NONE).unwrap();
        driver.until("both are told of", |driver| {
            driver.seen(id).files_short.len() == 2
        });
        driver.until_quiet();
        assert_eq!(client.receive(6), b"behind");
        let seen = &driver.seen(id).files_short;
        assert_eq!((seen[0].0, seen[0].1), (Token(1), 100));
        assert!(seen[0].2.is_some());
        assert_eq!(seen[1], (Token(2), 9, Some(Errno::new(libc::EBADF))));
        let range = FileRange {
            on_short: OnShort::Abort,
            ..told(write_only(), 0, 9)
        };
        driver.send_file(id, range, Token(3)).unwrap();
        assert_eq!(
            driver.wait_closed(id),
            CloseReason::Error(Errno::new(libc::EBADF))
        );
        client.expect_reset();
    });
}
