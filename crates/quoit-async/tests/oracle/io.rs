//! tokio's utilities over the streams.

use std::time::Duration;

use tokio::io::{
    AsyncBufReadExt, AsyncReadExt, AsyncSeekExt, AsyncWriteExt, BufReader, BufStream, BufWriter,
};

use crate::scenario;
use crate::support::{pattern, told};

scenario! {
    fn copying_from_one_to_another(says) {
        let (mut source, mut front) = pair().await;
        let (mut back, mut sink) = pair().await;
        let sent = pattern(700_001);
        let expected = sent.clone();
        let writing = tokio::spawn(async move {
            source.write_all(&sent).await.unwrap();
            source
        });
        let reading = tokio::spawn(async move {
            let mut all = Vec::new();
            sink.read_to_end(&mut all).await.unwrap();
            all
        });
        drop(writing.await.unwrap());
        says.told("copied", tokio::io::copy(&mut front, &mut back).await);
        drop(back);
        assert!(reading.await.unwrap() == expected);
    }
}

scenario! {
    fn a_proxy_copies_both_ways(says) {
        let (mut client, mut front) = pair().await;
        let (mut back, mut server) = pair().await;
        let proxy = tokio::spawn(async move { tokio::io::copy_bidirectional(&mut front, &mut back).await });
        let serving = tokio::spawn(async move {
            let mut request = Vec::new();
            server.read_to_end(&mut request).await.unwrap();
            request.reverse();
            server.write_all(&request).await.unwrap();
            server.write_all(b"more").await.unwrap();
        });
        let request = pattern(90_000);
        client.write_all(&request).await.unwrap();
        client.shutdown().await.unwrap();
        let mut response = Vec::new();
        says.told("response", client.read_to_end(&mut response).await);
        let mut expected: Vec<_> = request.into_iter().rev().collect();
        expected.extend_from_slice(b"more");
        assert!(response == expected);
        serving.await.unwrap();
        says.told("proxy", proxy.await.unwrap());
    }
}

scenario! {
    fn lines(says) {
        let (mut one, other) = pair().await;
        let writing = tokio::spawn(async move {
            for piece in [&b"first\nsec"[..], b"ond\r\n", b"\n", b"no end"] {
                one.write_all(piece).await.unwrap();
                tokio::task::yield_now().await;
            }
        });
        let mut lines = BufReader::with_capacity(7, other).lines();
        while let Some(line) = lines.next_line().await.unwrap() {
            says.note(line);
        }
        writing.await.unwrap();
    }
}

scenario! {
    fn lines_of_a_half(says) {
        let (mut one, other) = pair().await;
        let (reader, mut writer) = other.into_split();
        let mut reader = BufReader::new(reader);
        one.write_all(b"hello\nworld\n").await.unwrap();
        let mut line = String::new();
        says.told("line", reader.read_line(&mut line).await);
        writer.write_all(line.as_bytes()).await.unwrap();
        let mut until = Vec::new();
        says.told("until", reader.read_until(b'l', &mut until).await);
        says.note(String::from_utf8(until).unwrap());
        says.told("read", one.read(&mut [0; 16]).await);
        let mut one_more = reader.into_inner().reunite(writer).unwrap();
        says.told("flush", one_more.flush().await);
    }
}

scenario! {
    fn buffers_on_both_sides(says) {
        let (one, other) = pair().await;
        let serving = tokio::spawn(async move {
            let mut stream = BufStream::new(other);
            let mut line = String::new();
            while stream.read_line(&mut line).await.unwrap() > 0 {
                stream.write_all(line.as_bytes()).await.unwrap();
                stream.flush().await.unwrap();
                line.clear();
            }
        });
        let mut stream = BufStream::new(one);
        for at in 0..50 {
            stream.write_all(format!("line {at}\n").as_bytes()).await.unwrap();
        }
        stream.shutdown().await.unwrap();
        let mut text = String::new();
        says.told("read", stream.read_to_string(&mut text).await);
        says.note(text);
        serving.await.unwrap();
    }
}

scenario! {
    fn a_buffered_writer_flushes(says) {
        let (one, mut other) = pair().await;
        let mut writer = BufWriter::new(one);
        writer.write_all(b"kept").await.unwrap();
        writer.flush().await.unwrap();
        says.told("read", other.read(&mut [0; 8]).await);
        writer.write_u32(0x0102_0304).await.unwrap();
        writer.write_i16_le(-2).await.unwrap();
        writer.shutdown().await.unwrap();
        says.told("u32", other.read_u32().await);
        says.told("i16", other.read_i16_le().await);
        says.told("u8", other.read_u8().await);
    }
}

scenario! {
    fn exactly_so_many(says) {
        let (mut one, mut other) = pair().await;
        one.write_all(b"abcdefgh").await.unwrap();
        one.shutdown().await.unwrap();
        let mut three = [0; 3];
        says.told("exact", other.read_exact(&mut three).await);
        let mut taken = Vec::new();
        says.told("take", (&mut other).take(2).read_to_end(&mut taken).await);
        let mut chained = String::new();
        says.told("chain", (&b"and "[..]).chain(&mut other).read_to_string(&mut chained).await);
        says.note(chained);
        says.told("exact", other.read_exact(&mut three).await);
    }
}

scenario! {
    fn a_file_is_copied_into_a_stream(says) {
        let (mut one, mut other) = pair().await;
        let mut content = std::io::Cursor::new(pattern(40_000));
        content.seek(std::io::SeekFrom::Start(1000)).await.unwrap();
        says.told("copied", tokio::io::copy(&mut content, &mut one).await);
        drop(one);
        let mut all = Vec::new();
        says.told("read", other.read_to_end(&mut all).await);
        assert!(all == pattern(40_000)[1000..]);
    }
}

scenario! {
    fn a_generic_split(says) {
        let (one, mut other) = pair().await;
        let (mut reader, mut writer) = tokio::io::split(one);
        let writing = tokio::spawn(async move {
            writer.write_all(&pattern(300_000)).await.unwrap();
            writer.shutdown().await.unwrap();
            writer
        });
        let mut all = Vec::new();
        says.told("read", other.read_to_end(&mut all).await);
        other.write_all(b"answer").await.unwrap();
        drop(other);
        let mut text = String::new();
        says.told("read", reader.read_to_string(&mut text).await);
        let mut one = reader.unsplit(writing.await.unwrap());
        says.told("end", one.read(&mut [0; 8]).await);
    }
}

scenario! {
    fn reading_with_a_limit_of_time(says) {
        let (mut one, mut other) = pair().await;
        let late = tokio::time::timeout(Duration::from_millis(1), one.read(&mut [0; 8])).await;
        says.note(format!("{}", late.is_err()));
        other.write_all(b"x").await.unwrap();
        let read = tokio::time::timeout(Duration::from_secs(60), one.read(&mut [0; 8])).await;
        says.note(told(&read.unwrap()));
    }
}

scenario! {
    fn reading_into_a_vector_that_grows(says) {
        let (mut one, mut other) = pair().await;
        one.write_all(&pattern(10_000)).await.unwrap();
        one.shutdown().await.unwrap();
        let mut buffer = bytes::BytesMut::with_capacity(16);
        while other.read_buf(&mut buffer).await.unwrap() > 0 {}
        assert!(buffer[..] == pattern(10_000)[..]);
        says.note(buffer.len().to_string());
    }
}
