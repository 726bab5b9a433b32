#!/usr/bin/env bash
# Runs the tests of `make test`, and tells chance from fault: a test that has failed runs once more, alone in a process.
#
#   scripts/tests.sh run LOG COMMAND...   runs `cargo test ... [-- ...]`, appends its output to LOG
#   scripts/tests.sh junit LOG            runs the JUnit tests of java/ over the program that the tests before have built
#   scripts/tests.sh pytest LOG           builds the package for Python in the target directory, and runs its tests there
#   scripts/tests.sh summary LOG          the last lines of `make test`: FLAKY, SKIPPED, and the sums
#   scripts/tests.sh selftest             tries all this on a cargo that only says what cargo would say
#
# The second run has the seed that the first one printed: SITU_SIM_SEED or SITU_TEST_SEED. A test that fails twice fails the run.
# A test that passes then is FLAKY. The summary shows it in a line of its own, which a program can read:
#
#   FLAKY CRATE:TARGET:TEST SEED          FLAKY engine:tests/all/main.rs:rows::a_wait_ends SITU_SIM_SEED=17
#
# SEED is `-` if the test has printed none. What a second run cannot explain fails the run at once: code that does not compile, a
# program that ends without a result (an abort, a signal), a result that does not fit the names of the tests that failed.
set -euo pipefail
SELF=$(realpath "${BASH_SOURCE[0]}")

# One line for each test that failed, with tabs: program, test, seed. A line `?` with a reason for what no test explains.
#
# A program's last words are the list of its failures and then its result. Captured output comes before and may look the same, so the last
# list counts.
failures_in() {
    awk '
        function end_program(    n) {
            if (program == "") return
            if (result == "") printf "?\t%s ended without a result\n", program
            else if (result == "FAILED") {
                if (count != expected) printf "?\t%s names %d of %d failures\n", program, count, expected
                else for (n = 1; n <= count; n++)
                    printf "%s\t%s\t%s\n", program, names[n], (names[n] in seeds ? seeds[names[n]] : "-")
            }
            forget()
        }
        function forget() { program = result = captured = ""; expected = count = listed = 0; delete seeds; delete names; delete list }
        /^     Running .*\(.*\)$/ { end_program(); program = $0; sub(/.*\(/, "", program); sub(/\)$/, "", program); next }
        /^   Doc-tests / { end_program(); program = "doc " $2; next }
        /^---- .* stdout ----$/ { captured = $0; sub(/^---- /, "", captured); sub(/ stdout ----$/, "", captured); next }
        /^failures:$/ { listed = 0; next }
        /^test result: / {
            result = $3; sub(/\.$/, "", result); expected = $6; count = listed
            for (n = 1; n <= listed; n++) names[n] = list[n]
            next
        }
        captured != "" && match($0, /SITU_(SIM|TEST)_SEED=[0-9]+/) { seeds[captured] = substr($0, RSTART, RLENGTH) }
        /^    [^ ]/ { list[++listed] = substr($0, 5) }
        END { end_program() }
    ' "$1"
}

# Where each test program comes from, with tabs: base name, path, folder of its crate, source file of its target. Cargo builds nothing
# for it that is not built.
programs_of() {
    "$@" --no-run --message-format=json 2>/dev/null |
        sed -n 's|.*"manifest_path":"\([^"]*\)/Cargo.toml".*"src_path":"\([^"]*\)".*"executable":"\(\([^"]*/\)*\([^"/]*\)\)".*|\5\t\3\t\1\t\2|p'
}

# Runs one test of a program alone. True if it ran and passed.
passes_alone() {
    local path=$1 folder=$2 test=$3 seed=$4 output
    output=$(mktemp)
    (
        cd "$folder"
        export CARGO_MANIFEST_DIR=$folder
        [ "$seed" = - ] || export "${seed?}"
        "$path" --exact "$test"
    ) >"$output" 2>&1 </dev/null || true
    cat "$output"
    local passed=false
    grep -q '^test result: ok\. 1 passed; 0 failed' "$output" && passed=true
    rm -f "$output"
    $passed
}

# Documentation tests have no program of their own: those of the same file run again. `test` is `FILE - ITEM (line N)`.
passes_among_doc_tests() {
    local test=$1 output passed=false
    shift
    output=$(mktemp)
    "$@" --doc -- "${test%% - *}" >"$output" 2>&1 </dev/null || true
    cat "$output"
    grep -qF "test $test" "$output" && ! failures_in "$output" | cut -f 2 | grep -qxF "$test" &&
        ! grep -q '^error' "$output" && passed=true
    rm -f "$output"
    $passed
}

run() {
    local log=$1 output code=0 argument
    shift
    local build=()
    for argument in "$@"; do
        [ "$argument" != -- ] || break
        build+=("$argument")
    done
    output=$(mktemp)
    "$@" 2>&1 | tee -a "$log" "$output" || code=$?
    [ "$code" != 0 ] || { rm -f "$output"; return 0; }

    local failed programs program test seed found path folder source name all_pass=true
    failed=$(failures_in "$output")
    rm -f "$output"
    if [ -z "$failed" ] || grep -q '^?' <<<"$failed"; then
        sed -n 's/^?\t/no second run explains this: /p' <<<"$failed"
        return "$code"
    fi
    echo "=== what failed runs once more, each test alone"
    programs=$(programs_of "${build[@]}")
    while IFS=$'\t' read -r program test seed; do
        if [ "${program#doc }" != "$program" ]; then
            name="${program#doc }:doc:${test// /_}"
            passes_among_doc_tests "$test" "${build[@]}" && found=true || found=false
        else
            IFS=$'\t' read -r path folder source < <(
                awk -F '\t' -v name="$(basename "$program")" '$1 == name { print $2 "\t" $3 "\t" $4 }' <<<"$programs"
            ) || { echo "no second run: cargo does not name $program"; all_pass=false; continue; }
            name="$(basename "$folder"):${source#"$folder"/}:$test"
            passes_alone "$path" "$folder" "$test" "$seed" && found=true || found=false
        fi
        if $found; then
            echo "FLAKY $name $seed" | tee -a "$log"
        else
            echo "FAILED TWICE $name $seed"
            all_pass=false
        fi
    done <<<"$failed"
    $all_pass || return "$code"
}

# The lines of `summary` from what Maven says: a result in the form of cargo, and FLAKY for what has passed in its second run only.
junit_result() {
    awk '
        /^\[[A-Z]+\] Flakes: *$/ { flakes = 1; next }
        flakes && /^\[WARNING\] [^ ]+\./ && !/Tests run:/ {
            name = substr($0, 11); gsub(" ", "_", name); class = name; sub(/\(.*/, "", class); sub(/\.[^.]*$/, "", class)
            print "FLAKY java:" class ":" substr(name, length(class) + 2) " -"
        }
        # One line for each module. $12 is the number of flakes, where there are any.
        /^\[[A-Z]+\] Tests run: [0-9, A-Za-z:]*$/ { gsub(",", ""); run += $4; failed += $6 + $8 + $12; skipped += $10; flakes = 0 }
        END {
            if (run == "") exit 1
            printf "test result: %s. %d passed; %d failed; %d ignored\n", failed ? "FAILED" : "ok", run - failed - skipped, failed, skipped
        }
    ' "$1"
}

# Maven asks the network only for what its repository lacks: the files `pom.xml` name every version.
junit() {
    local log=$1 java=${JAVA_HOME:+$JAVA_HOME/bin/}java why= version target output code=0
    version=$("$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p') || true
    command -v mvn >/dev/null || why='mvn is missing (Debian, Ubuntu: sudo apt-get install maven)'
    [ "${version:-0}" -ge 22 ] || why="${why:+$why, and }${version:+JDK $version is older than 22: }JAVA_HOME has to name a JDK from 22 on"
    target=$(cargo metadata --format-version 1 --no-deps --locked | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
    [ -f "$target/debug/libsitu.so" ] || why="${why:+$why, and }the tests of situ-c have to build libsitu.so first"
    [ -z "$why" ] || { echo "SKIPPED: the JUnit tests of java/: $why" | tee -a "$log"; return 0; }
    output=$(mktemp)
    mvn -B --fail-at-end -Dstyle.color=never -Dsurefire.rerunFailingTestsCount=1 "-Dsitu.program=$target/debug/situ" \
        "-Dsitu.library=$target/debug" -f java test 2>&1 |
        sed 's/\x1b\[0m//g' | tee -a "$log" "$output" || code=$?
    if junit_result "$output" | tee -a "$log"; then
        :
    elif why=$(grep -m 1 -E 'Could not (transfer|resolve)' "$output"); then
        echo "SKIPPED: the JUnit tests of java/: Maven cannot fetch what they need" | tee -a "$log"
        code=0
    fi
    rm -f "$output"
    return "$code"
}

# The line of `summary` from the last line of pytest: `2 failed, 5 passed, 1 skipped in 3.01s`.
pytest_result() {
    awk '
        /^[0-9]+ [a-z]+.* in [0-9.]+s/ { line = $0 }
        END {
            if (line == "") exit 1
            sub(/ in [0-9.]+s.*/, "", line)
            for (n = split(line, parts, ", "); n > 0; n--) { split(parts[n], part, " "); count[part[2]] = part[1] }
            failed = count["failed"] + count["error"] + count["errors"]
            printf "test result: %s. %d passed; %d failed; %d ignored\n", failed ? "FAILED" : "ok", count["passed"], failed, count["skipped"]
        }
    ' "$1"
}

# pip asks the network only if the environment lacks pytest. `python/` stays as it is.
pytest() {
    local log=$1 why= said target build folder output code=0
    target=$(cargo metadata --format-version 1 --no-deps --locked | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
    folder=$target/python
    if ! python3 -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 9))' 2>/dev/null; then
        why='python3 3.9 or later with venv is missing (Debian, Ubuntu: sudo apt-get install python3-venv)'
    elif ! "$folder/venv/bin/python" -m pytest --version >/dev/null 2>&1; then
        said=$(python3 -m venv --clear "$folder/venv" 2>&1 && "$folder/venv/bin/python" -m pip install -q pytest 2>&1) ||
            why="pytest cannot be installed: $(tail -n 1 <<<"$said")"
        # Only for a check of the stubs, which says that it is skipped without it.
        [ -n "$why" ] || "$folder/venv/bin/python" -m pip install -q mypy >/dev/null 2>&1 || true
    fi
    [ -z "$why" ] || { echo "SKIPPED: the tests of the Python package: $why" | tee -a "$log"; return 0; }
    # `make test` has built it.
    [ -n "${SITU_LIBRARIES:-}" ] || cargo build --locked -p situ-python || return
    rm -rf "$folder/package"
    mkdir -p "$folder/package"
    cp -r python/src/situ "$folder/package"
    cp "$target/debug/lib_situ.so" "$folder/package/situ/_situ.abi3.so"
    run_pytest() {
        PYTHONPATH="$folder/package" PYTHONDONTWRITEBYTECODE=1 timeout 600 "$folder/venv/bin/python" -m pytest -q -rfEs --tb=short \
            -o cache_dir="$folder/cache" -o faulthandler_timeout=120 "$@" python/tests 2>&1
    }
    output=$(mktemp)
    run_pytest | tee -a "$log" "$output" || code=$?
    pytest_result "$output" | tee -a "$log" || true
    if [ "$code" = 1 ]; then
        echo "=== what failed runs once more"
        if run_pytest --last-failed; then
            code=0
            sed -nE 's/^(FAILED|ERROR) python\/([^:]*)::(.*)/\2:\3/p' "$output" | sed -e 's/ - .*//' -e 's/ /_/g' -e 's/.*/FLAKY python:& -/' | tee -a "$log"
        fi
    fi
    rm -f "$output"
    return "$code"
}

# What was flaky has passed.
summary() {
    awk '
        /^test result:/ { passed += $4; failed += $6 }
        /^FLAKY / { flaky[++flakies] = $0; passed++; failed-- }
        sub(/.*SKIPPED: /, "SKIPPED: ") && !seen[$0]++ { skipped[++count] = $0 }
        END {
            for (i = 1; i <= flakies; i++) print flaky[i]
            for (i = 1; i <= count; i++) print skipped[i]
            printf "%d passed, %d failed, %d kinds of things skipped\n", passed, failed, count
        }
    ' "$1"
}

# A cargo with two test programs and documentation tests. `once` fails while the file `first` is there, `always` at all times. It takes
# the file away, so that the second run finds another world.
selftest() {
    local folder failures=0 said code
    folder=$(mktemp -d)
    trap "rm -rf '$folder'" EXIT
    mkdir -p "$folder/crates/a"
    cat >"$folder/a-123" <<EOF
#!/usr/bin/env bash
[ "\$1" = --exact ] || exit 9
echo "alone in \$PWD with \${SITU_SIM_SEED:-no seed}: \$2" >>"$folder/alone"
case "\$2" in
deep::once | 'deep::once_more') echo 'test result: ok. 1 passed; 0 failed; 0 ignored' ;;
deep::gone) echo 'test result: ok. 0 passed; 0 failed; 0 ignored; 9 filtered out' ;;
*) echo 'test result: FAILED. 0 passed; 1 failed'; exit 101 ;;
esac
EOF
    cat >"$folder/cargo" <<EOF
#!/usr/bin/env bash
case " \$* " in
*" --message-format=json "*)
    echo '{"reason":"build-script-executed"}'
    echo '{"reason":"compiler-artifact","package_id":"x","manifest_path":"$folder/crates/a/Cargo.toml","target":{"kind":["test"],"name":"all","src_path":"$folder/crates/a/tests/all/main.rs"},"executable":"$folder/a-123","fresh":true}' ;;
*" --doc "*)
    echo '   Doc-tests a'
    echo 'test crates/a/src/lib.rs - Thing (line 3) ... ok'
    echo 'test result: ok. 1 passed; 0 failed; 0 ignored' ;;
*) cat "$folder/says"; exit 101 ;;
esac
EOF
    chmod +x "$folder/a-123" "$folder/cargo"

    # Runs, with what cargo says on standard input: exit code, and last lines.
    try() {
        cat >"$folder/says"
        rm -f "$folder/log" "$folder/alone"
        touch "$folder/log" "$folder/alone"
        code=0
        run "$folder/log" "$folder/cargo" test --workspace -- --skip alone:: >"$folder/output" 2>&1 || code=$?
        said=$(summary "$folder/log")
    }
    expect() {
        if [ "$2" != "$3" ]; then
            printf '%s:\n  wanted %s\n  found  %s\n' "$1" "$3" "$2"
            sed 's/^/    /' "$folder/output"
            failures=$((failures + 1))
        fi
    }
    local head='     Running tests/all/main.rs (target/debug/deps/a-123)'

    try <<EOF
$head
SKIPPED: no memcached
failures:

---- deep::once stdout ----
failures:
    a::child::of::the::test
test result: FAILED. 0 passed; 1 failed; 0 ignored
failed with seed 17; replay with SITU_SIM_SEED=17
note: run with backtrace
    indented words of a panic

---- deep::once_more stdout ----
without a seed

failures:
    deep::once
    deep::once_more

test result: FAILED. 5 passed; 2 failed; 0 ignored

   Doc-tests a
failures:

---- crates/a/src/lib.rs - Thing (line 3) stdout ----

failures:
    crates/a/src/lib.rs - Thing (line 3)

test result: FAILED. 1 passed; 1 failed; 0 ignored
error: 2 targets failed
EOF
    expect "what passes alone passes" "$code" 0
    expect "seeds and folders are those of the first run" "$(cat "$folder/alone")" \
        "alone in $folder/crates/a with 17: deep::once
alone in $folder/crates/a with no seed: deep::once_more"
    # The result that a test's child has printed counts as well, as it did before.
    expect "the last lines" "$said" "FLAKY a:tests/all/main.rs:deep::once SITU_SIM_SEED=17
FLAKY a:tests/all/main.rs:deep::once_more -
FLAKY a:doc:crates/a/src/lib.rs_-_Thing_(line_3) -
SKIPPED: no memcached
9 passed, 1 failed, 1 kinds of things skipped"

    for test in deep::always deep::gone; do
        try <<<"$head
failures:
    $test
    deep::once

test result: FAILED. 5 passed; 2 failed; 0 ignored"
        expect "$test fails twice" "$code" 101
        expect "$test is counted" "$said" "FLAKY a:tests/all/main.rs:deep::once -
6 passed, 1 failed, 0 kinds of things skipped"
    done

    try <<<"$head
running 3 tests
error: test failed
Caused by: process didn't exit successfully (signal: 6, SIGABRT)"
    expect "a program without a result" "$code $(wc -l <"$folder/alone")" "101 0"
    try <<<"error: could not compile a"
    expect "code that does not compile" "$code" 101
    try <<<"$head
failures:
    deep::once

test result: FAILED. 5 passed; 2 failed; 0 ignored"
    expect "a list that is cut short" "$code $(wc -l <"$folder/alone")" "101 0"
    printf '#!/bin/sh\necho "test result: ok. 4 passed; 0 failed"\n' >"$folder/cargo"
    try </dev/null
    expect "what passes" "$code $said" "0 4 passed, 0 failed, 0 kinds of things skipped"

    # A Maven and a Java that say what theirs would say. Maven ends its output with a change of colour and no line end.
    local words='[INFO] Results:'
    mkdir "$folder/jdk" "$folder/jdk/bin"
    printf '#!/bin/sh\necho "openjdk version \\"%s.0.1\\"" >&2\n' "\$(cat '$folder/jdk/version')" >"$folder/jdk/bin/java"
    printf '#!/bin/sh\ncat "%s/says"; printf "\\033[0m"; exit $(cat "%s/code")\n' "$folder" "$folder" >"$folder/mvn"
    chmod +x "$folder/jdk/bin/java" "$folder/mvn"
    printf '#!/bin/sh\necho {\\"target_directory\\":\\"%s/target\\"}\n' "$folder" >"$folder/cargo"
    mkdir -p "$folder/target/debug" && touch "$folder/target/debug/libsitu.so"
    try_junit() {
        cat >"$folder/says"
        echo "$1" >"$folder/jdk/version"
        echo "$2" >"$folder/code"
        : >"$folder/log"
        code=0
        JAVA_HOME=$folder/jdk PATH="$folder:$PATH" "$SELF" junit "$folder/log" >"$folder/output" 2>&1 || code=$?
        said=$(summary "$folder/log")
    }
    try_junit 17 0 </dev/null
    expect "an old JDK" "$code $said" "0 SKIPPED: the JUnit tests of java/: JDK 17 is older than 22: JAVA_HOME has to name a JDK from 22 on
0 passed, 0 failed, 1 kinds of things skipped"
    try_junit 25 0 <<<"SKIPPED: no memcached
[INFO] Tests run: 4, Failures: 0, Errors: 0, Skipped: 0, Time elapsed: 1 s -- in io.situ.ATest
$words
[WARNING] Flakes: 
[WARNING] io.situ.ATest.once
[ERROR]   Run 1: ATest.once:3 expected: <1> but was: <2>
[INFO]   Run 2: PASS
[INFO] 
[WARNING] Tests run: 9, Failures: 0, Errors: 0, Skipped: 2, Flakes: 1"
    expect "JUnit tests, one of them flaky" "$code $said" "0 FLAKY java:io.situ.ATest:once -
SKIPPED: no memcached
7 passed, 0 failed, 1 kinds of things skipped"
    try_junit 25 1 <<<"$words
[INFO] Tests run: 5, Failures: 0, Errors: 0, Skipped: 1
[ERROR] Tests run: 9, Failures: 1, Errors: 2, Skipped: 0"
    expect "JUnit tests of two modules, of which one fails" "$code $said" "1 10 passed, 3 failed, 0 kinds of things skipped"
    try_junit 25 1 <<<"[ERROR] Could not transfer artifact org.junit:x from/to central: Unknown host"
    expect "no network" "$code $said" "0 SKIPPED: the JUnit tests of java/: Maven cannot fetch what they need
0 passed, 0 failed, 1 kinds of things skipped"
    try_junit 25 1 <<<"[ERROR] COMPILATION ERROR"
    expect "Java that does not compile" "$code $said" "1 0 passed, 0 failed, 0 kinds of things skipped"

    # A Python that says what pytest would say: `says` at first, `again` the second time.
    mkdir -p "$folder/t/python/venv/bin" "$folder/t/debug"
    touch "$folder/t/debug/lib_situ.so"
    printf '#!/bin/sh\ncase "$1" in metadata) echo {\\"target_directory\\":\\"%s\\"} ;; esac\n' "$folder/t" >"$folder/cargo"
    printf '#!/bin/sh\nexit $(cat "%s/python-is-missing")\n' "$folder" >"$folder/python3"
    cat >"$folder/t/python/venv/bin/python" <<EOF
#!/bin/sh
case " \$* " in
*" --version "*) exit 0 ;;
*" --last-failed "*) cat "$folder/again"; grep -q failed "$folder/again" && exit 1 || exit 0 ;;
*) cat "$folder/says"; exit \$(cat "$folder/code") ;;
esac
EOF
    chmod +x "$folder/python3" "$folder/t/python/venv/bin/python"
    try_pytest() {
        cat >"$folder/says"
        echo "$1" >"$folder/python-is-missing"
        echo "$2" >"$folder/code"
        echo "$3" >"$folder/again"
        : >"$folder/log"
        code=0
        PATH="$folder:$PATH" "$SELF" pytest "$folder/log" >"$folder/output" 2>&1 || code=$?
        said=$(summary "$folder/log")
    }
    try_pytest 1 0 '' </dev/null
    expect "no Python" "$code $said" "0 SKIPPED: the tests of the Python package: python3 3.9 or later with venv is missing (Debian, Ubuntu: sudo apt-get install python3-venv)
0 passed, 0 failed, 1 kinds of things skipped"
    try_pytest 0 0 '' <<<"SKIPPED [1] python/tests/test_stubs.py:9: SKIPPED: stubtest: mypy is not installed
5 passed, 1 skipped in 3.01s"
    expect "pytest" "$code $said" "0 SKIPPED: stubtest: mypy is not installed
5 passed, 0 failed, 1 kinds of things skipped"
    local failed="FAILED python/tests/test_a.py::test_b[put, synced] - assert 1
2 failed, 5 passed in 61.02s (0:01:01)"
    try_pytest 0 1 '1 passed in 1s' <<<"$failed"
    expect "a flaky test of pytest" "$code $said" "0 FLAKY python:tests/test_a.py:test_b[put,_synced] -
6 passed, 1 failed, 0 kinds of things skipped"
    try_pytest 0 1 '2 failed in 1s' <<<"$failed"
    expect "pytest fails twice" "$code $said" "1 5 passed, 2 failed, 0 kinds of things skipped"
    try_pytest 0 2 '' <<<"ERROR: usage"
    expect "pytest does not run" "$code $said" "2 0 passed, 0 failed, 0 kinds of things skipped"

    [ "$failures" = 0 ] || exit 1
    echo "scripts/tests.sh: the selftest has passed"
}

case "${1:-}" in
run | junit | pytest | summary) "$@" ;;
selftest) selftest ;;
*) sed -n '2,/^set /{ /^set /d; s/^# \{0,1\}//p; }' "$0"; exit 2 ;;
esac
