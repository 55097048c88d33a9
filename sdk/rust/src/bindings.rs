//! What `wit-bindgen` makes of the contract. Plugins use the modules beside this one; the
//! export macros reach in here.
//!
//! Both worlds are generated whatever the plugin is. Imports that a plugin does not call are
//! left out of its component, so a harness never imports a reward's interfaces.

#![allow(missing_docs, unreachable_pub, clippy::all)]

/// The world `harness`.
pub mod harness {
    wit_bindgen::generate!({
        path: "../../wit",
        world: "harness",
        generate_all,
        pub_export_macro: true,
        export_macro_name: "export_harness_bindings",
        default_bindings_module: "fulgurite_sdk::bindings::harness",
    });
}

/// The world `reward`; words that both worlds share are those of [`harness`].
pub mod reward {
    wit_bindgen::generate!({
        path: "../../wit",
        world: "reward",
        with: {
            "fulgurite:plugin/types@0.1.0": crate::bindings::harness::fulgurite::plugin::types,
            "fulgurite:plugin/commands@0.1.0": crate::bindings::harness::fulgurite::plugin::commands,
        },
        generate_all,
        pub_export_macro: true,
        export_macro_name: "export_reward_bindings",
        default_bindings_module: "fulgurite_sdk::bindings::reward",
    });
}
