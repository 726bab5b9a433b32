//! The page that draws the picture: one file, with its style and its script inside.
//!
//! The page draws on a canvas: thousands of bars move with the time. Its table has the same in words.
//!
//! **Safe**: the browser runs the script and the style whose hashes the headers name, and nothing else. The page may
//! ask this server only, and no other page may frame it. All that the server says becomes text, never markup.
//!
//! Rejected: a drawing made by the server, as of `situ bench report`. The browser would fetch the whole drawing each
//! second.

/// See the module.
pub(crate) const PAGE: &str = concat!(
    "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
     <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
     <title>Situ: compactions</title><link rel=\"icon\" href=\"data:,\">\n<style>",
    include_str!("style.css"),
    "</style></head>\n<body>\n",
    include_str!("page.html"),
    "<script>",
    include_str!("script.js"),
    "</script></body></html>\n"
);

/// The page's headers. The test below says what the hashes have to be after a change of the page.
pub(crate) const HEADERS: &str = "Content-Security-Policy: default-src 'none'; \
     script-src 'sha256-1zbFORBMDR1JXK4WnGjc/FB/taAoLcvNd8ExiMwz5A4='; \
     style-src 'sha256-rvxj97vo0hMZJBc/7HMZP4n5+yDPlrus+PvfNPNSJ0o='; \
     connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n\
     Referrer-Policy: no-referrer\r\n";
