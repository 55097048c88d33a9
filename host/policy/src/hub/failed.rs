//! What goes wrong on the way from the hub.

use std::{fmt, path::Path};

/// What went wrong, before the model is named.
pub(super) struct Failed {
    pub(super) reason: String,
    pub(super) mend: Option<&'static str>,
    /// Whether the hub said nothing, so that what is kept may serve.
    pub(super) unreachable: bool,
}

impl Failed {
    pub(super) const fn of(reason: String) -> Self {
        Self { reason, mend: None, unreachable: false }
    }

    pub(super) fn local(error: impl fmt::Display) -> Self {
        Self::of(format!("the download cannot be started: {error}"))
    }

    pub(super) fn at(place: &Path, error: &std::io::Error) -> Self {
        Self {
            reason: format!("{} cannot be written: {error}", place.display()),
            mend: Some("make room there, or set HF_HUB_CACHE to another folder"),
            unreachable: false,
        }
    }

    pub(super) fn broken(error: &reqwest::Error) -> Self {
        let reason = format!("the download broke off ({})", cause(error));
        Self { reason, mend: None, unreachable: true }
    }
}

/// The innermost cause, which says more than the layers around it.
pub(super) fn cause(error: &dyn std::error::Error) -> String {
    let mut inner = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    inner.to_string().chars().filter(|c| !c.is_control()).take(200).collect()
}
