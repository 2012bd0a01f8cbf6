//! Reading a TOML file so that every mistake is told with its file, line and field, all at once.

use std::cell::RefCell;
use std::fmt::Display;
use std::ops::RangeInclusive;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::nearest::nearest;
use super::template;
use crate::error::{LabError, Result};

/// The mistakes found in one file.
pub(super) struct Problems<'a> {
    file: &'a str,
    text: &'a str,
    found: RefCell<Vec<(usize, String)>>,
}

impl<'a> Problems<'a> {
    pub(super) fn of(file: &'a str, text: &'a str) -> Self {
        Self {
            file,
            text,
            found: RefCell::default(),
        }
    }

    /// Notes a mistake at a byte of the text; one that is found again, for another case of a sweep, counts once.
    pub(super) fn add(&self, at: usize, field: &str, message: impl Display) {
        let line = self.text.as_bytes()[..at.min(self.text.len())]
            .iter()
            .filter(|byte| **byte == b'\n')
            .count()
            + 1;
        let separator = if field.is_empty() { "" } else { ": " };
        let mistake = (line, format!("{}:{line}: {field}{separator}{message}", self.file));
        let mut found = self.found.borrow_mut();
        if !found.contains(&mistake) {
            found.push(mistake);
        }
    }

    /// Parses the text.
    ///
    /// # Errors
    /// It is not TOML.
    pub(super) fn parse(&self) -> Result<Spanned<DeTable<'a>>> {
        DeTable::parse(self.text).map_err(|error| {
            self.add(error.span().map_or(0, |span| span.start), "", error.message());
            self.error()
        })
    }

    /// Whether nothing was found so far: what other mistakes can cause is looked for only then.
    pub(super) fn is_empty(&self) -> bool {
        self.found.borrow().is_empty()
    }

    /// `value`, unless there are mistakes.
    ///
    /// # Errors
    /// All mistakes, in the order of the lines.
    pub(super) fn finish<T>(&self, value: Option<T>) -> Result<T> {
        match value {
            Some(value) if self.found.borrow().is_empty() => Ok(value),
            _ => Err(self.error()),
        }
    }

    fn error(&self) -> LabError {
        let mut found = self.found.borrow().clone();
        found.sort();
        let lines: Vec<String> = found.into_iter().map(|(_, message)| message).collect();
        LabError::new(match &lines[..] {
            [one] => one.clone(),
            _ => format!("{} mistakes:\n  {}", lines.len(), lines.join("\n  ")),
        })
    }
}

/// One table of the file.
pub(super) struct Section<'a> {
    /// Its path, such as `case[2]`; empty for the file itself.
    path: String,
    /// Where it starts.
    at: usize,
    table: &'a DeTable<'a>,
    pub(super) problems: &'a Problems<'a>,
}

impl<'a> Section<'a> {
    pub(super) fn of_file(table: &'a Spanned<DeTable<'a>>, problems: &'a Problems<'a>) -> Self {
        Self {
            path: String::new(),
            at: 0,
            table: table.get_ref(),
            problems,
        }
    }

    /// Notes every key that is not among `known`, with the nearest one that is.
    pub(super) fn allow_only(&self, known: &[&str]) {
        for key in self.table.keys() {
            let name = key.get_ref().as_ref();
            if !known.contains(&name) {
                let hint = nearest(name, known.iter().copied());
                self.problems.add(
                    key.span().start,
                    &self.path_of(name),
                    format!("is not a known field{hint}; known here: {}", known.join(", ")),
                );
            }
        }
    }

    pub(super) fn field(&self, name: &str) -> Option<Item<'a>> {
        let value = self.table.get(name)?;
        Some(self.item(self.path_of(name), value))
    }

    /// A field that has to be there.
    pub(super) fn need(&self, name: &str) -> Option<Item<'a>> {
        let field = self.field(name);
        if field.is_none() {
            self.add(name, "is missing");
        }
        field
    }

    /// A table within this one.
    pub(super) fn section(&self, name: &str) -> Option<Self> {
        self.field(name)?.section()
    }

    /// The tables of a `[[name]]`.
    pub(super) fn sections(&self, name: &str) -> Vec<Self> {
        let Some(field) = self.field(name) else {
            return Vec::new();
        };
        let DeValue::Array(items) = field.value else {
            field.wrong_type::<()>(format!("tables: write [[{name}]]"));
            return Vec::new();
        };
        let numbered = items.iter().enumerate();
        let items = numbered.map(|(index, value)| self.item(format!("{}[{}]", field.path, index + 1), value));
        items.filter_map(|item| item.section()).collect()
    }

    /// The keys with their values.
    pub(super) fn items(&self) -> impl Iterator<Item = (String, Item<'a>)> {
        self.table.iter().map(|(key, value)| {
            let name = key.get_ref().to_string();
            let item = self.item(self.path_of(&name), value);
            (name, item)
        })
    }

    /// Notes a mistake in a field that may be missing.
    pub(super) fn add(&self, name: &str, message: impl Display) {
        let at = self.table.get(name).map_or(self.at, |value| value.span().start);
        self.problems.add(at, &self.path_of(name), message);
    }

    fn path_of(&self, name: &str) -> String {
        if self.path.is_empty() {
            name.to_owned()
        } else {
            format!("{}.{name}", self.path)
        }
    }

    fn item(&self, path: String, value: &'a Spanned<DeValue<'a>>) -> Item<'a> {
        Item {
            path,
            at: value.span().start,
            value: value.get_ref(),
            problems: self.problems,
        }
    }
}

/// One value of the file.
#[derive(Clone)]
pub(super) struct Item<'a> {
    path: String,
    at: usize,
    value: &'a DeValue<'a>,
    problems: &'a Problems<'a>,
}

impl<'a> Item<'a> {
    /// Notes a mistake.
    pub(super) fn add(&self, message: impl Display) {
        self.problems.add(self.at, &self.path, message);
    }

    fn wrong_type<T>(&self, expected: impl Display) -> Option<T> {
        let article = match self.value {
            DeValue::Integer(_) | DeValue::Array(_) => "an",
            _ => "a",
        };
        self.add(format!(
            "has to be {expected}, not {article} {}",
            self.value.type_str()
        ));
        None
    }

    pub(super) fn section(&self) -> Option<Section<'a>> {
        match self.value {
            DeValue::Table(table) => Some(Section {
                path: self.path.clone(),
                at: self.at,
                table,
                problems: self.problems,
            }),
            _ => self.wrong_type("a table"),
        }
    }

    /// The value itself, or each of a list.
    pub(super) fn alternatives(&self) -> Vec<Self> {
        let DeValue::Array(items) = self.value else {
            return vec![self.clone()];
        };
        if items.is_empty() {
            self.add("is an empty list");
        }
        let alternative = |value: &'a Spanned<DeValue<'a>>| Self {
            at: value.span().start,
            value: value.get_ref(),
            ..self.clone()
        };
        items.iter().map(alternative).collect()
    }

    pub(super) fn text(&self) -> Option<&'a str> {
        match self.value {
            DeValue::String(text) => Some(text.as_ref()),
            _ => self.wrong_type("a text in quotes"),
        }
    }

    /// A text that is not empty.
    pub(super) fn name(&self) -> Option<String> {
        let text = self.text()?.trim();
        if text.is_empty() {
            self.add("is empty");
            return None;
        }
        Some(text.to_owned())
    }

    pub(super) fn flag(&self) -> Option<bool> {
        match self.value {
            DeValue::Boolean(flag) => Some(*flag),
            _ => self.wrong_type("true or false"),
        }
    }

    pub(super) fn whole<N: TryFrom<i64> + TryInto<i64> + Copy + Display + PartialOrd>(
        &self,
        range: RangeInclusive<N>,
    ) -> Option<N> {
        let DeValue::Integer(integer) = self.value else {
            return self.wrong_type("a whole number");
        };
        let value = i64::from_str_radix(integer.as_str(), integer.radix()).ok();
        let inside = value
            .and_then(|value| N::try_from(value).ok())
            .filter(|value| range.contains(value));
        if inside.is_none() {
            self.add(format!(
                "has to lie between {} and {}, not {integer}",
                range.start(),
                range.end()
            ));
        }
        inside
    }

    pub(super) fn number(&self, range: RangeInclusive<f64>) -> Option<f64> {
        let value: Option<f64> = match self.value {
            DeValue::Integer(integer) => i64::from_str_radix(integer.as_str(), integer.radix())
                .ok()
                .map(|value| value as f64),
            DeValue::Float(float) => float.as_str().parse().ok(),
            _ => return self.wrong_type("a number"),
        };
        let inside = value.filter(|value| range.contains(value));
        if inside.is_none() {
            self.add(format!(
                "has to lie between {} and {}, not {}",
                range.start(),
                range.end(),
                self.shown()
            ));
        }
        inside
    }

    /// A list of texts, or one text alone.
    pub(super) fn texts(&self) -> Vec<(Self, String)> {
        let alternatives = self.alternatives().into_iter();
        alternatives
            .filter_map(|item| item.text().map(str::to_owned).map(|text| (item, text)))
            .collect()
    }

    /// One of several names.
    pub(super) fn one_of<T: Copy>(&self, known: &[(&str, T)]) -> Option<T> {
        let text = self.text()?;
        let found = known.iter().find(|(name, _)| *name == text);
        if found.is_none() {
            let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
            self.add(format!(
                "`{text}` is not known{}; known: {}",
                nearest(text, names.iter().copied()),
                names.join(", ")
            ));
        }
        found.map(|(_, value)| *value)
    }

    /// A command: a text that is split as a shell does, with placeholders among `known`.
    pub(super) fn command(&self, known: &[&str]) -> Option<Vec<String>> {
        let words = template::split(self.text()?);
        let checked = words.and_then(|words| {
            words
                .iter()
                .try_for_each(|word| template::check(word, known).map(drop))?;
            Ok(words)
        });
        checked.map_err(|message| self.add(message)).ok()
    }

    /// A text with placeholders among `known`.
    pub(super) fn template(&self, known: &[&str]) -> Option<String> {
        let text = self.text()?;
        let checked = template::check(text, known);
        checked.map_err(|message| self.add(message)).ok()?;
        Some(text.to_owned())
    }

    /// The value as the name of a generated case shows it.
    pub(super) fn shown(&self) -> String {
        match self.value {
            DeValue::String(text) => text.to_string(),
            DeValue::Integer(integer) => integer.to_string(),
            DeValue::Float(float) => float.to_string(),
            DeValue::Boolean(flag) => flag.to_string(),
            other => other.type_str().to_owned(),
        }
    }
}
