#!/usr/bin/env bash
# Lists sentences of more than 25 words in the pages that people read first. Code blocks, tables and headings are left out.
#
#   scripts/prose.sh             README.md, docs/*.md, docs/rooms/*.md, docs/guide/*.md, docs/formats/*.md
#   scripts/prose.sh FILE ...    these pages
#   WORDS=20 scripts/prose.sh    another limit
#
# Ends with exit code 1 if there is such a sentence. A sentence ends at . ? or ! before a space, and at the end of a
# paragraph or a list item. A word is what lies between spaces and has a letter or a digit; a piece of code (`a b c`)
# and the text of a link count as one word each. So the count is a guess, and a long list is a finding to look at, not a fault.
set -eu

cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- README.md docs/*.md docs/rooms/*.md docs/guide/*.md docs/formats/*.md

awk -v most="${WORDS:-25}" '
    function check(text, at,    n, i, words, count, word, sentences, pieces) {
        gsub(/`[^`]*`/, "code", text)
        gsub(/\]\([^)]*\)/, "", text)
        gsub(/[_\[]/, "", text)
        # Abbreviations and ellipses end nothing.
        gsub(/et al\./, "et al", text)
        gsub(/\.\.\./, "", text)
        gsub(/[.?!]+[)"*]*( |$)/, "&\n", text)
        n = split(text, sentences, "\n")
        for (i = 1; i <= n; i++) {
            count = split(sentences[i], pieces, " ")
            words = 0
            for (word = 1; word <= count; word++) if (pieces[word] ~ /[[:alnum:]]/) words++
            if (words > most) { printf "%s:%d: %d words: %s\n", file, at, words, sentences[i]; found = 1 }
        }
    }
    function flush() { if (paragraph != "") check(paragraph, begin); paragraph = "" }
    FNR == 1 { flush(); code = 0 }
    /^[ >]*```/ { flush(); code = !code; next }
    code { next }
    /^ *(\||#|<!--|$)/ { flush(); next }
    /^ *([-*]|[0-9]+\.) / { flush(); sub(/^ *([-*]|[0-9]+\.) /, "") }
    paragraph == "" { begin = FNR; file = FILENAME }
    { sub(/^ +/, ""); paragraph = paragraph == "" ? $0 : paragraph " " $0 }
    END { flush(); exit found }
' "$@"
