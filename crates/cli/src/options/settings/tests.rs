use super::*;
use crate::options::Command as Chosen;

fn read(line: &str, environment: &[(&str, &str)]) -> Result<Program, String> {
    let environment = environment.iter().map(|(name, value)| ((*name).into(), (*value).into()));
    parse(line.split_whitespace().map(OsString::from).collect(), environment).map_err(|unread| match unread {
        Unread::Clap(error) => error.to_string(),
        Unread::Settings(failure) => format!("{failure:?}"),
    })
}

fn options_of(line: &str, environment: &[(&str, &str)]) -> Result<Vec<(String, Vec<String>, Source)>, String> {
    let Chosen::Serve(options) = read(line, environment)?.command else { panic!("not serve") };
    let others = options.in_force.into_iter().filter(|option| option.source != Source::Default);
    Ok(others.map(|option| (option.name, option.values, option.source)).collect())
}

fn file(text: &str) -> (tempfile::TempDir, String) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("situ.toml");
    fs::write(&path, text).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (directory, path)
}

#[test]
fn an_option_comes_from_the_strongest_source_that_has_it() {
    let (_directory, path) = file(
        "[serve]\ndirectory = '/srv/situ'\nmemory = '1G'\nthreads = 3\nsync = true\nlisten = ['127.0.0.1:1', '[::1]:2']\n\
         [node]\nplace = '/srv/node'\n",
    );
    let option = |name: &str, values: &[&str], source| {
        (name.to_owned(), values.iter().map(|value| (*value).to_owned()).collect::<Vec<_>>(), source)
    };
    let found = options_of(&format!("situ serve --config {path} -t 4"), &[("SITU_SERVE_MEMORY", "2G"), ("PATH", "x")]);
    let mut found = found.unwrap();
    found.sort();
    assert_eq!(
        found,
        [
            option("directory", &["/srv/situ"], Source::File),
            option("listen", &["127.0.0.1:1", "[::1]:2"], Source::File),
            option("memory", &["2G"], Source::Environment),
            option("sync", &["true"], Source::File),
            option("threads", &["4"], Source::CommandLine),
        ]
    );
    let found = options_of(
        "situ serve here",
        &[
            ("SITU_SERVE_CONFIG", &path),
            ("SITU_SERVE_SYNC", "false"),
            ("SITU_SERVE_LISTEN", "127.0.0.1:3, 127.0.0.1:4"),
        ],
    );
    let mut found = found.unwrap();
    found.sort();
    assert_eq!(
        found,
        [
            option("directory", &["here"], Source::CommandLine),
            option("listen", &["127.0.0.1:3", "127.0.0.1:4"], Source::Environment),
            option("memory", &["1G"], Source::File),
            option("threads", &["3"], Source::File),
        ]
    );
}

#[test]
fn a_stronger_source_hides_what_conflicts_with_it() {
    let (_directory, path) = file("[serve]\nhttp = '127.0.0.1:9'\nvalue-log = true\n");
    let found = options_of(&format!("situ serve --config {path} --no-http --value-log-min 64K"), &[]).unwrap();
    assert_eq!(found.iter().map(|(name, ..)| name.as_str()).collect::<Vec<_>>(), ["no-http", "value-log-min"]);
    // Within one source, they are an error.
    let (_directory, path) = file("[serve]\nhttp = '127.0.0.1:9'\nno-http = true\n");
    let error = options_of(&format!("situ serve --config {path}"), &[]).unwrap_err();
    assert!(error.contains("cannot be used with") && error.contains(&path), "{error}");
}

#[test]
fn bad_files_and_variables_are_errors_that_name_the_place() {
    for (text, why) in [
        ("[serve]\nmemmory = 1\n", "line 2: memmory is no option of `situ serve`"),
        ("[serve]\njson = true\n", "line 2: json is no option"),
        ("[serve]\nsync = 1\n", "line 2: sync must be true or false"),
        ("[serve]\n\nmemory = ['1G', '2G']\n", "line 3: memory takes one value, and no list"),
        ("[serve]\nmemory = 1.5\n", "line 2: memory must be a text or a whole number"),
        ("[serve]\nmax-value = 1\nmax_value = 2\n", "line 3: max_value is there twice"),
        ("[serve.memory]\nsize = 1\n", "memory has no value"),
        ("memory = '1G'\n", "line 1: memory is no section"),
        ("[server]\nmemory = '1G'\n", "line 1: server is no section"),
        ("[serve\n", "is no TOML"),
        ("[serve]\nmemory = '12 apples'\n", "invalid value '12 apples' for '--memory"),
        ("[serve]\nflash-size = '1G'\n", "required"),
        ("[serve]\nmemory = -4\n", "invalid value '-4' for '--memory"),
    ] {
        let (_directory, path) = file(text);
        let error = options_of(&format!("situ serve --config {path}"), &[]).unwrap_err();
        assert!(error.contains(why) && error.contains(&path), "{text}: {error}");
    }
    let (_directory, path) = file("[serve]\ndirectory = '--sync'\n");
    let error = options_of(&format!("situ serve --config {path}"), &[]).unwrap_err();
    assert!(error.contains("--sync of directory looks like an option"), "{error}");
    let error = options_of("situ serve --config /nosuch/situ.toml", &[]).unwrap_err();
    assert!(error.contains("/nosuch/situ.toml") && error.contains("No such file"), "{error}");
    let error = options_of("situ serve", &[("SITU_SERVE_MEMMORY", "1G")]).unwrap_err();
    assert!(error.contains("SITU_SERVE_MEMMORY is no option"), "{error}");
    let error = options_of("situ serve", &[("SITU_SERVE_SYNC", "perhaps")]).unwrap_err();
    assert!(error.contains("SITU_SERVE_SYNC must be true or false"), "{error}");
    let error = options_of("situ serve", &[("SITU_SERVE_MEMORY", "12 apples")]).unwrap_err();
    assert!(error.contains("SITU_SERVE_MEMORY"), "{error}");
    // Other commands, and other variables, have nothing to do with it.
    read("situ get k", &[("SITU_SERVE_MEMMORY", "1G")]).unwrap();
    read("situ serve", &[("SITU_OPTIONS", "--sync"), ("SITU_NODE_THREADS", "x")]).unwrap();
    let kubernetes = ["SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_MEMCACHED", "PORT", "PORT_11211_TCP_ADDR"];
    for name in kubernetes {
        read("situ serve", &[(&format!("SITU_SERVE_{name}"), "10.0.0.1")]).unwrap();
    }
}

#[test]
fn a_section_reads_as_what_it_was_made_of() {
    let Chosen::Serve(options) = read("situ serve a\"b --listen 127.0.0.1:1 --sync -m 1G", &[]).unwrap().command else {
        panic!("not serve")
    };
    let text = section("serve", &options.in_force);
    assert!(text.contains("# max-value = \"1M\"\n") && text.contains("sync = true\n"), "{text}");
    let (_directory, path) = file(&text);
    let found = options_of(&format!("situ serve --config {path}"), &[]).unwrap();
    let names: Vec<_> = found.iter().map(|(name, ..)| name.as_str()).collect();
    assert_eq!(names, ["directory", "listen", "sync", "memory"], "{text}");
    assert_eq!(found[0].1, ["a\"b"]);
}

/// An option of a file is found by its name alone.
#[test]
fn options_have_names_of_their_own() {
    for name in CONFIGURABLE {
        let command = command(name);
        let names: Vec<String> = options(&command).map(name_of).collect();
        let distinct: BTreeSet<&String> = names.iter().collect();
        assert_eq!(distinct.len(), names.len(), "{names:?}");
        for argument in options(&command) {
            let simple = matches!(argument.get_action(), ArgAction::Set | ArgAction::SetTrue | ArgAction::Append);
            assert!(simple, "{} has an action that files do not know", name_of(argument));
        }
    }
}
