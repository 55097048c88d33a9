//! Shell functions, bounded in the length of their text.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::meter::Stop;
use super::plan::Stage;

/// All functions of a shell.
#[derive(Debug, Clone, Default)]
pub(crate) struct Functions {
    all: BTreeMap<String, (Arc<Stage>, usize)>,
    bytes: usize,
}

impl Functions {
    /// Defines a function whose text has `size` bytes.
    pub(crate) fn define(
        &mut self,
        name: &str,
        body: &Arc<Stage>,
        size: usize,
        room: usize,
    ) -> Result<(), Stop> {
        self.remove(name);
        self.bytes += name.len() + size + 64;
        self.all.insert(name.to_owned(), (Arc::clone(body), size));
        if self.bytes > room {
            return Err(Stop::Memory(format!("functions hold at most {room} bytes")));
        }
        Ok(())
    }

    pub(crate) fn get(&self, name: &str) -> Option<Arc<Stage>> {
        self.all.get(name).map(|(body, _)| Arc::clone(body))
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.all.contains_key(name)
    }

    pub(crate) fn remove(&mut self, name: &str) {
        if let Some((_, size)) = self.all.remove(name) {
            self.bytes -= name.len() + size + 64;
        }
    }

    /// What they hold, as it is counted.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}
