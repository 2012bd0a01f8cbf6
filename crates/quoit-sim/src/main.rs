fn main() {
    quoit_sim::run::catch_panics();
    let mut arguments = std::env::args().skip(1);
    let from: u64 = arguments.next().unwrap().parse().unwrap();
    let count: u64 = arguments.next().unwrap().parse().unwrap();
    let engine = if arguments.next().unwrap() == "uring" { quoit::EngineKind::Uring } else { quoit::EngineKind::Epoll };
    let trace = arguments.next().is_some();
    let (mut lives, mut turns) = (0, 0);
    let mut failures = 0;
    for seed in from..from+count {
        let mut options = quoit_sim::plan::Options::new(seed, engine);
        options.trace = trace;
        let outcome = quoit_sim::run::run(&options);
        for line in outcome.trace { println!("{line}"); }
        match outcome.result { Ok(s) => { lives += s.lives; turns += s.turns; }, Err(e) => { println!("seed {seed}: {e}"); failures += 1; if failures > 30 { break; } } }
    }
    println!("lives {lives} turns {turns} failures {failures}");
}
