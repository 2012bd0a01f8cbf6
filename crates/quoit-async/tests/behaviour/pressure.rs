//! Streams that nobody reads, and peers that do not read.

use std::io::{Read, Write};
use std::pin::pin;

use quoit_async::{Config, TcpListener, TcpStream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{
    Held, beside_loops_of, blocking, both_ways, config, held, is_own_process, on_a_loop, on_a_loop_of, once,
    pattern,
};

/// Few slots, so that it shows who takes them all.
fn few() -> Config {
    Config {
        receive_slots: 64,
        receive_slot_size: 2048,
        ..config()
    }
}

/// What a peer can send that nobody reads: all that fits into the sockets and the loop.
fn fill(peer: &mut std::net::TcpStream, counters: &impl Fn() -> Held) -> usize {
    peer.set_nonblocking(true).unwrap();
    let chunk = pattern(16_384);
    let (mut sent, mut quiet) = (0, 0);
    // Full is full when a while of nothing but other threads' work has made no room.
    while quiet < 200 {
        let at = sent % chunk.len();
        match peer.write(&chunk[at..]) {
            Ok(count) => (sent, quiet) = (sent + count, 0),
            Err(_) => quiet += 1,
        }
        let held = counters();
        assert!(held.copied <= 4096, "{held:?}");
        std::thread::yield_now();
    }
    peer.set_nonblocking(false).unwrap();
    sent
}

async fn unread_beside_read(counters: impl Fn() -> Held + Clone + Send + 'static) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut unread = Vec::new();
    for _ in 0..12 {
        let look = counters.clone();
        let filling = tokio::task::spawn_blocking(move || {
            let mut peer = std::net::TcpStream::connect(address).unwrap();
            let sent = fill(&mut peer, &look);
            (peer, sent)
        });
        let stream = listener.accept().await.unwrap().0;
        let (peer, sent) = filling.await.unwrap();
        unread.push((stream, peer, sent));
    }
    // Others are served all the same.
    let asking = tokio::task::spawn_blocking(move || {
        let mut peer = std::net::TcpStream::connect(address).unwrap();
        let sent = pattern(200_000);
        let mut writer = peer.try_clone().unwrap();
        let expected = sent.clone();
        let writing = std::thread::spawn(move || {
            writer.write_all(&sent).unwrap();
            writer.shutdown(std::net::Shutdown::Write).unwrap();
        });
        let mut back = Vec::new();
        peer.read_to_end(&mut back).unwrap();
        writing.join().unwrap();
        assert!(back == expected);
    });
    let mut stream = listener.accept().await.unwrap().0;
    let mut buffer = [0; 4000];
    loop {
        match stream.read(&mut buffer).await.unwrap() {
            0 => break,
            count => stream.write_all(&buffer[..count]).await.unwrap(),
        }
    }
    drop(stream);
    asking.await.unwrap();
    // And nothing of what stood still is lost.
    for (mut stream, peer, sent) in unread {
        drop(peer);
        let mut all = Vec::new();
        stream.read_to_end(&mut all).await.unwrap();
        assert_eq!(all.len(), sent);
        let chunk = pattern(16_384);
        assert!(all.chunks(chunk.len()).all(|part| part == &chunk[..part.len()]));
    }
}

#[test]
fn a_stream_that_nobody_reads_stops_nobody() {
    if !is_own_process(concat!(
        module_path!(),
        "::a_stream_that_nobody_reads_stops_nobody"
    )) {
        return;
    }
    on_a_loop_of(few(), |context| {
        let context = std::sync::Arc::new(context);
        unread_beside_read(move || held(&[context.counters()]))
    });
    beside_loops_of(
        few(),
        unread_beside_read(|| held(&quoit_async::default_counters())),
    );
}

#[test]
fn what_a_peer_does_not_read_waits_and_arrives() {
    if !is_own_process(concat!(
        module_path!(),
        "::what_a_peer_does_not_read_waits_and_arrives"
    )) {
        return;
    }
    both_ways(|| async {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let mut peer = listener.accept().unwrap().0;
        let chunk = pattern(50_000);
        let mut written = Vec::new();
        while let Some(result) = once(stream.write(&chunk)).await {
            written.extend_from_slice(&chunk[..result.unwrap()]);
            assert!(written.len() < 64 << 20, "it has a limit");
        }
        let writing = tokio::spawn(async move {
            stream.write_all(b"the rest").await.unwrap();
            stream.flushed().await.unwrap();
        });
        let read = blocking(move || {
            let mut all = Vec::new();
            peer.read_to_end(&mut all).unwrap();
            all
        })
        .await;
        writing.await.unwrap();
        written.extend_from_slice(b"the rest");
        assert!(read == written);
    });
}

/// What a task writes in pieces without a wait leaves the loop's thread in two sends at most: the first piece at once, and the
/// others together.
#[test]
fn small_writes_of_one_turn_leave_together() {
    if !is_own_process(concat!(
        module_path!(),
        "::small_writes_of_one_turn_leave_together"
    )) {
        return;
    }
    on_a_loop_of(config(), |context| async move {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let mut peer = listener.accept().unwrap().0;
        let before = context.counters().sends;
        let bytes = pattern(16 * 100);
        for piece in bytes.chunks(100) {
            assert_eq!(stream.try_write(piece).unwrap(), piece.len());
        }
        let received = blocking(move || {
            let mut received = vec![0; 16 * 100];
            peer.read_exact(&mut received).unwrap();
            received
        });
        assert!(received.await == bytes);
        let sends = context.counters().sends - before;
        assert!((1..=2).contains(&sends), "{sends} sends");
    });
}

#[test]
fn who_waits_behind_a_queue_that_is_full_to_the_mark_is_told() {
    if !is_own_process(concat!(
        module_path!(),
        "::who_waits_behind_a_queue_that_is_full_to_the_mark_is_told"
    )) {
        return;
    }
    on_a_loop_of(config(), |_| async {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        let (chunk, mark) = (pattern(1 << 20), config().high_water as usize);
        // What the kernel does not take fills the queue as far as it goes, and nothing has been refused.
        let mut written = 0;
        loop {
            let taken = stream.try_write(&chunk).unwrap();
            written += taken;
            if taken == mark {
                break;
            }
        }
        let mut flushing = std::pin::pin!(stream.flushed());
        assert!(once(flushing.as_mut()).await.is_none());
        let reading =
            blocking(move || std::io::copy(&mut (&mut peer).take(written as u64), &mut std::io::sink()));
        let (read, flushed) = tokio::join!(reading, flushing);
        assert_eq!(read.unwrap(), written as u64);
        flushed.unwrap();
    });
}

/// A stream that takes no more, its peer, and how much is on its way to that. On its loop's thread it stays so until the task
/// waits; beside it, the loop may make room at any time.
async fn full() -> (TcpStream, std::net::TcpStream, u64) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let peer = listener.accept().unwrap().0;
    let chunk = pattern(1 << 20);
    let mut written = 0;
    while let Ok(taken) = stream.try_write(&chunk) {
        written += taken as u64;
    }
    (stream, peer, written)
}

/// Has the peer take all of it, so that there is room again.
async fn make_room(stream: &TcpStream, mut peer: std::net::TcpStream, written: u64) -> std::net::TcpStream {
    let reading = blocking(move || {
        let read = std::io::copy(&mut (&mut peer).take(written), &mut std::io::sink());
        assert_eq!(read.unwrap(), written);
        peer
    });
    let peer = reading.await;
    stream.writable().await.unwrap();
    peer
}

/// Who began to wait first need not be the first to find room.
#[test]
fn two_that_flush_one_stream_are_both_told() {
    if !is_own_process(concat!(
        module_path!(),
        "::two_that_flush_one_stream_are_both_told"
    )) {
        return;
    }
    on_a_loop(|_| async {
        let (stream, peer, written) = full().await;
        let (mut early, mut late) = (pin!(stream.flushed()), pin!(stream.flushed()));
        assert!(once(early.as_mut()).await.is_none());
        assert!(once(late.as_mut()).await.is_none());
        let _peer = make_room(&stream, peer, written).await;
        let (late, early) = tokio::join!(late, early);
        late.unwrap();
        early.unwrap();
    });
}

#[test]
fn a_file_that_was_too_short_is_told_beside_a_flush() {
    if !is_own_process(concat!(
        module_path!(),
        "::a_file_that_was_too_short_is_told_beside_a_flush"
    )) {
        return;
    }
    on_a_loop(|_| async {
        let (stream, peer, written) = full().await;
        let mut file = tempfile::tempfile().unwrap();
        let content = pattern(5000);
        file.write_all(&content).unwrap();
        let mut sending = pin!(stream.send_file(file, 0, 2 * content.len() as u64));
        let mut flushing = pin!(stream.flushed());
        assert!(once(sending.as_mut()).await.is_none());
        assert!(once(flushing.as_mut()).await.is_none());
        let mut peer = make_room(&stream, peer, written).await;
        flushing.await.unwrap();
        assert_eq!(sending.await.unwrap(), content.len() as u64);
        let received = blocking(move || {
            let mut received = vec![0; 5000];
            peer.read_exact(&mut received).unwrap();
            received
        });
        assert!(received.await == content);
    });
}
