//! Profiles of system calls as container runtimes read them: JSON, by the names of libseccomp.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What io_uring needs: all three, or it is denied.
pub const IO_URING: [&str; 3] = ["io_uring_setup", "io_uring_enter", "io_uring_register"];

const ALLOW: &str = "SCMP_ACT_ALLOW";

/// A profile: that of Docker and Podman, or of the runtime specification, which Kubernetes and containerd take. A field that is
/// not here is an error, so that none is lost on the way.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Profile {
    default_action: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    default_errno_ret: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    default_errno: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    architectures: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    arch_map: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    flags: Option<Vec<String>>,
    syscalls: Vec<Rule>,
}

/// Some calls, and what is done with them.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Rule {
    names: Vec<String>,
    action: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    errno_ret: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    errno: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    args: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    comment: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    includes: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    excludes: Option<Value>,
}

impl Rule {
    fn allow(names: Vec<String>, comment: &str) -> Self {
        Self {
            names,
            action: ALLOW.to_owned(),
            errno_ret: None,
            errno: None,
            args: None,
            comment: Some(comment.to_owned()),
            includes: None,
            excludes: None,
        }
    }

    /// Whether it lets its calls be made, whatever their arguments and whoever asks.
    fn always_allows(&self) -> bool {
        // Some write what is not there as an empty list.
        let is_nothing = |value: &Option<Value>| match value {
            None | Some(Value::Null) => true,
            Some(Value::Array(list)) => list.is_empty(),
            Some(Value::Object(fields)) => fields.is_empty(),
            Some(_) => false,
        };
        self.action == ALLOW
            && is_nothing(&self.args)
            && is_nothing(&self.includes)
            && is_nothing(&self.excludes)
    }
}

impl Profile {
    /// Reads a profile.
    ///
    /// # Errors
    /// What is not understood of it.
    pub fn parse(text: &str) -> Result<Self, String> {
        serde_json::from_str(text).map_err(|error| format!("it is no seccomp profile: {error}"))
    }

    /// One that allows nothing but these calls; the rest fail as if they were not permitted.
    #[must_use]
    pub fn of(names: impl IntoIterator<Item = String>, comment: &str) -> Self {
        let names: BTreeSet<String> = names.into_iter().collect();
        Self {
            default_action: "SCMP_ACT_ERRNO".to_owned(),
            default_errno_ret: Some(1),
            default_errno: None,
            architectures: Some(
                ["SCMP_ARCH_X86_64", "SCMP_ARCH_AARCH64"]
                    .map(str::to_owned)
                    .into(),
            ),
            arch_map: None,
            flags: None,
            syscalls: vec![Rule::allow(names.into_iter().collect(), comment)],
        }
    }

    /// The text of it.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("it has names for all fields");
        text.push('\n');
        text
    }

    /// The calls that anyone may make, with any arguments.
    #[must_use]
    pub fn allowed(&self) -> BTreeSet<&str> {
        let rules = self.syscalls.iter().filter(|rule| rule.always_allows());
        rules
            .flat_map(|rule| rule.names.iter().map(String::as_str))
            .collect()
    }

    /// The same profile, which allows exactly the calls of io_uring besides. `origin` says what it was made of.
    ///
    /// # Errors
    /// If it allows them already, or denies nothing.
    pub fn with_io_uring(mut self, origin: &str) -> Result<Self, String> {
        if self.default_action == ALLOW {
            return Err("it allows what it does not name, so nothing is to be added".to_owned());
        }
        let allowed = self.allowed();
        let missing: Vec<String> = IO_URING
            .into_iter()
            .filter(|name| !allowed.contains(name))
            .map(str::to_owned)
            .collect();
        if missing.is_empty() {
            return Err("it allows io_uring already, so nothing is to be added".to_owned());
        }
        // A second rule for a call that another one denies is an error to libseccomp.
        for rule in &mut self.syscalls {
            rule.names.retain(|name| !missing.contains(name));
        }
        self.syscalls.retain(|rule| !rule.names.is_empty());
        self.syscalls.push(Rule::allow(
            missing,
            &format!("io_uring, which is all that was added to {origin}"),
        ));
        Ok(self)
    }

    /// The same profile without these calls.
    #[must_use]
    pub fn without(mut self, names: &[&str]) -> Self {
        for rule in &mut self.syscalls {
            rule.names.retain(|name| !names.contains(&name.as_str()));
        }
        self.syscalls.retain(|rule| !rule.names.is_empty());
        self
    }

    /// A program for the kernel, of a profile that has only calls that are always allowed: as the profile of the program is. Names
    /// that this processor does not have are passed over, as libseccomp does.
    ///
    /// # Errors
    /// If the profile has conditions, or cannot be compiled.
    pub fn compile(&self) -> Result<seccompiler::BpfProgram, String> {
        let denied = match (&self.default_action[..], self.default_errno_ret) {
            ("SCMP_ACT_ERRNO", errno) => serde_json::json!({ "errno": errno.unwrap_or(1) }),
            (other, _) => {
                return Err(format!(
                    "the default action {other} is not one that can be tried here"
                ));
            }
        };
        if let Some(rule) = self.syscalls.iter().find(|rule| !rule.always_allows()) {
            return Err(format!(
                "{} has conditions, which are not tried here",
                rule.names.join(", ")
            ));
        }
        let known = |name: &&str| compile(&denied, &[name]).is_ok();
        let names: Vec<&str> = self.allowed().into_iter().filter(known).collect();
        compile(&denied, &names)
    }
}

/// By the names that the compiler knows for this processor.
fn compile(denied: &Value, names: &[&str]) -> Result<seccompiler::BpfProgram, String> {
    let filter: Vec<Value> = names
        .iter()
        .map(|name| serde_json::json!({ "syscall": name }))
        .collect();
    let text = serde_json::json!({
        "all": { "mismatch_action": denied, "match_action": "allow", "filter": filter }
    })
    .to_string();
    let processor = std::env::consts::ARCH
        .try_into()
        .map_err(|error| format!("profiles cannot be tried on this processor: {error}"))?;
    let mut compiled = seccompiler::compile_from_json(text.as_bytes(), processor)
        .map_err(|error| format!("the profile cannot be compiled: {error}"))?;
    compiled
        .remove("all")
        .ok_or_else(|| "the profile has no filter".to_owned())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by it")]
mod tests {
    use super::*;

    const DEFAULT: &str = r#"{
        "defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": 1,
        "archMap": [{"architecture": "SCMP_ARCH_RISCV64", "subArchitectures": null}],
        "syscalls": [
            {"names": ["accept", "read"], "action": "SCMP_ACT_ALLOW"},
            {"names": ["io_uring_setup", "bdflush"], "action": "SCMP_ACT_ERRNO", "errnoRet": 1, "args": []},
            {"names": ["io_uring_enter"], "action": "SCMP_ACT_ERRNO"},
            {"names": ["bpf", "io_uring_register"], "action": "SCMP_ACT_ALLOW", "includes": {"caps": ["CAP_BPF"]}}
        ]}"#;

    #[test]
    fn exactly_three_calls_are_added() {
        let default = Profile::parse(DEFAULT).unwrap();
        let made = default.clone().with_io_uring("a default").unwrap();
        let mut expected = default.allowed();
        expected.extend(IO_URING);
        assert_eq!(made.allowed(), expected);
        // What denied them is gone, and nothing else is: the call beside one of them, and the processors.
        assert_eq!(
            made.syscalls
                .iter()
                .map(|rule| rule.names.join(" "))
                .collect::<Vec<_>>(),
            [
                "accept read",
                "bdflush",
                "bpf",
                "io_uring_setup io_uring_enter io_uring_register"
            ]
        );
        assert_eq!(made.arch_map, default.arch_map);
        assert_eq!(Profile::parse(&made.text()).unwrap(), made);
        assert!(
            made.text().contains("all that was added to a default"),
            "{}",
            made.text()
        );
    }

    #[test]
    fn one_that_is_missing_is_added_alone() {
        let made = Profile::parse(DEFAULT).unwrap().with_io_uring("x").unwrap();
        let lacking = made.clone().without(&["io_uring_enter"]);
        let again = lacking.with_io_uring("x").unwrap();
        assert_eq!(again.allowed(), made.allowed());
        assert_eq!(again.syscalls.last().unwrap().names, ["io_uring_enter"]);
    }

    #[test]
    fn what_needs_nothing_or_is_no_profile_is_refused() {
        let refused = |text: &str| {
            Profile::parse(text)
                .and_then(|profile| profile.with_io_uring("x"))
                .unwrap_err()
        };
        let made = Profile::parse(DEFAULT)
            .unwrap()
            .with_io_uring("x")
            .unwrap()
            .text();
        assert!(refused(&made).contains("allows io_uring already"));
        assert!(
            refused(r#"{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": []}"#)
                .contains("allows what it does not name")
        );
        for text in [
            "",
            "[]",
            "{}",
            r#"{"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [], "news": 1}"#,
        ] {
            let message = refused(text);
            assert!(
                message.contains("no seccomp profile") && !message.contains('\n'),
                "{message}"
            );
        }
    }

    #[test]
    fn only_what_has_no_conditions_is_compiled() {
        let profile = Profile::of(["read", "no_such_call"].map(str::to_owned), "two");
        let one = Profile::of(["read".to_owned()], "one");
        assert_eq!(profile.compile().unwrap().len(), one.compile().unwrap().len());
        let message = Profile::parse(DEFAULT).unwrap().compile().unwrap_err();
        assert!(message.contains("has conditions"), "{message}");
    }
}
