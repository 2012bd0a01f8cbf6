//! A chat over WebSockets, by axum, in the program's own runtime of many threads: what a client says, all hear.
//!
//!     cargo run --example websocket_chat -- --listen 127.0.0.1:8080
//!     websocat ws://127.0.0.1:8080/chat

mod common;

use std::io;

use axum::Router;
use axum::extract::ws::{Message, Utf8Bytes, WebSocket, WebSocketUpgrade};
use axum::extract::{ConnectInfo, State};
use axum::response::Response;
use axum::routing::get;
use clap::Parser;
use quoit_async::{PeerAddr, TcpListener};
use tokio::sync::{broadcast, watch};

/// Lines that a client may be behind. One that is slower misses the oldest.
const BACKLOG: usize = 256;

#[derive(Clone)]
struct Room {
    lines: broadcast::Sender<Utf8Bytes>,
    /// Changes when the room is closed.
    closed: watch::Receiver<()>,
}

async fn join(
    upgrade: WebSocketUpgrade,
    ConnectInfo(PeerAddr(address)): ConnectInfo<PeerAddr>,
    State(room): State<Room>,
) -> Response {
    // Before the answer: who has it hears all that is said from then on.
    let lines = room.lines.subscribe();
    upgrade.on_upgrade(move |socket| async move {
        // A client that has gone is told nothing more.
        let _ = talk(socket, &address.to_string(), lines, room).await;
    })
}

async fn talk(
    mut socket: WebSocket,
    name: &str,
    mut lines: broadcast::Receiver<Utf8Bytes>,
    mut room: Room,
) -> Result<(), axum::Error> {
    loop {
        // Whichever is not ready is dropped and made anew: no message is lost by that.
        tokio::select! {
            said = socket.recv() => match said.transpose()? {
                // All who are in the room hear it, the client itself among them.
                Some(Message::Text(line)) => _ = room.lines.send(format!("{name}: {line}").into()),
                // A goodbye is answered while more is waited for, of which there is none.
                Some(_) => {}
                None => return Ok(()),
            },
            line = lines.recv() => match line {
                Ok(line) => socket.send(Message::Text(line)).await?,
                Err(broadcast::error::RecvError::Lagged(missed)) => {
                    socket.send(Message::Text(format!("({missed} lines missed)").into())).await?;
                }
                Err(broadcast::error::RecvError::Closed) => return Ok(()),
            },
            _ = room.closed.changed() => {
                socket.send(Message::Close(None)).await?;
                while socket.recv().await.transpose()?.is_some() {}
                return Ok(());
            }
        }
    }
}

#[tokio::main]
async fn main() -> io::Result<()> {
    let arguments = common::Arguments::parse();
    let signals = common::signals()?;
    let loops = arguments.start_loops()?;
    let (close, closed) = watch::channel(());
    let room = Room {
        lines: broadcast::channel(BACKLOG).0,
        closed,
    };
    let app = Router::new().route("/chat", get(join)).with_state(room);

    let listener = TcpListener::bind(arguments.listen).await?;
    loops.ready(listener.local_addr()?);
    axum::serve(listener, app.into_make_service_with_connect_info::<PeerAddr>())
        .with_graceful_shutdown(async move {
            signals.await;
            // Upgraded connections are no longer axum's to end.
            let _ = close.send(());
        })
        .await?;
    // What was said last is still on its way.
    quoit_async::drain_default(arguments.patience()).await;
    Ok(())
}
