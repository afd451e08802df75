//! temporary
use keyway_base::Clock;
use keyway_proxy::local::Facts;
pub struct ProcessFacts;
impl ProcessFacts {
    pub fn new(
        _: &keyway_config::Config,
        _: &[keyway_worker::PoolPlan],
        _: &[keyway_net::Listener],
        _: &std::sync::Arc<keyway_metrics::Registry>,
        _: &std::sync::Arc<keyway_proxy::local::ClientRegistry>,
        _: Clock,
    ) -> Self {
        Self
    }
}
impl Facts for ProcessFacts {
    fn info(&self, _: u16, _: &[&str], out: &mut String) {
        out.push_str("# Server\r\n");
    }
    fn settings(&self, _: u16) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}
