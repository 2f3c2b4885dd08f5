"use strict";
(() => {
  const config = {
    background: "transparent",
    font: "system-ui, -apple-system, Segoe UI, Roboto, Helvetica Neue, Arial, sans-serif",
    view: { stroke: null },
    axis: { labelFontSize: 12, titleFontSize: 12, titleFontWeight: "normal", gridOpacity: 0.6, labelOverlap: true },
    legend: { labelFontSize: 12, titleFontSize: 12, titleFontWeight: "normal" },
    header: { labelFontSize: 12 },
  };
  const views = new Map();
  const draw = async () => {
    for (const source of document.querySelectorAll("script[data-chart]")) {
      const place = document.getElementById(source.dataset.chart);
      try {
        const drawn = await vegaEmbed(place, JSON.parse(source.textContent), {
          renderer: "svg", actions: false, config, tooltip: { theme: matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light" },
        });
        views.set(place, drawn.view);
        place.dataset.drawn = "yes";
      } catch (error) {
        place.textContent = "This chart could not be drawn: " + error.message;
        console.error(error);
      }
    }
    document.documentElement.dataset.ready = "yes";
  };

  const toggle = (button) => {
    const figure = button.closest("figure");
    const view = views.get(figure.querySelector(".chart"));
    if (!view) return;
    button.setAttribute("aria-pressed", button.getAttribute("aria-pressed") === "true" ? "false" : "true");
    const off = [...figure.querySelectorAll(".legend button[aria-pressed=false]")].map((b) => b.dataset.label);
    view.signal("hidden", off).runAsync();
  };
  for (const button of document.querySelectorAll(".legend button")) button.addEventListener("click", () => toggle(button));

  // The date is the file's own, so that the same results make the same bytes.
  const written = new Date(document.lastModified);
  for (const place of document.querySelectorAll("[data-written]")) place.textContent = " on " + written.toLocaleDateString("en-CA");

  const value = (cell) => (cell.dataset.sort !== undefined ? Number(cell.dataset.sort) : cell.textContent.trim());
  const sortBy = (head) => {
    const table = head.closest("table");
    const index = [...head.parentNode.children].indexOf(head);
    const ascending = head.getAttribute("aria-sort") !== "ascending";
    const rows = [...table.tBodies[0].rows].sort((a, b) => {
      const [x, y] = [value(a.cells[index]), value(b.cells[index])];
      const order = typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y));
      return ascending ? order : -order;
    });
    for (const other of head.parentNode.children) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", ascending ? "ascending" : "descending");
    table.tBodies[0].append(...rows);
  };
  for (const button of document.querySelectorAll("th button")) button.addEventListener("click", () => sortBy(button.parentNode));
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((d) => { d.open = true; }));
  draw();
})();
