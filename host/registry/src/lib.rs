//! Plugins: content-addressed store, names, lock file.
//!
//! A *store* is a folder of components, each under its SHA-256 digest, and of names that point to
//! them. There is one for the user and one for each project that wants its own; the project's
//! names come first. `fulgurite.lock` pins the digests that a project uses. What this room
//! promises:
//!
//! - **A name means one component until its owner says otherwise.** Where the lock file pins a
//!   name, the pinned digest is what [`Registry::resolve`] answers, also after the name has moved
//!   on; without it the project gets an error, never another component.
//! - **Changes are caught.** [`Resolved::read`] compares the bytes with the digest each time, and
//!   [`Registry::verify`] names every stored file that differs from its digest, every pin that
//!   differs from its name, and everything that others could change.
//! - **Nothing is half written.** Files are written aside, synced and renamed; writers take turns.
//!   A writer that dies leaves the store as it was before or after.
//! - **Only the owner reads.** Folders are 0700, files 0600.
//!
//! Not promised: that components are what their description says. This room does not look into
//! them; whoever adds one does, and passes what was found as a [`Description`].

mod disk;
mod error;
mod lock_file;
mod name;
mod plugin;
mod registry;
mod store;
mod verify;

pub use error::RegistryError;
pub use lock_file::{LockFile, Pin};
pub use name::Name;
pub use plugin::{Description, Kind, Pinned, Plugin, Resolved, Scope, Source};
pub use registry::{Added, Registry, Removed};
pub use verify::{Problem, Verification};
