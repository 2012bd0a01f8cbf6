//! What these streams have beside what tokio's have: leases and buffers that are looked into, files, and what they do together.

use std::io::Write;

use quoit_async::{TcpListener, TcpStream};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};

use crate::support::{both_ways, is_own_process, once, pattern, reset};

async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (one, other) = tokio::join!(TcpStream::connect(address), listener.accept());
    (one.unwrap(), other.unwrap().0)
}

/// Who looks for a whole head does so until it is there, though a part of what came with it was consumed before.
#[test]
fn a_peek_goes_on_behind_what_was_filled() {
    if !is_own_process(concat!(module_path!(), "::a_peek_goes_on_behind_what_was_filled")) {
        return;
    }
    both_ways(|| async {
        let (mut one, mut other) = pair().await;
        one.write_all(b"first second").await.unwrap();
        let filled = other.fill_buf().await.unwrap().len();
        assert!(filled >= 6);
        other.consume(6);
        one.write_all(b" and more").await.unwrap();
        let mut head = [0; 15];
        for _ in 0..100_000 {
            if other.peek(&mut head).await.unwrap() == head.len() {
                break;
            }
            tokio::task::yield_now().await;
        }
        assert_eq!(&head, b"second and more");
        let mut read = [0; 15];
        other.read_exact(&mut read).await.unwrap();
        assert_eq!(read, head);
    });
}

/// Who ends a stream before its program ends waits behind that until all has left, whatever the peer has taken by then.
#[test]
fn a_flush_behind_the_own_end_waits_for_all_that_was_written() {
    if !is_own_process(concat!(
        module_path!(),
        "::a_flush_behind_the_own_end_waits_for_all_that_was_written"
    )) {
        return;
    }
    both_ways(|| async {
        // Nothing, what leaves at once, and more than there is room for on the way.
        for length in [0, 100, 20 << 20] {
            let (mut one, mut other) = pair().await;
            let bytes = pattern(length);
            let send = async {
                one.write_all(&bytes).await.unwrap();
                one.shutdown().await.unwrap();
                one.flushed().await.unwrap();
                one.flushed().await.unwrap();
                assert_eq!(one.read(&mut [0; 1]).await.unwrap(), 0);
                // All has arrived.
                one.flushed().await.unwrap();
                let told = one.write(b"x").await.unwrap_err();
                assert_eq!(told.kind(), std::io::ErrorKind::BrokenPipe);
            };
            let read = async {
                let mut read = Vec::new();
                other.read_to_end(&mut read).await.unwrap();
                assert!(read == bytes);
                other.shutdown().await.unwrap();
                other.flushed().await.unwrap();
            };
            tokio::join!(send, read);
        }
        // Not before the peer has taken enough, and not if it never does.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut one = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (peer, _) = listener.accept().unwrap();
        one.send(vec![0; 64 << 20]).await.unwrap();
        one.shutdown().await.unwrap();
        let mut flushing = Box::pin(one.flushed());
        assert!(once(flushing.as_mut()).await.is_none());
        reset(peer);
        flushing.await.unwrap_err();
    });
}

/// A task that sends files and stops to wait for them keeps nothing of them.
#[test]
fn a_short_file_that_nobody_waits_for_leaves_nothing() {
    if !is_own_process(concat!(
        module_path!(),
        "::a_short_file_that_nobody_waits_for_leaves_nothing"
    )) {
        return;
    }
    both_ways(|| async {
        let (one, mut other) = pair().await;
        for _ in 0..3 {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(b"short").unwrap();
            let mut sending = Box::pin(one.send_file(file, 0, 50));
            // Beside its loop it may be done at once.
            let _ = once(sending.as_mut()).await;
            drop(sending);
            one.flushed().await.unwrap();
            other.read_exact(&mut [0; 5]).await.unwrap();
        }
        let kept = format!("{one:?}");
        assert!(kept.contains("files: []"), "{kept}");
    });
}
