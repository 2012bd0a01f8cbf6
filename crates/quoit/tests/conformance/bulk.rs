//! Much of it: once for each engine.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use quoit::{FileRange, OnShort, Token};

use crate::driver::{OnData, drive};
use crate::levels::Level;
use crate::sockets::{Client, pattern};

macro_rules! bulk {
    ($level:ident) => {
        tests! { $level, bulk: a_million_messages a_gibibyte a_file_range_of_more_than_two_gibibytes }
    };
}

pub(crate) fn a_million_messages(level: &Level) {
    const MESSAGES: u64 = 1_000_000;
    drive(level, |driver| {
        driver.on_data = OnData::Echo;
        let address = driver.listen();
        let client = driver.beside(move || {
            let mut client = Client::connect(&address);
            let mut writer = client.try_clone();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let mut buffer = Vec::with_capacity(64 * 1024);
                    for message in 0..MESSAGES {
                        buffer.extend_from_slice(&message.to_le_bytes());
                        buffer.extend_from_slice(&(!message).to_le_bytes());
                        if buffer.len() >= 64 * 1024 {
                            writer.send(&buffer);
                            buffer.clear();
                        }
                    }
                    writer.send(&buffer);
                    writer.shutdown();
                });
                let mut next = 0;
                let mut buffer = vec![0; 1 << 20];
                let mut kept = 0;
                loop {
                    let count = client.read(&mut buffer[kept..]).unwrap();
                    if count == 0 {
                        break;
                    }
                    let filled = kept + count;
                    let whole = filled / 16 * 16;
                    for message in buffer[..whole].chunks_exact(16) {
                        let (number, inverse) = message.split_at(8);
                        let number = u64::from_le_bytes(number.try_into().unwrap());
                        assert_eq!(
                            (number, !number),
                            (next, u64::from_le_bytes(inverse.try_into().unwrap()))
                        );
                        next += 1;
                    }
                    buffer.copy_within(whole..filled, 0);
                    kept = filled - whole;
                }
                assert_eq!((next, kept), (MESSAGES, 0));
            });
        });
        driver.join(client);
    });
}

pub(crate) fn a_gibibyte(level: &Level) {
    const BLOCK: usize = 1 << 20;
    const BLOCKS: u64 = 1 << 10;
    drive(level, |driver| {
        driver.on_data = OnData::Echo;
        let address = driver.listen();
        let client = driver.beside(move || {
            let mut client = Client::connect(&address);
            let mut writer = client.try_clone();
            let block = pattern(0, BLOCK);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let mut block = block.clone();
                    for number in 0..BLOCKS {
                        block[..8].copy_from_slice(&number.to_le_bytes());
                        writer.write_all(&block).unwrap();
                    }
                    writer.shutdown();
                });
                let mut received = vec![0; BLOCK];
                for number in 0..BLOCKS {
                    client.read_exact(&mut received).unwrap();
                    assert_eq!(received[..8], number.to_le_bytes());
                    assert!(received[8..] == block[8..], "block {number} is another");
                }
                client.expect_end();
            });
        });
        driver.join(client);
    });
}

/// Whether the holes of a file may be read: those of a file system in memory take memory then (tmpfs before Linux 6.2, and
/// ramfs, always).
fn has_room_for_holes(file: &File, length: u64) -> bool {
    // SAFETY: a structure of integers, for which all zeroes is a valid value.
    let mut found: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: an open file, and room for one structure.
    let result = unsafe { libc::fstatfs(file.as_raw_fd(), &raw mut found) };
    assert_eq!(result, 0);
    let in_memory = [libc::TMPFS_MAGIC, RAMFS_MAGIC].contains(&found.f_type);
    !in_memory || found.f_bavail * found.f_bsize as u64 > length
}

/// linux/magic.h
const RAMFS_MAGIC: i64 = 0x8584_58f6;

pub(crate) fn a_file_range_of_more_than_two_gibibytes(level: &Level) {
    const LENGTH: u64 = (2 << 30) + 200 * 1024 * 1024;
    let file = tempfile::tempfile().unwrap();
    if !has_room_for_holes(&file, LENGTH) {
        quoit_skipped::skip_this(format!(
            "the temporary folder is in memory and has no room for {LENGTH} bytes"
        ));
        return;
    }
    drive(level, |driver| {
        let (mut client, id) = driver.new_pair();
        file.set_len(LENGTH + 10).unwrap();
        file.write_all_at(b"last", LENGTH + 6).unwrap();
        let range = FileRange {
            file,
            offset: 10,
            length: LENGTH,
            on_short: OnShort::Abort,
        };
        driver.send_file(id, range, Token(5)).unwrap();
        driver.shutdown(id).unwrap();
        let client = driver.beside(move || {
            let mut buffer = vec![0; 1 << 20];
            let mut total = 0;
            let mut last = [0; 4];
            loop {
                let count = client.read(&mut buffer).unwrap();
                if count == 0 {
                    return (total, last);
                }
                total += count as u64;
                for &byte in &buffer[count.saturating_sub(4)..count] {
                    last.rotate_left(1);
                    last[3] = byte;
                }
            }
        });
        assert_eq!(driver.join(client), (LENGTH, *b"last"));
        assert_eq!(driver.seen(id).sent, [Token(5)]);
    });
}
