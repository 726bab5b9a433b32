//! The names that the open files have by now.

use situ_base::lock;
use situ_storage::FileName;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

/// The name that an open file has by now; `None` of a file that was removed or replaced.
pub(super) struct Named(Mutex<Option<FileName>>);

impl Named {
    pub(super) fn get(&self) -> Option<FileName> {
        *lock(&self.0)
    }

    fn set(&self, name: Option<FileName>) {
        *lock(&self.0) = name;
    }
}

/// The open files by name. Renames and removals through this volume reach them.
#[derive(Default)]
pub(super) struct Names {
    open: Mutex<HashMap<FileName, Vec<Weak<Named>>>>,
}

impl Names {
    /// Enters a file that was opened.
    pub(super) fn opened(&self, name: FileName) -> Arc<Named> {
        let file = Arc::new(Named(Mutex::new(Some(name))));
        lock(&self.open).entry(name).or_default().push(Arc::downgrade(&file));
        file
    }

    /// Forgets a file that is closed.
    pub(super) fn closed(&self, file: &Arc<Named>) {
        let mut open = lock(&self.open);
        let Some(name) = file.get() else { return };
        let Some(files) = open.get_mut(&name) else { return };
        files.retain(|other| other.as_ptr() != Arc::as_ptr(file));
        if files.is_empty() {
            open.remove(&name);
        }
    }

    /// Takes the name from its open files: it is another file's, or free.
    pub(super) fn replaced(&self, name: FileName) {
        let files = lock(&self.open).remove(&name).unwrap_or_default();
        files.iter().filter_map(Weak::upgrade).for_each(|file| file.set(None));
    }

    pub(super) fn renamed(&self, from: FileName, to: FileName) {
        self.replaced(to);
        let mut open = lock(&self.open);
        let Some(files) = open.remove(&from) else { return };
        files.iter().filter_map(Weak::upgrade).for_each(|file| file.set(Some(to)));
        open.insert(to, files);
    }
}
