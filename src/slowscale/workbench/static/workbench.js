"use strict";
// Charts are Vega-Lite descriptions. Expressions are interpreted, never compiled, so that the page needs no eval.

async function drawChart(place, description) {
  const ink = getComputedStyle(document.body).color;
  const axis = { labelColor: ink, titleColor: ink, tickColor: ink, domainColor: ink, gridColor: "gray", gridOpacity: 0.25, labelFontSize: 12, titleFontSize: 12 };
  const config = { background: null, axis, legend: { labelColor: ink, titleColor: ink, labelFontSize: 12 }, view: { stroke: null } };
  const options = { actions: false, ast: true, expr: vega.expressionInterpreter, renderer: "svg", defaultStyle: false, tooltip: false };
  const result = await vegaEmbed(place, { ...description, config }, options);
  return result.view;
}

async function drawCharts(root) {
  for (const place of root.querySelectorAll("[data-description]:not([data-drawn])")) {
    place.dataset.drawn = "yes";
    await drawChart(place, JSON.parse(place.dataset.description));
  }
}

// The sliders of the page "Noise": the server computes the lines of a position, and the charts get new data.
function startSliders() {
  const sliders = document.getElementById("sliders");
  if (!sliders) return;
  const position = document.getElementById("position");
  const half = document.getElementById("half");
  const words = document.getElementById("slider-words");
  const losses = document.querySelector("#slider-losses tbody");
  const mechanism = document.getElementById("slider-mechanism");
  const use = mechanism.form.querySelector("button");
  const wanted = Number(sliders.dataset.half);
  let views = null;
  let asked = 0;

  async function redraw() {
    const number = ++asked;
    // The button must not use the noise of an earlier position.
    use.disabled = true;
    mechanism.value = "";
    const width = wanted * 10 ** Number(half.value);
    const query = new URLSearchParams({ sizes: sliders.dataset.sizes, half: String(width), position: position.value });
    let found;
    try {
      found = await (await fetch(`${sliders.dataset.preview}?${query}`)).json();
    } catch {
      found = { problem: "The workbench does not answer, so that this position cannot be used. Is it still running?" };
    }
    if (number !== asked) return; // a later position was asked for meanwhile
    if (found.problem) {
      words.textContent = found.problem;
      losses.replaceChildren(); // those of an earlier position
      return;
    }
    document.getElementById("half-words").textContent = found.halves[1];
    words.textContent =
      `${found.words}: half of the numbers within ±${found.halves[0]}, 95 % within ±${found.halves[1]}, 99.9 % within ±${found.halves[2]}.`;
    losses.replaceChildren(...found.named.map((row) => {
      const line = document.createElement("tr");
      const name = document.createElement("th");
      name.scope = "row";
      name.textContent = row.name;
      const size = document.createElement("td");
      const loss = document.createElement("td");
      size.textContent = row.size;
      loss.textContent = row.loss;
      size.className = loss.className = "number";
      line.append(name, size, loss);
      return line;
    }));
    if (!views) {
      views = [await drawChart(document.getElementById("loss-chart"), found.charts[0]), await drawChart(document.getElementById("error-chart"), found.charts[1])];
    } else {
      const change = vega.changeset;
      await Promise.all([
        views[0].change("losses", change().remove(() => true).insert(found.losses)).runAsync(),
        views[1].change("errors", change().remove(() => true).insert(found.errors)).runAsync(),
      ]);
    }
    if (number !== asked) return;
    mechanism.value = JSON.stringify(found.mechanism);
    use.disabled = false;
    sliders.dataset.drawn = String(number);
  }

  position.addEventListener("input", redraw);
  half.addEventListener("input", redraw);
  redraw();
}

document.addEventListener("DOMContentLoaded", () => { drawCharts(document); startSliders(); });
document.addEventListener("htmx:afterSettle", (event) => drawCharts(event.target));
