//! The functions of `wasi:filesystem`, by hand: generated code would bring its own descriptor.

use fulgurite_trace::file::FileError;
use wasmtime::component::{Linker, LinkerInstance, Resource, ResourceType};
use wasmtime_wasi::p2::bindings::filesystem::types::{
    Advice, DescriptorFlags, DirectoryEntry, ErrorCode, NewTimestamp, OpenFlags, PathFlags,
};
use wasmtime_wasi_io::streams::{DynInputStream, DynOutputStream, Error};

use super::{
    descriptor::{Descriptor, EntryStream, descriptor_type},
    error_code,
    streams::Position,
};
use crate::wasi::{VERSION, WasiState, WasiView};

type Answer<T> = Result<T, ErrorCode>;
/// What a host function returns: one value, or an error that ends the guest.
type Returned<T> = wasmtime::Result<(Answer<T>,)>;

impl WasiState {
    fn descriptor(&self, descriptor: &Resource<Descriptor>) -> wasmtime::Result<&Descriptor> {
        Ok(self.table.get(descriptor)?)
    }

    /// Keeps `descriptor` unless the guest holds too many.
    fn keep(&mut self, descriptor: Answer<Descriptor>) -> Returned<Resource<Descriptor>> {
        let descriptor = match descriptor {
            Ok(_) if self.descriptors >= self.limits.descriptors => {
                return Ok((Err(ErrorCode::Quota),));
            }
            Ok(descriptor) => descriptor,
            Err(error) => return Ok((Err(error),)),
        };
        let resource = self.table.push(descriptor)?;
        self.descriptors += 1;
        Ok((Ok(resource),))
    }

    fn input(&mut self, stream: Answer<DynInputStream>) -> Returned<Resource<DynInputStream>> {
        Ok((match stream {
            Ok(stream) => Ok(self.table.push(stream)?),
            Err(error) => Err(error),
        },))
    }

    fn output(&mut self, stream: Answer<DynOutputStream>) -> Returned<Resource<DynOutputStream>> {
        Ok((match stream {
            Ok(stream) => Ok(self.table.push(stream)?),
            Err(error) => Err(error),
        },))
    }

    /// Refuses paths that no tree need look at.
    fn check_path(&self, path: &str) -> Answer<()> {
        if path.len() > self.limits.path_bytes {
            Err(ErrorCode::NameTooLong)
        } else if path.contains('\0') {
            Err(ErrorCode::Invalid)
        } else {
            Ok(())
        }
    }

    /// Calls `operation` with a checked path.
    fn at<R>(
        &self,
        descriptor: &Resource<Descriptor>,
        path: &str,
        operation: impl FnOnce(&Descriptor, &str) -> Answer<R>,
    ) -> Returned<R> {
        let descriptor = self.descriptor(descriptor)?;
        Ok((self.check_path(path).and_then(|()| operation(descriptor, path)),))
    }

    /// Calls `operation` with two checked paths.
    fn at_both<R>(
        &self,
        (from, from_path): (&Resource<Descriptor>, &str),
        (to, to_path): (&Resource<Descriptor>, &str),
        operation: impl FnOnce(&Descriptor, &str, &Descriptor, &str) -> Answer<R>,
    ) -> Returned<R> {
        let (from, to) = (self.descriptor(from)?, self.descriptor(to)?);
        let checked = self.check_path(from_path).and_then(|()| self.check_path(to_path));
        Ok((checked.and_then(|()| operation(from, from_path, to, to_path)),))
    }
}

/// Links `wasi:filesystem/types` and `preopens`.
pub(crate) fn add_to_linker<T: WasiView>(linker: &mut Linker<T>) -> wasmtime::Result<()> {
    let mut types = linker.instance(&format!("wasi:filesystem/types@{VERSION}"))?;
    types.resource("descriptor", ResourceType::host::<Descriptor>(), |mut store, descriptor| {
        let wasi = store.data_mut().wasi();
        wasi.table.delete(Resource::<Descriptor>::new_own(descriptor))?;
        wasi.descriptors = wasi.descriptors.saturating_sub(1);
        Ok(())
    })?;
    let entries = ResourceType::host::<EntryStream>();
    types.resource("directory-entry-stream", entries, |mut store, stream| {
        store.data_mut().wasi().table.delete(Resource::<EntryStream>::new_own(stream))?;
        Ok(())
    })?;
    link_contents(&mut types)?;
    link_metadata(&mut types)?;
    link_paths(&mut types)?;

    let mut preopens = linker.instance(&format!("wasi:filesystem/preopens@{VERSION}"))?;
    preopens.func_wrap("get-directories", |mut store, (): ()| {
        let wasi = store.data_mut().wasi();
        let mut directories = Vec::with_capacity(wasi.mounts.len());
        for index in 0..wasi.mounts.len() {
            let Some(mount) = wasi.mounts.get(index) else { break };
            let path = mount.preopen.guest_path.clone();
            let descriptor = mount.open().map_err(error_code);
            // A folder that was mounted and is not there (any more) is not offered.
            if let (Ok(resource),) = wasi.keep(descriptor)? {
                directories.push((resource, path));
            }
        }
        Ok((directories,))
    })
}

type This = (Resource<Descriptor>,);

fn link_contents<T: WasiView>(types: &mut LinkerInstance<'_, T>) -> wasmtime::Result<()> {
    types.func_wrap(
        "[method]descriptor.read-via-stream",
        |mut store, (this, offset): (Resource<Descriptor>, u64)| {
            let wasi = store.data_mut().wasi();
            let stream = wasi.descriptor(&this)?.read_via_stream(offset);
            wasi.input(stream)
        },
    )?;
    types.func_wrap(
        "[method]descriptor.write-via-stream",
        |mut store, (this, offset): (Resource<Descriptor>, u64)| {
            let wasi = store.data_mut().wasi();
            let stream = wasi.descriptor(&this)?.write_via_stream(Position::At(offset));
            wasi.output(stream)
        },
    )?;
    types.func_wrap("[method]descriptor.append-via-stream", |mut store, (this,): This| {
        let wasi = store.data_mut().wasi();
        let stream = wasi.descriptor(&this)?.write_via_stream(Position::End);
        wasi.output(stream)
    })?;
    types.func_wrap(
        "[method]descriptor.read",
        |mut store, (this, length, offset): (Resource<Descriptor>, u64, u64)| {
            Ok((store.data_mut().wasi().descriptor(&this)?.read(length, offset),))
        },
    )?;
    types.func_wrap(
        "[method]descriptor.write",
        |mut store, (this, bytes, offset): (Resource<Descriptor>, Vec<u8>, u64)| {
            Ok((store.data_mut().wasi().descriptor(&this)?.write(&bytes, offset),))
        },
    )?;
    types.func_wrap(
        "[method]descriptor.set-size",
        |mut store, (this, size): (Resource<Descriptor>, u64)| {
            Ok((store.data_mut().wasi().descriptor(&this)?.set_size(size),))
        },
    )?;
    types.func_wrap("[method]descriptor.read-directory", |mut store, (this,): This| {
        let wasi = store.data_mut().wasi();
        let stream = wasi.descriptor(&this)?.read_directory();
        let returned: Answer<Resource<EntryStream>> = match stream {
            Ok(stream) => Ok(wasi.table.push(stream)?),
            Err(error) => Err(error),
        };
        Ok((returned,))
    })?;
    types.func_wrap(
        "[method]directory-entry-stream.read-directory-entry",
        |mut store, (this,): (Resource<EntryStream>,)| {
            let entry = store.data_mut().wasi().table.get_mut(&this)?.next();
            let entry = entry.map(|entry| DirectoryEntry {
                type_: descriptor_type(entry.kind),
                name: entry.name.clone(),
            });
            Ok((Ok::<_, ErrorCode>(entry),))
        },
    )
}

fn link_metadata<T: WasiView>(types: &mut LinkerInstance<'_, T>) -> wasmtime::Result<()> {
    type Times = (Resource<Descriptor>, NewTimestamp, NewTimestamp);
    types.func_wrap(
        "[method]descriptor.advise",
        |mut store, (this, _, _, _): (Resource<Descriptor>, u64, u64, Advice)| {
            Ok((store.data_mut().wasi().descriptor(&this)?.advise(),))
        },
    )?;
    for name in ["[method]descriptor.sync", "[method]descriptor.sync-data"] {
        types.func_wrap(name, |mut store, (this,): This| {
            Ok((store.data_mut().wasi().descriptor(&this)?.sync(),))
        })?;
    }
    types.func_wrap("[method]descriptor.get-flags", |mut store, (this,): This| {
        let flags = store.data_mut().wasi().descriptor(&this)?.flags();
        Ok((Ok::<DescriptorFlags, ErrorCode>(flags),))
    })?;
    types.func_wrap("[method]descriptor.get-type", |mut store, (this,): This| {
        Ok((store.data_mut().wasi().descriptor(&this)?.descriptor_type(),))
    })?;
    types.func_wrap("[method]descriptor.stat", |mut store, (this,): This| {
        Ok((store.data_mut().wasi().descriptor(&this)?.stat(),))
    })?;
    types.func_wrap(
        "[method]descriptor.set-times",
        |mut store, (this, accessed, modified): Times| {
            let wasi = store.data_mut().wasi();
            wasi.clock.read()?;
            let now = wasi.clock.wall();
            Ok((wasi.descriptor(&this)?.set_times(accessed, modified, now),))
        },
    )?;
    types.func_wrap(
        "[method]descriptor.is-same-object",
        |mut store, (this, other): (Resource<Descriptor>, Resource<Descriptor>)| {
            let wasi = store.data_mut().wasi();
            Ok((wasi.descriptor(&this)?.is_same_object(wasi.descriptor(&other)?),))
        },
    )?;
    types.func_wrap("[method]descriptor.metadata-hash", |mut store, (this,): This| {
        Ok((store.data_mut().wasi().descriptor(&this)?.metadata_hash(),))
    })?;
    types.func_wrap("filesystem-error-code", |mut store, (error,): (Resource<Error>,)| {
        let error = store.data_mut().wasi().table.get(&error)?;
        Ok((error.downcast_ref::<FileError>().map(|error| error_code(*error)),))
    })
}

fn link_paths<T: WasiView>(types: &mut LinkerInstance<'_, T>) -> wasmtime::Result<()> {
    type Path = (Resource<Descriptor>, String);
    type FlagsPath = (Resource<Descriptor>, PathFlags, String);
    types.func_wrap(
        "[method]descriptor.open-at",
        |mut store,
         (this, path_flags, path, open_flags, flags): (
            Resource<Descriptor>,
            PathFlags,
            String,
            OpenFlags,
            DescriptorFlags,
        )| {
            let wasi = store.data_mut().wasi();
            let (opened,) = wasi.at(&this, &path, |directory, path| {
                directory.open_at(path_flags, path, open_flags, flags)
            })?;
            wasi.keep(opened)
        },
    )?;
    types.func_wrap(
        "[method]descriptor.stat-at",
        |mut store, (this, flags, path): FlagsPath| {
            store
                .data_mut()
                .wasi()
                .at(&this, &path, |directory, path| directory.stat_at(flags, path))
        },
    )?;
    types.func_wrap(
        "[method]descriptor.metadata-hash-at",
        |mut store, (this, flags, path): FlagsPath| {
            let wasi = store.data_mut().wasi();
            wasi.at(&this, &path, |directory, path| directory.metadata_hash_at(flags, path))
        },
    )?;
    types.func_wrap(
        "[method]descriptor.set-times-at",
        |mut store,
         (this, flags, path, accessed, modified): (
            Resource<Descriptor>,
            PathFlags,
            String,
            NewTimestamp,
            NewTimestamp,
        )| {
            let wasi = store.data_mut().wasi();
            wasi.clock.read()?;
            let now = wasi.clock.wall();
            wasi.at(&this, &path, |directory, path| {
                directory.set_times_at(flags, path, accessed, modified, now)
            })
        },
    )?;
    types.func_wrap(
        "[method]descriptor.create-directory-at",
        |mut store, (this, path): Path| {
            store.data_mut().wasi().at(&this, &path, Descriptor::create_directory_at)
        },
    )?;
    types.func_wrap(
        "[method]descriptor.remove-directory-at",
        |mut store, (this, path): Path| {
            store.data_mut().wasi().at(&this, &path, Descriptor::remove_directory_at)
        },
    )?;
    types.func_wrap("[method]descriptor.unlink-file-at", |mut store, (this, path): Path| {
        store.data_mut().wasi().at(&this, &path, Descriptor::unlink_file_at)
    })?;
    types.func_wrap("[method]descriptor.readlink-at", |mut store, (this, path): Path| {
        store.data_mut().wasi().at(&this, &path, Descriptor::read_link_at)
    })?;
    types.func_wrap(
        "[method]descriptor.symlink-at",
        |mut store, (this, target, path): (Resource<Descriptor>, String, String)| {
            let wasi = store.data_mut().wasi();
            let both = ((&this, target.as_str()), (&this, path.as_str()));
            wasi.at_both(both.0, both.1, |directory, target, _, path| {
                directory.symlink_at(target, path)
            })
        },
    )?;
    types.func_wrap(
        "[method]descriptor.link-at",
        |mut store,
         (this, flags, path, other, other_path): (
            Resource<Descriptor>,
            PathFlags,
            String,
            Resource<Descriptor>,
            String,
        )| {
            let wasi = store.data_mut().wasi();
            wasi.at_both((&this, &path), (&other, &other_path), |from, path, to, to_path| {
                from.link_at(flags, path, to, to_path)
            })
        },
    )?;
    types.func_wrap(
        "[method]descriptor.rename-at",
        |mut store,
         (this, path, other, other_path): (
            Resource<Descriptor>,
            String,
            Resource<Descriptor>,
            String,
        )| {
            let wasi = store.data_mut().wasi();
            wasi.at_both((&this, &path), (&other, &other_path), Descriptor::rename_at)
        },
    )
}
