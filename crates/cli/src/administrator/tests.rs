use super::*;
use clap::Parser;

fn prepared(line: &str) -> Result<Command, String> {
    let mut command = Program::try_parse_from(format!("situ {line}").split(' ')).unwrap().command;
    let done = prepare(&mut command, "name", Path::new("/served"), (Path::new("/home/ada"), false));
    done.map(|()| command).map_err(|failure| failure.message().unwrap().to_string())
}

#[test]
fn a_command_gets_the_served_store_and_the_paths_of_its_client() {
    let Ok(Command::Load(load)) = prepared("load -d elsewhere people.csv") else { panic!() };
    assert_eq!((load.target.data, load.file), ("/served".into(), "/home/ada/people.csv".into()));
    let Ok(Command::Dump(dump)) = prepared("dump -d elsewhere -o ../all.jsonl") else { panic!() };
    assert_eq!((dump.target.data, dump.output), ("/served".into(), "/home/ada/../all.jsonl".into()));
    let Ok(Command::Dump(dump)) = prepared("dump") else { panic!() };
    assert_eq!(dump.output, Path::new("-"));
    for line in ["checkpoint elsewhere -o /copies/one", "checkpoint -d elsewhere -o /copies/one"] {
        let Ok(Command::Checkpoint(checkpoint)) = prepared(line) else { panic!() };
        assert_eq!(checkpoint.directory.home().path(), Path::new("/served"));
        assert_eq!(checkpoint.output, Path::new("/copies/one"));
    }
}

#[test]
fn every_command_of_a_server_takes_its_store() {
    let lines = [
        "get a",
        "put a b",
        "delete a",
        "scan",
        "count",
        "dump",
        "load f",
        "trace -o t",
        "verify",
        "compact",
        "flush",
        "checkpoint -o c",
        "keyspace list",
        "keyspace create a",
        "keyspace drop a",
        "disk drain elsewhere",
    ];
    for line in lines {
        let command = prepared(line).unwrap_or_else(|why| panic!("{line}: {why}"));
        let home = match &command {
            Command::Get(options) => options.target.home(),
            Command::Put(options) => options.target.home(),
            Command::Delete(options) => options.target.home(),
            Command::Scan(options) => options.target.home(),
            Command::Count(options) => options.target.home(),
            Command::Dump(options) => options.target.home(),
            Command::Load(options) => options.target.home(),
            Command::Trace(options) => options.directory.home(),
            Command::Verify(options) => options.directory.home(),
            Command::Compact(options) => options.directory.home(),
            Command::Flush(options) => options.directory.home(),
            Command::Checkpoint(options) => options.directory.home(),
            Command::Keyspace(KeyspaceCommand::List(options)) => options.home(),
            Command::Keyspace(KeyspaceCommand::Create(options) | KeyspaceCommand::Drop(options)) => {
                options.store.home()
            }
            Command::Disk(DiskCommand::Drain(options)) => crate::store::Home::at(&options.directory, &options.node),
            other => panic!("{other:?}"),
        };
        assert_eq!(home.path(), Path::new("/served"), "{line}");
    }
}

#[test]
fn what_a_server_does_not_run_is_refused() {
    for line in ["serve", "node d", "repair", "inspect", "disk show d", "disk format d", "man d", "completions bash"] {
        let refused = prepared(line).unwrap_err();
        assert!(refused.starts_with("cannot run `situ name` in a server: "), "{refused}");
    }
    for line in ["put a", "load", "load -"] {
        assert!(prepared(line).unwrap_err().contains("standard input"), "{line}");
    }
    for line in ["get a --capacity node://a/b", "compact --compute node://a", "keyspace list --capacity node://a/b"] {
        assert!(prepared(line).unwrap_err().contains("leave out --capacity and --compute"), "{line}");
    }
    for line in ["load /dev/stdin", "dump -o /proc/self/fd/1", "dump -o /dev/tty"] {
        assert!(prepared(line).unwrap_err().contains("is another file in the server"), "{line}");
    }
}
