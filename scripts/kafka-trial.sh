#!/usr/bin/env bash
# Runs a program of java/kafka-trial over a broker of its own: scripts/kafka-trial.sh Kills situ 120 1
# SITU_LIBRARY is the directory of libsitu.so; otherwise it is where cargo puts release builds. JAVA_OPTIONS are options of java.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
java=${JAVA_HOME:+$JAVA_HOME/bin/}java
version=$("$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p')
[ "${version:-0}" -ge 22 ] || { echo "JAVA_HOME has to name a JDK from 22 on" >&2; exit 1; }
target=$(cargo metadata --format-version 1 --no-deps --locked | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
library=${SITU_LIBRARY:-$target/release}
[ -f "$library/libsitu.so" ] || { echo "there is no $library/libsitu.so: cargo build --release -p situ-c" >&2; exit 1; }
modules=store,kafka-streams,kafka-trial
mvn -q -B -f java -Ptrial -Dmaven.test.skip package -pl "$modules" \
    dependency:build-classpath -Dmdep.outputFile=target/classpath
classes=java/kafka-trial/target/classes:java/kafka-streams/target/classes:java/store/target/classes
libraries=$(tr : '\n' <java/kafka-trial/target/classpath | grep -v '/io/situ/\|situ-store\|situ-kafka' | paste -sd:)
# shellcheck disable=SC2086 -- several options
exec "$java" --enable-native-access=ALL-UNNAMED -Xmx512m ${JAVA_OPTIONS:-} "-Dsitu.library=$library" \
    -cp "$classes:$libraries" "io.situ.kafka.trial.$1" "${@:2}"
