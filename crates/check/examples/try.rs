//! Hunts: `try [RULE|-] [SCENARIO]`.
use quietmm_check::explore::{Budget, Search, Way};
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let n: u64 = args.get(1).map_or(1000, |s| s.parse().unwrap());
    let broken = args.get(2).filter(|s| *s != "-").map(|s| quietmm::Rule::parse(s).expect("a rule"));
    for s in quietmm_check::scenarios::all() {
        if args.get(3).is_some_and(|o| o != s.name) {
            continue;
        }
        for way in Way::ALL {
            let mut search = Search::new(&s, broken);
            let t = std::time::Instant::now();
            let budget = Budget { random: n, exhaustive: 10 * n, departures: 2 };
            let found = search.go(way, 1, &budget, &mut |_| true);
            let e = t.elapsed().as_secs_f64();
            let tally = &search.tally;
            let found = found.map(|mut f| {
                if std::env::var_os("DRAW").is_some() {
                    let n = f.schedule.len();
                    let runs = quietmm_check::shrink::shrink(&s, &mut f);
                    println!("shrunk from {n} in {runs} runs\n{}", quietmm_check::replay::write(&f));
                    let replay = quietmm_check::replay::Replay::from(&f);
                    println!("{}", quietmm_check::timeline::draw(&s, &replay.run(&s), 120));
                }
                f
            });
            println!(
                "{} {}: {} schedules, {} distinct, {}/{} points, {:.0}/s, complete {}: {}",
                s.name,
                way.name(),
                tally.schedules,
                tally.distinct,
                tally.departed(),
                tally.decisions,
                tally.schedules as f64 / e,
                search.complete,
                found.map_or("-".into(), |f| format!(
                    "{:?} {} {} after {} of {} {:?} {:?}",
                    f.hardware,
                    f.violation.invariant,
                    f.violation.what,
                    f.after,
                    f.schedule.len(),
                    f.violation.skipped,
                    &f.schedule[..f.schedule.len().min(4)]
                ))
            );
        }
    }
}
