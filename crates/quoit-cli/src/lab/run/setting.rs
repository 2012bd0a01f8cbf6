//! A setting of the machine that a run changes and puts back.

use std::fs;
use std::path::{Path, PathBuf};

use crate::lab::console;

/// The congestion control that a run wants: bbr's pacing timers distort loopback.
pub(crate) const CUBIC: &str = "cubic";
/// Where it is set. Network namespaces made later begin with it.
pub(crate) const CONGESTION_CONTROL: &str = "/proc/sys/net/ipv4/tcp_congestion_control";

/// A changed setting, put back when this is dropped: at the end, on an interrupt and on a panic. Only SIGKILL leaves
/// it changed.
pub(crate) struct Setting {
    path: PathBuf,
    before: String,
}

/// What became of the wish to change a setting, in words for the notes.
pub(crate) type Note = String;

impl Setting {
    /// Changes a setting to `value`, if it has another one and this process may.
    pub(crate) fn change(path: &Path, value: &str) -> (Option<Self>, Option<Note>) {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let before = match fs::read_to_string(path) {
            Ok(text) => text.trim().to_owned(),
            Err(error) => return (None, Some(format!("{name} could not be read ({error})"))),
        };
        if before == value {
            return (None, None);
        }
        match fs::write(path, value) {
            Ok(()) => {
                let note = format!("{name} was set from {before} to {value} for the run and put back");
                let setting = Self {
                    path: path.to_owned(),
                    before,
                };
                (Some(setting), Some(note))
            }
            Err(error) => {
                let note = format!(
                    "{name} is {before} and could not be set to {value} ({error}); as root: echo {value} > {}",
                    path.display()
                );
                (None, Some(note))
            }
        }
    }
}

impl Drop for Setting {
    fn drop(&mut self) {
        if let Err(error) = fs::write(&self.path, &self.before) {
            console::say(format_args!(
                "quoit lab: {} could not be put back to {}: {error}",
                self.path.display(),
                self.before
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_changed_noted_and_put_back() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("tcp_congestion_control");
        let read = || fs::read_to_string(&path).expect("it is there");
        fs::write(&path, "bbr\n").expect("a file");
        let (setting, note) = Setting::change(&path, CUBIC);
        assert_eq!(read(), "cubic");
        let note = note.expect("it says so");
        assert!(note.contains("from bbr to cubic"), "{note}");
        drop(setting.expect("it was changed"));
        assert_eq!(read(), "bbr");

        fs::write(&path, "cubic\n").expect("a file");
        assert!(matches!(Setting::change(&path, CUBIC), (None, None)));
        let (setting, note) = Setting::change(&folder.path().join("absent"), CUBIC);
        assert!(setting.is_none() && note.expect("it says so").contains("could not be read"));
    }

    #[test]
    fn a_panic_puts_it_back_too() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("x");
        fs::write(&path, "bbr").expect("a file");
        let outcome = std::panic::catch_unwind(|| {
            let _setting = Setting::change(&path, CUBIC);
            panic!("on purpose");
        });
        assert!(outcome.is_err());
        assert_eq!(fs::read_to_string(&path).expect("it is there"), "bbr");
    }
}
