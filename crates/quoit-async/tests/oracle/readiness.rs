//! What is ready, by every call that asks for it, and reads into buffers of every kind.

use std::future::poll_fn;
use std::io::IoSliceMut;

use bytes::BytesMut;
use tokio::io::{AsyncWriteExt, Interest, ReadBuf};

use crate::scenario;
use crate::support::once;

scenario! {
    fn a_stream_is_ready_for_what_it_can(says) {
        let (mut one, other) = pair().await;
        // What it is ready for besides, it may say too early: tokio does.
        let ready = other.ready(Interest::READABLE | Interest::WRITABLE).await.unwrap();
        says.note(format!("{}", ready.is_writable()));
        says.told("write ready", poll_fn(|cx| other.poll_write_ready(cx)).await);
        one.write_all(b"hello").await.unwrap();
        let ready = other.ready(Interest::READABLE).await.unwrap();
        says.note(format!("{} {}", ready.is_readable(), ready.is_read_closed()));
        says.told("read ready", poll_fn(|cx| other.poll_read_ready(cx)).await);
        says.told("read", other.try_read(&mut [0; 8]));
        drop(one);
        while !other.ready(Interest::READABLE).await.unwrap().is_read_closed() {
            let _ = other.try_read(&mut [0; 8]);
            tokio::task::yield_now().await;
        }
        says.told("end", other.try_read(&mut [0; 8]));
    }
}

scenario! {
    fn halves_tell_what_the_stream_does(says) {
        let (mut one, mut other) = pair().await;
        let names = (other.local_addr().unwrap(), other.peer_addr().unwrap());
        one.write_all(b"0123456789").await.unwrap();
        {
            let (mut read, write) = other.split();
            assert_eq!((read.local_addr().unwrap(), read.peer_addr().unwrap()), names);
            assert_eq!((write.local_addr().unwrap(), write.peer_addr().unwrap()), names);
            let ready = read.ready(Interest::READABLE).await.unwrap();
            says.note(format!("{}", ready.is_readable()));
            let ready = write.ready(Interest::WRITABLE).await.unwrap();
            says.note(format!("{}", ready.is_writable()));
            let mut bytes = [0; 4];
            let mut buffer = ReadBuf::new(&mut bytes);
            says.told("peek", poll_fn(|cx| read.poll_peek(cx, &mut buffer)).await);
            says.note(String::from_utf8_lossy(buffer.filled()));
            let (mut a, mut b) = ([0; 1], [0; 2]);
            says.told("vectored", read.try_read_vectored(&mut [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b)]));
            says.note(format!("{a:?} {b:?}"));
            says.told("vectored", write.try_write_vectored(&[std::io::IoSlice::new(b"x"), std::io::IoSlice::new(b"yz")]));
        }
        let (mut read, write) = other.into_split();
        assert_eq!((read.local_addr().unwrap(), read.peer_addr().unwrap()), names);
        assert_eq!((write.local_addr().unwrap(), write.peer_addr().unwrap()), names);
        let ready = read.ready(Interest::READABLE).await.unwrap();
        says.note(format!("{}", ready.is_readable()));
        let ready = write.ready(Interest::WRITABLE).await.unwrap();
        says.note(format!("{}", ready.is_writable()));
        let mut bytes = [0; 4];
        let mut buffer = ReadBuf::new(&mut bytes);
        says.told("peek", poll_fn(|cx| read.poll_peek(cx, &mut buffer)).await);
        says.note(String::from_utf8_lossy(buffer.filled()));
        let mut a = [0; 2];
        says.told("vectored", read.try_read_vectored(&mut [IoSliceMut::new(&mut a)]));
        let mut rest = Vec::new();
        says.told("rest", read.try_read_buf(&mut rest));
        says.note(String::from_utf8_lossy(&rest));
        says.told("vectored", write.try_write_vectored(&[std::io::IoSlice::new(b"x")]));
    }
}

scenario! {
    fn a_buffer_is_filled_as_far_as_it_has_room(says) {
        let (mut one, other) = pair().await;
        one.write_all(&[7; 300]).await.unwrap();
        // All of it is here.
        let mut all = [0; 300];
        while other.peek(&mut all).await.unwrap() < 300 {}
        let mut vector = Vec::with_capacity(100);
        vector.extend_from_slice(b"before");
        says.told("into what a vector has", other.try_read_buf(&mut vector).map(|count| count <= 300));
        assert!(vector.starts_with(b"before"));
        let taken = vector.len() - 6;
        let mut bytes = BytesMut::with_capacity(1024);
        let rest = other.try_read_buf(&mut bytes).unwrap();
        says.note(format!("{}", taken + rest));
        says.told("nothing", other.try_read_buf(&mut bytes));
        let mut slice = [0_u8; 3];
        one.write_all(b"four").await.unwrap();
        other.readable().await.unwrap();
        says.told("into a slice", other.try_read_buf(&mut &mut slice[..]));
        says.told("rest", other.try_read_buf(&mut bytes));
    }
}

scenario! {
    fn a_datagram_is_looked_at_and_then_received(says) {
        let (one, one_at) = udp().await;
        let (other, at) = udp().await;
        says.told("nothing", other.try_peek(&mut [0; 8]));
        says.told("nothing", other.try_peek_sender());
        says.told("nothing", other.try_recv_buf(&mut Vec::new()));
        says.note(format!("{}", once(other.ready(Interest::READABLE)).await.is_none()));
        says.note(format!("{}", once(poll_fn(|cx| other.poll_recv_ready(cx))).await.is_none()));
        one.send_to(b"first", at).await.unwrap();
        let ready = other.ready(Interest::READABLE).await.unwrap();
        says.note(format!("{}", ready.is_readable()));
        assert_eq!(other.peek_sender().await.unwrap(), one_at);
        assert_eq!(other.try_peek_sender().unwrap(), one_at);
        assert_eq!(poll_fn(|cx| other.poll_peek_sender(cx)).await.unwrap(), one_at);
        let mut buffer = [0; 3];
        assert_eq!(other.peek_from(&mut buffer).await.unwrap(), (3, one_at));
        says.note(String::from_utf8_lossy(&buffer));
        says.told("peek", other.peek(&mut [0; 64]).await);
        says.told("try", other.try_peek(&mut [0; 64]));
        assert_eq!(other.try_peek_from(&mut [0; 64]).unwrap(), (5, one_at));
        let mut bytes = [0; 64];
        let mut read = ReadBuf::new(&mut bytes);
        assert_eq!(poll_fn(|cx| other.poll_peek_from(cx, &mut read)).await.unwrap(), one_at);
        says.told("poll", poll_fn(|cx| other.poll_peek(cx, &mut read)).await);
        says.note(String::from_utf8_lossy(read.filled()));
        says.told("ready", poll_fn(|cx| other.poll_recv_ready(cx)).await);
        let mut read = ReadBuf::new(&mut bytes);
        assert_eq!(poll_fn(|cx| other.poll_recv_from(cx, &mut read)).await.unwrap(), one_at);
        says.note(String::from_utf8_lossy(read.filled()));
        says.told("gone", other.try_recv(&mut [0; 8]));
    }
}

scenario! {
    fn datagrams_go_behind_what_a_buffer_holds(says) {
        let (one, one_at) = udp().await;
        let (other, at) = udp().await;
        one.connect(at).await.unwrap();
        for text in ["first", "second", "third", "fourth"] {
            says.told("send", poll_fn(|cx| one.poll_send(cx, text.as_bytes())).await);
        }
        let mut buffer = Vec::with_capacity(64);
        says.told("first", other.recv_buf(&mut buffer).await);
        assert_eq!(other.recv_buf_from(&mut buffer).await.unwrap(), (6, one_at));
        other.readable().await.unwrap();
        says.told("third", other.try_recv_buf(&mut buffer));
        other.readable().await.unwrap();
        // What a slice has no room for is lost.
        let mut slice = [0_u8; 4];
        assert_eq!(other.try_recv_buf_from(&mut &mut slice[..]).unwrap(), (4, one_at));
        says.note(String::from_utf8_lossy(&buffer));
        says.note(String::from_utf8_lossy(&slice));
        let ready = other.ready(Interest::WRITABLE).await.unwrap();
        says.note(format!("{}", ready.is_writable()));
        says.told("without a peer", poll_fn(|cx| other.poll_send(cx, b"x")).await);
    }
}
