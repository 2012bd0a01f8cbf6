//! What `docs/async.md` shows for OpenTelemetry, with loops that run, and a provider that reads once when it is asked.

#![allow(clippy::unwrap_used, reason = "a failure of a test may panic anywhere in it")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use opentelemetry::metrics::{
    AsyncInstrumentBuilder, Callback, InstrumentProvider, MeterProvider, ObservableCounter, ObservableGauge,
};
use quoit_async::{Server, ServerConfig};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

include!("export.rs");

/// An instrument as it was asked for.
struct Instrument {
    name: String,
    counts: bool,
    described: bool,
    callbacks: Vec<Callback<u64>>,
}

/// The least that a provider does: it keeps the instruments.
#[derive(Clone, Default)]
struct Provider(Arc<Mutex<Vec<Instrument>>>);

impl Provider {
    fn keep<I>(&self, builder: AsyncInstrumentBuilder<'_, I, u64>, counts: bool) {
        self.0.lock().unwrap().push(Instrument {
            name: builder.name.into_owned(),
            counts,
            described: builder.description.is_some(),
            callbacks: builder.callbacks,
        });
    }

    /// What an exporter would have now: by name, and per loop.
    fn collected(&self) -> BTreeMap<String, Vec<u64>> {
        let instruments = self.0.lock().unwrap();
        let values = instruments.iter().map(|instrument| {
            let values = Values::default();
            for callback in &instrument.callbacks {
                callback(&values);
            }
            (instrument.name.clone(), values.0.into_inner().unwrap())
        });
        values.collect()
    }
}

impl MeterProvider for Provider {
    fn meter_with_scope(&self, _scope: opentelemetry::InstrumentationScope) -> Meter {
        Meter::new(Arc::new(self.clone()))
    }
}

impl InstrumentProvider for Provider {
    fn u64_observable_counter(
        &self,
        builder: AsyncInstrumentBuilder<'_, ObservableCounter<u64>, u64>,
    ) -> ObservableCounter<u64> {
        self.keep(builder, true);
        ObservableCounter::new()
    }

    fn u64_observable_gauge(
        &self,
        builder: AsyncInstrumentBuilder<'_, ObservableGauge<u64>, u64>,
    ) -> ObservableGauge<u64> {
        self.keep(builder, false);
        ObservableGauge::new()
    }
}

/// What one instrument observed, in the order of the loops.
#[derive(Default)]
struct Values(Mutex<Vec<u64>>);

impl AsyncInstrument<u64> for Values {
    fn observe(&self, measurement: u64, attributes: &[KeyValue]) {
        let mut values = self.0.lock().unwrap();
        let expected = KeyValue::new("quoit.loop", i64::try_from(values.len()).unwrap());
        assert_eq!(attributes, [expected]);
        values.push(measurement);
    }
}

#[test]
fn a_provider_collects_what_the_loops_count() {
    let server = Server::start(
        ServerConfig {
            loops: 2,
            ..ServerConfig::listen("127.0.0.1:0".parse::<std::net::SocketAddr>().unwrap())
        },
        async |mut context| {
            let listener = context.listener()?;
            let (mut stream, _) = listener.accept().await?;
            stream.write_all(b"hello").await
        },
    )
    .unwrap();
    let address = server.addresses()[0].to_string();
    let server = Arc::new(server);
    let provider = Provider::default();
    let counted = Arc::clone(&server);
    export(&provider.meter("quoit"), move || counted.counters());

    let before = provider.collected();
    assert_eq!(before.len(), Counters::default().figures().count());
    assert_eq!(before["quoit.accepted"].iter().sum::<u64>(), 0);
    {
        let instruments = provider.0.lock().unwrap();
        assert!(instruments.iter().all(|instrument| instrument.described));
        let counts: Vec<&str> = instruments
            .iter()
            .filter(|instrument| instrument.counts)
            .map(|instrument| instrument.name.as_str())
            .collect();
        assert!(counts.contains(&"quoit.accepted") && !counts.contains(&"quoit.connections"));
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut stream = tokio::net::TcpStream::connect(&address).await.unwrap();
        let mut back = [0; 5];
        stream.read_exact(&mut back).await.unwrap();
    });
    let after = provider.collected();
    assert_eq!(after["quoit.accepted"].len(), 2);
    assert_eq!(after["quoit.accepted"].iter().sum::<u64>(), 1);
    assert!(after["quoit.turns"].iter().sum::<u64>() > 0);
    server.drainer().drain(Duration::ZERO);
}

/// The document shows what is tested here.
#[test]
fn the_document_has_this_function() {
    let document = include_str!("../../../../docs/async.md");
    assert!(document.contains(include_str!("export.rs")));
}
