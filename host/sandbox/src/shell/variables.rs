//! Shell variables, bounded in bytes.

use std::collections::BTreeMap;

use super::meter::Stop;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Variable {
    value: Option<Vec<u8>>,
    exported: bool,
    readonly: bool,
}

/// All variables of a shell. Values are bytes.
#[derive(Debug, Clone)]
pub(crate) struct Variables {
    all: BTreeMap<String, Variable>,
    bytes: usize,
    room: usize,
}

/// What a variable was.
#[derive(Debug, Clone)]
pub(crate) struct Kept(Option<Variable>);

/// A variable that must not change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Readonly;

impl Variables {
    pub(crate) fn new(room: usize) -> Self {
        Self { all: BTreeMap::new(), bytes: 0, room }
    }

    pub(crate) fn get(&self, name: &str) -> Option<&[u8]> {
        self.all.get(name)?.value.as_deref()
    }

    /// The bytes that all variables take, names and all.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    fn change(
        &mut self,
        name: &str,
        change: impl FnOnce(&mut Variable),
    ) -> Result<Result<(), Readonly>, Stop> {
        if self.all.get(name).is_some_and(|variable| variable.readonly) {
            return Ok(Err(Readonly));
        }
        if !self.all.contains_key(name) {
            self.bytes += name.len() + 64;
        }
        let variable = self.all.entry(name.to_owned()).or_default();
        let before = variable.value.as_ref().map_or(0, Vec::len);
        change(variable);
        let after = variable.value.as_ref().map_or(0, Vec::len);
        self.bytes = self.bytes - before + after;
        if self.bytes > self.room {
            return Err(Stop::Memory(format!("variables hold at most {} bytes", self.room)));
        }
        Ok(Ok(()))
    }

    pub(crate) fn set(&mut self, name: &str, value: Vec<u8>) -> Result<Result<(), Readonly>, Stop> {
        self.change(name, |variable| variable.value = Some(value))
    }

    pub(crate) fn export(&mut self, name: &str, exported: bool) -> Result<(), Stop> {
        match self.change(name, |variable| variable.exported = exported)? {
            Ok(()) | Err(Readonly) => Ok(()),
        }
    }

    pub(crate) fn protect(&mut self, name: &str) -> Result<(), Stop> {
        match self.change(name, |variable| variable.readonly = true)? {
            Ok(()) | Err(Readonly) => Ok(()),
        }
    }

    pub(crate) fn unset(&mut self, name: &str) -> Result<(), Readonly> {
        match self.all.get(name) {
            Some(variable) if variable.readonly => Err(Readonly),
            Some(variable) => {
                self.bytes -= name.len() + 64 + variable.value.as_ref().map_or(0, Vec::len);
                self.all.remove(name);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// A variable as it is now, for [`Variables::put_back`].
    pub(crate) fn keep(&self, name: &str) -> Kept {
        Kept(self.all.get(name).cloned())
    }

    /// Makes a variable what it was when it was kept.
    pub(crate) fn put_back(&mut self, name: &str, kept: Kept) {
        let size =
            |variable: &Variable| name.len() + 64 + variable.value.as_ref().map_or(0, Vec::len);
        if let Some(now) = self.all.remove(name) {
            self.bytes -= size(&now);
        }
        if let Some(before) = kept.0 {
            self.bytes += size(&before);
            self.all.insert(name.to_owned(), before);
        }
    }

    /// What a program or `env` sees, sorted by name.
    pub(crate) fn exported(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.all
            .iter()
            .filter(|(_, variable)| variable.exported)
            .filter_map(|(name, variable)| Some((name.as_str(), variable.value.as_deref()?)))
    }

    /// Every variable that has a value, sorted by name.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.all
            .iter()
            .filter_map(|(name, variable)| Some((name.as_str(), variable.value.as_deref()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_counted_and_given_back() {
        let mut variables = Variables::new(200);
        variables.set("a", vec![b'x'; 100]).unwrap().unwrap();
        assert!(variables.clone().set("b", vec![b'x'; 100]).is_err());
        variables.unset("a").unwrap();
        assert_eq!(variables.bytes(), 0);
        variables.set("b", vec![b'x'; 100]).unwrap().unwrap();
    }

    #[test]
    fn readonly_variables_do_not_change() {
        let mut variables = Variables::new(1000);
        variables.set("a", b"1".to_vec()).unwrap().unwrap();
        variables.protect("a").unwrap();
        assert_eq!(variables.set("a", b"2".to_vec()), Ok(Err(Readonly)));
        assert_eq!(variables.unset("a"), Err(Readonly));
        assert_eq!(variables.get("a"), Some(&b"1"[..]));
    }
}
