"use strict";
// Asks the server for its counters once a second, makes rates and percentiles of the differences, and draws them. Nothing is asked while the page is
// hidden or paused. All text of the server goes to the page as text, never as markup.
(function () {
  var KEPT_MAX = 900, ASK_MS = 1000, REST_MS_MAX = 10000, LEFT = 58, RIGHT = 8, TOP = 8, BOTTOM = 20;
  var CLASSES = ["read", "store", "delete", "arithmetic", "touch", "other"], INKS = { read: "read", store: "write", delete: "bad", arithmetic: "odd", touch: "slow", other: "unknown" };
  var byId = function (id) { return document.getElementById(id); };
  var points = [], last = null, live = null, longest = 300, shown = 60, paused = false, rest = ASK_MS, turn = 0, timer = 0, pointed = null, colours = {};

  // ---- figures as text
  function scaled(n, names, base) { var i = 0; while (n >= base && i < names.length - 1) { n /= base; i++; } return (i === 0 ? (n > 0 && n < 10 && n % 1 ? n.toFixed(1) : Math.round(n)) : n >= 100 ? Math.round(n) : n.toFixed(1)) + names[i]; }
  function bytes(n) { return scaled(n, [" B", " KiB", " MiB", " GiB", " TiB", " PiB"], 1024); }
  function brief(n) { return scaled(n, ["", " k", " M", " G", " T"], 1000); }
  function count(n) { return Math.round(n).toLocaleString("en"); }
  function time(s) { return s === null ? "–" : s === 0 ? "0" : s < 1e-3 ? (s * 1e6 < 10 ? (s * 1e6).toFixed(1) : Math.round(s * 1e6)) + " µs" : s < 1 ? (s * 1e3).toFixed(s < 1e-2 ? 2 : s < 1e-1 ? 1 : 0) + " ms" : s.toFixed(s < 10 ? 2 : 1) + " s"; }
  function age(s) { return s < 120 ? Math.floor(s) + " s" : s < 7200 ? Math.floor(s / 60) + " min" : s < 172800 ? Math.floor(s / 3600) + " h" : Math.floor(s / 86400) + " days"; }
  function percent(share) { return share === null ? "–" : (100 * share).toFixed(share > 0 && share < 0.1 || share > 0.99 && share < 1 ? 1 : 0) + "%"; }

  // ---- elements
  function add(parent, tag, text, kind) {
    var child = document.createElement(tag);
    if (text !== undefined && text !== null) child.textContent = text;
    if (kind) child.className = kind;
    parent.appendChild(child);
    return child;
  }
  function clear(parent) { while (parent.firstChild) parent.removeChild(parent.firstChild); }
  function draw(parent, tag, attributes, text) {
    var child = document.createElementNS("http://www.w3.org/2000/svg", tag);
    Object.keys(attributes).forEach(function (name) { child.setAttribute(name, attributes[name]); });
    if (text !== undefined) child.textContent = text;
    parent.appendChild(child);
    return child;
  }

  // ---- metrics of an answer
  function samples(answer, name) { return answer.metrics[name] || []; }
  function value(answer, name) { var found = samples(answer, name)[0]; return found && found.value !== null ? found.value : null; }
  function has(name) { return live !== null && value(live, name) !== null; }
  function gauge(name) { return value(live, name) || 0; }
  function sum(answer, name) { return samples(answer, name).reduce(function (sum, sample) { return sum + (sample.value || 0); }, 0); }
  /** Returns the sum of the samples whose label has this value. */
  function sumOf(answer, name, label, wanted) { return samples(answer, name).reduce(function (sum, sample) { return sum + (sample.labels && sample.labels[label] === wanted ? sample.value || 0 : 0); }, 0); }
  function rate(name) { return function (a, b, dt) { return value(b, name) === null ? null : Math.max(0, sum(b, name) - sum(a, name)) / dt; }; }
  function diskRate(name, disk) { return function (a, b, dt) { return samples(b, name).length ? Math.max(0, sumOf(b, name, "disk", disk) - sumOf(a, name, "disk", disk)) / dt : null; }; }
  function share(part, others) { return function (a, b) { var hits = sum(b, part) - sum(a, part), all = hits + sum(b, others) - sum(a, others); return all > 0 ? hits / all : null; }; }
  var RATES = {
    received: rate("situ_server_read_bytes_total"), sent: rate("situ_server_written_bytes_total"), hits: share("situ_server_get_hits_total", "situ_server_get_misses_total"),
    blocks: share("situ_store_cache_hits_total", "situ_store_cache_misses_total"), stalled: rate("situ_store_stall_seconds_total"), stops: rate("situ_store_write_stops_total"),
    flushed: rate("situ_store_flush_bytes_written_total"), compacted: rate("situ_store_compaction_bytes_written_total"), pages: rate("situ_store_log_pages_written_total"), syncs: rate("situ_store_log_syncs_total"),
    accepted: rate("situ_store_bytes_written_total"), diskReads: rate("situ_server_disk_reads_total"), evicted: rate("situ_cache_evicted_total"), flashWritten: rate("situ_cache_flash_written_bytes_total"), flashHits: rate("situ_cache_flash_hits_total"),
    bucketWrites: rate("situ_hash_bucket_writes_total"), bucketReads: rate("situ_hash_bucket_reads_total"), splits: rate("situ_hash_splits_total"),
    fastRead: diskRate("situ_store_disk_read_bytes_total", "fast"), fastWritten: diskRate("situ_store_disk_written_bytes_total", "fast"),
    capacityRead: diskRate("situ_store_disk_read_bytes_total", "capacity"), capacityWritten: diskRate("situ_store_disk_written_bytes_total", "capacity")
  };
  function differences(a, b, classes) {
    return b.latencies[classes[0]].buckets.map(function (_, at) {
      return classes.reduce(function (sum, name) { return sum + b.latencies[name].buckets[at] - a.latencies[name].buckets[at]; }, 0);
    });
  }
  /** Returns the latency in seconds below which a share of the commands lies; a bucket ends at twice its beginning. */
  function quantile(buckets, share) {
    var all = buckets.reduce(function (sum, n) { return sum + n; }, 0), left = share * all;
    if (all <= 0) return null;
    for (var at = 0; at < buckets.length; at++) {
      if (buckets[at] >= left && buckets[at] > 0) return Math.pow(2, at - 1 + left / buckets[at]) / 1e6;
      left -= buckets[at];
    }
    return Math.pow(2, buckets.length - 1) / 1e6;
  }
  function point(a, b) {
    var dt = (b.uptime_us - a.uptime_us) / 1e6, made = { at: b.uptime_us / 1e6, unix: b.unix_ms, dt: dt, classes: {}, all: 0 };
    CLASSES.forEach(function (name) {
      made.classes[name] = differences(a, b, [name]).reduce(function (sum, n) { return sum + n; }, 0) / dt;
      made.all += made.classes[name];
    });
    [["reads", ["read"]], ["writes", ["store", "delete", "arithmetic", "touch"]]].forEach(function (it) {
      var buckets = differences(a, b, it[1]);
      made[it[0]] = { buckets: buckets, total: buckets.reduce(function (sum, n) { return sum + n; }, 0), p50: quantile(buckets, 0.5), p99: quantile(buckets, 0.99), p999: quantile(buckets, 0.999) };
    });
    Object.keys(RATES).forEach(function (name) { made[name] = RATES[name](a, b, dt); });
    return made;
  }
  function take(answer) {
    if (last && answer.uptime_us <= last.uptime_us) { points = []; last = null; }
    live = answer;
    // An answer for more compactions follows the last one at once: too short a time for rates.
    if (last && answer.uptime_us - last.uptime_us < 2e5) return;
    if (last) points.push(point(last, answer));
    if (points.length > KEPT_MAX) points.splice(0, points.length - KEPT_MAX);
    last = answer;
  }

  // ---- questions
  /** Asks for what is new, and again when it is time. Each call ends what the one before has under way. */
  function ask() {
    var mine = ++turn;
    clearTimeout(timer);
    if (paused || document.hidden) return;
    fetch("live.json?since=" + compactionsPart.since(), { cache: "no-store" }).then(function (answer) {
      if (!answer.ok) return answer.text().then(function (text) { throw new Error(text || answer.statusText); });
      return answer.json();
    }).then(function (answer) {
      if (mine !== turn || paused) return;
      take(answer);
      var more = answer.compactions ? compactionsPart.take(answer.compactions) : false;
      byId("compactions").hidden = !answer.compactions;
      rest = ASK_MS;
      say(); show();
      timer = setTimeout(ask, more ? 0 : rest);
    }).catch(function (error) {
      if (mine !== turn) return;
      rest = Math.min(2 * rest, REST_MS_MAX);
      say(String(error.message || error));
      timer = setTimeout(ask, rest);
    });
  }
  function engine() { return has("situ_hash_buckets") ? "hash store" : has("situ_cache_items") ? "cache" : has("situ_store_last_sequence") ? "ordered store" : "store"; }
  function say(trouble) {
    var state = byId("state");
    if (trouble) state.textContent = "no answer (" + trouble.slice(0, 200).trim() + "), the next try is in " + rest / 1000 + " s";
    else if (paused) state.textContent = "paused";
    else state.textContent = engine() + ", version " + live.version + ", up for " + age(live.uptime_us / 1e6);
    state.className = trouble ? "lost" : paused ? "" : "live";
    byId("trouble").hidden = !live || !live.trouble;
    if (live && live.trouble) byId("trouble").textContent = live.trouble;
  }

  // ---- canvases
  function readColours() {
    var style = getComputedStyle(document.documentElement);
    ["card", "ink", "soft", "grid", "lane", "read", "merge", "write", "unknown", "bad", "odd", "slow", "good", "fast", "capacity", "rest"].forEach(function (name) { colours[name] = style.getPropertyValue("--" + name).trim(); });
  }
  function sheet(id) {
    var canvas = byId(id), scale = devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
    if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) { canvas.width = Math.round(width * scale); canvas.height = Math.round(height * scale); }
    var pen = canvas.getContext("2d");
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, width, height);
    pen.font = '11px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif';
    pen.textBaseline = "middle";
    pen.lineJoin = "round";
    var end = points.length ? points[points.length - 1].at : 0;
    return { pen: pen, width: width, height: height, end: end, x: function (at) { return LEFT + (width - LEFT - RIGHT) * (1 - (end - at) / shown); } };
  }
  function visible() { var end = points.length ? points[points.length - 1].at : 0; return points.filter(function (it) { return it.at > end - shown; }); }
  function niceBytes(most) { return Math.pow(1024, Math.floor(Math.log(most) / Math.log(1024))) * [1, 2, 4, 10, 20, 40, 100, 200, 400, 1024].filter(function (n) { return n >= most / Math.pow(1024, Math.floor(Math.log(most) / Math.log(1024))); })[0]; }
  function nice(most) { var power = Math.pow(10, Math.floor(Math.log10(most))), f = most / power; return (f <= 1 ? 1 : f <= 2 ? 2 : f <= 5 ? 5 : 10) * power; }
  function two(n) { return (n < 10 ? "0" : "") + n; }
  function axisOfTime(on, foot) {
    var pen = on.pen, step = shown <= 90 ? 15 : shown <= 150 ? 30 : shown <= 300 ? 60 : 180, newest = points[points.length - 1];
    if (!newest) return;
    pen.textAlign = "center"; pen.fillStyle = colours.soft;
    // Steps are whole by the wall clock of the reader.
    for (var unix = Math.floor(newest.unix / 1000 / step) * step; ; unix -= step) {
      var at = on.end - (newest.unix / 1000 - unix), date = new Date(unix * 1000);
      if (at < on.end - shown) break;
      var x = on.x(at);
      pen.fillStyle = colours.grid; pen.fillRect(Math.round(x), TOP, 1, foot - TOP);
      pen.fillStyle = colours.soft;
      if (x > LEFT + 16 && x < on.width - 20) pen.fillText(two(date.getHours()) + ":" + two(date.getMinutes()) + (step < 60 ? ":" + two(date.getSeconds()) : ""), x, foot + 11);
    }
    pen.textAlign = "left";
  }
  function cross(on, foot) {
    if (pointed === null) return;
    on.pen.fillStyle = colours.ink; on.pen.globalAlpha = 0.5; on.pen.fillRect(Math.round(on.x(pointed.at)), TOP, 1, foot - TOP); on.pen.globalAlpha = 1;
  }
  /** Draws areas, one on the other or each from the floor. Layers are names of ink with a function of a point. */
  function areas(id, layers, stacked, label, least) {
    var on = sheet(id), pen = on.pen, foot = on.height - BOTTOM, seen = visible();
    var most = seen.reduce(function (most, it) {
      var values = layers.map(function (layer) { return layer[1](it) || 0; });
      return Math.max(most, stacked ? values.reduce(function (a, b) { return a + b; }, 0) : Math.max.apply(null, values));
    }, least);
    var top = (label === bytes ? niceBytes : nice)(most), y = function (n) { return foot - (foot - TOP) * n / top; };
    pen.textAlign = "right";
    [0, 0.5, 1].forEach(function (part) {
      pen.fillStyle = colours.grid; pen.fillRect(LEFT, Math.round(y(top * part)), on.width - LEFT - RIGHT, 1);
      pen.fillStyle = colours.soft; pen.fillText(label(top * part), LEFT - 7, y(top * part));
    });
    axisOfTime(on, foot);
    var floor = seen.map(function () { return 0; });
    layers.forEach(function (layer) {
      var tops = seen.map(function (it, at) { return (stacked ? floor[at] : 0) + (layer[1](it) || 0); });
      if (!seen.length || tops.every(function (n, at) { return n === (stacked ? floor[at] : 0); })) return;
      // The line of a layer is there where the layer is.
      pen.beginPath();
      seen.forEach(function (it, at) { pen[at && (!stacked || tops[at] > floor[at]) ? "lineTo" : "moveTo"](on.x(it.at), y(tops[at])); });
      pen.strokeStyle = colours[layer[0]]; pen.lineWidth = 1.6; pen.stroke();
      pen.beginPath();
      seen.forEach(function (it, at) { pen[at ? "lineTo" : "moveTo"](on.x(it.at), y(tops[at])); });
      for (var at = seen.length - 1; at >= 0; at--) pen.lineTo(on.x(seen[at].at), y(stacked ? floor[at] : 0));
      pen.closePath(); pen.fillStyle = colours[layer[0]]; pen.globalAlpha = stacked ? 0.5 : 0.16; pen.fill(); pen.globalAlpha = 1;
      if (stacked) floor = tops;
    });
    cross(on, foot);
  }
  /** Draws latencies as a map of heat, with percentiles as lines. */
  function heat(id, ink) {
    var on = sheet(id), pen = on.pen, foot = on.height - BOTTOM, seen = visible(), low = 26, high = 0;
    seen.forEach(function (it) { it[id].buckets.forEach(function (n, at) { if (n > 0) { low = Math.min(low, at); high = Math.max(high, at + 1); } }); });
    low = Math.max(0, Math.min(low, 4)); high = Math.min(26, Math.max(high, low + 8));
    var y = function (bucket) { return foot - (foot - TOP) * (bucket - low) / (high - low); };
    pen.fillStyle = colours.lane; pen.fillRect(LEFT, TOP, on.width - LEFT - RIGHT, foot - TOP);
    var tall = (foot - TOP) / (high - low);
    seen.forEach(function (it) {
      var from = on.x(it.at - it.dt), wide = Math.max(1, on.x(it.at) - from + 0.4);
      if (from + wide < LEFT) return;
      it[id].buckets.forEach(function (n, at) {
        if (n <= 0 || at < low || at >= high) return;
        pen.globalAlpha = 0.1 + 0.75 * Math.pow(n / it[id].total, 0.4); pen.fillStyle = colours[ink];
        pen.fillRect(Math.max(LEFT, from), y(at + 1), wide, tall + 0.4);
      });
    });
    pen.globalAlpha = 1;
    pen.textAlign = "right";
    [1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1, 10].forEach(function (s) {
      // Bucket i ends at 2^i µs.
      var at = Math.log2(s * 1e6);
      if (at + 1 < low || at + 1 > high) return;
      pen.fillStyle = colours.grid; pen.fillRect(LEFT, Math.round(y(at + 1)), on.width - LEFT - RIGHT, 1);
      pen.fillStyle = colours.soft; pen.fillText(time(s).replace(/\.0+ /, " "), LEFT - 7, y(at + 1));
    });
    axisOfTime(on, foot);
    [["p50", "ink", []], ["p99", "ink", [5, 3]], ["p999", "bad", [2, 2]]].forEach(function (line) {
      pen.beginPath();
      var begun = false;
      seen.forEach(function (it) {
        var s = it[id][line[0]];
        if (s === null) { begun = false; return; }
        pen[begun ? "lineTo" : "moveTo"](on.x(it.at - it.dt / 2), Math.max(TOP, y(Math.log2(s * 1e6) + 1)));
        begun = true;
      });
      pen.strokeStyle = colours[line[1]]; pen.lineWidth = 1.5; pen.setLineDash(line[2]); pen.stroke(); pen.setLineDash([]);
    });
    cross(on, foot);
  }

  // ---- words below the charts
  function words(id, parts) {
    var place = byId(id);
    clear(place);
    parts.forEach(function (part) {
      var item = add(place, "span");
      if (part[0]) add(item, "i", "", "swatch").style.background = colours[part[0]];
      item.appendChild(document.createTextNode(part[1] + " "));
      add(item, "b", part[2]);
    });
  }
  function current() { return pointed || points[points.length - 1] || null; }
  function showCharts() {
    var it = current(), used = CLASSES.filter(function (name) { return name === "read" || name === "store" || visible().some(function (point) { return point.classes[name] > 0; }); });
    areas("throughput", used.map(function (name) { return [INKS[name], function (point) { return point.classes[name]; }]; }), true, brief, 10);
    areas("traffic", [["read", function (point) { return point.sent; }], ["write", function (point) { return point.received; }]], false, bytes, 1024);
    heat("reads", "read");
    heat("writes", "write");
    if (!it) return;
    words("throughput-now", used.map(function (name) { return [INKS[name], name, brief(it.classes[name]) + "/s"]; }));
    words("traffic-now", [["read", "to clients", bytes(it.sent) + "/s"], ["write", "from clients", bytes(it.received) + "/s"]]);
    ["reads", "writes"].forEach(function (id) { words(id + "-now", [[null, "median ─", time(it[id].p50)], [null, "99% ╌", time(it[id].p99)], ["bad", "99.9%", time(it[id].p999)]]); });
  }

  // ---- figures of now
  function showTiles() {
    var place = byId("tiles"), it = current(), tiles = [];
    clear(place);
    if (it) tiles.push(["commands", brief(it.all) + "/s", function (point) { return point.all; }, "read"], ["99% of reads below", time(it.reads.p99), function (point) { return point.reads.p99; }, "merge"],
      ["99% of writes below", time(it.writes.p99), function (point) { return point.writes.p99; }, "write"], ["keys found", percent(it.hits), function (point) { return point.hits; }, "good"]);
    tiles.push(["items", brief(gauge("situ_engine_items"))], ["on disk", bytes(gauge("situ_engine_disk_bytes"))], ["connections", count(gauge("situ_server_connections"))]);
    tiles.forEach(function (tile) {
      var card = add(place, "div", null, "card tile");
      add(card, "span", tile[0]);
      add(card, "b", tile[1]);
      if (tile[2]) spark(card, tile[2], tile[3]);
    });
  }
  function spark(card, of, ink) {
    var seen = visible(), most = seen.reduce(function (most, it) { return Math.max(most, of(it) || 0); }, 0), path = "";
    seen.forEach(function (it, at) { path += (at ? "L" : "M") + (100 * (1 - (seen[seen.length - 1].at - it.at) / shown)).toFixed(1) + " " + (most ? 23 - 21 * (of(it) || 0) / most : 23).toFixed(1); });
    var svg = draw(card, "svg", { viewBox: "0 0 100 24", preserveAspectRatio: "none", "aria-hidden": "true" });
    if (path) draw(svg, "path", { d: path, fill: "none", stroke: colours[ink], "stroke-width": 1.5, "vector-effect": "non-scaling-stroke" });
  }

  // ---- levels and disks
  function showLevels() {
    var levels = [], memory = gauge("situ_store_memtable_bytes"), it = points[points.length - 1], hasFast = has("situ_store_fast_disk_total_bytes");
    byId("levels-card").hidden = !samples(live, "situ_keyspace_level_bytes").length;
    if (byId("levels-card").hidden) return;
    samples(live, "situ_keyspace_level_bytes").forEach(function (sample) {
      var at = Number(sample.labels.level);
      while (levels.length <= at) levels.push({ bytes: 0, tables: 0, fast: 0 });
      levels[at].bytes += sample.value;
    });
    levels.forEach(function (level, at) {
      level.tables = sumOf(live, "situ_keyspace_level_tables", "level", String(at));
      level.fast = sumOf(live, "situ_keyspace_level_fast_disk_bytes", "level", String(at));
    });
    while (levels.length > 3 && levels[levels.length - 1].tables === 0) levels.pop();
    var ROW = 46, THIN = 22, MIDDLE = 285, WIDE = 420, floor = ROW;
    levels.forEach(function (level) { level.y = floor; floor += level.tables ? ROW : THIN; });
    var disksAt = floor + 4, height = disksAt + 62;
    var svg = byId("levels"), running = compactionsPart.running(), most = levels.reduce(function (most, level) { return Math.max(most, level.bytes); }, 1);
    clear(svg);
    svg.setAttribute("viewBox", "0 0 620 " + height);
    // Memtables: how full their memory is.
    var limit = gauge("situ_store_memtable_limit_bytes") || memory || 1, wide = 150;
    draw(svg, "text", { x: 4, y: 21, class: "name" }, "memory");
    draw(svg, "rect", { x: MIDDLE - wide / 2, y: 4, width: wide, height: 26, rx: 6, class: "well" });
    draw(svg, "rect", { x: MIDDLE - wide / 2, y: 4, width: Math.max(3, wide * Math.min(1, memory / limit)), height: 26, rx: 6, class: "memtable" });
    draw(svg, "text", { x: MIDDLE, y: 21, class: "inside" }, bytes(memory) + " of " + bytes(limit));
    if (it && it.flushed > 0) {
      draw(svg, "path", { d: "M" + MIDDLE + " 31V" + (ROW + 2), class: "flow on" });
      draw(svg, "text", { x: MIDDLE + 10, y: 43, class: "rate" }, bytes(it.flushed) + "/s");
    }
    var pointer = hasFast ? gauge("situ_store_placement_level") : 0;
    levels.forEach(function (level, at) {
      var y = level.y, wide = level.bytes ? Math.max(14, WIDE * Math.pow(level.bytes / most, 0.4)) : 0, fast = level.bytes ? wide * level.fast / level.bytes : 0, left = MIDDLE - wide / 2;
      draw(svg, "text", { x: 4, y: y + (level.tables ? 21 : 11), class: level.tables ? "name" : "soft" }, "level " + at);
      draw(svg, "rect", { x: MIDDLE - WIDE / 2, y: y + 4, width: WIDE, height: level.tables ? 26 : 6, rx: level.tables ? 6 : 3, class: "well" });
      if (wide) {
        if (fast < wide) draw(svg, "rect", { x: left + fast, y: y + 4, width: wide - fast, height: 26, rx: 6, class: "capacity" });
        if (fast > 0) draw(svg, "rect", { x: left, y: y + 4, width: fast, height: 26, rx: 6, class: "fast" });
        // A line for each table, as far as they can be told apart.
        for (var table = 1; table < level.tables && wide / level.tables >= 4; table++) draw(svg, "rect", { x: left + wide * table / level.tables, y: y + 4, width: 1, height: 26, class: "gap" });
      }
      draw(svg, "text", { x: 506, y: y + (level.tables ? 15 : 11), class: level.tables ? "figure" : "figure soft" }, level.tables ? bytes(level.bytes) : "empty");
      if (level.tables) draw(svg, "text", { x: 506, y: y + 29, class: "figure soft" }, count(level.tables) + (level.tables === 1 ? " table" : " tables"));
      if (hasFast && pointer === at + 1 && at + 1 < levels.length) {
        var line = levels[at + 1].y - (level.tables ? 5 : 4);
        draw(svg, "path", { d: "M75 " + line + "H500", class: "pointer" });
        draw(svg, "text", { x: 506, y: line + 4, class: "rate" }, "fast disk ↑");
      }
    });
    running.forEach(function (attempt, at) {
      var above = levels[Math.min(levels.length - 1, attempt.level)], below = levels[Math.min(levels.length - 1, attempt.output_level)], from = above.y + (above.tables ? 30 : 10), to = below.y + 4, x = MIDDLE + 60 - 26 * (at % 6);
      if (attempt.output_level > attempt.level) draw(svg, "path", { d: "M" + x + " " + from + "V" + to, class: "flow on merge" });
      else draw(svg, "path", { d: "M" + (x - 8) + " " + (from - 2) + "v8h16v-8", class: "flow on merge" });
    });
    var disks = hasFast ? [["fast", "fast disk", gauge("situ_store_fast_disk_used_bytes"), gauge("situ_store_fast_disk_total_bytes"), it && it.fastRead, it && it.fastWritten]] : [];
    disks.push(["capacity", hasFast ? "capacity disk" : "disk", gauge("situ_store_logical_used_bytes"), gauge("situ_store_logical_total_bytes"), it && it.capacityRead, it && it.capacityWritten]);
    disks.forEach(function (disk, at) {
      var wide = 600 / disks.length - 14, left = 4 + at * (wide + 18), used = disk[3] ? Math.min(1, disk[2] / disk[3]) : 0;
      draw(svg, "rect", { x: left, y: disksAt + 22, width: wide, height: 14, rx: 7, class: "well" });
      if (disk[3]) draw(svg, "rect", { x: left, y: disksAt + 22, width: Math.max(3, wide * used), height: 14, rx: 7, class: disk[0] });
      draw(svg, "text", { x: left, y: disksAt + 14, class: "name" }, disk[1]);
      draw(svg, "text", { x: left + wide, y: disksAt + 14, class: "figure right" }, disk[3] ? bytes(disk[2]) + " of " + bytes(disk[3]) : bytes(gauge("situ_store_table_bytes")) + " of tables");
      if (disk[4] !== null && disk[4] !== undefined) draw(svg, "text", { x: left, y: disksAt + 54, class: "rate" }, "reads " + bytes(disk[4]) + "/s, writes " + bytes(disk[5]) + "/s");
    });
    var keyspaces = samples(live, "situ_keyspace_keys").filter(function (sample) { return sample.value > 0; }), named = [];
    if (it) named.push(["merge", "compactions write", bytes(it.compacted) + "/s"], [null, "clients", bytes(it.accepted) + "/s"]);
    keyspaces.slice(0, 4).forEach(function (sample) { named.push([null, sample.labels.keyspace, brief(sample.value) + " keys"]); });
    if (keyspaces.length > 4) named.push([null, "other keyspaces", count(keyspaces.length - 4)]);
    words("levels-now", named);
  }

  // ---- gauges: name, part, whole, ink, words
  function gauges(id, rows) {
    var place = byId(id);
    clear(place);
    rows = rows.filter(Boolean);
    byId(id + "-card").hidden = !rows.length;
    rows.forEach(function (row) {
      var line = add(place, "div", null, "gauge-row");
      add(line, "span", row[0]);
      add(line, "b", row[4]);
      if (row[2] === null) return;
      var bar = add(line, "div", null, "meter"), fill = add(bar, "i");
      fill.style.width = 100 * Math.min(1, row[2] ? row[1] / row[2] : 0) + "%";
      fill.style.background = colours[row[3]];
    });
  }
  function full(name, part, whole, ink) { return has(part) && [name, gauge(part), has(whole) ? gauge(whole) : null, ink, bytes(gauge(part)) + (has(whole) ? " of " + bytes(gauge(whole)) : "")]; }
  function plain(name, text) { return text !== null && [name, 0, null, "", text]; }
  function showGauges() {
    var it = points[points.length - 1] || {}, per = function (n, text) { return n === null || n === undefined ? null : (text || brief)(n) + "/s"; };
    gauges("memory", [full("block cache", "situ_store_cache_bytes", "situ_store_cache_limit_bytes", "read"), full("of it, held by open tables", "situ_store_cache_pinned_bytes", "situ_store_cache_limit_bytes", "rest"),
      full("memtables", "situ_store_memtable_bytes", "situ_store_memtable_limit_bytes", "odd"), full("cache", "situ_cache_memory_bytes", "situ_cache_memory_max_bytes", "read"),
      full("its index", "situ_cache_index_bytes", "situ_cache_memory_max_bytes", "rest"), has("situ_cache_items") && plain("evicted", per(it.evicted)), full("writes not yet in buckets", "situ_hash_pending_bytes", "none", "odd")]);
    var hasBlocks = has("situ_store_cache_limit_bytes");
    byId("hits").hidden = byId("hits-now").hidden = !hasBlocks;
    if (hasBlocks && !byId("memory-card").hidden) { areas("hits", [["good", function (point) { return point.blocks; }]], false, percent, 1); words("hits-now", [["good", "blocks found in the cache", percent(it.blocks === undefined ? null : it.blocks)]]); }
    gauges("disk", [full("log that memtables still need", "situ_store_debt_log_held_bytes", "situ_store_debt_log_limit_bytes", "merge"), full("log files", "situ_store_log_bytes", "none"),
      has("situ_store_last_sequence") && plain("newest sequence number", count(gauge("situ_store_last_sequence"))), plain("log, pages of 4 KiB", per(it.pages)) , plain("log, syncs", per(it.syncs)),
      has("situ_store_cache_hits_total") && plain("reads that waited for a disk", per(it.diskReads)),
      full("flash", "situ_cache_flash_bytes", "situ_cache_flash_max_bytes", "capacity"), has("situ_cache_flash_bytes") && plain("written to flash", per(it.flashWritten, bytes)), has("situ_cache_flash_bytes") && plain("found on flash", per(it.flashHits)),
      has("situ_hash_buckets") && ["buckets", gauge("situ_hash_buckets"), gauge("situ_hash_buckets_max"), "capacity", brief(gauge("situ_hash_buckets")) + " of " + brief(gauge("situ_hash_buckets_max"))],
      has("situ_hash_load_ratio") && ["average load of buckets", gauge("situ_hash_load_ratio"), 1, "read", percent(gauge("situ_hash_load_ratio"))],
      has("situ_hash_overflow_ratio") && ["entries in the overflow", gauge("situ_hash_overflow_ratio"), 1, "slow", percent(gauge("situ_hash_overflow_ratio"))],
      full("log files", "situ_hash_log_bytes", "situ_hash_debt_log_limit_bytes", "merge"), has("situ_hash_value_live_bytes") && plain("large values", bytes(gauge("situ_hash_value_live_bytes")) + ", " + bytes(gauge("situ_hash_value_garbage_bytes")) + " dead"),
      has("situ_hash_buckets") && plain("buckets read, written", per(it.bucketReads) && per(it.bucketReads) + ", " + per(it.bucketWrites)), plain("buckets split", per(it.splits))]);
  }
  function showDebts() {
    var it = points[points.length - 1] || {}, place = byId("debts"), stalled = it.stalled !== null && it.stalled !== undefined;
    byId("stalls").hidden = byId("stalls-now").hidden = !stalled;
    if (stalled) { areas("stalls", [["bad", function (point) { return point.stalled; }]], false, time, 0.1); words("stalls-now", [["bad", "writers held back, in a second", time(it.stalled)]]); }
    clear(place);
    [["writes are held back now", "situ_engine_write_stalled", count], ["writers stopped, times", "situ_store_write_stops_total", count], ["write limit in a second", "situ_store_write_limit_bytes_per_second", bytes],
      ["tombstones", "situ_store_debt_tombstones", brief], ["tombstones of ranges", "situ_store_debt_range_deletions", brief], ["expired or flushed items in tables", "situ_store_debt_removable_entries", brief],
      ["dead values in the value log", "situ_store_debt_value_dead_bytes", bytes], ["files to delete", "situ_store_debt_undeleted_files", count], ["background jobs fail", "situ_store_background_failing", count],
      ["damaged files", "situ_store_damaged_files", count], ["writes that wait for space", "situ_hash_writes_waiting", count], ["dead entries in buckets", "situ_hash_debt_dead_entries", brief],
      ["values that died since the checkpoint", "situ_hash_debt_value_dying_bytes", bytes], ["tombstones in the overflow", "situ_hash_debt_overflow_tombstones", brief], ["failures of flash", "situ_cache_flash_errors_total", count],
      ["commands refused, reads", "situ_server_read_failures_total", count], ["commands refused, writes", "situ_server_write_failures_total", count]].forEach(function (debt) {
      if (gauge(debt[1]) <= 0) return;
      var line = add(place, "div");
      add(line, "dt", debt[0]);
      add(line, "dd", debt[2](gauge(debt[1])));
    });
    if (!place.firstChild) add(place, "div", "No debts.");
  }
  /** Shows the last slow operations, the newest first, with the parts of their time, the longest first. */
  function showSlow() {
    var slow = live.slow_operations, table = byId("slow");
    byId("slow-card").hidden = !slow;
    if (!slow) return;
    byId("slow-now").textContent = slow.length ? count(gauge("situ_store_slow_operations_total")) + " since the store was opened; the last ones:" : "None since the store was opened.";
    clear(table);
    slow.slice().reverse().forEach(function (it) {
      var row = add(table, "tr"), parts = it.parts.slice().sort(function (a, b) { return b.us - a.us; });
      add(row, "td", new Date(it.unix_ms).toLocaleTimeString("en-GB"));
      add(row, "td", time(it.took_us / 1e6), "right");
      add(row, "td", it.kind);
      add(row, "td", it.keyspace);
      add(row, "td", bytes(it.bytes), "right");
      add(row, "td", parts.map(function (part) { return (part.count > 1 ? part.count + " " : "") + part.name.replace("_", " ") + " " + time(part.us / 1e6); }).join(", "));
    });
  }
  function show() {
    if (!live) return;
    // The charts are as long as what there is to show, up to the time that the reader has chosen.
    shown = points.length ? Math.min(longest, Math.max(60, points[points.length - 1].at - points[0].at + points[0].dt)) : 60;
    showTiles(); showCharts(); showLevels(); showGauges(); showDebts(); showSlow();
  }

  // ---- the reader
  ["throughput", "traffic", "reads", "writes"].forEach(function (id) {
    byId(id).addEventListener("pointermove", function (event) {
      var box = byId(id).getBoundingClientRect(), seen = visible();
      if (!seen.length) return;
      var at = seen[seen.length - 1].at - shown * (1 - (event.clientX - box.left - LEFT) / (box.width - LEFT - RIGHT));
      pointed = seen.reduce(function (best, it) { return Math.abs(it.at - at) < Math.abs(best.at - at) ? it : best; });
      showTiles(); showCharts();
    });
    byId(id).addEventListener("pointerleave", function () { pointed = null; show(); });
  });
  byId("windows").addEventListener("click", function (event) {
    if (!event.target.dataset.seconds) return;
    longest = Number(event.target.dataset.seconds);
    byId("windows").querySelectorAll("button").forEach(function (button) { button.setAttribute("aria-pressed", String(button === event.target)); });
    show();
  });
  byId("pause").addEventListener("click", function () {
    paused = !paused;
    byId("pause").setAttribute("aria-pressed", String(paused));
    compactionsPart.setPaused(paused);
    if (live) say();
    ask();
  });
  document.addEventListener("visibilitychange", ask);
  addEventListener("resize", show);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", function () { readColours(); show(); });
  readColours();
  ask();
})();
