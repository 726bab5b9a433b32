// The server of the examples in the documentation, as an expression: a cache on a free port.
{
    use situ_server::{CacheEngine, Server, ServerOptions};

    let mut options = ServerOptions::default();
    options.listen = vec!["127.0.0.1:0".parse().unwrap()];
    options.threads = 1;
    let engine = CacheEngine::new(&situ::cache::Options::of_memory(64 << 20)).unwrap();
    Server::start(&options, std::sync::Arc::new(engine)).unwrap()
}
