//! TCP: reading, writing, waiting, and taking streams apart.

use std::future::poll_fn;
use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::pin::Pin;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, ReadBuf};

use crate::scenario;
use crate::support::{blocking, once, pattern, told};

scenario! {
    fn a_mebibyte_comes_back(says) {
        let (listener, address) = listen().await;
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut buffer = vec![0; 5000];
            loop {
                match stream.read(&mut buffer).await.unwrap() {
                    0 => break,
                    count => stream.write_all(&buffer[..count]).await.unwrap(),
                }
            }
        });
        let mut stream = TcpStream::connect(address).await.unwrap();
        let sent = pattern(1 << 20);
        let (mut reader, mut writer) = stream.split();
        let mut back = Vec::new();
        let (written, read) = tokio::join!(
            async {
                writer.write_all(&sent).await?;
                writer.shutdown().await
            },
            reader.read_to_end(&mut back)
        );
        says.told("written", written);
        says.told("read", read);
        assert_eq!(back, sent);
        server.await.unwrap();
    }
}

scenario! {
    fn peeking_takes_nothing(says) {
        let (stream, mut peer) = to_std().await;
        let mut stream = stream;
        peer.write_all(b"hello").unwrap();
        stream.readable().await.unwrap();
        let mut buffer = [0; 16];
        says.told("peek", stream.peek(&mut buffer).await);
        says.told("peek 2", stream.peek(&mut buffer[..2]).await);
        says.told("peek none", stream.peek(&mut []).await);
        says.told("read 3", stream.read_exact(&mut buffer[..3]).await);
        says.told("peek", stream.peek(&mut buffer).await);
        says.note(String::from_utf8_lossy(&buffer[..2]));
        says.told("read", stream.read(&mut buffer).await);
        says.note(format!("{:?}", once(stream.peek(&mut buffer)).await.map(|result| told(&result))));
        drop(peer);
        says.told("peek at the end", stream.peek(&mut buffer).await);
        says.told("peek at the end", stream.peek(&mut buffer).await);
        says.told("read", stream.read(&mut buffer).await);
    }
}

scenario! {
    fn polling_a_peek(says) {
        let (stream, mut peer) = to_std().await;
        let mut space = [0; 8];
        let mut space = ReadBuf::new(&mut space);
        peer.write_all(b"abc").unwrap();
        stream.readable().await.unwrap();
        let mut other = [0; 8];
        says.told("peek", stream.peek(&mut other).await);
        let mut stream = stream;
        says.told("read", poll_fn(|cx| Pin::new(&mut stream).poll_read(cx, &mut space)).await);
        says.note(format!("{:?}", space.filled()));
    }
}

scenario! {
    fn trying_would_block(says) {
        let (stream, mut peer) = to_std().await;
        let mut buffer = [0; 16];
        says.told("nothing", stream.try_read(&mut buffer));
        says.told("no room", stream.try_read(&mut []));
        peer.write_all(b"0123456789").unwrap();
        stream.readable().await.unwrap();
        says.told("no room", stream.try_read(&mut []));
        says.told("some", stream.try_read(&mut buffer[..4]));
        says.told("the rest", stream.try_read(&mut buffer));
        says.note(String::from_utf8_lossy(&buffer[..6]));
        says.told("nothing", stream.try_read(&mut buffer));
        stream.writable().await.unwrap();
        says.told("write", stream.try_write(b"back"));
        says.told("write nothing", stream.try_write(b""));
        drop(blocking(move || { peer.read_exact(&mut [0; 4]).unwrap(); peer }).await);
        stream.readable().await.unwrap();
        says.told("the end", stream.try_read(&mut buffer));
        says.told("the end", stream.try_read(&mut buffer));
    }
}

scenario! {
    fn a_full_stream_takes_no_more_until_it_is_read(says) {
        let (stream, mut peer) = to_std().await;
        let chunk = pattern(100_000);
        let mut written = Vec::new();
        let mut blocked = false;
        // Full is full when waiting for room has come to nothing.
        while !blocked {
            match stream.try_write(&chunk) {
                Ok(count) => written.extend_from_slice(&chunk[..count]),
                Err(error) => {
                    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
                    blocked = once(stream.writable()).await.is_none();
                }
            }
        }
        says.note("full");
        let length = written.len();
        let reading = tokio::task::spawn_blocking(move || {
            let mut read = vec![0; length];
            peer.read_exact(&mut read).unwrap();
            (read, peer)
        });
        says.told("room", stream.writable().await);
        let (read, mut peer) = reading.await.unwrap();
        assert!(read == written);
        while stream.try_write(b"end").is_err() {
            stream.writable().await.unwrap();
        }
        says.told("end", blocking(move || peer.read(&mut [0; 8])).await);
    }
}

scenario! {
    fn vectors_are_filled_and_written_in_turn(says) {
        let (mut stream, mut peer) = to_std().await;
        says.note(format!("{}", tokio::io::AsyncWrite::is_write_vectored(&stream)));
        let pieces = [IoSlice::new(b"one "), IoSlice::new(b""), IoSlice::new(b"two "), IoSlice::new(b"three")];
        says.told("write", stream.write_vectored(&pieces).await);
        says.told("try write", stream.try_write_vectored(&pieces[..1]));
        says.told("nothing", stream.write_vectored(&[]).await);
        let mut back = [0; 17];
        let (back, mut peer) = blocking(move || {
            peer.read_exact(&mut back).unwrap();
            (back, peer)
        }).await;
        says.note(String::from_utf8_lossy(&back));
        peer.write_all(b"0123456789").unwrap();
        stream.readable().await.unwrap();
        let (mut a, mut b, mut c) = ([0; 3], [0; 4], [0; 9]);
        let count = stream.try_read_vectored(&mut [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b)]);
        says.told("read", count);
        let count = stream.try_read_vectored(&mut [IoSliceMut::new(&mut []), IoSliceMut::new(&mut c)]);
        says.told("read", count);
        says.note(format!("{a:?} {b:?} {c:?}"));
        says.told("nothing", stream.try_read_vectored(&mut [IoSliceMut::new(&mut a)]));
        let mut gathered: std::collections::VecDeque<u8> = (0..200).collect();
        gathered.rotate_left(77);
        says.told("all", stream.write_all_buf(&mut gathered).await);
    }
}

scenario! {
    fn more_pieces_than_one_call_takes(says) {
        let (mut stream, mut peer) = to_std().await;
        let all = pattern(30_000);
        let reading = std::thread::spawn(move || {
            let mut read = Vec::new();
            peer.read_to_end(&mut read).map(|_| read)
        });
        for _ in 0..2 {
            let mut at = 0;
            while at < all.len() {
                let pieces: Vec<_> = all[at..].chunks(10).map(IoSlice::new).collect();
                at += stream.write_vectored(&pieces).await.unwrap();
            }
        }
        stream.shutdown().await.unwrap();
        let read = blocking(|| reading.join().unwrap()).await.unwrap();
        assert!(read[..all.len()] == all && read[all.len()..] == all);
        says.note("all");
    }
}

scenario! {
    fn reading_into_no_room(says) {
        let (mut stream, mut peer) = to_std().await;
        says.note(format!("{:?}", once(stream.read(&mut [])).await.map(|result| told(&result))));
        says.told("write nothing", stream.write(&[]).await);
        peer.write_all(b"x").unwrap();
        stream.readable().await.unwrap();
        says.told("no room", stream.read(&mut []).await);
        says.told("read", stream.read(&mut [0; 4]).await);
        drop(peer);
        says.told("no room at the end", stream.read(&mut []).await);
        says.told("end", stream.read(&mut [0; 4]).await);
    }
}

scenario! {
    fn the_end_is_told_as_often_as_one_asks(says) {
        let (mut stream, mut peer) = to_std().await;
        peer.write_all(b"last").unwrap();
        peer.shutdown(std::net::Shutdown::Write).unwrap();
        let mut buffer = [0; 16];
        says.told("read", stream.read_exact(&mut buffer[..4]).await);
        for _ in 0..3 {
            says.told("end", stream.read(&mut buffer).await);
            says.told("try", stream.try_read(&mut buffer));
            says.told("readable", stream.readable().await);
        }
        says.told("too short", stream.read_exact(&mut buffer).await);
        says.told("write", stream.write_all(b"still").await);
        drop(stream);
        says.told("peer", blocking(move || { let mut text = String::new(); peer.read_to_string(&mut text) }).await);
    }
}

scenario! {
    fn each_direction_ends_by_itself(says) {
        let (mut one, mut other) = pair().await;
        one.write_all(b"question").await.unwrap();
        says.told("shutdown", one.shutdown().await);
        says.told("again", one.shutdown().await);
        let mut text = String::new();
        says.told("read", other.read_to_string(&mut text).await);
        says.told("write", other.write_all(b"answer").await);
        says.told("shutdown", other.shutdown().await);
        text.clear();
        says.told("read", one.read_to_string(&mut text).await);
        says.note(text);
        says.told("write behind the end", one.write(b"x").await);
        says.told("write behind the end", other.write(b"x").await);
        says.told("shutdown of both", one.shutdown().await);
    }
}

scenario! {
    fn writing_behind_the_own_end(says) {
        let (mut one, mut other) = pair().await;
        one.shutdown().await.unwrap();
        says.told("write", one.write(b"x").await);
        says.told("again", one.write(b"x").await);
        says.told("try", one.try_write(b"x"));
        says.told("nothing", one.write(b"").await);
        says.told("vectored", one.write_vectored(&[IoSlice::new(b"x")]).await);
        says.told("writable", one.writable().await);
        says.told("flush", one.flush().await);
        other.write_all(b"open").await.unwrap();
        says.told("read", one.read(&mut [0; 8]).await);
    }
}

scenario! {
    fn halves_that_borrow(says) {
        let (mut one, mut other) = pair().await;
        {
            let (mut reader, mut writer) = one.split();
            writer.write_all(b"ping").await.unwrap();
            let mut buffer = [0; 8];
            says.told("read", other.read(&mut buffer).await);
            other.write_all(b"pong").await.unwrap();
            reader.readable().await.unwrap();
            says.told("peek", reader.peek(&mut buffer).await);
            says.told("read", reader.read(&mut buffer).await);
            says.told("try", reader.try_read(&mut buffer));
            writer.writable().await.unwrap();
            says.told("try", writer.try_write(b"more"));
        }
        // Dropped halves of a borrowed stream end nothing.
        one.write_all(b"!").await.unwrap();
        let mut buffer = [0; 5];
        says.told("read", other.read_exact(&mut buffer).await);
        let (_, mut writer) = one.split();
        writer.shutdown().await.unwrap();
        says.told("end", other.read(&mut buffer).await);
    }
}

scenario! {
    fn halves_are_put_together(says) {
        let (one, mut other) = pair().await;
        let (reader, mut writer) = one.into_split();
        writer.write_all(b"half").await.unwrap();
        let mut one = reader.reunite(writer).unwrap();
        one.write_all(b" whole").await.unwrap();
        let (reader, writer) = one.into_split();
        let mut one = writer.reunite(reader).unwrap();
        one.shutdown().await.unwrap();
        let mut text = String::new();
        says.told("read", other.read_to_string(&mut text).await);
        says.note(text);
    }
}

scenario! {
    fn halves_of_two_streams_are_not(says) {
        let (one, other) = pair().await;
        let ((reader, writer), (other_reader, other_writer)) = (one.into_split(), other.into_split());
        let error = reader.reunite(other_writer).unwrap_err();
        says.note(error.to_string());
        let (reader, other_writer) = (error.0, error.1);
        let error = writer.reunite(other_reader).unwrap_err();
        let (other_reader, writer) = (error.0, error.1);
        let mut one = reader.reunite(writer).unwrap();
        let mut other = other_reader.reunite(other_writer).unwrap();
        one.write_all(b"whole").await.unwrap();
        says.told("read", other.read(&mut [0; 8]).await);
    }
}

scenario! {
    fn a_dropped_sending_half_ends_its_direction(says) {
        let (one, mut other) = pair().await;
        let (mut reader, writer) = one.into_split();
        drop(writer);
        says.told("end", other.read(&mut [0; 8]).await);
        other.write_all(b"still").await.unwrap();
        says.told("read", reader.read(&mut [0; 8]).await);
        drop(reader);
        says.told("end", other.read(&mut [0; 8]).await);
    }
}

scenario! {
    fn a_forgotten_sending_half_ends_nothing(says) {
        let (one, mut other) = pair().await;
        let (mut reader, mut writer) = one.into_split();
        writer.write_all(b"said").await.unwrap();
        writer.forget();
        says.told("read", other.read(&mut [0; 8]).await);
        says.note(format!("{:?}", once(other.read(&mut [0; 8])).await.map(|result| told(&result))));
        other.write_all(b"still").await.unwrap();
        says.told("read", reader.read(&mut [0; 8]).await);
        drop(reader);
        says.told("end", other.read(&mut [0; 8]).await);
    }
}

scenario! {
    fn a_dropped_receiving_half_ends_nothing(says) {
        let (one, mut other) = pair().await;
        let (reader, mut writer) = one.into_split();
        drop(reader);
        says.told("to nobody", other.write_all(b"heard by nobody").await);
        says.told("write", writer.write_all(b"said").await);
        says.told("read", other.read(&mut [0; 8]).await);
        says.told("end", writer.shutdown().await);
        says.told("read", other.read(&mut [0; 8]).await);
    }
}

scenario! {
    fn halves_in_two_tasks_are_woken_each(says) {
        let (one, mut other) = pair().await;
        let (mut reader, mut writer) = one.into_split();
        let (tell, mut told) = tokio::sync::mpsc::channel(1);
        let reading = tokio::spawn(async move {
            let mut all = Vec::new();
            let mut buffer = [0; 1000];
            loop {
                let count = reader.read(&mut buffer).await.unwrap();
                if count == 0 {
                    return all;
                }
                all.extend_from_slice(&buffer[..count]);
                let _ = tell.try_send(());
            }
        });
        let writing = tokio::spawn(async move {
            let sent = pattern(3 << 20);
            writer.write_all(&sent).await.unwrap();
            // The other half has heard something meanwhile, though this one stood still for want of room.
            told.recv().await.unwrap();
            sent
        });
        let half = pattern(300_000);
        other.write_all(&half).await.unwrap();
        let mut all = Vec::new();
        says.told("read", other.read_to_end(&mut all).await);
        assert!(all == writing.await.unwrap());
        drop(other);
        assert!(half == reading.await.unwrap());
    }
}

scenario! {
    fn whoever_polled_last_is_woken(says) {
        let (mut one, mut other) = pair().await;
        // Polled here, and given up; polled by another task, which is to be woken.
        says.note(format!("{}", once(one.read(&mut [0; 8])).await.is_none()));
        let reading = tokio::spawn(async move { one.read(&mut [0; 8]).await });
        tokio::task::yield_now().await;
        other.write_all(b"woken").await.unwrap();
        says.told("read", reading.await.unwrap());
    }
}

scenario! {
    fn all_who_wait_to_read_are_woken(says) {
        let (one, mut other) = pair().await;
        let one = Arc::new(one);
        let waiting: Vec<_> = (0..5).map(|_| {
            let one = Arc::clone(&one);
            tokio::spawn(async move { one.readable().await })
        }).collect();
        tokio::task::yield_now().await;
        other.write_all(b"x").await.unwrap();
        for task in waiting {
            says.told("readable", task.await.unwrap());
        }
        says.told("try", one.try_read(&mut [0; 8]));
    }
}

scenario! {
    fn bytes_come_while_they_are_waited_for_in_select(says) {
        let (mut one, mut other) = pair().await;
        let sent = pattern(200_000);
        let expected = sent.clone();
        let writing = tokio::spawn(async move {
            for piece in sent.chunks(777) {
                other.write_all(piece).await.unwrap();
                tokio::task::yield_now().await;
            }
        });
        let mut all = Vec::new();
        let mut buffer = [0; 500];
        loop {
            tokio::select! {
                biased;
                () = tokio::task::yield_now() => {}
                count = one.read(&mut buffer) => match count.unwrap() {
                    0 => break,
                    count => all.extend_from_slice(&buffer[..count]),
                },
            }
        }
        writing.await.unwrap();
        assert!(all == expected);
        says.note(all.len().to_string());
    }
}
