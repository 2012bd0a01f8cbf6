//! Unix stream sockets.

use std::io::{Read, Write};
use std::path::PathBuf;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::scenario;
use crate::support::{blocking, once, pattern, told};

/// A path that nothing is at, with the folder that goes with it.
fn place() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    (folder, path)
}

scenario! {
    fn an_echo_and_the_names_of_both(says) {
        let (_folder, at) = place();
        let listener = UnixListener::bind(&at).unwrap();
        says.note(format!("{}", path(&listener.local_addr().unwrap()) == Some(at.clone())));
        let (one, other) = tokio::join!(UnixStream::connect(&at), listener.accept());
        let (mut one, (mut other, from)) = (one.unwrap(), other.unwrap());
        says.note(format!("{:?} {:?}", path(&from), name(&from)));
        says.note(format!("{}", path(&one.peer_addr().unwrap()) == Some(at.clone())));
        says.note(format!("{}", path(&other.local_addr().unwrap()) == Some(at)));
        says.note(format!("{:?} {:?}", path(&one.local_addr().unwrap()), path(&other.peer_addr().unwrap())));
        let sent = pattern(500_000);
        let echo = tokio::spawn(async move {
            let (mut reader, mut writer) = other.split();
            tokio::io::copy(&mut reader, &mut writer).await.unwrap();
            other.shutdown().await.unwrap();
        });
        let (mut reader, mut writer) = one.split();
        let mut back = Vec::new();
        let (written, read) = tokio::join!(
            async { writer.write_all(&sent).await?; writer.shutdown().await },
            reader.read_to_end(&mut back)
        );
        says.told("written", written);
        says.told("read", read);
        assert!(back == sent);
        echo.await.unwrap();
    }
}

scenario! {
    fn binding_in_use(says) {
        let (_folder, at) = place();
        let _listener = UnixListener::bind(&at).unwrap();
        says.told_kind("bind", UnixListener::bind(&at).map(drop));
        let file = at.with_extension("file");
        std::fs::write(&file, "").unwrap();
        says.told_kind("nowhere", UnixListener::bind(file.join("below")).map(drop));
        says.told_kind("no folder", UnixListener::bind(at.with_extension("none").join("below")).map(drop));
        says.told_kind("too long", UnixListener::bind("x".repeat(200)).map(drop));
    }
}

scenario! {
    fn nobody_there(says) {
        let (_folder, at) = place();
        says.told("not found", UnixStream::connect(&at).await.map(drop));
        drop(std::os::unix::net::UnixListener::bind(&at).unwrap());
        says.told("refused", UnixStream::connect(&at).await.map(drop));
        says.told_kind("too long", UnixStream::connect("x".repeat(200)).await.map(drop));
    }
}

scenario! {
    fn a_pair(says) {
        let (mut one, mut other) = UnixStream::pair().unwrap();
        one.write_all(b"ping").await.unwrap();
        let mut buffer = [0; 8];
        says.told("read", other.read(&mut buffer).await);
        other.write_all(b"pong").await.unwrap();
        says.told("read", one.read(&mut buffer).await);
        says.note(format!("{:?}", once(one.read(&mut buffer)).await.map(|result| told(&result))));
        says.note(format!("{:?} {:?}", path(&one.local_addr().unwrap()), path(&one.peer_addr().unwrap())));
        drop(other);
        says.told("end", one.read(&mut buffer).await);
    }
}

scenario! {
    fn who_is_at_the_other_end(says) {
        let (one, other) = UnixStream::pair().unwrap();
        says.note(format!("{:?} {:?}", credentials(&one), credentials(&other)));
        assert_eq!(credentials(&one).0, Some(std::process::id().try_into().unwrap()));
    }
}

scenario! {
    fn names_that_no_file_has(says) {
        let own = format!("quoit-{}-{:?}", std::process::id(), std::thread::current().id());
        let at = format!("\0{own}");
        let listener = UnixListener::bind(&at).unwrap();
        let address = listener.local_addr().unwrap();
        says.note(format!("{} {:?}", name(&address) == Some(own.clone().into_bytes()), path(&address)));
        let (one, other) = tokio::join!(UnixStream::connect(&at), listener.accept());
        let (mut one, (mut other, _)) = (one.unwrap(), other.unwrap());
        says.note(format!("{}", name(&one.peer_addr().unwrap()) == Some(own.into_bytes())));
        one.write_all(b"unseen").await.unwrap();
        says.told("read", other.read(&mut [0; 8]).await);
        says.told_kind("in use", UnixListener::bind(&at).map(drop));
        says.told("nobody", UnixStream::connect(format!("{at} and more")).await.map(drop));
    }
}

scenario! {
    fn the_kernel_chooses_a_name(says) {
        let listener = UnixListener::bind("").unwrap();
        let chosen = name(&listener.local_addr().unwrap()).unwrap();
        says.note(format!("{}", chosen.len()));
        let at = format!("\0{}", String::from_utf8(chosen).unwrap());
        let (one, other) = tokio::join!(UnixStream::connect(&at), listener.accept());
        says.told("connect", one.map(drop));
        says.told("accept", other.map(drop));
        says.told("to none", UnixStream::connect("").await.map(drop));
    }
}

scenario! {
    fn halves_and_ends(says) {
        let (one, mut other) = UnixStream::pair().unwrap();
        let (mut reader, mut writer) = one.into_split();
        writer.write_all(b"said").await.unwrap();
        writer.shutdown().await.unwrap();
        let mut text = String::new();
        says.told("read", other.read_to_string(&mut text).await);
        other.write_all(b"answer").await.unwrap();
        drop(other);
        text.clear();
        says.told("read", reader.read_to_string(&mut text).await);
        says.told("write", writer.write(b"x").await);
        let mut one = reader.reunite(writer).unwrap();
        says.told("end", one.read(&mut [0; 8]).await);
        says.told("shutdown", one.shutdown().await);
    }
}

scenario! {
    fn trying_would_block(says) {
        let (one, mut other) = UnixStream::pair().unwrap();
        let mut buffer = [0; 8];
        says.told("nothing", one.try_read(&mut buffer));
        other.write_all(b"something").await.unwrap();
        one.readable().await.unwrap();
        says.told("peekless", one.try_read(&mut buffer[..4]));
        says.told("rest", one.try_read(&mut buffer));
        says.told("nothing", one.try_read(&mut buffer));
        says.told("write", one.try_write(b"back"));
        says.told("read", other.read(&mut buffer).await);
    }
}

scenario! {
    fn all_arrives_behind_the_drop(says) {
        let (one, other) = std::os::unix::net::UnixStream::pair().unwrap();
        one.set_nonblocking(true).unwrap();
        let mut one = UnixStream::from_std(one).unwrap();
        let mut other = other;
        let writing = tokio::spawn(async move {
            let sent = pattern(2 << 20);
            one.write_all(&sent).await.unwrap();
            sent
        });
        let (result, read) = blocking(move || {
            let mut all = Vec::new();
            (other.read_to_end(&mut all), all)
        })
        .await;
        says.told("read", result);
        assert!(read == writing.await.unwrap());
    }
}

scenario! {
    fn a_listener_that_was_taken_over(says) {
        let (_folder, at) = place();
        let listener = std::os::unix::net::UnixListener::bind(&at).unwrap();
        listener.set_nonblocking(true).unwrap();
        let listener = UnixListener::from_std(listener).unwrap();
        let mut peer = std::os::unix::net::UnixStream::connect(&at).unwrap();
        peer.write_all(b"queued").unwrap();
        drop(peer);
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut text = String::new();
        says.told("read", stream.read_to_string(&mut text).await);
        says.note(text);
    }
}
