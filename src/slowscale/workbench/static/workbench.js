"use strict";
// Charts: an element with data-chart holds the address of a Vega-Lite description. Expressions are interpreted, never
// compiled, so that the page needs no eval.
async function drawCharts(root) {
  for (const place of root.querySelectorAll("[data-chart]:not([data-drawn])")) {
    place.dataset.drawn = "yes";
    const answer = await fetch(place.dataset.chart, { headers: { accept: "application/json" } });
    if (!answer.ok) { place.textContent = "The chart could not be drawn."; continue; }
    await drawChart(place, await answer.json());
  }
}

async function drawChart(place, description) {
  const ink = getComputedStyle(document.body).color;
  const config = { background: null, axis: { labelColor: ink, titleColor: ink, tickColor: ink, domainColor: ink, gridOpacity: 0.25 }, legend: { labelColor: ink, titleColor: ink }, title: { color: ink }, view: { stroke: null } };
  const result = await vegaEmbed(place, { ...description, config: { ...config, ...(description.config || {}) } }, { actions: false, ast: true, expr: vega.expressionInterpreter, renderer: "svg", defaultStyle: false, tooltip: false });
  place.view = result.view;
}

document.addEventListener("DOMContentLoaded", () => drawCharts(document));
document.addEventListener("htmx:afterSettle", (event) => drawCharts(event.target));
