"use strict";
// Keeps the last attempts that the server told of, and draws them. All text of the server goes to the page as text, never as markup.
var compactionsPart = (function () {
  var KEPT_MAX = 20000, TABLE_ROWS_MAX = 300, SPAN_MIN = 2e3, GUTTER = 150, STAGES = ["read", "merge", "write"];
  var byId = function (id) { return document.getElementById(id); };
  var overview = byId("overview"), timeline = byId("timeline"), hint = byId("hint"), detail = byId("detail"), state = byId("compactions-state");
  var units = [], ended = [], running = [], bars = [], lanes = [], boxes = [];
  var since = 0, opened = null, missed = 0, nowAtAnswer = 0, answeredAt = 0, unixOffset = 0, everAnswered = false;
  // Microseconds by the store's clock.
  var span = 30e6, end = 0, following = true, paused = false, pausedAt = 0, all = false, hovered = null, chosen = null, colours = {}, hatches = {};

  // ---- figures as text
  function bytes(n) {
    var names = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"], i = 0;
    while (n >= 1024 && i < 5) { n /= 1024; i++; }
    return (i === 0 || n >= 100 ? Math.round(n) : n.toFixed(1)) + " " + names[i];
  }
  function time(us) {
    if (us < 1000) return Math.round(us) + " µs";
    if (us < 1e6) return (us / 1e3).toFixed(us < 1e5 ? 1 : 0) + " ms";
    if (us < 6e7) return (us / 1e6).toFixed(us < 1e7 ? 2 : 1) + " s";
    return Math.floor(us / 6e7) + " min " + Math.round(us % 6e7 / 1e6) + " s";
  }
  function count(n) { return n.toLocaleString("en"); }
  function percent(share) { return Math.round(100 * share) + "%"; }
  function plural(n, one) { return count(n) + " " + one + (n === 1 ? "" : "s"); }
  function two(n) { return (n < 10 ? "0" : "") + n; }
  function clock(us, step) {
    var date = new Date(unixOffset + us / 1e3), text = two(date.getHours()) + ":" + two(date.getMinutes()) + ":" + two(date.getSeconds());
    var digits = step >= 1e6 ? 0 : step >= 1e5 ? 1 : step >= 1e4 ? 2 : 3;
    if (digits) text += (date.getMilliseconds() / 1000).toFixed(3).slice(1, 2 + digits);
    return text;
  }
  function number(value) { return value === null || value === undefined ? "missing" : Number(value).toFixed(3).replace(/\.?0+$/, ""); }

  // ---- elements, from text only
  function add(parent, tag, text, kind) {
    var child = document.createElement(tag);
    if (text !== undefined && text !== null) child.textContent = text;
    if (kind) child.className = kind;
    parent.appendChild(child);
    return child;
  }
  function clear(parent) { while (parent.firstChild) parent.removeChild(parent.firstChild); }

  // ---- what comes from the server
  function now() {
    if (paused) return pausedAt;
    return everAnswered ? nowAtAnswer + (performance.now() - answeredAt) * 1e3 : 0;
  }
  function take(answer) {
    if (opened !== answer.opened_unix_ms) {
      // Another store, or the same one reopened: its numbers and its clock have restarted.
      opened = answer.opened_unix_ms;
      ended = []; running = []; missed = 0; hovered = chosen = null; following = true;
      if (since !== 0) { since = 0; return true; }
    }
    var first = !everAnswered;
    everAnswered = true;
    units = answer.units;
    answer.attempts.forEach(function (attempt) { if (attempt.sequence !== null) ended.push(attempt); });
    running = answer.attempts.filter(function (attempt) { return attempt.sequence === null; });
    if (ended.length > KEPT_MAX) ended.splice(0, ended.length - KEPT_MAX);
    if (since > 0) missed += answer.missed;
    since = answer.next;
    nowAtAnswer = answer.now_us;
    answeredAt = performance.now();
    unixOffset = answer.unix_ms - answer.now_us / 1e3;
    if (first) end = nowAtAnswer;
    show();
    return answer.more;
  }
  function show() {
    layOut();
    say();
    showUnits();
    showTable();
    if (chosen) choose(again(chosen));
  }
  /** The attempt as the last answer has it. */
  function again(attempt) {
    var found = bars.filter(function (bar) { return bar.attempt.attempt === attempt.attempt && bar.attempt.began_us === attempt.began_us && bar.attempt.task === attempt.task; });
    return found.length ? found[0].attempt : attempt;
  }
  function say() {
    var text = paused ? "paused at " + clock(pausedAt, 1e6) : plural(running.length, "attempt") + " under way, " + plural(ended.length, "ended attempt") + " kept" + (missed ? ", " + count(missed) + " were gone before they could be asked for" : "");
    if (state.textContent !== text) state.textContent = text;
  }

  // ---- where each bar goes
  function turnedAway(attempt) { return (attempt.outcome === "refused" || attempt.outcome === "illegal") && attempt.ended_us !== null && attempt.ended_us - attempt.began_us < 1000; }
  function until(attempt) { return attempt.ended_us === null ? Math.max(now(), attempt.began_us) : attempt.ended_us; }
  function layOut() {
    bars = ended.concat(running).map(function (attempt) { return { attempt: attempt, lane: 0, away: turnedAway(attempt) }; });
    bars.sort(function (a, b) { return a.attempt.began_us - b.attempt.began_us || a.attempt.task - b.attempt.task; });
    lanes = units.map(function () { return { ends: [], away: false }; });
    bars.forEach(function (bar) {
      var unit = lanes[bar.attempt.unit];
      if (!unit) return;
      if (bar.away) { unit.away = true; return; }
      var at = 0;
      while (at < unit.ends.length && unit.ends[at] > bar.attempt.began_us) at++;
      unit.ends[at] = bar.attempt.ended_us === null ? Infinity : bar.attempt.ended_us;
      bar.lane = at;
    });
    var total = lanes.reduce(function (sum, unit) { return sum + Math.max(1, unit.ends.length); }, 0), y = 4;
    var tall = total <= 10 ? 40 : total <= 18 ? 30 : 16;
    lanes.forEach(function (unit) {
      unit.tall = tall;
      unit.top = y;
      y += 8 + Math.max(1, unit.ends.length) * tall + (unit.away ? 16 : 0);
      unit.bottom = y;
      y += 6;
    });
    var height = Math.max(80, y + 22);
    if (timeline.height0 !== height) { timeline.height0 = height; timeline.style.height = height + "px"; }
  }

  // ---- drawing
  function readColours() {
    var style = getComputedStyle(document.documentElement);
    ["card", "ink", "soft", "grid", "lane", "read", "merge", "write", "unknown", "bad", "odd", "slow", "rest", "edge"].forEach(function (name) {
      colours[name] = style.getPropertyValue("--" + name).trim();
    });
    hatches = {};
  }
  function hatch(context, name) {
    if (hatches[name]) return hatches[name];
    var tile = document.createElement("canvas");
    tile.width = tile.height = 8;
    var pen = tile.getContext("2d");
    pen.globalAlpha = 0.28; pen.fillStyle = colours[name]; pen.fillRect(0, 0, 8, 8);
    pen.globalAlpha = 1; pen.strokeStyle = colours[name]; pen.lineWidth = 1.6;
    pen.beginPath(); pen.moveTo(-2, 10); pen.lineTo(10, -2); pen.moveTo(-2, 2); pen.lineTo(2, -2); pen.moveTo(6, 10); pen.lineTo(10, 6); pen.stroke();
    return hatches[name] = context.createPattern(tile, "repeat");
  }
  function prepare(canvas) {
    var scale = devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
    if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
      canvas.width = Math.round(width * scale); canvas.height = Math.round(height * scale);
    }
    var context = canvas.getContext("2d");
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, width, height);
    context.font = '11.5px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif';
    context.textBaseline = "middle";
    return { context: context, width: width, height: height };
  }
  function stageTime(stage) { return stage.busy_us + stage.starved_us + stage.blocked_us; }
  function known(attempt) { return STAGES.some(function (name) { return stageTime(attempt.stages[name]) > 0; }); }
  /** Pieces of a strip, from left to right: kind of ink, stage, share of the bar. */
  function linearPieces(attempt) {
    var sum = STAGES.reduce(function (sum, name) { return sum + stageTime(attempt.stages[name]); }, 0), whole = Math.max(sum, attempt.elapsed_us, 1), pieces = [];
    STAGES.forEach(function (name) { pieces.push(["busy", name, attempt.stages[name].busy_us / whole]); });
    STAGES.forEach(function (name) {
      pieces.push(["starved", name, attempt.stages[name].starved_us / whole]);
      pieces.push(["blocked", name, attempt.stages[name].blocked_us / whole]);
    });
    pieces.push(["rest", null, Math.max(0, whole - sum) / whole]);
    return pieces;
  }
  function pipelinedPieces(attempt, name) {
    var stage = attempt.stages[name], threads = name === "merge" ? attempt.merge_threads || 1 : 1, whole = Math.max(stageTime(stage), attempt.elapsed_us * threads, 1);
    return [["busy", name, stage.busy_us / whole], ["starved", name, stage.starved_us / whole], ["blocked", name, stage.blocked_us / whole],
      ["rest", null, Math.max(0, whole - stageTime(stage)) / whole]];
  }
  function strip(context, pieces, x, y, width, height) {
    pieces.forEach(function (piece) {
      var w = width * piece[2];
      if (w <= 0) return;
      context.globalAlpha = piece[0] === "starved" ? 0.28 : piece[0] === "rest" ? 0.55 : 1;
      context.fillStyle = piece[0] === "blocked" ? hatch(context, piece[1]) : piece[0] === "rest" ? colours.rest : colours[piece[1]];
      context.fillRect(x, y, w, height);
      x += w;
    });
    context.globalAlpha = 1;
  }
  function dominant(attempt) {
    if (!known(attempt)) return "unknown";
    return STAGES.reduce(function (best, name) { return attempt.stages[name].busy_us > attempt.stages[best].busy_us ? name : best; }, "read");
  }
  function ink(outcome) {
    return { failed: "bad", late: "slow", suspicious: "odd", mismatch: "odd", refused: "soft", illegal: "soft", cancelled: "soft" }[outcome] || null;
  }
  function mark(context, outcome, x, y, r) {
    context.fillStyle = colours[ink(outcome)];
    context.beginPath(); context.arc(x, y, r, 0, 7); context.fill();
    context.strokeStyle = colours.card; context.lineWidth = 1.5; context.beginPath();
    var d = r * 0.45;
    if (outcome === "failed") { context.moveTo(x - d, y - d); context.lineTo(x + d, y + d); context.moveTo(x + d, y - d); context.lineTo(x - d, y + d); }
    else if (outcome === "late") { context.moveTo(x, y - d * 1.3); context.lineTo(x, y); context.lineTo(x + d, y + d * 0.7); }
    else if (outcome === "suspicious" || outcome === "mismatch") { context.moveTo(x - d, y - d / 2); context.lineTo(x + d, y - d / 2); context.moveTo(x - d, y + d / 2); context.lineTo(x + d, y + d / 2); context.moveTo(x + d / 2, y - d * 1.3); context.lineTo(x - d / 2, y + d * 1.3); }
    else { context.moveTo(x - d, y); context.lineTo(x + d, y); }
    context.stroke();
  }
  function tick(step) { var power = Math.pow(10, Math.floor(Math.log10(step))), f = step / power; return (f <= 1 ? 1 : f <= 2 ? 2 : f <= 5 ? 5 : 10) * power; }
  function range() {
    var first = bars.length ? bars[0].attempt.began_us : now() - 30e6, last = Math.max(now(), first + SPAN_MIN);
    return [first, last];
  }
  function draw() {
    if (!everAnswered) return;
    if (all) { var whole = range(); span = Math.max(SPAN_MIN, (whole[1] - whole[0]) * 1.02); following = true; }
    if (following) end = now() + span * 0.01;
    drawTimeline();
    drawOverview();
    var begin = end - span;
    byId("where").textContent = clock(begin, span / 10) + " to " + clock(end, span / 10) + ", " + time(span);
  }
  function drawTimeline() {
    var sheet = prepare(timeline), context = sheet.context, width = sheet.width - GUTTER - 6, begin = end - span;
    var x = function (us) { return GUTTER + (us - begin) / span * width; };
    var floor = lanes.length ? lanes[lanes.length - 1].bottom : 40;
    lanes.forEach(function (unit, at) {
      context.fillStyle = colours.lane; context.fillRect(GUTTER, unit.top, width, unit.bottom - unit.top);
      context.fillStyle = units[at].out_of_service ? colours.bad : colours.ink;
      context.font = "600 13px " + context.font.replace(/^.*?px /, "");
      context.fillText(fit(context, units[at].name, GUTTER - 14), 2, unit.top + 16);
      context.font = context.font.replace("600 13px", "11.5px");
      context.fillStyle = units[at].out_of_service ? colours.bad : colours.soft;
      context.fillText(units[at].out_of_service ? "out of service" : units[at].tasks + " of " + units[at].tasks_max + " places", 2, unit.top + 32);
    });
    var step = tick(span / Math.max(2, Math.floor(width / 110)));
    context.textAlign = "center";
    // Steps are whole by the wall clock of the reader.
    var shift = (unixOffset - new Date().getTimezoneOffset() * 6e4) * 1e3;
    for (var at = Math.ceil((begin + shift) / step) * step - shift; at < end; at += step) {
      context.fillStyle = colours.grid; context.fillRect(Math.round(x(at)), 2, 1, floor - 2);
      var text = clock(at, step), half = context.measureText(text).width / 2;
      if (x(at) + half > GUTTER + width || x(at) - half < GUTTER) continue;
      context.fillStyle = colours.soft; context.fillText(text, x(at), floor + 12);
    }
    context.textAlign = "left";
    context.save();
    context.beginPath(); context.rect(GUTTER, 0, width, floor + 2); context.clip();
    boxes = [];
    var marks = [];
    bars.forEach(function (bar) {
      var attempt = bar.attempt, unit = lanes[attempt.unit], last = until(attempt);
      if (!unit || last < begin || attempt.began_us > end) return;
      bar.away ? drawAway(context, bar, unit, x) : drawBar(context, marks, bar, unit, Math.max(x(attempt.began_us), GUTTER - 4000), Math.min(x(last), GUTTER + width + 4000));
    });
    marks.forEach(function (it) { mark(context, it[0], it[1], it[2], it[3]); });
    if (now() < end) { context.fillStyle = colours.soft; context.globalAlpha = 0.6; context.fillRect(x(now()), 2, 1, floor - 2); context.globalAlpha = 1; }
    context.restore();
    if (!bars.length) { context.fillStyle = colours.soft; context.fillText("No compaction has begun since the store was opened. This page shows the first one by itself.", GUTTER + 12, 24); }
  }
  function fit(context, text, width) {
    if (context.measureText(text).width <= width) return text;
    while (text.length > 1 && context.measureText(text + "…").width > width) text = text.slice(0, -1);
    return text + "…";
  }
  function levels(attempt) { return "L" + attempt.level + " → L" + attempt.output_level; }
  function drawAway(context, bar, unit, x) {
    var at = x(bar.attempt.began_us), y = unit.bottom - 10;
    mark(context, bar.attempt.outcome, at, y, bar.attempt === hovered || bar.attempt === chosen ? 7 : 5);
    boxes.push([at - 6, y - 6, at + 6, y + 6, bar.attempt]);
  }
  function drawBar(context, marks, bar, unit, left, right) {
    var attempt = bar.attempt, labelled = unit.tall >= 30, top = unit.top + 4 + bar.lane * unit.tall, width = Math.max(1.5, right - left);
    var y = top + (labelled ? 14 : 2), height = unit.tall - (labelled ? 18 : 4);
    var focus = hovered || chosen;
    context.globalAlpha = focus && focus.job !== attempt.job ? 0.38 : 1;
    if (context.globalAlpha < 1) context.save();
    if (attempt.ended_us === null) drawRunning(context, left, y, width, height);
    else if (!known(attempt)) { context.fillStyle = ink(attempt.outcome) ? colours.rest : colours.unknown; context.fillRect(left, y, width, height); }
    else if (attempt.mode === "pipelined" && width > 3) {
      var each = (height - 2) / 3;
      STAGES.forEach(function (name, row) { stripFaded(context, pipelinedPieces(attempt, name), left, y + row * (each + 1), width, each, focus && focus.job !== attempt.job); });
    } else stripFaded(context, linearPieces(attempt), left, y, width, height, focus && focus.job !== attempt.job);
    context.globalAlpha = focus && focus.job !== attempt.job ? 0.38 : 1;
    var colour = ink(attempt.outcome);
    if (colour) { context.strokeStyle = colours[colour]; context.lineWidth = 2; context.strokeRect(left + 1, y + 1, Math.max(1, width - 2), height - 2); }
    if (attempt === chosen || attempt === hovered) { context.strokeStyle = colours.ink; context.lineWidth = 2; context.strokeRect(left - 1, y - 1, width + 2, height + 2); }
    if (labelled && width > 26) label(context, attempt, Math.max(left, GUTTER) + 1, top + 6, right);
    if (colour) marks.push([attempt.outcome, right, y + height / 2, Math.min(8, height / 2)]);
    context.globalAlpha = 1;
    boxes.push([left - 2, top, Math.max(right, left + 3) + 2, y + height + 2, attempt]);
  }
  function stripFaded(context, pieces, x, y, width, height, fade) {
    strip(context, pieces, x, y, width, height);
    if (!fade) return;
    context.globalAlpha = 0.62; context.fillStyle = colours.lane; context.fillRect(x, y, width, height); context.globalAlpha = 1;
  }
  function label(context, attempt, left, y, right) {
    var room = right - left - 4;
    var texts = [levels(attempt) + "  " + bytes(attempt.input_bytes) + (attempt.is_checked ? "  checked" : ""), levels(attempt) + "  " + bytes(attempt.input_bytes), levels(attempt), attempt.level + "→" + attempt.output_level];
    var text = texts.filter(function (text) { return context.measureText(text).width <= room; })[0];
    if (text) { context.fillStyle = colours.ink; context.fillText(text, left, y); }
  }
  function drawRunning(context, left, y, width, height) {
    context.save();
    context.fillStyle = colours.rest; context.globalAlpha *= 0.45; context.fillRect(left, y, width, height);
    context.globalAlpha = 1; context.strokeStyle = colours.ink; context.lineWidth = 1.2; context.setLineDash([4, 3]);
    if (!matchMedia("(prefers-reduced-motion: reduce)").matches && !paused) context.lineDashOffset = -(performance.now() / 60) % 7;
    context.beginPath(); context.moveTo(left + width, y + 0.5); context.lineTo(left + 0.5, y + 0.5); context.lineTo(left + 0.5, y + height - 0.5); context.lineTo(left + width, y + height - 0.5); context.stroke();
    context.restore();
  }
  function drawOverview() {
    var sheet = prepare(overview), context = sheet.context, width = sheet.width - GUTTER - 6, whole = range();
    var x = function (us) { return GUTTER + (us - whole[0]) / (whole[1] - whole[0]) * width; };
    context.fillStyle = colours.lane; context.fillRect(GUTTER, 0, width, sheet.height);
    context.fillStyle = colours.soft; context.fillText("all that is kept", 2, 14); context.fillText(time(whole[1] - whole[0]), 2, 30);
    var rows = 0, tops = lanes.map(function (unit) { var top = rows; rows += Math.max(1, unit.ends.length) + 0.6; return top; });
    var tall = Math.min(7, (sheet.height - 4) / Math.max(1, rows));
    bars.forEach(function (bar) {
      if (!lanes[bar.attempt.unit]) return;
      var left = x(bar.attempt.began_us), colour = ink(bar.attempt.outcome);
      context.fillStyle = colour ? colours[colour] : bar.attempt.ended_us === null ? colours.soft : colours[dominant(bar.attempt)];
      context.fillRect(left, 3 + (tops[bar.attempt.unit] + bar.lane) * tall, Math.max(0.7, x(until(bar.attempt)) - left), Math.max(1, tall - 1));
    });
    var from = Math.max(GUTTER, x(end - span)), to = Math.min(GUTTER + width, x(end));
    context.fillStyle = colours.card; context.globalAlpha = 0.6;
    context.fillRect(GUTTER, 0, Math.max(0, from - GUTTER), sheet.height); context.fillRect(to, 0, Math.max(0, GUTTER + width - to), sheet.height);
    context.globalAlpha = 1; context.strokeStyle = colours.ink; context.lineWidth = 1.5; context.strokeRect(from, 0.75, Math.max(2, to - from), sheet.height - 1.5);
  }

  // ---- what is told of an attempt
  function outcomeKind(outcome) { return ink(outcome) || (outcome === "done" ? "good" : "soft"); }
  function tell(parent, attempt) {
    clear(parent);
    var head = add(parent, "h3", levels(attempt) + " on " + attempt.unit_name + ": ");
    add(head, "em", attempt.outcome, outcomeKind(attempt.outcome));
    if (attempt.reason) add(parent, "p", attempt.reason, outcomeKind(attempt.outcome));
    var took = attempt.ended_us === null ? "runs for " + time(until(attempt) - attempt.began_us) : "took " + time(attempt.elapsed_us || attempt.ended_us - attempt.began_us);
    var output = attempt.outcome === "done" || attempt.output_bytes ? " → " + bytes(attempt.output_bytes) : "";
    var speed = attempt.elapsed_us > 0 && attempt.outcome === "done" ? ", " + bytes(attempt.input_bytes / attempt.elapsed_us * 1e6) + "/s" : "";
    add(parent, "p", clock(attempt.began_us, 1e3) + ", " + took + ", " + bytes(attempt.input_bytes) + output + speed);
    var mode = attempt.mode === "pipelined" ? "pipelined, " + plural(attempt.merge_threads || 1, "merge thread") : attempt.ended_us === null ? "" : "one stage after the other";
    var names = ["job " + attempt.job, "task " + attempt.task, "attempt " + attempt.attempt, "keyspace " + attempt.keyspace, attempt.class, attempt.priority];
    if (attempt.is_checked) names.push("its files are compared");
    if (mode) names.push(mode);
    add(parent, "p", names.join(" · "), "soft");
    if (known(attempt)) tellStages(parent, attempt);
    if (attempt.decision) tellDecision(parent, attempt.decision);
  }
  function row(table, cells, tag) {
    var line = add(table, "tr");
    cells.forEach(function (cell, at) { add(line, at === 0 ? "th" : tag || "td", cell); });
    return line;
  }
  function tellStages(parent, attempt) {
    var table = add(parent, "table"), head = add(add(table, "thead"), "tr"), body = add(table, "tbody");
    ["stage", "busy", "starved", "blocked", "bytes"].forEach(function (name) { add(head, "th", name); });
    STAGES.forEach(function (name) {
      var stage = attempt.stages[name], line = row(body, ["", time(stage.busy_us), time(stage.starved_us), time(stage.blocked_us), bytes(stage.bytes)]);
      add(line.firstChild, "span", "", "swatch " + name);
      line.firstChild.appendChild(document.createTextNode(name));
    });
  }
  function tellDecision(parent, decision) {
    var line = add(parent, "p", "decided: ");
    add(line, "b", decision.mode ? decision.mode + ", " : "");
    line.appendChild(document.createTextNode(decision.why));
    if (!decision.inputs || !decision.inputs.length) return;
    var table = add(parent, "table"), head = add(add(table, "thead"), "tr"), body = add(table, "tbody");
    ["input", "value", "× weight", "= part of f", ""].forEach(function (name) { add(head, "th", name); });
    decision.inputs.forEach(function (input) {
      var part = input.value === null ? 0 : input.value * input.weight;
      add(row(body, [input.name, number(input.value), number(input.weight), number(part)]), "td", input.note, "note");
    });
    row(body, ["f", "", "", number(decision.f)]);
    add(row(body, ["threshold", "", "", number(decision.threshold)]), "td", decision.held ? "held by " + decision.held : "", "note");
  }
  function choose(attempt) {
    chosen = attempt;
    detail.hidden = !attempt;
    if (!attempt) return;
    tell(detail, attempt);
    var close = add(detail, "button", "Close");
    close.addEventListener("click", function () { choose(null); });
  }

  // ---- units
  function showUnits() {
    var place = byId("units"), begin = end - span;
    clear(place);
    units.forEach(function (unit, at) { showUnit(add(place, "article", null, "card unit"), unit, at, begin); });
  }
  function shareIn(attempt, begin) {
    var last = until(attempt), long = Math.max(1, last - attempt.began_us);
    return Math.max(0, Math.min(last, end) - Math.max(attempt.began_us, begin)) / long;
  }
  function showUnit(card, unit, at, begin) {
    var input = 0, works = running.some(function (attempt) { return attempt.unit === at; }), shown = Math.max(1, Math.min(end, now()) - Math.max(begin, range()[0]));
    bars.forEach(function (bar) { if (bar.attempt.unit === at && bar.attempt.outcome === "done") input += bar.attempt.input_bytes * shareIn(bar.attempt, begin); });
    var head = add(card, "div", null, "head");
    add(head, "h2", unit.name).title = unit.name;
    add(head, "span", unit.out_of_service ? "out of service" : "in service", unit.out_of_service ? "pill out" : "pill");
    var rate = add(head, "span", null, "rate");
    add(rate, "b", input === 0 && works ? "at work" : bytes(input / shown * 1e6) + "/s");
    rate.title = "Input of tasks that are done, over the time shown";
    var total = STAGES.reduce(function (sum, name) { return sum + stageTime(unit.stages[name]); }, 0), waits = 0;
    if (total > 0) {
      var shares = add(card, "div", null, "shares"), words = [];
      STAGES.forEach(function (name) {
        var share = unit.stages[name].busy_us / total;
        waits += unit.stages[name].starved_us + unit.stages[name].blocked_us;
        add(shares, "i", "", name).style.width = 100 * share + "%";
        words.push(name + " " + percent(share));
      });
      add(shares, "i", "", "rest").style.width = 100 * waits / total + "%";
      words.push("waits for another stage " + percent(waits / total));
      add(card, "p", words.join(", "), "facts");
    }
    var facts = add(card, "p", count(unit.succeeded) + " of " + plural(unit.attempts, "attempt") + " done, " + bytes(unit.input_bytes) + " in, " + bytes(unit.output_bytes) + " out, busy " + time(unit.busy_us), "facts");
    troubles(facts, unit);
    if (unit.out_of_service) add(card, "p", "since " + clock(unit.out_of_service.since_us, 1e6) + ": " + unit.out_of_service.why, "why");
    else if (unit.last_trouble) add(card, "p", "last trouble: " + unit.last_trouble, "facts");
    if (unit.decisions && unit.decisions.last) showDecision(card, unit.decisions);
  }
  function troubles(facts, unit) {
    [["failed", "failed", true], ["late", "late", true], ["suspicious", "suspicious", true], ["mismatches", "with other bytes", true], ["refused", "refused", false],
      ["refused_busy", "refused while full", false], ["illegal", "unsuited", false], ["checked", "compared", false]].forEach(function (kind) {
      if (!unit[kind[0]]) return;
      facts.appendChild(document.createTextNode(", "));
      add(facts, "span", count(unit[kind[0]]) + " " + kind[1], kind[2] ? "trouble" : "");
    });
  }
  function showDecision(card, decisions) {
    var last = decisions.last, scale = Math.max(1, last.threshold * 1.15, last.f * 1.05), gauge = add(card, "div", null, "gauge");
    last.inputs.forEach(function (input, at) {
      var part = input.value === null ? 0 : Math.max(0, input.value * input.weight), piece = add(gauge, "i", "", "t" + at % 4);
      piece.style.width = 100 * part / scale + "%";
      piece.title = input.name + " " + number(input.value) + " × " + number(input.weight) + (input.note ? " (" + input.note + ")" : "");
    });
    add(gauge, "u", "").style.left = 100 * last.threshold / scale + "%";
    var line = add(card, "p", null, "decision");
    add(line, "b", last.mode);
    line.appendChild(document.createTextNode(", f " + number(last.f) + " against " + number(last.threshold) + " (" +
      last.inputs.map(function (input) { return input.name + " " + number(input.value) + " × " + number(input.weight); }).join(", ") + ")" + (last.held ? ", held by " + last.held : "") +
      ". " + plural(decisions.made, "decision") + ": " + count(decisions.pipelined) + " pipelined, " + count(decisions.linear) + " linear, " + count(decisions.changed) + " changed, " + count(decisions.held_back) + " held back."));
  }

  // ---- the table
  function inView() {
    var begin = end - span;
    return bars.map(function (bar) { return bar.attempt; }).filter(function (attempt) { return until(attempt) >= begin && attempt.began_us <= end; });
  }
  function showTable() {
    var list = byId("list");
    if (!list.open) return;
    var place = byId("rows"), scrolled = place.scrollTop, shown = inView().reverse();
    clear(place);
    add(place, "p", plural(shown.length, "attempt") + " in the time shown" + (shown.length > TABLE_ROWS_MAX ? ", the last " + TABLE_ROWS_MAX + " below" : ""), "facts");
    var table = add(place, "table"), head = add(add(table, "thead"), "tr"), body = add(table, "tbody");
    ["began", "unit", "levels", "job", "task", "in", "out", "took", "mode", "read", "merge", "write", "outcome", "why, and the decision"].forEach(function (name, at) {
      var cell = add(head, "th", name, at < 3 || at > 11 ? "text" : "");
      cell.scope = "col";
    });
    shown.slice(0, TABLE_ROWS_MAX).forEach(function (attempt) {
      var line = add(body, "tr"), cell = function (text, kind) { add(line, "td", text, kind); };
      cell(clock(attempt.began_us, 1e3), "text"); cell(attempt.unit_name, "text"); cell(levels(attempt), "text"); cell(attempt.job); cell(attempt.task);
      cell(bytes(attempt.input_bytes)); cell(attempt.output_bytes ? bytes(attempt.output_bytes) : ""); cell(time(until(attempt) - attempt.began_us)); cell(attempt.ended_us === null ? "" : attempt.mode);
      STAGES.forEach(function (name) { cell(known(attempt) ? time(attempt.stages[name].busy_us) : ""); });
      cell(attempt.outcome, "text " + outcomeKind(attempt.outcome));
      cell([attempt.reason, attempt.decision && attempt.decision.why].filter(Boolean).join("; "), "text long");
    });
    place.scrollTop = scrolled;
  }

  // ---- what the reader does
  function press(button, on) { button.setAttribute("aria-pressed", String(on)); }
  function setFollowing(on) { following = on; if (!on) all = false; press(byId("follow"), following); presets(); changed(); }
  function setPaused(on) {
    if (on === paused) return;
    if (on) pausedAt = now();
    paused = on;
    say();
  }
  function presets() {
    byId("spans").querySelectorAll("button").forEach(function (button) {
      var seconds = Number(button.dataset.seconds);
      press(button, seconds === 0 ? all : !all && Math.abs(span - seconds * 1e6) < 1);
    });
  }
  var later = 0;
  /** The time shown is another one: the figures that depend on it follow soon. */
  function changed() {
    clearTimeout(later);
    later = setTimeout(function () { showUnits(); showTable(); }, 150);
  }
  function zoom(factor, share) {
    var at = end - span + span * share, whole = range(), most = Math.max(10e6, 1.2 * (whole[1] - whole[0]));
    all = false;
    span = Math.min(most, Math.max(SPAN_MIN, span * factor));
    if (!following) end = at + span * (1 - share);
    presets(); changed();
  }
  function move(us) {
    var whole = range();
    all = false;
    end = Math.max(whole[0] + span * 0.1, end + us);
    following = end >= now();
    press(byId("follow"), following);
    presets(); changed();
  }
  function togglePause() { byId("pause").click(); }
  byId("follow").addEventListener("click", function () { if (paused) togglePause(); setFollowing(true); });
  byId("in").addEventListener("click", function () { zoom(0.5, following ? 1 : 0.5); });
  byId("out").addEventListener("click", function () { zoom(2, following ? 1 : 0.5); });
  byId("spans").addEventListener("click", function (event) {
    if (!event.target.dataset.seconds) return;
    var seconds = Number(event.target.dataset.seconds);
    all = seconds === 0;
    if (!all) { var middle = end - span / 2; span = seconds * 1e6; if (!following) end = middle + span / 2; }
    presets(); changed();
  });
  byId("list").addEventListener("toggle", showTable);
  function share(event) { var box = timeline.getBoundingClientRect(); return Math.min(1, Math.max(0, (event.clientX - box.left - GUTTER) / (box.width - GUTTER - 6))); }
  timeline.addEventListener("wheel", function (event) {
    event.preventDefault();
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) move(event.deltaX / timeline.clientWidth * span);
    else { if (following && share(event) < 0.95) { following = false; press(byId("follow"), false); } zoom(Math.exp(Math.max(-100, Math.min(100, event.deltaY)) * 0.004), share(event)); }
  }, { passive: false });
  var drag = null;
  timeline.addEventListener("pointerdown", function (event) { drag = { x: event.clientX, end: end, moved: false }; timeline.setPointerCapture(event.pointerId); });
  timeline.addEventListener("pointermove", function (event) {
    if (drag) {
      var by = event.clientX - drag.x;
      if (Math.abs(by) > 3) { drag.moved = true; timeline.classList.add("drag"); hint.hidden = true; }
      if (drag.moved) move(drag.end - by / (timeline.clientWidth - GUTTER) * span - end);
      return;
    }
    hover(event);
  });
  timeline.addEventListener("pointerup", function (event) {
    timeline.classList.remove("drag");
    if (drag && !drag.moved) choose(under(event));
    drag = null;
  });
  timeline.addEventListener("pointercancel", function () { drag = null; timeline.classList.remove("drag"); });
  timeline.addEventListener("pointerleave", function () { hovered = null; hint.hidden = true; });
  function under(event) {
    var box = timeline.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top, found = null;
    boxes.forEach(function (it) { if (x >= it[0] && x <= it[2] && y >= it[1] && y <= it[3]) found = it[4]; });
    return found;
  }
  function hover(event) {
    var found = under(event);
    if (found !== hovered || (found && found.ended_us === null)) { hovered = found; if (found) tell(hint, found); }
    hint.hidden = !found;
    if (!found) return;
    var size = hint.getBoundingClientRect(), left = event.clientX + 18, top = event.clientY + 18;
    if (left + size.width > innerWidth - 8) left = event.clientX - size.width - 14;
    if (top + size.height > innerHeight - 8) top = event.clientY - size.height - 14;
    hint.style.left = Math.max(4, left) + "px";
    hint.style.top = Math.max(4, top) + "px";
  }
  /** From bar to bar in the order of time. */
  function neighbour(by) {
    var shown = bars.map(function (bar) { return bar.attempt; }), at = chosen ? shown.indexOf(chosen) : -1;
    if (at < 0) { var view = inView(); return choose(view.length ? view[by > 0 ? 0 : view.length - 1] : null); }
    var next = shown[at + by];
    if (!next) return;
    choose(next);
    if (next.began_us < end - span || next.began_us > end) { setFollowing(false); end = next.began_us + span / 2; }
  }
  timeline.addEventListener("keydown", function (event) {
    var acts = { ArrowLeft: function () { move(-span / 8); }, ArrowRight: function () { move(span / 8); }, "+": function () { zoom(0.7, 0.5); }, "=": function () { zoom(0.7, 0.5); },
      "-": function () { zoom(1 / 0.7, 0.5); }, " ": togglePause, End: function () { setFollowing(true); }, n: function () { neighbour(1); }, p: function () { neighbour(-1); },
      Escape: function () { choose(null); } };
    if (!acts[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    acts[event.key]();
  });
  function overviewTo(event) {
    var box = overview.getBoundingClientRect(), at = (event.clientX - box.left - GUTTER) / (box.width - GUTTER - 6), whole = range();
    if (at < 0) return;
    end = whole[0] + at * (whole[1] - whole[0]) + span / 2;
    move(0);
  }
  overview.addEventListener("pointerdown", function (event) { overview.setPointerCapture(event.pointerId); overviewTo(event); });
  overview.addEventListener("pointermove", function (event) { if (event.buttons) overviewTo(event); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", readColours);

  var drawn = 0;
  function frame(at) {
    var pace = matchMedia("(prefers-reduced-motion: reduce)").matches ? 1000 : 40;
    if (at - drawn >= pace || (hovered && at - drawn > 15)) { drawn = at; draw(); }
    requestAnimationFrame(frame);
  }
  readColours();
  presets();
  requestAnimationFrame(frame);
  return {
    /** The attempt after which attempts are news. */
    since: function () { return since; },
    /** Takes an answer. True if more can be asked for at once. */
    take: take,
    running: function () { return running; },
    setPaused: setPaused
  };
})();
