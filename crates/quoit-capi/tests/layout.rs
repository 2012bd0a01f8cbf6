//! The header, the Rust definitions and the golden file say the same.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod support;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::process::Command;

use support::{compile, compilers, file, output};

fn golden() -> String {
    std::fs::read_to_string(file("include/quoit-layout.txt")).unwrap()
}

#[test]
fn the_golden_file_is_that_of_the_library() {
    let layout = quoit_capi::layout();
    assert!(
        golden() == layout,
        "include/quoit-layout.txt differs from the library. Commands, events and what is in them never change, other \
         structures only grow at their end, and values keep their meaning. If that holds, raise QUOIT_ABI_MINOR and \
         write this to the file:\n{layout}"
    );
}

/// A program that prints the golden file from the header alone.
fn printing_program() -> String {
    let mut program = "#include <stdio.h>\n#include <quoit.h>\nint main(void) {\n".to_owned();
    for line in golden().lines() {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["struct", name, ..] => writeln!(
                program,
                "struct align_{name} {{ char first; {name} second; }};\n\
                 printf(\"struct {name} %zu %zu\\n\", sizeof({name}), offsetof(struct align_{name}, second));"
            ),
            ["field", name, field, ..] => writeln!(
                program,
                "printf(\"field {name} {field} %zu %zu\\n\", offsetof({name}, {field}), \
                 sizeof((({name} *)0)->{field}));"
            ),
            ["constant", name, _] => writeln!(
                program,
                "printf(\"constant {name} %llu\\n\", (unsigned long long)({name}));"
            ),
            _ => panic!("{line}"),
        }
        .unwrap();
    }
    program + "return 0; }\n"
}

#[test]
fn a_c_compiler_reads_the_header_so() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("print.c");
    std::fs::write(&source, printing_program()).unwrap();
    for (compiler, options) in compilers() {
        let program = folder.path().join("print");
        compile(compiler, options, &source, &program);
        assert_eq!(output(&mut Command::new(program)), golden(), "{compiler}");
    }
}

/// What the header declares and the golden file lacks would be checked by nobody.
#[test]
fn the_golden_file_has_all_of_the_header() {
    let header = std::fs::read_to_string(file("include/quoit.h")).unwrap();
    let golden = golden();
    let mut fields: HashMap<&str, usize> = HashMap::new();
    let mut constants = Vec::new();
    for line in golden.lines() {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["struct", name, ..] => assert_eq!(fields.insert(name, 0), None),
            ["field", name, ..] => *fields.get_mut(name).unwrap() += 1,
            ["constant", name, _] => constants.push(name),
            _ => panic!("{line}"),
        }
    }
    let mut inside = None;
    for line in header.lines().map(str::trim) {
        if let Some(name) = line
            .strip_prefix("typedef struct ")
            .and_then(|rest| rest.strip_suffix(" {"))
        {
            inside = Some((name, 0));
        } else if let Some((name, count)) = &mut inside {
            if line.starts_with('}') {
                assert_eq!(fields.remove(*name), Some(*count), "{name}");
                inside = None;
            } else if line.split("/*").next().unwrap().contains(';') {
                *count += 1;
            }
        } else if line.starts_with("QUOIT_")
            && let Some((name, _)) = line.split_once(" = ")
        {
            assert!(constants.contains(&name), "{name} is not in the golden file");
        }
    }
    assert!(fields.is_empty(), "not in the header: {fields:?}");
}
