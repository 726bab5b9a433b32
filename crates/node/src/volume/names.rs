//! Which names the open files have by now.

use super::open::OpenFile;
use situ_base::lock;
use situ_storage::FileName;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

/// The open files by name. Renames and removals through this volume reach them.
#[derive(Default)]
pub(super) struct Names {
    open: Mutex<HashMap<FileName, Vec<Weak<OpenFile>>>>,
}

impl Names {
    pub(super) fn opened(&self, name: FileName, file: &Arc<OpenFile>) {
        lock(&self.open).entry(name).or_default().push(Arc::downgrade(file));
    }

    /// A file of this name was closed.
    pub(super) fn closed(&self, name: FileName) {
        let mut open = lock(&self.open);
        let Some(files) = open.get_mut(&name) else { return };
        files.retain(|file| file.strong_count() > 0);
        if files.is_empty() {
            open.remove(&name);
        }
    }

    /// Takes the name from its open files: it is another file's, or free.
    pub(super) fn replaced(&self, name: FileName) {
        let files = lock(&self.open).remove(&name).unwrap_or_default();
        files.iter().filter_map(Weak::upgrade).for_each(|file| file.set_name(None));
    }

    pub(super) fn renamed(&self, from: FileName, to: FileName) {
        self.replaced(to);
        let mut open = lock(&self.open);
        let Some(files) = open.remove(&from) else { return };
        files.iter().filter_map(Weak::upgrade).for_each(|file| file.set_name(Some(to)));
        open.insert(to, files);
    }
}
