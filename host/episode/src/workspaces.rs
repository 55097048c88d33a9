//! The lower layers of the tasks' workspaces, each made once and shared while it is in use.

use std::{
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
    sync::{Arc, Weak},
};

use cap_std::{ambient_authority, fs::Dir};
use fulgurite_sandbox::{Lower, Quota};
use fulgurite_trace::{Task, Workspace};
use tokio::sync::Mutex;

/// What a folder may hold to be imported.
const IMPORT: Quota = Quota {
    bytes: 4 << 30,
    files: 500_000,
    handles: 1,
    depth: 64,
    name_bytes: 255,
    memory_bytes: 64 << 20,
};

/// Lower layers by where they come from.
pub(crate) struct Workspaces {
    empty: Arc<Lower>,
    /// Folders are kept for the whole run: many tasks share one, and it must not change meanwhile.
    folders: Mutex<HashMap<PathBuf, Arc<Lower>>>,
    /// Inline files belong to one task; its episodes share them while they are alive.
    inline: Mutex<HashMap<String, Weak<Lower>>>,
}

impl Workspaces {
    pub(crate) fn new() -> Self {
        Self { empty: Lower::empty(), folders: Mutex::default(), inline: Mutex::default() }
    }

    /// The lower layer of a task.
    pub(crate) async fn lower(&self, task: &Task) -> Result<Arc<Lower>, String> {
        match &task.workspace {
            Workspace::Empty => Ok(Arc::clone(&self.empty)),
            Workspace::Folder(folder) => {
                let mut folders = self.folders.lock().await;
                if let Some(lower) = folders.get(folder) {
                    return Ok(Arc::clone(lower));
                }
                let path = folder.clone();
                let lower = tokio::task::spawn_blocking(move || import(&path))
                    .await
                    .map_err(|_| "the import of the workspace folder failed".to_owned())??;
                folders.insert(folder.clone(), Arc::clone(&lower));
                Ok(lower)
            }
            Workspace::Files(files) => {
                let mut inline = self.inline.lock().await;
                if let Some(lower) = inline.get(&task.id).and_then(Weak::upgrade) {
                    return Ok(lower);
                }
                let bytes: BTreeMap<_, _> = files
                    .iter()
                    .map(|(path, text)| (path.clone(), text.clone().into_bytes()))
                    .collect();
                let lower = Lower::from_files(&bytes)
                    .map_err(|error| format!("the workspace of task `{}`: {error}", task.id))?;
                if inline.len() >= 1024 {
                    inline.retain(|_, lower| lower.strong_count() > 0);
                }
                inline.insert(task.id.clone(), Arc::downgrade(&lower));
                Ok(lower)
            }
        }
    }
}

fn import(folder: &Path) -> Result<Arc<Lower>, String> {
    let problem = |error: &dyn std::fmt::Display| {
        format!("the workspace folder {} cannot be imported: {error}", folder.display())
    };
    let opened = Dir::open_ambient_dir(folder, ambient_authority());
    let opened = opened.map_err(|error| problem(&error))?;
    Lower::import(&opened, &IMPORT).map_err(|error| problem(&error))
}
