//! Imports `evil:thing/x`. The audit must refuse it before its first instruction.

use fulgurite_sdk::harness::*;

mod evil {
    #![allow(missing_docs)]
    wit_bindgen::generate!({
        inline: "
            package evil:thing;
            interface x { open: func(path: string) -> bool; }
            world guest { import x; }
        ",
    });
}

struct EvilImport;

impl Harness for EvilImport {
    type Config = NoConfig;

    fn describe() -> Description {
        Description::new("evil-import", env!("CARGO_PKG_VERSION"))
    }

    fn run(_: Episode<NoConfig>) -> Result<Outcome, Failure> {
        let opened = evil::evil::thing::x::open("/etc/passwd");
        Ok(Outcome::submitted(opened.to_string()))
    }
}

fulgurite_sdk::export_harness!(EvilImport);
