//! What wasmtime generates from the contract in `wit/`. Nothing of it leaves this crate; types
//! are translated in [`crate::convert`].

#![allow(missing_docs, unreachable_pub, reason = "generated")]
#![allow(clippy::all, clippy::restriction, reason = "generated")]

/// The world of agent programs.
pub(crate) mod harness {
    wasmtime::component::bindgen!({
        path: "../../wit",
        world: "fulgurite:plugin/harness",
        imports: {
            "fulgurite:plugin/llm.info": async | trappable,
            "fulgurite:plugin/llm.chat": async | trappable,
            "fulgurite:plugin/llm.generate": async | trappable,
            "fulgurite:plugin/llm.[static]conversation.open": async | trappable,
            "fulgurite:plugin/llm.[method]conversation.start": async | trappable,
            "fulgurite:plugin/llm.[method]conversation.send": async | trappable,
            "fulgurite:plugin/llm.[method]conversation.branch": async | trappable,
            "fulgurite:plugin/llm.[method]conversation.restart": async | trappable,
            "fulgurite:plugin/llm.[method]pending-reply.next-chunk": async | trappable,
            "fulgurite:plugin/llm.[method]pending-reply.finish": async | trappable,
            "fulgurite:plugin/exec.run": async | trappable,
            default: trappable,
        },
        exports: { default: async },
        with: {
            "wasi:io/poll": wasmtime_wasi_io::bindings::wasi::io::poll,
            "fulgurite:plugin/llm.conversation": crate::resource::Conversation,
            "fulgurite:plugin/llm.pending-reply": crate::resource::Pending,
        },
    });
}

/// The world of scorers. Shared words are those of the other world.
pub(crate) mod reward {
    wasmtime::component::bindgen!({
        path: "../../wit",
        world: "fulgurite:plugin/reward",
        imports: {
            "fulgurite:plugin/episode.turns": async | trappable,
            "fulgurite:plugin/grader.run-connected": async | trappable,
            "fulgurite:plugin/grader.[static]sandbox.open": async | trappable,
            "fulgurite:plugin/grader.[method]sandbox.run": async | trappable,
            default: trappable,
        },
        exports: { default: async },
        with: {
            "fulgurite:plugin/types": super::harness::fulgurite::plugin::types,
            "fulgurite:plugin/commands": super::harness::fulgurite::plugin::commands,
            "fulgurite:plugin/grader.sandbox": crate::resource::Sandbox,
        },
    });
}
