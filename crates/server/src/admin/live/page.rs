//! The page that draws the picture: one file, with its style and its scripts inside.
//!
//! 1. `live.js` asks once a second, and draws charts, levels and gauges. It asks nothing while the page is hidden.
//! 2. `compactions.js` draws the compactions of the same answers: thousands of bars that move with the time.
//!
//! **Safe**: the browser runs the scripts and the style whose hashes the headers name, and nothing else. The page may
//! ask this server only, and no other page may frame it. All that the server says becomes text, never markup.
//!
//! Rejected: a drawing made by the server, as of `situ bench report`. The browser would fetch the whole drawing each
//! second.

/// See the module.
pub(crate) const PAGE: &str = concat!(
    "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
     <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
     <title>Situ</title><link rel=\"icon\" href=\"data:,\">\n<style>",
    include_str!("style.css"),
    "</style></head>\n<body>\n",
    include_str!("live.html"),
    include_str!("compactions.html"),
    include_str!("foot.html"),
    "<script>",
    include_str!("compactions.js"),
    "</script>\n<script>",
    include_str!("live.js"),
    "</script></body></html>\n"
);

/// The page's headers. The test below says what the hashes have to be after a change of the page.
pub(crate) const HEADERS: &str = "Content-Security-Policy: default-src 'none'; \
     script-src 'sha256-U8H3GEA7x6uZjPGppphXF0i0jhrXSbwLXgON5NDS4KM=' \
     'sha256-rmKGDv00FZDDNq9ZrqSsmMT+kVem485D21HczbUnrgw='; \
     style-src 'sha256-pZcur3kayYOK0Of9O+pOR2hJ0lEgb2tZt9123d9o8Ec='; \
     connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n\
     Referrer-Policy: no-referrer\r\n";
