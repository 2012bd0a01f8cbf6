//! What goes with every package: our licences, those of others, and what it was made of.

use std::path::Path;
use std::process::Command;

use crate::place::{self, Place};
use crate::tools;
use crate::tree::Tree;

/// Our licences and the notices for what is linked in; of the package by this name.
pub(crate) fn make(place: &Place, package: &str) -> Result<Tree, String> {
    let mut tree = Tree::default();
    for name in ["LICENSE", "LICENSE-APACHE", "LICENSE-MIT"] {
        tree.add(name, place::bytes(&place.root.join(name))?);
    }
    tree.add("THIRD-PARTY-NOTICES.txt", notices(place, package)?);
    Ok(tree)
}

/// The licences of the crates by cargo-about, and of what no crate brings.
fn notices(place: &Place, package: &str) -> Result<String, String> {
    let mut about = Command::new("cargo");
    about
        .current_dir(&place.root)
        .args([
            "about",
            "generate",
            "--locked",
            "--fail",
            "--config",
            "dist/about.toml",
        ])
        .arg("--manifest-path")
        .arg(format!("crates/{package}/Cargo.toml"))
        .arg("dist/notices.hbs");
    let crates = tools::quiet_output(&mut about)?;
    let mut text = crates.trim_end().to_owned();
    text.push('\n');
    let sysroot = tools::sysroot()?;
    let zig = tools::zig().ok_or("zig was found a moment ago")?;
    for (what, path) in [
        (
            "Rust's standard library (MIT OR Apache-2.0), and what it is made of",
            sysroot.join("share/doc/rust/COPYRIGHT-library.html"),
        ),
        (
            "musl, in what is linked against it",
            zig.join("libc/musl/COPYRIGHT"),
        ),
        (
            "LLVM's libunwind (Apache-2.0 WITH LLVM-exception)",
            zig.join("libunwind/LICENSE.TXT"),
        ),
    ] {
        text.push_str(&format!("\n{}\n{what}\n\n", "-".repeat(80)));
        let notice = place::read(&path)?;
        let is_page = path.extension().is_some_and(|end| end == "html");
        text.push_str(&if is_page { plain(&notice) } else { notice });
    }
    Ok(text)
}

/// The text of a page: what is between its marks.
fn plain(page: &str) -> String {
    let mut text = String::new();
    let body = page.split_once("<body>").map_or(page, |(_, body)| body);
    for (index, piece) in body.split('<').enumerate() {
        let words = if index == 0 {
            piece
        } else {
            piece.split_once('>').map_or("", |(_, words)| words)
        };
        text.push_str(words);
    }
    let text = text
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&quot;", "\"")
        .replace("&#39;", "'")
        .replace("&amp;", "&");
    let mut lines = Vec::new();
    for line in text.lines().map(str::trim_end) {
        if !(line.trim().is_empty() && lines.last().is_some_and(|last: &&str| last.trim().is_empty())) {
            lines.push(line);
        }
    }
    lines.join("\n") + "\n"
}

/// Writes the bill of materials of a package, in CycloneDX's form; returns its name.
pub(crate) fn bill(place: &Place, package: &str, name: &str) -> Result<String, String> {
    let source = copy(place)?;
    let file = format!("{name}-{}", place.version);
    tools::output(
        Command::new("cargo")
            .current_dir(&source)
            .env("SOURCE_DATE_EPOCH", place.epoch.to_string())
            .args([
                "cyclonedx",
                "--quiet",
                "--format",
                "json",
                "--spec-version",
                "1.5",
            ])
            .args(["--target", "x86_64-unknown-linux-musl"])
            .args(["--override-filename", &file])
            .arg("--manifest-path")
            .arg(format!("crates/{package}/Cargo.toml")),
    )?;
    let written = source.join("crates").join(package).join(format!("{file}.json"));
    let text = place::read(&written)?.replace(&*source.to_string_lossy(), "");
    let name = format!("{file}.cdx.json");
    place::write(&place.out().join(&name), text)?;
    Ok(name)
}

/// The manifests, where cargo-cyclonedx may write beside them.
fn copy(place: &Place) -> Result<std::path::PathBuf, String> {
    let source = place.work().join("source");
    if source.exists() {
        return Ok(source);
    }
    let listed = tools::output(Command::new("git").current_dir(&place.root).args([
        "ls-files",
        "--cached",
        "--others",
        "--exclude-standard",
        "crates",
        "lab/peers/rust",
        "Cargo.toml",
        "Cargo.lock",
        "README.md",
    ]))?;
    for path in listed.lines().map(Path::new) {
        let is_wanted = path
            .extension()
            .is_some_and(|end| ["toml", "rs", "lock", "md"].iter().any(|wanted| end == *wanted));
        if is_wanted && place.root.join(path).is_file() {
            place::write(&source.join(path), place::bytes(&place.root.join(path))?)?;
        }
    }
    Ok(source)
}

#[cfg(test)]
mod tests {
    use super::plain;

    #[test]
    fn a_page_is_read_as_text() {
        let page =
            "<html><style>x</style><body>\n<h1>A &amp; B</h1>\n\n\n<p>a &lt;b@c&gt;</p>\n</body></html>";
        assert_eq!(plain(page), "\nA & B\n\na <b@c>\n");
    }
}
