use super::*;

/// The browser runs what the headers name, and nothing else.
#[test]
fn the_headers_name_the_hashes_of_script_and_style() {
    for (tag, source) in [
        ("script", include_str!("live.js")),
        ("script", include_str!("compactions.js")),
        ("style", include_str!("style.css")),
    ] {
        assert!(PAGE.contains(&format!("<{tag}>{source}</{tag}>")));
        assert!(!source.contains("</"), "{tag} would end early");
        let digest = ring::digest::digest(&ring::digest::SHA256, source.as_bytes());
        let hash = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, digest);
        let sources =
            PAGE_HEADERS.split(&format!("{tag}-src ")).nth(1).and_then(|rest| rest.split(';').next()).unwrap();
        assert!(sources.contains(&format!("'sha256-{hash}'")), "{tag}-src has 'sha256-{hash}'");
    }
    assert!(PAGE_HEADERS.ends_with("\r\n") && !PAGE_HEADERS.contains("unsafe"));
}

/// A page that fetched something from elsewhere would not work offline, and would tell others of the store.
#[test]
fn the_page_is_one_file_and_small() {
    assert!(PAGE.len() < 128 << 10, "{}", PAGE.len());
    // The name of a namespace is no address.
    let page = PAGE.replace("http://www.w3.org/2000/svg", "");
    for outside in ["http:", "https:", "//cdn", "@import", "url(", "src=", " style=", "innerHTML", "onclick", "eval("] {
        assert!(!page.contains(outside), "{outside}");
    }
}
