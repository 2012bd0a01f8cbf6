//! What is wrong with a file is told with its line and field.

use super::file;
use super::model::{Effort, Experiment, LoadSpec, Pace, Workload};
use super::own::with_servers;
use super::{built_in, find};
use crate::error::{LabError, Result};

/// A file without a mistake. Its lines are counted on in the tests.
const RIGHT: &str = r#"title = "A title"
about = "A reason"
baseline = "one"
[workload]
protocol = "http"
connections = 10
[[case]]
name = "a case"
threads = 2
[[case]]
name = "{connections} and {share_of_peak}"
connections = [20, 30]
share_of_peak = [0.2, 0.95]
path = "/x"
quick = false
[[server]]
name = "one"
command = "{quoit} serve {protocol} --listen {listen}"
expects = ["engine=epoll"]
[[server]]
name = "two"
command = "other 'a b' {port}"
ready = "port"
not_in = ["a case"]
speaks = ["http", "echo"]
environment = { THREADS = "{cores}" }
[[client]]
name = "theirs"
command = "client {connect}"
[[claim]]
source = "someone"
says = "something"
"#;

fn read(text: &str) -> Result<Experiment> {
    file::read("dir/x.toml", "x", text, built_in::catalogue()?)
}

/// The page says what holds where a file says nothing.
#[test]
fn the_defaults_are_those_of_the_page() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/experiments.md");
    let page = std::fs::read_to_string(page).expect("it is there");
    let experiment = read(RIGHT).expect("it is right");
    for (field, effort) in [("effort", experiment.effort), ("quick", experiment.quick)] {
        let row = page
            .lines()
            .find(|line| line.starts_with(&format!("| `[{field}]` |")));
        let Effort {
            pairs,
            most_pairs,
            band,
            seconds,
            warm_up,
        } = effort;
        let expected = format!("| {pairs}, {most_pairs}, {band}, {seconds}, {warm_up} |");
        assert!(
            row.is_some_and(|row| row.ends_with(&expected)),
            "{field}: {expected}: {row:?}"
        );
    }
}

/// The message for the file with something replaced.
fn mistake(from: &str, to: &str) -> String {
    assert!(RIGHT.contains(from), "{from} is in the file");
    let error = read(&RIGHT.replacen(from, to, 1)).expect_err("there is a mistake");
    error.to_string()
}

#[test]
fn a_file_is_read() {
    let experiment = read(RIGHT).expect("it is right");
    let names: Vec<&str> = experiment.cases.iter().map(|case| case.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "a case",
            "20 and 20 %",
            "20 and 95 %",
            "30 and 20 %",
            "30 and 95 %"
        ]
    );
    assert_eq!(
        experiment.cases[4].workload,
        Workload::Load(LoadSpec {
            protocol: "http".to_owned(),
            connections: 30,
            threads: 1,
            pipeline: 1,
            pace: Pace::ShareOfPeak(0.95),
            arguments: vec!["--path".to_owned(), "/x".to_owned()],
        })
    );
    let two = &experiment.servers[1];
    assert_eq!(two.command, ["other", "a b", "{port}"]);
    assert_eq!(two.environment["THREADS"], "{cores}");
    assert_eq!(experiment.against(two), Some("one"));
    assert_eq!(experiment.against(&experiment.servers[0]), None);
    let quick = experiment.quickened();
    assert_eq!((quick.cases.len(), quick.effort), (1, quick.quick));
}

#[test]
fn dns_is_for_clients_alone() {
    let client = "[[client]]\nname = \"theirs\"\ncommand = \"client {connect}\"\n";
    let dns = RIGHT
        .replace("path = \"/x\"\n", "")
        .replace("protocol = \"http\"", "protocol = \"dns\"");
    let error = read(&dns.replace(client, "")).expect_err("nobody speaks it");
    assert!(
        error
            .to_string()
            .contains("client: is missing: `quoit load` does not speak `dns`"),
        "{error}"
    );
    let protocol = |error: &LabError| error.to_string().contains("`dns`");
    assert!(!read(&dns).is_err_and(|error| protocol(&error)));
}

#[test]
fn a_client_that_announces_its_window_warms_up_itself() {
    let with = |more: &str| {
        let text = RIGHT.replacen("client {connect}\"\n", &format!("client {{connect}} {more}\n"), 1);
        assert_ne!(text, RIGHT);
        read(&text)
    };
    let experiment = with("{warm_up}\"\nannounces = true\nquick = false").expect("it is right");
    assert!(experiment.clients[0].announces && !experiment.clients[0].in_quick);
    assert!(experiment.quickened().clients.is_empty());
    let experiment = with("\"").expect("it is right");
    assert!(!experiment.clients[0].announces && experiment.clients[0].in_quick);
    let error = with("{warm_up}\"").expect_err("nobody warms up");
    assert!(
        error
            .to_string()
            .contains("client[1].command: has {warm_up}, but"),
        "{error}"
    );
}

#[test]
fn mistakes_are_told_with_line_and_field() {
    for (from, to, expected) in [
        (
            "connections = 10",
            "conections = 10",
            "x.toml:6: workload.conections: is not a known field; did you mean `connections`?",
        ),
        (
            "title",
            "titel",
            "x.toml:1: titel: is not a known field; did you mean `title`?",
        ),
        ("title = \"A title\"\n", "\n", "x.toml:1: title: is missing"),
        (
            "threads = 2",
            "threads = \"2\"",
            "x.toml:9: case[1].threads: has to be a whole number, not a string",
        ),
        (
            "threads = 2",
            "threads = 0",
            "x.toml:9: case[1].threads: has to lie between 1 and 1024, not 0",
        ),
        (
            "threads = 2",
            "threads = 11",
            "x.toml:9: case[1].threads: 11 threads need at least as many connections, not 10",
        ),
        (
            "threads = 2",
            "name2 = 1",
            "x.toml:9: case[1].name2: is not a known field; did you mean `name`?",
        ),
        (
            "threads = 2",
            "mebibytes = 2",
            "x.toml:9: case[1].mebibytes: is of no use to a workload of the kind `load`",
        ),
        (
            "threads = 2",
            "size = 2",
            "x.toml:9: case[1].size: is of no use to the protocol `http`",
        ),
        (
            "threads = 2",
            "arguments = \"--threads=2\"",
            "x.toml:9: case[1].arguments: --threads has a field of its own: `threads`",
        ),
        (
            "threads = 2",
            "arguments = \"--chrun\"",
            "x.toml:9: case[1].arguments: `quoit load` would not understand the case: unexpected argument '--chrun' found",
        ),
        (
            "threads = 2",
            "arguments = \"--requests 9\"",
            "x.toml:9: case[1].arguments: `quoit load` would not understand the case: the argument '--seconds <SECONDS>' cannot \
             be used with '--requests <N>'",
        ),
        (
            "threads = 2",
            "pipeline = 2\narguments = \"--churn\"",
            "x.toml:10: case[1].arguments: `quoit load` would not understand the case: the argument '--pipeline <D>' cannot \
             be used with '--churn'",
        ),
        (
            "threads = 2",
            "rate = 5\nshare_of_peak = 0.5",
            "x.toml:9: case[1].rate: is given together with `share_of_peak`",
        ),
        (
            "threads = 2",
            "protocol = \"rpc\"\narguments = \"--messages 16\"\nshare_of_peak = 0.5",
            "x.toml:11: case[1].share_of_peak: is of messages per second",
        ),
        (
            "[20, 30]",
            "[20, 3.5]",
            "x.toml:12: case[2].connections: has to be a whole number, not a float",
        ),
        (
            "[20, 30]",
            "[]",
            "x.toml:12: case[2].connections: is an empty list",
        ),
        (
            "[0.2, 0.95]",
            "[0.2, 95]",
            "x.toml:13: case[2].share_of_peak: has to lie between 0.001 and 1, not 95",
        ),
        (
            "\"/x\"",
            "\"x\"",
            "x.toml:14: case[2].path: has to start with `/`",
        ),
        (
            "quick = false",
            "quick = 0",
            "x.toml:15: case[2].quick: has to be true or false, not an integer",
        ),
        (
            "{share_of_peak}",
            "{peak}",
            "x.toml:11: case[2].name: `{peak}` is not a placeholder",
        ),
        (
            "{connections} and {share_of_peak}\"\nconnections = [20, 30]\nshare_of_peak = [0.2, 0.95]",
            "a case\"",
            "x.toml:11: case[2].name: `a case` is the name of another case too",
        ),
        (
            "\"one\"\n[w",
            "\"ones\"\n[w",
            "x.toml:3: baseline: `ones` is not a server of this experiment; did you mean `one`?",
        ),
        (
            "name = \"two\"",
            "name = \"one\"",
            "x.toml:21: server[2].name: `one` is the name of another server too",
        ),
        (
            "{protocol}",
            "{protokol}",
            "x.toml:18: server[1].command: `{protokol}` is not a placeholder; did you mean `protocol`?",
        ),
        (
            "{quoit} serve",
            "{quoit serve",
            "x.toml:18: server[1].command: the brace in `{quoit` belongs to no placeholder",
        ),
        (
            "'a b' {port}",
            "'a b {port}",
            "x.toml:22: server[2].command: a quote is not closed",
        ),
        (
            "'a b' {port}",
            "'a b'",
            "x.toml:22: server[2].command: has neither {listen} nor {port}",
        ),
        (
            "'a b' {port}",
            "{port} {metrics}",
            "x.toml:22: server[2].command: has {metrics}, which needs `metrics = \"apart\"`",
        ),
        (
            "ready = \"port\"",
            "ready = \"ports\"",
            "x.toml:23: server[2].ready: `ports` is not known; did you mean `port`?",
        ),
        (
            "ready = \"port\"",
            "port = 80",
            "x.toml:23: server[2].port: is of use only for a server that cannot be told",
        ),
        (
            "not_in = [\"a case\"]",
            "not_in = [\"a cas\"]",
            "x.toml:24: server[2].not_in: `a cas` is not a case of this experiment; did you mean `a case`?",
        ),
        (
            "[\"http\", \"echo\"]",
            "[\"http\", \"eco\"]",
            "x.toml:25: server[2].speaks: `eco` is not known; did you mean `echo`?",
        ),
        (
            "{cores}",
            "{core}",
            "x.toml:26: server[2].environment.THREADS: `{core}` is not a placeholder; did you mean `cores`?",
        ),
        (
            "client {connect}",
            "client",
            "x.toml:29: client[1].command: has no {connect}",
        ),
        (
            "says = \"something\"\n",
            "",
            "x.toml:30: claim[1].says: is missing",
        ),
        (
            "baseline",
            "placement = \"remote\"\nbaseline",
            "x.toml:1: generators: is missing",
        ),
        (
            "baseline",
            "placement = \"remote\"\nhost = \"10.0.0.1\"\ngenerators = [\"a {generator}\", \"b\"]\nbaseline",
            "x.toml:5: generators: has neither {generator} nor {arguments}",
        ),
        (
            "baseline = \"one\"\n[workload]\nprotocol = \"http\"\nconnections = 10",
            "placement = \"remote\"\nhost = \"10.0.0.1\"\ngenerators = [\"a {generator}\", \"b {arguments}\"]\n\
             baseline = \"one\"\n[workload]\nprotocol = \"http\"\nconnections = 1",
            "x.toml:5: generators: are 2, but the case `a case` has fewer connections to share out: 1",
        ),
        (
            "baseline",
            "placement = \"there\"\nbaseline",
            "x.toml:3: placement: `there` is not known",
        ),
        (
            "baseline",
            "generators = [\"a\"]\nbaseline",
            "x.toml:3: generators: is of use only with `placement = \"remote\"`",
        ),
        (
            "baseline",
            "servers = [\"gnett\"]\nbaseline",
            "x.toml:3: servers: `gnett` is not a server of the catalogue, or is listed twice; did you mean `gnet`?",
        ),
        (
            "[workload]",
            "[effort]\npairs = 5\nmost_pairs = 4\n[workload]",
            "x.toml:6: effort.most_pairs: has to be at least `pairs`, which is 5",
        ),
        ("[workload]", "[workload", "x.toml:4: "),
        (
            "threads = 2",
            "quick = false",
            "case: no case takes part in a quick run",
        ),
        (
            "expects",
            "quick = false\nexpects",
            "server: `two` takes part in a quick run, but not `one`",
        ),
        (
            "expects",
            "against = \"too\"\nexpects",
            "x.toml:19: server[1].against: `too` is not a server of this experiment; did you mean `two`?",
        ),
    ] {
        let message = mistake(from, to);
        assert!(message.contains(expected), "{from} -> {to}: {message}");
    }
}

#[test]
fn all_mistakes_are_told_at_once_in_their_order() {
    let text = RIGHT
        .replace("threads = 2", "threads = 0")
        .replace("title =", "titles =");
    let message = read(&text).expect_err("it has mistakes").to_string();
    let lines: Vec<&str> = message.lines().map(str::trim).collect();
    assert_eq!(lines.len(), 4, "{message}");
    assert_eq!(lines[0], "3 mistakes:");
    assert!(
        lines[1].starts_with("dir/x.toml:1: title: is missing"),
        "{message}"
    );
    assert!(lines[2].starts_with("dir/x.toml:1: titles: "), "{message}");
    assert!(
        lines[3].starts_with("dir/x.toml:9: case[1].threads: "),
        "{message}"
    );
}

#[test]
fn rungs_and_published_tables_are_read() {
    let published = "[[published]]\nsource = \"who\"\nscale = \"ten times\"\ntitles = [\"a\", \"b\"]\n\
                     rows = [[\"1\", \"2\"], [\"3\", \"4\"]]\n";
    let text = RIGHT
        .replace(
            "protocol = \"http\"\nconnections = 10",
            "kind = \"datagrams\"\nladder = \"steps\"",
        )
        .replace("threads = 2", "rate = 5")
        .replace(
            "connections = [20, 30]\nshare_of_peak = [0.2, 0.95]\npath = \"/x\"",
            "rate = [6, 7]",
        )
        .replace("{connections} and {share_of_peak}", "{rate}")
        .replace(
            "command = \"other 'a b' {port}\"\nready = \"port\"",
            "command = \"other {port}\"",
        )
        .replace("speaks = [\"http\", \"echo\"]\n", "")
        .replace(
            "[[client]]\nname = \"theirs\"\ncommand = \"client {connect}\"\n",
            "",
        );
    let experiment = read(&format!("{text}{published}")).expect("it is right");
    let ladders = experiment.cases.iter().map(|case| match &case.workload {
        Workload::Datagrams(datagrams) => datagrams.ladder.as_deref(),
        other => panic!("{other:?}"),
    });
    assert!(ladders.eq([Some("steps"); 3]));
    let table = &experiment.published[0];
    assert_eq!(
        (table.source.as_str(), table.scale.as_str()),
        ("who", "ten times")
    );
    assert_eq!(
        (&table.titles[..], &table.rows[1][..]),
        (
            &["a", "b"].map(str::to_owned)[..],
            &["3", "4"].map(str::to_owned)[..]
        )
    );

    let short = published.replace("[\"3\", \"4\"]", "[\"3\"]");
    let error = read(&format!("{text}{short}"))
        .expect_err("a row is short")
        .to_string();
    assert!(error.contains("has 1 cells below 2 titles"), "{error}");
    let message = mistake("threads = 2", "ladder = \"steps\"");
    assert!(
        message.contains("is of no use to a workload of the kind `load`"),
        "{message}"
    );
}

#[test]
fn a_server_does_not_take_part_where_it_does_not_speak() {
    let text = RIGHT.replace("[\"http\", \"echo\"]", "[\"echo\"]");
    let experiment = read(&text).expect("it is right");
    assert_eq!(experiment.servers[1].not_in.len(), experiment.cases.len());
}

#[test]
fn without_cases_the_workload_is_the_case() {
    let head = RIGHT.split("[[case]]").next().expect("it has a start");
    let text = format!("{head}[[server]]\nname = \"one\"\ncommand = \"x {{listen}}\"\n");
    let experiment = read(&text).expect("it is right");
    assert_eq!(experiment.cases.len(), 1);
    assert_eq!(experiment.cases[0].name, "x");
}

#[test]
fn a_command_may_come_from_the_environment() {
    let stated = |variable: &str| {
        let command = "command = \"other 'a b' {port}\"";
        RIGHT.replace(command, &format!("command_from = \"{variable}\""))
    };
    let absent = read(&stated("QUOIT_TEST_NOT_SET")).expect("it is right");
    assert!(absent.servers[1].command.is_empty());
    // Set for everybody: its value has no {listen}, so that it is a mistake here.
    let error = read(&stated("PATH")).expect_err("it says nowhere where to listen");
    assert!(
        error.to_string().contains("has neither {listen} nor {port}"),
        "{error}"
    );
}

#[test]
fn experiments_are_found_by_name_and_by_path() {
    let (experiment, text) = find("plaintext").expect("it is built in");
    assert!(experiment.name == "plaintext" && text.contains("title = "));
    let error = find("plaintxt").expect_err("there is none").to_string();
    assert!(error.contains("did you mean `plaintext`?"), "{error}");
    let folder = tempfile::tempdir().expect("a folder can be made");
    let path = folder.path().join("mine.toml");
    let path = path.to_str().expect("text");
    assert!(find(path).expect_err("there is none").to_string().contains(path));
    std::fs::write(path, RIGHT).expect("a file can be written");
    let (experiment, text) = find(path).expect("it is right");
    assert_eq!((experiment.name.as_str(), text.as_str()), ("mine", RIGHT));
}

#[test]
fn own_servers_are_added_or_take_a_place() {
    let experiment = || read(RIGHT).expect("it is right");
    let servers = ["./mine {listen}", "two=./two --port={port}", "A=1 b {port}"].map(str::to_owned);
    let own = with_servers(experiment(), &servers, None).expect("they are right");
    let names: Vec<&str> = own.servers.iter().map(|server| server.name.as_str()).collect();
    assert_eq!(
        (names, own.baseline.as_str()),
        (vec!["one", "two", "mine", "A"], "one")
    );
    assert_eq!(own.servers[1].command, ["./two", "--port={port}"]);
    assert!(own.servers[1].not_in.is_empty());

    let own = with_servers(experiment(), &[], Some("two")).expect("it is there");
    assert_eq!(own.baseline, "two");
    let unknown = with_servers(experiment(), &[], Some("tow"))
        .expect_err("there is none")
        .to_string();
    assert!(unknown.contains("did you mean `two`?"), "{unknown}");
    for (command, expected) in [
        ("./mine", "has to say with {listen}"),
        ("x={lisen}", "did you mean `listen`?"),
        ("x=", "is empty"),
        ("x='", "a quote is not closed"),
    ] {
        let error = with_servers(experiment(), &[command.to_owned()], None)
            .expect_err(command)
            .to_string();
        assert!(error.contains(expected) && error.contains(command), "{error}");
    }
}
