(function () {
  "use strict";

  // Figures carry stand-in colours; the page's own are put in their place, for light, dark and paper.
  const STAND_INS = { "#010203": "--ink", "#010204": "--muted", "#010205": "--grid", "#010206": "--paper" };
  // Paper is white whatever the screen is, and no wider than this many pixels.
  const ON_PAPER = { "#010203": "#000000", "#010204": "#444444", "#010205": "#dddddd", "#010206": "#ffffff" };
  const PAPER_WIDTH = 660;
  const CONFIG = { responsive: true, displaylogo: false, displayModeBar: false };

  function themed(json, onPaper) {
    const style = getComputedStyle(document.documentElement);
    const colour = (found) => onPaper ? ON_PAPER[found] : style.getPropertyValue(STAND_INS[found]).trim();
    return JSON.parse(json.replace(/#01020[3-6]/g, colour));
  }

  const plots = Array.from(document.querySelectorAll(".plot"));

  function draw(plot, onPaper) {
    const figure = themed(document.getElementById(plot.dataset.figure).textContent, onPaper);
    if (onPaper) figure.layout.width = PAPER_WIDTH;
    return Plotly.react(plot, figure.data, figure.layout, CONFIG).then(() => { plot.dataset.drawn = "true"; });
  }

  function failed(plot, problem) {
    plot.dataset.drawn = "failed";
    plot.textContent = "This figure could not be drawn: " + problem.message;
    console.error(problem);
  }

  function drawAll(index) {
    if (index === plots.length) {
      document.documentElement.dataset.figures = "done";
      return;
    }
    const next = () => setTimeout(drawAll, 0, index + 1);
    try {
      draw(plots[index], false).catch((problem) => failed(plots[index], problem)).then(next);
    } catch (problem) {
      failed(plots[index], problem);
      next();
    }
  }

  function redraw(onPaper) {
    plots.filter((plot) => plot.dataset.drawn === "true").forEach((plot) => { draw(plot, onPaper); });
  }

  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => redraw(false));
  addEventListener("beforeprint", () => redraw(true));
  addEventListener("afterprint", () => redraw(false));

  // Tables: a click on a head sorts; what has no value stays last either way.
  function compare(a, b, sign) {
    if (a === null || b === null) return (a === null) - (b === null);
    const numbers = typeof a === "number" && typeof b === "number";
    return sign * (numbers ? a - b : String(a).localeCompare(String(b), "en", { numeric: true }));
  }

  function key(row, column) {
    const cell = row.cells[column];
    const raw = cell.dataset.sort;
    if (raw === undefined) return null;
    return cell.classList.contains("num") ? Number(raw) : raw;
  }

  document.querySelectorAll("table.sortable").forEach((table) => {
    const heads = Array.from(table.tHead.rows[0].cells);
    const body = table.tBodies[0];
    heads.forEach((head, column) => {
      head.querySelector("button").addEventListener("click", () => {
        const ascending = head.getAttribute("aria-sort") !== "ascending";
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", ascending ? "ascending" : "descending");
        const sign = ascending ? 1 : -1;
        Array.from(body.rows)
          .map((row) => ({ row, key: key(row, column) }))
          .sort((a, b) => compare(a.key, b.key, sign))
          .forEach(({ row }) => body.appendChild(row));
      });
    });
  });

  const filter = document.getElementById("filter");
  if (filter) {
    const rows = Array.from(document.querySelectorAll("#verdicts tbody tr"));
    const shown = document.getElementById("shown");
    filter.addEventListener("input", () => {
      const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
      rows.forEach((row) => {
        const text = row.textContent.toLowerCase();
        row.hidden = !words.every((word) => text.includes(word));
      });
      shown.textContent = rows.filter((row) => !row.hidden).length + " of " + rows.length + " cells";
    });
  }

  drawAll(0);
})();
