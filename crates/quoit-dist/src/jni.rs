//! What Java 17 to 21 call the library by: a file beside it, for the jars alone.

use crate::compile::Built;
use crate::elf::Elf;
use crate::library;
use crate::place::{self, Place};
use crate::target::Target;
use crate::verify;

const NAME: &str = "libquoit_jni.so";
/// What the methods of the one class are found by.
const PREFIX: &str = "Java_io_quoit_netty_JniCalls_";

/// Takes the debugging information out, and puts it where the scripts of other ecosystems find it: the library is there already.
pub(crate) fn write(place: &Place, built: &Built) -> Result<(), String> {
    let triple = built.target.triple;
    let work = place.work().join("split-jni").join(triple);
    let (shared, _debug) = library::split(&built.folder.join(NAME), &work, NAME)?;
    let problems = problems(
        &format!("{NAME} for {triple}"),
        &Elf::read(&shared)?,
        built.target,
    );
    if !problems.is_empty() {
        return Err(problems.join("\n"));
    }
    place::write(
        &place.work().join("library").join(triple).join("lib").join(NAME),
        shared,
    )
}

/// What is wrong with it.
fn problems(name: &str, elf: &Elf, target: Target) -> Vec<String> {
    let mut problems = verify::system_problems(name, elf, target);
    let strays = elf.exported.iter().filter(|symbol| !symbol.starts_with(PREFIX));
    problems.extend(strays.map(|symbol| format!("{name}: {symbol} is no method of Java's")));
    if !elf.exported.contains(&format!("{PREFIX}signature")) {
        problems.push(format!("{name}: it has no methods for Java"));
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::{ALL, GLIBC};

    fn elf() -> Elf {
        Elf {
            machine: ALL[0].machine,
            needed: vec!["libc.so.6".to_owned(), "libdl.so.2".to_owned()],
            soname: None,
            exported: [format!("{PREFIX}signature"), format!("{PREFIX}turn")].into(),
            glibc: Some(GLIBC),
            has_interpreter: false,
            has_debug: false,
        }
    }

    #[test]
    fn as_it_should_be_it_has_no_problem() {
        assert_eq!(problems("it", &elf(), ALL[0]), [""; 0]);
    }

    #[test]
    fn each_fault_is_found() {
        type Fault = fn(&mut Elf);
        let faults: [(Fault, &str); 5] = [
            (|elf| elf.machine = ALL[1].machine, "it is for"),
            (|elf| elf.has_debug = true, "left in"),
            (|elf| elf.glibc = Some((2, 34)), "of glibc"),
            (
                |elf| elf.exported.extend(["quoit_turn".to_owned()]),
                "quoit_turn is no method",
            ),
            (
                |elf| elf.exported.retain(|symbol| symbol.ends_with("turn")),
                "no methods for Java",
            ),
        ];
        for (fault, said) in faults {
            let mut elf = elf();
            fault(&mut elf);
            let problems = problems("it", &elf, ALL[0]);
            assert_eq!(problems.len(), 1, "{problems:?}");
            assert!(problems[0].contains(said), "{problems:?}");
        }
    }
}
