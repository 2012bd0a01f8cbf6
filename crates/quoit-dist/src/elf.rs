//! What a library or a program shows, and what it asks of the system.

use std::collections::BTreeSet;

use object::elf::FileHeader64;
use object::read::elf::{Dyn as _, ElfFile64, FileHeader as _, SectionHeader as _, Sym as _};
use object::{Architecture, Endianness, Object as _};

/// What is asked of an ELF file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Elf {
    pub(crate) machine: Architecture,
    /// The libraries that it is loaded with.
    pub(crate) needed: Vec<String>,
    /// The name that programs ask for.
    pub(crate) soname: Option<String>,
    /// What it shows to the linker, with `@` and its version if it has one.
    pub(crate) exported: BTreeSet<String>,
    /// The highest version of glibc's symbols among those that it needs.
    pub(crate) glibc: Option<(u32, u32)>,
    /// The loader that a program asks for.
    pub(crate) has_interpreter: bool,
    /// Whether debugging information is in it.
    pub(crate) has_debug: bool,
}

impl Elf {
    /// Reads the bytes of a file.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, String> {
        read(bytes).map_err(|error| format!("no ELF file that can be read: {error}"))
    }
}

fn read(bytes: &[u8]) -> object::Result<Elf> {
    let header = FileHeader64::<Endianness>::parse(bytes)?;
    let endian = header.endian()?;
    let sections = header.sections(endian, bytes)?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (mut needed, mut soname) = (Vec::new(), None);
    if let Some((dynamic, strings)) = sections.dynamic(endian, bytes)? {
        let strings = sections.strings(endian, bytes, strings)?;
        for entry in dynamic {
            let tag = entry.tag(endian);
            if tag == object::elf::DT_NEEDED {
                needed.push(text(entry.string(endian, strings)?));
            } else if tag == object::elf::DT_SONAME {
                soname = Some(text(entry.string(endian, strings)?));
            }
        }
    }
    let symbols = sections.symbols(endian, bytes, object::elf::SHT_DYNSYM)?;
    let versions = sections.versions(endian, bytes)?;
    let mut exported = BTreeSet::new();
    for (index, symbol) in symbols.enumerate() {
        if !symbol.is_undefined(endian) && symbol.st_bind() != object::elf::STB_LOCAL {
            let mut name = text(symbol.name(endian, symbols.strings())?);
            if let Some(versions) = &versions
                && let Some(version) = versions.version(versions.version_index(endian, index).into())?
            {
                name = format!("{name}@{}", text(version.name()));
            }
            if !name.is_empty() {
                exported.insert(name);
            }
        }
    }
    let mut glibc = None;
    if let Some((mut needs, strings)) = sections.gnu_verneed(endian, bytes)? {
        let strings = sections.strings(endian, bytes, strings)?;
        while let Some((_, mut versions)) = needs.next()? {
            while let Some(version) = versions.next()? {
                glibc = glibc.max(glibc_version(&text(version.name(endian, strings)?)));
            }
        }
    }
    let file = ElfFile64::<Endianness>::parse(bytes)?;
    let has = |wanted: &[u8]| {
        sections
            .iter()
            .any(|section| sections.section_name(endian, section).ok() == Some(wanted))
    };
    let has_interpreter = sections.iter().any(|section| {
        sections.section_name(endian, section).ok() == Some(b".interp") && section.sh_size(endian) > 0
    });
    Ok(Elf {
        machine: file.architecture(),
        needed,
        soname,
        exported,
        glibc,
        has_interpreter,
        has_debug: has(b".debug_info") || has(b".debug_line"),
    })
}

/// The number in `GLIBC_2.17`.
fn glibc_version(name: &str) -> Option<(u32, u32)> {
    let mut numbers = name.strip_prefix("GLIBC_")?.split('.').map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by it")]
mod tests {
    use super::*;

    #[test]
    fn this_test_is_read() {
        let elf = Elf::read(&std::fs::read(std::env::current_exe().unwrap()).unwrap()).unwrap();
        assert!(elf.has_interpreter || elf.needed.is_empty());
        assert!(elf.has_debug);
        assert_eq!(elf.soname, None);
    }

    #[test]
    fn what_is_no_elf_file_is_refused() {
        Elf::read(b"#!/bin/sh\n").unwrap_err();
    }

    #[test]
    fn versions_are_numbers() {
        assert_eq!(glibc_version("GLIBC_2.3.4"), Some((2, 3)));
        assert!(glibc_version("GLIBC_2.17") > glibc_version("GLIBC_2.5"));
        assert_eq!(glibc_version("GLIBC_PRIVATE"), None);
        assert_eq!(glibc_version("GCC_3.0"), None);
    }
}
