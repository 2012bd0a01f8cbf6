//! The new process: it asks for the sockets.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use quoit::{Address, ListenSocket};
use quoit_host::console::say;

use super::give::Use;
use super::{HandedFile, wire};

/// How long an answer may take: the other end does nothing else.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a predecessor has handed over, until it is told that this process serves.
#[derive(Debug)]
struct Sockets(Vec<(Use, ListenSocket)>);

/// A predecessor, and what it has handed over.
#[derive(Debug)]
pub(in super::super) struct Taken {
    stream: UnixStream,
    process: i32,
    sockets: Sockets,
    /// Of Unix sockets whose files are handed over with them.
    files: Vec<PathBuf>,
}

/// As long as that, or until this process is told to end.
fn patience(told: BorrowedFd<'_>) -> wire::Patience<'_> {
    wire::Patience {
        time: PATIENCE,
        given_up: Some(told),
    }
}

/// Takes the sockets of the process that serves at `path`; none if nobody does. `told` is readable once this process is
/// told to end.
///
/// # Errors
/// One line: what is wrong with the path, or with what is handed over; or the process is told to end before that comes.
pub(in super::super) fn take(path: &Path, told: BorrowedFd<'_>) -> Result<Option<Taken>, String> {
    let at = path.display();
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("--hand-over {at}: {error}")),
        Ok(file) if !file.file_type().is_socket() => {
            return Err(format!(
                "--hand-over {at}: this file is no Unix socket, and is left alone; name another path"
            ));
        }
        Ok(_) => {}
    }
    let stream = match UnixStream::connect(path) {
        Ok(stream) => stream,
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
            say(format_args!(
                "quoit serve: nobody serves at {at} any more: the file was left behind, and is replaced"
            ));
            return Ok(None);
        }
        // It has gone in this moment.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("--hand-over {at}: cannot connect: {error}")),
    };
    let failed = |error: io::Error| format!("--hand-over {at}: no sockets were handed over: {error}");
    let (process, trusted) = wire::peer(&stream).map_err(failed)?;
    if !trusted {
        return Err(format!(
            "--hand-over {at}: process {process} serves there, which is of another user; nothing is taken from it"
        ));
    }
    let wrong = |what: String| format!("--hand-over {at}: process {process} {what}");
    let (line, descriptors) = match wire::receive(&stream, patience(told)) {
        Err(error) if error.kind() == ErrorKind::Interrupted => {
            return Err(wrong(
                "serves on: this one was told to end before it had the sockets".to_owned(),
            ));
        }
        received => received.map_err(failed)?,
    };
    let Some(rest) = line.strip_prefix(wire::HELLO) else {
        return Err(wrong(match line.as_str() {
            "" => "ended without handing anything over; try again".to_owned(),
            _ => format!("does not hand sockets over: it said `{}`", line.escape_debug()),
        }));
    };
    if let Some(reason) = rest.strip_prefix(" refused ") {
        return Err(wrong(format!("hands nothing over: {reason}")));
    }
    let uses: Vec<&str> = rest.split_whitespace().collect();
    if uses.len() != descriptors.len() {
        return Err(wrong(format!(
            "named {} sockets and handed {} over",
            uses.len(),
            descriptors.len()
        )));
    }
    let (mut sockets, mut files) = (Vec::new(), Vec::new());
    for (word, descriptor) in uses.into_iter().zip(descriptors) {
        let without = word.strip_suffix(wire::WITH_FILE);
        let name = without.unwrap_or(word);
        let purpose = Use::of(name)
            .ok_or_else(|| wrong(format!("handed over a socket for `{name}`, which is unknown")))?;
        let socket = ListenSocket::adopt(descriptor)
            .map_err(|error| wrong(format!("handed over what cannot be used: {error}")))?;
        if let (Some(_), Address::UnixPath(path)) = (without, socket.address()) {
            files.push(path.clone());
        }
        sockets.push((purpose, socket));
    }
    Ok(Some(Taken {
        stream,
        process,
        sockets: Sockets(sockets),
        files,
    }))
}

impl Taken {
    /// The socket of this use and address, if it was handed over.
    pub(in super::super) fn socket(&mut self, purpose: Use, address: &Address) -> Option<ListenSocket> {
        let all = &mut self.sockets.0;
        let position = all
            .iter()
            .position(|(other, socket)| *other == purpose && socket.address() == address)?;
        Some(all.remove(position).1)
    }

    /// All sockets of this use.
    pub(in super::super) fn sockets(&mut self, purpose: Use) -> Vec<ListenSocket> {
        let all = self.sockets.0.extract_if(.., |(other, _)| *other == purpose);
        all.map(|(_, socket)| socket).collect()
    }

    /// Where the files are that are handed over with their sockets.
    pub(in super::super) fn files(&self) -> Vec<PathBuf> {
        self.files.clone()
    }

    /// Gives the sockets back: this process is told to end. Returns that in one line.
    pub(in super::super) fn give_up(self) -> String {
        format!(
            "process {} serves on: this one was told to end before it had taken over",
            self.process
        )
    }

    /// Tells the predecessor that this process serves, and waits until it accepts nothing more, or until this process is
    /// told to end: then `told` is readable.
    ///
    /// # Errors
    /// It says that it keeps its sockets.
    pub(in super::super) fn finish(self, told: BorrowedFd<'_>) -> Result<(), String> {
        let process = self.process;
        for (_, socket) in &self.sockets.0 {
            say(format_args!(
                "quoit serve: warning: process {process} handed over {}, which is not asked for: who waits in its queue \
                 is reset",
                socket.address()
            ));
        }
        let unused: Vec<HandedFile> = self
            .sockets
            .0
            .iter()
            .filter_map(|(_, socket)| match socket.address() {
                Address::UnixPath(path) if self.files.contains(path) => HandedFile::at(path),
                _ => None,
            })
            .collect();
        drop(self.sockets);
        let answer = wire::send(&self.stream, wire::READY, &[])
            .and_then(|()| wire::receive(&self.stream, patience(told)));
        match answer {
            Ok((line, _)) if line == wire::DRAINING => {
                say(format_args!(
                    "quoit serve: took over from process {process}, which drains"
                ));
            }
            Ok((line, _)) if !line.is_empty() => {
                return Err(format!(
                    "process {process} keeps its sockets, and goes on serving: it said `{}`",
                    line.escape_debug()
                ));
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => say(format_args!(
                "quoit serve: warning: process {process} has not said that it drains, and this one was told to end"
            )),
            // It may have heard, and drain later. Who gave up here would leave nobody to serve then; both may accept.
            Err(error) if !is_gone(&error) => say(format_args!(
                "quoit serve: warning: process {process} does not say that it drains: {error}; this one serves beside it"
            )),
            // The sockets are this process's alone, then.
            Ok(_) | Err(_) => say(format_args!(
                "quoit serve: process {process} ended before it was taken over from"
            )),
        }
        // Nobody listens there now.
        unused.iter().for_each(HandedFile::remove);
        Ok(())
    }
}

fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset)
}
