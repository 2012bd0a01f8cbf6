use opentelemetry::KeyValue;
use opentelemetry::metrics::{AsyncInstrument, Meter};
use quoit::Counters;
use quoit::counters::Figure;

/// Lets the meter read what these loops count, whenever its provider collects.
fn export(meter: &Meter, loops: impl Fn() -> Vec<Counters> + Clone + Send + Sync + 'static) {
    for (position, (name, figure, about, _)) in Counters::default().figures().enumerate() {
        let loops = loops.clone();
        let observe = move |observer: &dyn AsyncInstrument<u64>| {
            for (index, counters) in loops().iter().enumerate() {
                if let Some((.., value)) = counters.figures().nth(position) {
                    observer.observe(value, &[KeyValue::new("quoit.loop", index as i64)]);
                }
            }
        };
        let name = format!("quoit.{name}");
        match figure {
            Figure::Counter => {
                let builder = meter.u64_observable_counter(name);
                builder.with_description(about).with_callback(observe).build();
            }
            Figure::Gauge => {
                let builder = meter.u64_observable_gauge(name);
                builder.with_description(about).with_callback(observe).build();
            }
        }
    }
}
