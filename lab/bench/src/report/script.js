"use strict";
(function () {
  var hint = document.getElementById("hint");
  function show(event, text) {
    hint.textContent = text;
    hint.hidden = false;
    var box = hint.getBoundingClientRect();
    var left = event.clientX + 16 + box.width > innerWidth ? event.clientX - box.width - 12 : event.clientX + 16;
    hint.style.left = Math.max(4, left) + "px";
    hint.style.top = Math.max(4, event.clientY - box.height - 12) + "px";
  }
  function hide() { hint.hidden = true; }
  document.querySelectorAll("[data-hint]").forEach(function (bar) {
    bar.addEventListener("mousemove", function (event) { show(event, bar.dataset.hint); });
    bar.addEventListener("mouseleave", hide);
  });
  document.querySelectorAll("svg.lines").forEach(function (chart) {
    var cross = chart.querySelector(".cross");
    var lines = Array.from(chart.querySelectorAll(".line")).map(function (line) {
      return { label: line.dataset.label, x: line.dataset.x.split(" ").map(Number), text: line.dataset.text.split("|") };
    });
    chart.addEventListener("mousemove", function (event) {
      var at = new DOMPoint(event.clientX, event.clientY).matrixTransform(chart.getScreenCTM().inverse()).x;
      var place = null, rows = [];
      lines.forEach(function (line) {
        var best = 0;
        line.x.forEach(function (x, index) { if (Math.abs(x - at) < Math.abs(line.x[best] - at)) best = index; });
        if (at > line.x[line.x.length - 1] + 12) return;
        if (place === null || Math.abs(line.x[best] - at) < Math.abs(place - at)) place = line.x[best];
        rows.push(line.label + ": " + line.text[best]);
      });
      if (place === null) { hide(); cross.style.visibility = "hidden"; return; }
      cross.setAttribute("x1", place);
      cross.setAttribute("x2", place);
      cross.style.visibility = "visible";
      show(event, rows.join("\n"));
    });
    chart.addEventListener("mouseleave", function () { hide(); cross.style.visibility = "hidden"; });
  });
})();
