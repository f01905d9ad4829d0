//! What a service pays for its backend: three shops, whose backend takes everything, refuses connections, and says nothing at all.
//!
//! They serve in turn, a second each, so that what else happens on the machine happens to all. *CPU* is that of the process for one
//! request; *latency* the mean time until a request is answered, of as many clients as there are connections, each of which asks again at once;
//! both as they are, and compared with the shop whose backend is well. *Capture* is the stacks that were taken over CPU seconds × Hz. In the
//! end all backends are there, and everything must have arrived.

use std::time::Duration;

use profiler_tests::Result;
use profiler_tests::proxy::Proxy;
use profiler_tests::receiver::Receiver;
use profiler_tests::usage::cpu_of;

use super::{add, load, shop};
use crate::lab::{CONNECTIONS, Lab};
use crate::report::Report;
use crate::shop::{Serving, Shop};

const RATE_HZ: u32 = 100;

/// Longer than the longest wait of our own for the next attempt.
const PATIENCE: Duration = Duration::from_secs(90);

/// A shop and its backend.
struct Service {
    shop: Shop,
    proxy: Proxy,
    receiver: Receiver,
    spent: Duration,
    served: f64,
}

pub(super) fn measure(lab: &Lab, report: &mut Report) -> Result<()> {
    // Longer than the first window, whose names are looked for; then over some more.
    let (warm, rounds) = if lab.quick { (1, 4) } else { (11, 40) };
    let turn = Duration::from_secs(1);
    let doors: [fn(&Proxy) -> Result<()>; 3] = [Proxy::open, Proxy::close, Proxy::wall];
    let mut services = doors.into_iter().map(|door| start(lab, door)).collect::<Result<Vec<_>>>()?;
    for service in &services {
        load(lab, &service.shop, Duration::from_secs(warm))?;
    }
    for round in 0..rounds {
        for place in 0..services.len() {
            let service = &mut services[(place + round) % doors.len()];
            let before = cpu_of(service.shop.program.id())?;
            service.served += load(lab, &service.shop, turn)?;
            service.spent += cpu_of(service.shop.program.id())?.saturating_sub(before);
        }
    }
    let (mut cpu, mut latency, mut captured) = (Vec::new(), Vec::new(), Vec::new());
    for Service { shop, proxy, receiver, spent, served } in services {
        cpu.push(spent.as_secs_f64() * 1e6 / served);
        latency.push(f64::from(CONNECTIONS) * turn.as_secs_f64() * rounds as f64 * 1e3 / served);
        proxy.open()?;
        if !receiver.wait(PATIENCE, |bodies| !bodies.is_empty()) {
            return Err("nothing arrived although the backend is there".into());
        }
        let said = shop.program.finish()?.json()?;
        let seconds = said["cpu_seconds"].as_f64().ok_or("the shop did not say its CPU time")?;
        captured.push(receiver.accepted().stacks as f64 / (seconds * f64::from(RATE_HZ)));
    }
    for (place, backend) in ["well", "dead", "black-holed"].into_iter().enumerate() {
        add(report, format!("CPU per request, backend {backend}"), "µs", 1, cpu[place]);
        add(report, format!("latency of a request, backend {backend}"), "ms", 3, latency[place]);
        add(report, format!("stacks ÷ (CPU s × Hz), backend {backend}"), "", 3, captured[place]);
        if place > 0 {
            add(report, format!("CPU per request ÷ well, backend {backend}"), "", 3, cpu[place] / cpu[0]);
            add(report, format!("latency ÷ well, backend {backend}"), "", 3, latency[place] / latency[0]);
        }
    }
    Ok(())
}

fn start(lab: &Lab, door: fn(&Proxy) -> Result<()>) -> Result<Service> {
    let receiver = Receiver::start()?;
    let proxy = Proxy::start(receiver.address())?;
    door(&proxy)?;
    let shop = shop(lab, Serving { rate_hz: RATE_HZ, spans: false }, &proxy.endpoint())?;
    Ok(Service { shop, proxy, receiver, spent: Duration::ZERO, served: 0.0 })
}
