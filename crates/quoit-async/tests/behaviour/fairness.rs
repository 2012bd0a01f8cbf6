//! A loop's thread is shared fairly by tasks, timers, I/O and wakes from elsewhere.

use std::cell::Cell;
use std::future::poll_fn;
use std::io::{Read, Write};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use quoit_async::{DatagramSend, TcpListener, TcpStream, UdpSocket, UnixStream};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};

use crate::support::{blocking, both_ways, is_own_process, on_a_loop, pattern};

/// Tasks that only yield, for ever.
fn never_rest() {
    for _ in 0..2 {
        tokio::spawn(async {
            loop {
                tokio::task::yield_now().await;
            }
        });
    }
}

async fn echo(mut stream: TcpStream) {
    let mut buffer = [0; 1000];
    loop {
        match stream.read(&mut buffer).await {
            Ok(count) if count > 0 => stream.write_all(&buffer[..count]).await.unwrap(),
            _ => return,
        }
    }
}

async fn rounds(mut stream: TcpStream, count: usize) {
    let mut buffer = [0; 4];
    for _ in 0..count {
        stream.write_all(b"ping").await.unwrap();
        stream.read_exact(&mut buffer).await.unwrap();
    }
}

#[test]
fn tasks_that_never_rest_starve_nobody() {
    if !is_own_process(concat!(module_path!(), "::tasks_that_never_rest_starve_nobody")) {
        return;
    }
    both_ways(|| async {
        never_rest();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let asking = std::thread::spawn(move || {
            let mut peer = std::net::TcpStream::connect(address).unwrap();
            for _ in 0..20 {
                peer.write_all(b"ping").unwrap();
                peer.read_exact(&mut [0; 4]).unwrap();
            }
        });
        tokio::spawn(echo(listener.accept().await.unwrap().0));
        blocking(|| asking.join().unwrap()).await;

        let accepting = tokio::spawn(async move { echo(listener.accept().await.unwrap().0).await });
        rounds(TcpStream::connect(address).await.unwrap(), 20).await;
        accepting.await.unwrap();

        let one = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        one.send_to(b"self", one.local_addr().unwrap()).await.unwrap();
        assert_eq!(one.recv(&mut [0; 8]).await.unwrap(), 4);
        tokio::time::sleep(Duration::from_millis(1)).await;
    });
}

#[test]
fn timers_fire_beside_constant_traffic() {
    if !is_own_process(concat!(module_path!(), "::timers_fire_beside_constant_traffic")) {
        return;
    }
    both_ways(|| async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        for _ in 0..3 {
            let (one, other) = tokio::join!(TcpStream::connect(address), listener.accept());
            tokio::spawn(echo(other.unwrap().0));
            tokio::spawn(rounds(one.unwrap(), usize::MAX));
        }
        for _ in 0..5 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
}

#[test]
fn wakes_from_other_threads_arrive() {
    if !is_own_process(concat!(module_path!(), "::wakes_from_other_threads_arrive")) {
        return;
    }
    both_ways(|| async {
        for _ in 0..20 {
            let (tell, told) = tokio::sync::oneshot::channel();
            let thread = std::thread::spawn(move || tell.send(7).unwrap());
            assert_eq!(told.await.unwrap(), 7);
            thread.join().unwrap();
        }
    });
}

#[test]
fn a_stream_is_used_on_another_thread() {
    if !is_own_process(concat!(module_path!(), "::a_stream_is_used_on_another_thread")) {
        return;
    }
    both_ways(|| async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (one, other) = tokio::join!(TcpStream::connect(address), listener.accept());
        let (mut one, mut other) = (one.unwrap(), other.unwrap().0);
        let elsewhere = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(async {
                let mut all = vec![0; 300_000];
                other.read_exact(&mut all).await.unwrap();
                other.write_all(&all).await.unwrap();
                other.shutdown().await.unwrap();
            });
            // Dropped here, where no runtime and no loop is.
            drop(other);
        });
        let sent = pattern(300_000);
        one.write_all(&sent).await.unwrap();
        let mut back = Vec::new();
        one.read_to_end(&mut back).await.unwrap();
        assert!(back == sent);
        blocking(|| elsewhere.join().unwrap()).await;
    });
}

#[test]
fn a_stream_that_is_always_ready_lets_others_run() {
    if !is_own_process(concat!(
        module_path!(),
        "::a_stream_that_is_always_ready_lets_others_run"
    )) {
        return;
    }
    on_a_loop(|_| async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (one, other) = tokio::join!(TcpStream::connect(address), listener.accept());
        let (mut one, mut other) = (one.unwrap(), other.unwrap().0);
        one.write_all(&[1; 20_000]).await.unwrap();
        let mut buffer = [0; 20_000];
        while other.peek(&mut buffer).await.unwrap() < buffer.len() {
            tokio::task::yield_now().await;
        }
        // All of it has come: no read of the task waits for anything.
        let turns = Rc::new(Cell::new(0));
        let (of_other, of_reader) = (Rc::clone(&turns), turns);
        let counting = tokio::task::spawn_local(async move {
            loop {
                of_other.set(of_other.get() + 1);
                tokio::task::yield_now().await;
            }
        });
        let reading = tokio::task::spawn_local(async move {
            let mut before = of_reader.get();
            let mut rests = |what: &str| {
                let turns = of_reader.get() - before;
                before = of_reader.get();
                // tokio lets a task do 128 such things at once.
                assert!(turns >= 20, "{what}: {turns}");
            };
            for _ in 0..4000 {
                other.readable().await.unwrap();
            }
            rests("readable");
            for _ in 0..4000 {
                other.writable().await.unwrap();
            }
            rests("writable");
            for _ in 0..4000 {
                other.peek(&mut [0; 1]).await.unwrap();
            }
            rests("peek");
            for _ in 0..4000 {
                assert_eq!(other.fill_buf().await.unwrap()[0], 1);
                other.consume(1);
            }
            rests("fill");
            for _ in 0..16_000 {
                assert_eq!(other.read_u8().await.unwrap(), 1);
            }
            rests("read");
        });
        reading.await.unwrap();
        counting.abort();
    });
}

/// A task whose sends find room is one of many all the same. Otherwise no timer would end it, and on a runtime of one thread
/// nothing else would run.
#[test]
fn sends_that_find_room_let_others_run() {
    if !is_own_process(concat!(module_path!(), "::sends_that_find_room_let_others_run")) {
        return;
    }
    on_a_loop(|_| async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (one, other) = tokio::join!(TcpStream::connect(address), listener.accept());
        let (one, mut other) = (one.unwrap(), other.unwrap().0);
        // One of its own for each way, as a queue that is full lets others run, too.
        let sink = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let at = sink.local_addr().unwrap();
        let connected = async || {
            let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
            socket.connect(at).await.unwrap();
            socket
        };
        let sockets = [
            connected().await,
            connected().await,
            connected().await,
            connected().await,
        ];
        let turns = Rc::new(Cell::new(0));
        let (of_other, of_sender) = (Rc::clone(&turns), turns);
        let counting = tokio::task::spawn_local(async move {
            loop {
                of_other.set(of_other.get() + 1);
                tokio::task::yield_now().await;
            }
        });
        // Fewer than a queue takes, and several times what tokio lets a task do at once, which are 128.
        const SENDS: usize = 480;
        let sending = tokio::task::spawn_local(async move {
            let before = Cell::new(of_sender.get());
            let begin = || before.set(of_sender.get());
            let rests = |what: &str| {
                let turns = of_sender.get() - before.get();
                assert!(turns >= 2, "{what}: {turns}");
            };
            for _ in 0..SENDS {
                one.send(&b"x"[..]).await.unwrap();
            }
            rests("send of a stream");
            other.read_exact(&mut [0; SENDS]).await.unwrap();
            let [first, second, third, fourth] = &sockets;
            begin();
            for _ in 0..SENDS {
                first.send_to(b"x", at).await.unwrap();
            }
            rests("send_to");
            begin();
            for _ in 0..SENDS {
                second.send(b"x").await.unwrap();
            }
            rests("send");
            begin();
            for _ in 0..SENDS {
                poll_fn(|cx| third.poll_send_to(cx, b"x", at)).await.unwrap();
            }
            rests("poll_send_to");
            begin();
            for _ in 0..SENDS {
                let datagram = DatagramSend::to_connected(&b"x"[..]);
                fourth.send_datagram(datagram).await.unwrap();
            }
            rests("send_datagram");
            begin();
            for _ in 0..SENDS {
                poll_fn(|cx| fourth.poll_send_ready(cx)).await.unwrap();
            }
            rests("poll_send_ready");
        });
        sending.await.unwrap();
        counting.abort();
    });
}

/// The same by the traits of `futures-io`, when the task is tokio's.
#[test]
fn a_stream_of_futures_io_lets_others_run() {
    if !is_own_process(concat!(
        module_path!(),
        "::a_stream_of_futures_io_lets_others_run"
    )) {
        return;
    }
    on_a_loop(|_| async {
        let (mut one, mut other) = UnixStream::pair().unwrap();
        let turns = Rc::new(Cell::new(0));
        let (of_other, of_task) = (Rc::clone(&turns), turns);
        let counting = tokio::task::spawn_local(async move {
            loop {
                of_other.set(of_other.get() + 1);
                tokio::task::yield_now().await;
            }
        });
        let task = tokio::task::spawn_local(async move {
            let before = of_task.get();
            for _ in 0..400 {
                let write = poll_fn(|cx| futures_io::AsyncWrite::poll_write(Pin::new(&mut one), cx, b"x"));
                assert_eq!(write.await.unwrap(), 1);
            }
            let written = of_task.get();
            assert!(written - before >= 2, "writing: {}", written - before);
            let mut all = [0; 400];
            while other.peek(&mut all).await.unwrap() < all.len() {
                tokio::task::yield_now().await;
            }
            let before = of_task.get();
            for _ in 0..400 {
                let mut byte = [0; 1];
                let read =
                    poll_fn(|cx| futures_io::AsyncRead::poll_read(Pin::new(&mut other), cx, &mut byte));
                assert_eq!(read.await.unwrap(), 1);
            }
            assert!(of_task.get() - before >= 2, "reading: {}", of_task.get() - before);
        });
        task.await.unwrap();
        counting.abort();
    });
}

/// The runtime asks its poller after some tasks, and so between a turn of the loop that has woken many and the next one: what it
/// hears then is not told again.
#[test]
fn what_comes_while_many_tasks_run_is_received() {
    if !is_own_process(concat!(
        module_path!(),
        "::what_comes_while_many_tasks_run_is_received"
    )) {
        return;
    }
    both_ways(|| async {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let first = Arc::new(TcpStream::connect(address).await.unwrap());
        let mut to_first = listener.accept().unwrap().0;
        let mut second = TcpStream::connect(address).await.unwrap();
        let to_second = Arc::new(listener.accept().unwrap().0);
        let (waiting, woken) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..1000 {
            let (first, to_second) = (Arc::clone(&first), Arc::clone(&to_second));
            let (waiting, woken) = (Arc::clone(&waiting), Arc::clone(&woken));
            tasks.spawn(async move {
                waiting.fetch_add(1, Ordering::Relaxed);
                first.readable().await.unwrap();
                if woken.fetch_add(1, Ordering::Relaxed) == 0 {
                    (&*to_second).write_all(b"x").unwrap();
                }
            });
        }
        while waiting.load(Ordering::Relaxed) < 1000 {
            tokio::task::yield_now().await;
        }
        to_first.write_all(b"x").unwrap();
        assert_eq!(second.read(&mut [0; 1]).await.unwrap(), 1);
    });
}
