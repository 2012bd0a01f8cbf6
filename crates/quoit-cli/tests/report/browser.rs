//! A page in headless Chromium, and what it did there.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use serde_json::Value;

/// With this in the environment a missing browser fails the test.
pub(crate) const REQUIRED: &str = "QUOIT_REQUIRE_BROWSER";
/// How long a browser may take for a page.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the page is asked once it is loaded. It goes into the root element, which `--dump-dom` prints.
const HARNESS: &str = r"
const problems = [];
addEventListener('error', event => problems.push(String(event.message)), true);
addEventListener('securitypolicyviolation', event => problems.push('refused: ' + event.blockedURI));
const error = console.error;
console.error = (...words) => { problems.push(words.join(' ')); error(...words); };
addEventListener('load', () => {
  const charts = [...document.querySelectorAll('figure[data-chart]')].map(figure => {
    const shown = [...figure.querySelectorAll('svg')].filter(svg => svg.getBoundingClientRect().width > 0);
    const box = shown[0] ? shown[0].getBBox() : { width: 0, height: 0 };
    const outside = shown.flatMap(svg => {
      const frame = svg.getBoundingClientRect();
      return [...svg.querySelectorAll('text')].filter(text => {
        const box = text.getBoundingClientRect();
        return box.left < frame.left - 1 || box.right > frame.right + 1;
      }).map(text => text.textContent.trim());
    });
    return {
      kind: figure.dataset.chart, shown: shown.length, width: box.width, height: box.height, outside,
      marks: shown[0] ? shown[0].querySelectorAll('polyline,rect,circle,polygon').length : 0,
      label: figure.querySelector('[role=img]')?.getAttribute('aria-label') ?? '',
    };
  });
  const found = {
    charts, problems, width: innerWidth, overflow: document.documentElement.scrollWidth - innerWidth,
    paper: getComputedStyle(document.body).backgroundColor,
  };
  document.documentElement.dataset.found = encodeURIComponent(JSON.stringify(found));
});
";

/// The browser of this machine. Without one the test is skipped with a line that says so, unless
/// [`REQUIRED`] is set.
pub(crate) fn find() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let found = std::env::split_paths(&path)
        .flat_map(|folder| names.map(|name| folder.join(name)))
        .find(|program| program.is_file());
    if found.is_none() {
        assert!(
            std::env::var_os(REQUIRED).is_none(),
            "{REQUIRED} is set, but chromium was not found; apt install chromium"
        );
        quoit_skipped::skip_this(format_args!(
            "chromium was not found (apt install chromium; {REQUIRED}=1 makes this a failure)"
        ));
    }
    found
}

/// Loads a page with the harness in it and gives what the harness found, with `console` beside: the lines that
/// the browser itself logged for the page.
pub(crate) fn look(browser: &Path, page: &str, folder: &Path, options: &[&str]) -> Value {
    let policy = "style-src 'unsafe-inline'";
    assert!(
        page.contains(policy),
        "the page has a policy that forbids scripts"
    );
    let harnessed = page
        .replacen(policy, &format!("{policy}; script-src 'unsafe-inline'"), 1)
        .replacen("</title>", &format!("</title><script>{HARNESS}</script>"), 1);
    let file = folder.join("harnessed.html");
    std::fs::write(&file, harnessed).unwrap();
    let profile = tempfile::tempdir().unwrap();
    let mut child = Command::new(browser)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
        ])
        .args([
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
        ])
        .args(["--disable-dev-shm-usage", "--enable-logging=stderr", "--dump-dom"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .args(options)
        .arg(format!("file://{}", file.display()))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (sender, receiver) = mpsc::channel();
    let (mut stdout, mut stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let log = thread::spawn(move || {
        let mut log = Vec::new();
        stderr.read_to_end(&mut log).unwrap();
        String::from_utf8_lossy(&log).into_owned()
    });
    thread::spawn(move || {
        let mut page = String::new();
        // The receiver is gone when the browser took too long.
        let _ = sender.send(stdout.read_to_string(&mut page).map(|_| page));
    });
    let page = receiver.recv_timeout(PATIENCE);
    if page.is_err() {
        child.kill().unwrap();
    }
    child.wait().unwrap();
    let log = log.join().unwrap();
    let page = page
        .unwrap_or_else(|_| panic!("no page within {PATIENCE:?}: {log}"))
        .unwrap();
    let found = page
        .split("data-found=\"")
        .nth(1)
        .and_then(|rest| rest.split('"').next());
    let found = found.unwrap_or_else(|| panic!("the page was not loaded: {log}"));
    let mut found: Value = serde_json::from_str(&decoded(found)).unwrap();
    let console: Vec<&str> = log.lines().filter(|line| line.contains(":CONSOLE")).collect();
    found["console"] = console.into();
    found
}

/// The inverse of `encodeURIComponent`.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digits = [rest.next().unwrap(), rest.next().unwrap()];
            bytes.push(u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap());
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).unwrap()
}
