//! Futures that are dropped at any point lose nothing.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use quoit_async::{TcpListener, TcpStream, UdpSocket};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};

use crate::support::{beside_loops, is_own_process, on_a_loop, once, pattern};

/// What is done next, and how long it is waited for.
#[derive(Clone, Copy, Debug)]
struct Step {
    what: u8,
    patience: u8,
    size: u16,
}

fn steps() -> impl Strategy<Value = Arc<[Step]>> {
    let step =
        (any::<u8>(), 0..6u8, 1..3000u16).prop_map(|(what, patience, size)| Step { what, patience, size });
    prop::collection::vec(step, 20..60).prop_map(Into::into)
}

/// Waits until `future` is ready, or for so many rounds of the runtime, and drops it then.
async fn within<F: Future>(patience: u8, future: F) -> Option<F::Output> {
    if patience == 0 {
        return once(future).await;
    }
    let rounds = async {
        for _ in 0..patience {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        output = future => Some(output),
        () = rounds => None,
    }
}

async fn write_all(mut stream: TcpStream, sent: Vec<u8>, steps: Arc<[Step]>) {
    let mut rest = &sent[..];
    for step in steps.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let part = &rest[..rest.len().min(usize::from(step.size) * 5)];
        let written = match step.what % 4 {
            0 => within(step.patience, stream.write(part)).await,
            1 => {
                if within(step.patience, stream.writable()).await.is_some() {
                    stream.try_write(part).ok().map(Ok)
                } else {
                    None
                }
            }
            2 => {
                let _ = within(step.patience, stream.flushed()).await;
                None
            }
            _ => Some(stream.send(part.to_vec()).await.map(|()| part.len())),
        };
        rest = &rest[written.map_or(0, Result::unwrap)..];
    }
    stream.shutdown().await.unwrap();
    // Until the other has read everything.
    assert_eq!(stream.read(&mut [0; 1]).await.unwrap(), 0);
}

async fn read_all(mut stream: TcpStream, steps: Arc<[Step]>) -> Vec<u8> {
    let mut all = Vec::new();
    let mut buffer = vec![0; 3000];
    for step in steps.iter().cycle() {
        let buffer = &mut buffer[..usize::from(step.size)];
        let read = match step.what % 6 {
            0 => within(step.patience, stream.read(buffer)).await,
            1 => match within(step.patience, stream.recv()).await {
                Some(Ok(Some(lease))) => {
                    all.extend_from_slice(&lease);
                    None
                }
                Some(Ok(None)) => break,
                Some(Err(error)) => panic!("{error}"),
                None => None,
            },
            2 => match within(step.patience, stream.peek(buffer)).await {
                Some(Ok(peeked)) => {
                    let mut again = vec![0; peeked];
                    let read = stream.read_exact(&mut again).await.unwrap();
                    assert_eq!(again, buffer[..read]);
                    all.extend_from_slice(&again);
                    None
                }
                _ => None,
            },
            3 => {
                let _ = within(step.patience, stream.readable()).await;
                stream.try_read(buffer).ok().map(Ok)
            }
            4 => {
                if let Some(filled) = within(step.patience, stream.fill_buf()).await {
                    let filled = filled.unwrap();
                    let part = filled.len().min(usize::from(step.size));
                    all.extend_from_slice(&filled[..part]);
                    stream.consume(part);
                }
                None
            }
            _ => once(stream.read(buffer)).await,
        };
        match read {
            Some(Ok(0)) => break,
            Some(Ok(count)) => all.extend_from_slice(&buffer[..count]),
            Some(Err(error)) => panic!("{error}"),
            None => {}
        }
    }
    all
}

async fn storm(steps: Arc<[Step]>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let connecting = tokio::spawn(async move { TcpStream::connect(address).await.unwrap() });
    let mut accepted = None;
    for step in steps.iter().cycle() {
        accepted = within(step.patience, listener.accept()).await;
        if accepted.is_some() {
            break;
        }
        tokio::task::yield_now().await;
    }
    let reader = accepted.unwrap().unwrap().0;
    let writer = connecting.await.unwrap();
    let sent = pattern(120_000);
    let writing = tokio::spawn(write_all(writer, sent.clone(), Arc::clone(&steps)));
    let read = tokio::spawn(read_all(reader, steps)).await.unwrap();
    assert!(read == sent, "{} of {}", read.len(), sent.len());
    writing.await.unwrap();
}

async fn datagram_storm(steps: Arc<[Step]>) {
    let receiver = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let at = receiver.local_addr().unwrap();
    let sender = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let (mut sent, mut got) = (0u16, Vec::new());
    let mut buffer = [0; 8];
    for step in steps.iter() {
        // Never more on its way than a socket's buffer holds, so that none is dropped by the kernel.
        while usize::from(sent) < got.len() + 20 && sent % 7 != u16::from(step.what) % 7 {
            sender.send_to(&sent.to_be_bytes(), at).await.unwrap();
            sent += 1;
        }
        let received = match step.what % 4 {
            0 => within(step.patience, receiver.recv_from(&mut buffer))
                .await
                .map(|one| one.unwrap().0),
            1 => {
                let _ = within(step.patience, receiver.readable()).await;
                receiver.try_recv(&mut buffer).ok()
            }
            2 => {
                if let Some(datagrams) = within(step.patience, receiver.recv_datagrams()).await {
                    let datagrams = datagrams.unwrap();
                    got.extend(datagrams.iter().map(|one| u16::from_be_bytes([one[0], one[1]])));
                }
                None
            }
            _ => once(receiver.recv(&mut buffer)).await.map(Result::unwrap),
        };
        if received.is_some() {
            got.push(u16::from_be_bytes([buffer[0], buffer[1]]));
        }
    }
    while got.len() < usize::from(sent) {
        receiver.recv(&mut buffer).await.unwrap();
        got.push(u16::from_be_bytes([buffer[0], buffer[1]]));
    }
    assert_eq!(got, (0..sent).collect::<Vec<_>>());
}

fn run(
    storm: impl Fn(Arc<[Step]>) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>>
    + Copy
    + Send
    + Sync
    + 'static,
) {
    let mut runner = TestRunner::new(Config {
        cases: 12,
        failure_persistence: None,
        ..Config::default()
    });
    let result = runner.run(&steps(), |steps| {
        let on_loop = Arc::clone(&steps);
        on_a_loop(move |_| storm(Arc::clone(&on_loop)));
        beside_loops(storm(steps));
        Ok(())
    });
    result.unwrap();
}

#[test]
fn streams_lose_no_byte() {
    if is_own_process(concat!(module_path!(), "::streams_lose_no_byte")) {
        run(|steps| Box::pin(storm(steps)));
    }
}

#[test]
fn sockets_lose_no_datagram() {
    if is_own_process(concat!(module_path!(), "::sockets_lose_no_datagram")) {
        run(|steps| Box::pin(datagram_storm(steps)));
    }
}

/// A task that is never run, which all whom it was given to as a waker hold.
struct Task;

impl Wake for Task {
    fn wake(self: Arc<Self>) {}
}

/// Polls each of so many futures once and drops it, and returns how many times the task is held then.
fn held_after<F: Future<Output = ()>>(futures: impl Iterator<Item = F>) -> usize {
    let task = Arc::new(Task);
    let waker = Waker::from(Arc::clone(&task));
    for future in futures {
        assert!(pin!(future).poll(&mut Context::from_waker(&waker)).is_pending());
    }
    drop(waker);
    Arc::strong_count(&task)
}

#[test]
fn who_waits_for_the_drain_no_more_is_forgotten() {
    if !is_own_process(concat!(
        module_path!(),
        "::who_waits_for_the_drain_no_more_is_forgotten"
    )) {
        return;
    }
    on_a_loop(|context| async move {
        assert_eq!(held_after((0..1000).map(|_| context.draining())), 1);
    });
    beside_loops(async {
        // A connection that is open keeps them from ending.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let drains = (0..1000).map(|_| quoit_async::drain_default(Duration::from_secs(3600)));
        assert_eq!(held_after(drains), 1);
        drop(stream);
    });
}
