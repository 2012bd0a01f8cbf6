//! Manual pages and completions, made from the program's arguments.

use clap::Command;
use clap_complete::Shell;

use crate::archive::gzip;
use crate::place::Place;
use crate::tree::Tree;

const SHELLS: [(Shell, &str); 3] = [
    (Shell::Bash, "quoit"),
    (Shell::Zsh, "_quoit"),
    (Shell::Fish, "quoit.fish"),
];

/// A page for the program and for each of its commands, compressed as systems have them.
pub(crate) fn pages(place: &Place) -> Result<Tree, String> {
    let mut tree = Tree::default();
    let mut program = quoit_cli::arguments().disable_help_subcommand(true);
    program.build();
    add_pages(&mut tree, &program, "quoit", place)?;
    Ok(tree)
}

fn add_pages(tree: &mut Tree, command: &Command, name: &str, place: &Place) -> Result<(), String> {
    let mut page = Vec::new();
    let manual = clap_mangen::Man::new(command.clone().display_name(name))
        .title(name)
        .date(date(place.epoch))
        // For each command: by itself it would be the command's own, which has none.
        .source(format!("quoit {}", place.version))
        .manual("Quoit");
    manual
        .render(&mut page)
        .map_err(|error| format!("the page of {name}: {error}"))?;
    let page = String::from_utf8_lossy(&page);
    tree.add(format!("{name}.1.gz"), gzip(with_lines(&page).as_bytes())?);
    for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
        add_pages(tree, inner, &format!("{name}-{}", inner.get_name()), place)?;
    }
    Ok(())
}

/// The page with the lines that stand below the options in `--help` as they are there: columns and examples, which would be filled.
fn with_lines(page: &str) -> String {
    const HEADING: &str = "\n.SH EXTRA\n";
    let Some((before, rest)) = page.split_once(HEADING) else {
        return page.to_owned();
    };
    let (lines, after) = rest.split_at(rest.find(".SH ").unwrap_or(rest.len()));
    format!("{before}{HEADING}.nf\n{}\n.fi\n{after}", lines.trim_end())
}

/// One file for each shell, by the name that it looks for.
pub(crate) fn completions() -> Vec<(Shell, &'static str, Vec<u8>)> {
    let completed = SHELLS.into_iter().map(|(shell, name)| {
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut quoit_cli::arguments(), "quoit", &mut script);
        (shell, name, script)
    });
    completed.collect()
}

/// A day, as `2026-11-27`.
pub(crate) fn date(epoch: u64) -> String {
    // Civil days from a count of days: Howard Hinnant's, for dates since 1970.
    let days = epoch / 86_400 + 719_468;
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year}-{month:02}-{day:02}")
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by it")]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        assert_eq!(date(0), "1970-01-01");
        assert_eq!(date(1_709_164_800), "2024-02-29");
        assert_eq!(date(1_735_689_599), "2024-12-31");
        assert_eq!(date(1_795_737_600), "2026-11-27");
    }

    #[test]
    fn every_shell_has_its_completions() {
        for (shell, name, script) in completions() {
            let script = String::from_utf8(script).unwrap();
            assert!(
                script.contains("doctor") && script.contains("serve"),
                "{shell}: {name}"
            );
        }
    }

    #[test]
    fn each_command_has_its_page() {
        let place = Place::made_up("", "1.2.3");
        let pages = pages(&place).unwrap();
        for name in [
            "quoit",
            "quoit-doctor",
            "quoit-serve",
            "quoit-serve-http",
            "quoit-load-http",
            "quoit-lab-run",
        ] {
            assert!(pages.0.contains_key(&format!("{name}.1.gz")), "{name}");
        }
        for (path, entry) in &pages.0 {
            let crate::tree::Entry::File { bytes, .. } = entry else {
                panic!("{path} is a file");
            };
            let mut page = String::new();
            std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(bytes.as_slice()), &mut page)
                .unwrap();
            let title = page.lines().find(|line| line.starts_with(".TH ")).unwrap();
            assert!(title.contains(" \"quoit 1.2.3\" "), "{path}: {title}");
            let extra = page.split_once(".SH EXTRA\n").map(|(_, extra)| extra);
            assert!(extra.is_none_or(|extra| extra.starts_with(".nf\n")), "{path}");
        }
    }

    /// A table is told by its columns.
    #[test]
    fn what_stands_below_the_options_keeps_its_lines() {
        let page = ".TH x\n.SH EXTRA\nname    what\n  other   it\n.SH VERSION\nv1\n";
        let kept = ".TH x\n.SH EXTRA\n.nf\nname    what\n  other   it\n.fi\n.SH VERSION\nv1\n";
        assert_eq!(with_lines(page), kept);
        assert_eq!(with_lines(".TH x\n.SH NAME\nx\n"), ".TH x\n.SH NAME\nx\n");
    }
}
