//! TCP: who ends first, how, and what the other sees of it.

use std::io::{Read, Write};
use std::net::Shutdown;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::scenario;
use quoit_async::Config;

use crate::support::net::unacknowledged;
use crate::support::{blocking, config, once, pattern, reset, told};

/// What the peer reads until the end, and what that is.
async fn rest(peer: std::net::TcpStream) -> String {
    let (result, bytes) = all(peer).await;
    format!("{} {:?}", told(&result), String::from_utf8_lossy(&bytes))
}

async fn all(mut peer: std::net::TcpStream) -> (std::io::Result<usize>, Vec<u8>) {
    blocking(move || {
        let mut bytes = Vec::new();
        let result = peer.read_to_end(&mut bytes);
        (result, bytes)
    })
    .await
}

scenario! {
    fn reading_behind_a_reset(says) {
        let (mut stream, peer) = to_std().await;
        reset(peer);
        says.told("read", stream.read(&mut [0; 8]).await);
        says.told("read", stream.read(&mut [0; 8]).await);
        says.told("try", stream.try_read(&mut [0; 8]));
        says.told("peek", stream.peek(&mut [0; 8]).await);
        says.told("write", stream.write(b"x").await);
        says.told("shutdown", stream.shutdown().await);
    }
}

scenario! {
    fn bytes_before_a_reset_are_read(says) {
        let (mut stream, mut peer) = from_std().await;
        peer.write_all(b"before").unwrap();
        reset(peer);
        let mut buffer = [0; 4];
        says.told("read", stream.read(&mut buffer).await);
        says.told("read", stream.read(&mut buffer).await);
        says.told("read", stream.read(&mut buffer).await);
        says.told("read", stream.read(&mut buffer).await);
    }
}

/// A stream holds little, and the rest of what its peer sends is the kernel's.
fn little() -> Config {
    Config {
        receive_slots: 64,
        receive_slot_size: 256,
        leases_per_connection: 4,
        ..config()
    }
}

scenario! {
    with crate::ends::little;
    /// What had come before is read first, and the reset is no less a reset for having waited.
    fn a_reset_waits_behind_a_full_queue(says) {
        // The kernel takes as much for who reads nothing.
        const SENT: usize = 40_000;
        let (mut stream, mut peer) = from_std().await;
        let sent = pattern(SENT);
        peer.write_all(&sent).unwrap();
        // A reset takes with it what is still on its way.
        while unacknowledged(&peer).unwrap() > 0 {
            tokio::task::yield_now().await;
        }
        is_full(&stream, SENT).await;
        reset(peer);
        let (mut read, mut buffer) = (Vec::new(), [0; 1000]);
        let end = loop {
            match stream.read(&mut buffer).await {
                Ok(count) if count > 0 => read.extend_from_slice(&buffer[..count]),
                end => break end,
            }
        };
        says.note(format!("{} of {SENT} bytes, right: {}", read.len(), sent.starts_with(&read)));
        says.told("the end", end);
        says.told("read", stream.read(&mut buffer).await);
        says.told("write", stream.write(b"x").await);
    }
}

scenario! {
    with crate::ends::little;
    /// A write is told of the reset, and what had come before it is still read.
    fn a_write_is_told_of_a_reset_behind_a_full_queue(says) {
        const SENT: usize = 40_000;
        let (mut stream, mut peer) = from_std().await;
        let sent = pattern(SENT);
        peer.write_all(&sent).unwrap();
        while unacknowledged(&peer).unwrap() > 0 {
            tokio::task::yield_now().await;
        }
        is_full(&stream, SENT).await;
        reset(peer);
        // The first ones may be before it.
        let failed = loop {
            match stream.write(b"x").await {
                Ok(_) => tokio::task::yield_now().await,
                failed => break failed,
            }
        };
        says.told("write", failed);
        says.told("write", stream.write(b"x").await);
        let mut read = Vec::new();
        says.told("the end", stream.read_to_end(&mut read).await);
        says.note(format!("{} of {SENT} bytes, right: {}", read.len(), sent.starts_with(&read)));
        says.told("write", stream.write(b"x").await);
    }
}

scenario! {
    fn writing_behind_a_reset(says) {
        let (mut stream, peer) = to_std().await;
        reset(peer);
        stream.readable().await.unwrap();
        says.told("write", stream.write(b"x").await);
        says.told("write", stream.write(b"x").await);
        says.told("nothing", stream.write(b"").await);
        says.told("read", stream.read(&mut [0; 8]).await);
    }
}

scenario! {
    fn ending_behind_a_reset(says) {
        let (mut stream, peer) = to_std().await;
        reset(peer);
        stream.readable().await.unwrap();
        says.told("shutdown", stream.shutdown().await);
        says.told("write", stream.write(b"x").await);
        says.told("write", stream.write(b"x").await);
        says.told("read", stream.read(&mut [0; 8]).await);
    }
}

scenario! {
    fn a_reset_behind_the_own_end(says) {
        let (mut stream, peer) = to_std().await;
        stream.shutdown().await.unwrap();
        reset(peer);
        stream.readable().await.unwrap();
        says.told("write", stream.write(b"x").await);
        says.told("read", stream.read(&mut [0; 8]).await);
        says.told("read", stream.read(&mut [0; 8]).await);
    }
}

scenario! {
    fn a_reset_behind_the_peers_end(says) {
        let (mut stream, peer) = to_std().await;
        peer.shutdown(Shutdown::Write).unwrap();
        says.told("end", stream.read(&mut [0; 8]).await);
        reset(peer);
        // The reset is there: a write finds it at the latest.
        let error = loop {
            match stream.write(b"x").await {
                Ok(_) => tokio::task::yield_now().await,
                error => break error,
            }
        };
        says.told("write", error);
        says.told("write", stream.write(b"x").await);
        says.told("read", stream.read(&mut [0; 8]).await);
    }
}

scenario! {
    fn writing_to_who_has_closed(says) {
        let (mut stream, peer) = to_std().await;
        drop(peer);
        says.told("end", stream.read(&mut [0; 8]).await);
        let mut written = 0;
        let error = loop {
            match stream.write(b"x").await {
                Ok(_) => written += 1,
                error => break error,
            }
            tokio::task::yield_now().await;
        };
        says.note(format!("{}", written > 0));
        says.told("write", error);
        says.told("write", stream.write(b"x").await);
        says.told("read", stream.read(&mut [0; 8]).await);
        says.told("shutdown", stream.shutdown().await);
    }
}

scenario! {
    fn a_waiting_read_is_told_of_a_reset(says) {
        let (mut stream, peer) = to_std().await;
        let reading = tokio::spawn(async move {
            let first = stream.read(&mut [0; 8]).await;
            (first, stream.read(&mut [0; 8]).await)
        });
        tokio::task::yield_now().await;
        reset(peer);
        let (first, second) = reading.await.unwrap();
        says.told("first", first);
        says.told("second", second);
    }
}

scenario! {
    fn a_waiting_write_is_told_of_a_reset(says) {
        let (mut stream, peer) = to_std().await;
        let chunk = pattern(100_000);
        while let Some(result) = once(stream.write(&chunk)).await {
            result.unwrap();
        }
        let writing = tokio::spawn(async move {
            let error = loop {
                if let Err(error) = stream.write(&chunk).await {
                    break error;
                }
            };
            (error, stream.write(b"x").await, stream.read(&mut [0; 8]).await)
        });
        tokio::task::yield_now().await;
        reset(peer);
        let (error, again, read) = writing.await.unwrap();
        says.told::<()>("write", Err(error));
        says.told("again", again);
        says.told("read", read);
    }
}

scenario! {
    fn dropping_ends_in_order(says) {
        let (mut stream, mut peer) = to_std().await;
        peer.write_all(b"read").unwrap();
        stream.read_exact(&mut [0; 4]).await.unwrap();
        stream.write_all(b"the last words").await.unwrap();
        drop(stream);
        says.note(rest(peer).await);
    }
}

scenario! {
    fn dropping_behind_the_peers_end(says) {
        let (mut stream, peer) = from_std().await;
        peer.shutdown(Shutdown::Write).unwrap();
        says.told("end", stream.read(&mut [0; 8]).await);
        stream.write_all(b"answer").await.unwrap();
        drop(stream);
        says.note(rest(peer).await);
    }
}

scenario! {
    fn dropping_with_an_unread_end(says) {
        let (stream, peer) = from_std().await;
        peer.shutdown(Shutdown::Write).unwrap();
        stream.readable().await.unwrap();
        drop(stream);
        says.note(rest(peer).await);
    }
}

scenario! {
    fn dropping_with_something_unread_resets(says) {
        let (stream, mut peer) = to_std().await;
        peer.write_all(b"never read").unwrap();
        stream.readable().await.unwrap();
        drop(stream);
        says.note(rest(peer).await);
    }
}

scenario! {
    fn dropping_with_a_part_unread_resets(says) {
        let (mut stream, mut peer) = to_std().await;
        peer.write_all(b"partly read").unwrap();
        stream.read_exact(&mut [0; 6]).await.unwrap();
        drop(stream);
        says.note(rest(peer).await);
    }
}

scenario! {
    fn dropping_both_halves_with_something_unread_resets(says) {
        let (stream, mut peer) = to_std().await;
        let (reader, writer) = stream.into_split();
        peer.write_all(b"never read").unwrap();
        reader.readable().await.unwrap();
        writer.forget();
        drop(reader);
        says.note(rest(peer).await);
    }
}

scenario! {
    fn all_arrives_behind_the_drop_at_a_slow_reader(says) {
        let (mut stream, mut peer) = to_std().await;
        let sent = pattern(6 << 20);
        let writing = tokio::spawn(async move {
            stream.write_all(&sent).await.unwrap();
            drop(stream);
            sent
        });
        let read = blocking(move || {
            let mut all = Vec::new();
            let mut buffer = [0; 3000];
            loop {
                match peer.read(&mut buffer) {
                    Ok(0) => return Ok(all),
                    Ok(count) => all.extend_from_slice(&buffer[..count]),
                    Err(error) => return Err(error),
                }
                std::thread::yield_now();
            }
        })
        .await;
        let sent = writing.await.unwrap();
        says.told("read", read.map(|read| read == sent));
    }
}

scenario! {
    fn all_arrives_though_the_reader_begins_behind_the_drop(says) {
        let (stream, peer) = to_std().await;
        let chunk = pattern(50_000);
        let mut written = Vec::new();
        while let Some(result) = once(async { stream.writable().await?; stream.try_write(&chunk) }).await {
            match result {
                Ok(count) => written.extend_from_slice(&chunk[..count]),
                Err(_) => break,
            }
        }
        drop(stream);
        let (result, bytes) = all(peer).await;
        says.told("read", result.map(|_| bytes == written));
    }
}

scenario! {
    fn no_lingering_is_a_reset(says) {
        let (mut stream, peer) = to_std().await;
        stream.write_all(b"maybe").await.unwrap();
        stream.set_zero_linger().unwrap();
        drop(stream);
        let (result, _) = all(peer).await;
        says.told("peer", result);
    }
}

scenario! {
    /// What the kernel has had before the reset is read before it.
    fn no_lingering_leaves_what_was_written(says) {
        for ends in [false, true] {
            let (mut stream, peer) = to_std().await;
            stream.set_zero_linger().unwrap();
            stream.write_all(b"written before").await.unwrap();
            if ends {
                let (mut reader, mut writer) = stream.into_split();
                writer.write_all(b", and more").await.unwrap();
                drop(writer);
                says.note(format!("{:?}", once(reader.read(&mut [0; 8])).await.is_none()));
            } else {
                drop(stream);
            }
            says.note(rest(peer).await);
        }
    }
}

scenario! {
    /// The own end comes first, where there was one.
    fn no_lingering_of_halves(says) {
        for way in ["writer first", "reader first", "shut down", "together again"] {
            let (mut stream, peer) = to_std().await;
            stream.set_zero_linger().unwrap();
            match way {
                "writer first" => {
                    let (reader, writer) = stream.into_split();
                    drop(writer);
                    drop(reader);
                }
                "reader first" => {
                    let (reader, writer) = stream.into_split();
                    drop(reader);
                    drop(writer);
                }
                "shut down" => {
                    stream.shutdown().await.unwrap();
                    drop(stream);
                }
                _ => {
                    let (reader, writer) = stream.into_split();
                    drop(reader.reunite(writer).unwrap());
                }
            }
            says.note(format!("{way}: {}", rest(peer).await));
        }
    }
}

scenario! {
    fn the_peer_drops_in_the_middle(says) {
        let (mut stream, mut peer) = pair().await;
        let writing = tokio::spawn(async move {
            peer.write_all(&pattern(1 << 20)).await.unwrap();
        });
        let mut all = Vec::new();
        says.told("read", stream.read_to_end(&mut all).await);
        assert!(all == pattern(1 << 20));
        writing.await.unwrap();
        says.told("end", stream.read(&mut [0; 8]).await);
    }
}

scenario! {
    fn an_aborted_task_closes_its_stream(says) {
        let (mut stream, peer) = to_std().await;
        let (tell, begun) = tokio::sync::oneshot::channel();
        let reading = tokio::spawn(async move {
            stream.write_all(b"begun").await.unwrap();
            tell.send(()).unwrap();
            stream.read(&mut [0; 8]).await
        });
        begun.await.unwrap();
        reading.abort();
        says.note(format!("{}", reading.await.unwrap_err().is_cancelled()));
        says.note(rest(peer).await);
    }
}

scenario! {
    fn dropping_behind_the_own_end_with_something_unread(says) {
        for writes in [&b""[..], b"the last words"] {
            let (mut stream, mut peer) = to_std().await;
            peer.write_all(b"never read").unwrap();
            stream.readable().await.unwrap();
            stream.write_all(writes).await.unwrap();
            // The peer sees this end and nothing else: what follows is told to who writes.
            stream.shutdown().await.unwrap();
            drop(stream);
            says.note(rest(peer).await);
        }
    }
}

scenario! {
    fn dropping_with_something_unread_and_something_written(says) {
        let (mut stream, mut peer) = to_std().await;
        peer.write_all(b"never read").unwrap();
        stream.readable().await.unwrap();
        stream.write_all(b"the last words").await.unwrap();
        drop(stream);
        says.note(rest(peer).await);
    }
}
