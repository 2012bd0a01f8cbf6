//! dnsperf (https://www.dns-oarc.net/tools/dnsperf) as a client of the lab: runs it and turns its statistics into the
//! report that the lab reads. Anything lost, and any response but the address that was asked for, is an error.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use lab_dns::{Options, Statistics};

/// Names that are asked for, in turn.
const NAMES: u32 = 1000;
/// A record with a compressed name and an address of IPv4.
const GROWTH: u64 = 12 + 4;

struct Arguments {
    connect: SocketAddr,
    seconds: f64,
    /// An empty one, for the list of queries.
    folder: PathBuf,
    /// Sockets that ask.
    clients: u32,
    /// Queries under way at once, all clients together.
    outstanding: u32,
    /// Queries per second; none: as fast as answers come.
    rate: Option<u32>,
}

fn main() -> ExitCode {
    let arguments = match arguments(Options::of_process()) {
        Ok(arguments) => arguments,
        Err(what) => {
            eprintln!(
                "dns-load: {what}; usage: dns-load --connect ADDR --seconds S --folder PATH [--clients N] \
                 [--outstanding N] [--rate PER_SECOND]"
            );
            return ExitCode::from(2);
        }
    };
    match load(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            eprintln!("dns-load: {what}");
            ExitCode::FAILURE
        }
    }
}

fn arguments(mut options: Options) -> Result<Arguments, String> {
    let arguments = Arguments {
        connect: options.need("--connect")?,
        seconds: options.need("--seconds")?,
        folder: options.need("--folder")?,
        clients: options.take("--clients")?.unwrap_or(1),
        outstanding: options.take("--outstanding")?.unwrap_or(1),
        rate: options.take("--rate")?,
    };
    options.end()?;
    Ok(arguments)
}

fn load(arguments: &Arguments) -> Result<(), String> {
    let path = arguments.folder.join("queries");
    write_queries(&path).map_err(|error| format!("writing {}: {error}", path.display()))?;
    let mut command = Command::new("dnsperf");
    let mut option = |name: &str, value: String| {
        command.args([name.to_owned(), value]);
    };
    option("-s", arguments.connect.ip().to_string());
    option("-p", arguments.connect.port().to_string());
    option("-l", arguments.seconds.to_string());
    option("-c", arguments.clients.to_string());
    option("-q", arguments.outstanding.to_string());
    option("-T", "1".to_owned());
    if let Some(rate) = arguments.rate {
        option("-Q", rate.to_string());
    }
    let output = command
        .arg("-d")
        .arg(&path)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("starting dnsperf: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        return Err(format!("dnsperf failed ({}): {}", output.status, text.trim_end()));
    }
    let statistics = Statistics::read(&text)?;
    let mut report = io::stdout().lock();
    writeln!(report, "{}", statistics.report(GROWTH))
        .and_then(|()| report.flush())
        .map_err(|error| format!("writing the report: {error}"))
}

/// All of one length, so that the average size of the packets is that of each.
fn write_queries(path: &Path) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    for number in 0..NAMES {
        writeln!(file, "host-{number:04}.example.test A")?;
    }
    file.flush()
}
