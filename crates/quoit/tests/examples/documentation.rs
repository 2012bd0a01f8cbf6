//! The code in the documentation is the examples', word for word: what users copy is compiled and tested. Pages whose code is
//! whole, such as the README, are compiled themselves (`documents` in `lib.rs`).

const EXAMPLES: [&str; 6] = [
    include_str!("../../examples/echo.rs"),
    include_str!("../../examples/key_value.rs"),
    include_str!("../../examples/proxy.rs"),
    include_str!("../../examples/signals/mod.rs"),
    include_str!("../../examples/statsd.rs"),
    include_str!("../../examples/udp_echo.rs"),
];

const PAGES: [(&str, &str); 3] = [
    ("buffers.md", include_str!("../../../../docs/buffers.md")),
    ("execution.md", include_str!("../../../../docs/execution.md")),
    ("proxy.md", include_str!("../../../../docs/proxy.md")),
];

/// The Rust code of a page, block by block.
fn blocks(page: &str) -> Vec<Vec<&str>> {
    let mut lines = page.lines();
    let mut blocks = Vec::new();
    while lines.any(|line| line == "```rust") {
        blocks.push(lines.by_ref().take_while(|line| *line != "```").collect());
    }
    blocks
}

/// Whether these lines are in the text one behind the other, all indented by as much more.
fn is_in(block: &[&str], text: &str) -> bool {
    let lines: Vec<_> = text.lines().collect();
    lines.windows(block.len()).any(|window| {
        let Some(indent) = window[0].strip_suffix(block[0]) else {
            return false;
        };
        indent.trim().is_empty()
            && window.iter().zip(block).all(|(line, shown)| {
                line.strip_prefix(indent) == Some(shown) || (line.is_empty() && shown.is_empty())
            })
    })
}

#[test]
fn what_is_shown_is_in_the_examples() {
    for (name, page) in PAGES {
        let blocks = blocks(page);
        assert!(!blocks.is_empty(), "{name} shows nothing");
        for block in blocks {
            assert!(
                EXAMPLES.iter().any(|text| is_in(&block, text)),
                "{name} shows what is in no example:\n{}",
                block.join("\n")
            );
        }
    }
}
