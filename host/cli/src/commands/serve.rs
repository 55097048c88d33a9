//! `fulgurite serve`: a policy as an OpenAI-compatible server.

use std::{net::SocketAddr, num::NonZeroU32};

use anyhow::Result;
use fulgurite_gateway::{
    SamplingDefaults,
    serve::{ServeError, ServeOptions, Server},
};
use fulgurite_policy::ApiKey;
use serde::Serialize;
use serde_json::Map;

use crate::{args::Serve, config::policy_option, exit, output::Output, policy, signals::Ends};

/// What is told once the server listens.
#[derive(Serialize)]
struct Listening {
    url: String,
    model: String,
    address: SocketAddr,
}

pub(crate) async fn run(serve: &Serve, output: Output) -> Result<()> {
    let key = match &serve.api_key_env {
        Some(variable) => ApiKey::from_environment(Some(variable))
            .map_err(|error| exit::Usage(error.to_string()))?,
        None => None,
    };
    if key.is_none() && !serve.listen.ip().is_loopback() {
        // Before a model is loaded for nothing.
        return Err(exit::Usage(ServeError::KeyNeeded(serve.listen).to_string()).into());
    }
    let options = serve.policy_options.iter().map(|text| policy_option(text));
    let options = options.collect::<Result<Map<_, _>>>()?;
    let policy = policy::open(&serve.policy, &options, &[]).await?;
    let sampling = SamplingDefaults {
        max_tokens: NonZeroU32::new(serve.max_tokens).unwrap_or(NonZeroU32::MIN),
        ..SamplingDefaults::default()
    };
    let options =
        ServeOptions { name: serve.name.clone(), key, sampling, ..ServeOptions::default() };
    let server = Server::bind(policy, serve.listen, options).await?;
    let told = Listening {
        url: format!("http://{}/v1", server.address()),
        model: server.name().to_owned(),
        address: server.address(),
    };
    output.result(&told, |told| {
        format!("{} is served at {}; Ctrl-C ends it", told.model, told.url)
    })?;
    let mut ends = Ends::listen();
    server.run(async move { ends.told().await }).await?;
    Ok(())
}
