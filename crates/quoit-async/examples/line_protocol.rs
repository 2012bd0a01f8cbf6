//! A protocol of lines, without any framework: `SET name value`, `GET name`, `QUIT`. One answer a line.
//!
//!     cargo run --example line_protocol -- --listen 127.0.0.1:7000

mod common;

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use clap::Parser;
use quoit_async::{Context, TcpStream};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;

/// Bytes of the longest line, its end included.
const LONGEST: usize = 4096;

type Values = Arc<Mutex<HashMap<String, String>>>;

/// What is answered to a line. `None` ends the connection.
fn answer(line: &str, values: &Values) -> Option<String> {
    let mut values = values.lock().unwrap_or_else(PoisonError::into_inner);
    let words = line.splitn(3, ' ').collect::<Vec<_>>();
    Some(match words[..] {
        ["QUIT"] => return None,
        ["GET", name] => match values.get(name) {
            Some(value) => format!("+{value}\n"),
            None => "-none\n".to_owned(),
        },
        ["SET", name, value] => {
            values.insert(name.to_owned(), value.to_owned());
            "+ok\n".to_owned()
        }
        _ => "-error\n".to_owned(),
    })
}

/// Serves one client until it ends, or the server is to.
async fn talk(stream: TcpStream, values: Values, draining: impl Future<Output = ()>) -> io::Result<()> {
    // No `BufReader`: what is received lies in the loop's memory, and is read from there.
    let (mut reader, mut writer) = stream.into_split();
    let mut draining = std::pin::pin!(draining);
    let mut line = Vec::new();
    loop {
        line.clear();
        // One byte more than may be, to tell a line that is too long.
        let mut limited = (&mut reader).take(LONGEST as u64 + 1);
        let length = tokio::select! {
            length = limited.read_until(b'\n', &mut line) => length?,
            () = &mut draining => break,
        };
        if length == 0 {
            break;
        }
        if length > LONGEST {
            writer.write_all(b"-too long\n").await?;
            break;
        }
        let text = String::from_utf8_lossy(&line);
        let Some(answer) = answer(text.trim_end(), &values) else {
            break;
        };
        writer.write_all(answer.as_bytes()).await?;
    }
    writer.shutdown().await
}

async fn serve(mut context: Context, values: Values) -> io::Result<()> {
    let listener = context.listener()?;
    let mut draining = std::pin::pin!(context.draining());
    let mut clients = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => _ = clients.spawn(talk(stream, Arc::clone(&values), context.draining())),
                // For want of descriptors, say. The loop accepts again when there are some.
                Err(error) => eprintln!("accepting failed: {error}"),
            },
            // What became of a client concerns nobody else.
            Some(_) = clients.join_next() => {}
            () = &mut draining => break,
        }
    }
    while clients.join_next().await.is_some() {}
    Ok(())
}

fn main() -> io::Result<()> {
    let values = Values::default();
    common::Arguments::parse().serve(move |context| serve(context, Arc::clone(&values)))
}
