"use strict";
// Everything here also works without this script, by buttons and links. The script loads parts of pages that take a
// while, follows a running release, redraws the charts of the sliders at once, and shows tooltips.

const NO_ANSWER = "The workbench does not answer. Is it still running?";

// Return the part of a page with an id, or the problem that the page shows instead.
async function fetchPart(id, address, options) {
  const text = await (await fetch(address, options)).text();
  const page = new DOMParser().parseFromString(text, "text/html");
  return page.getElementById(id) ?? page.querySelector("main .problem") ?? paragraph(NO_ANSWER, "problem");
}

function paragraph(words, kind) {
  const found = document.createElement("p");
  found.className = kind;
  found.textContent = words;
  found.setAttribute("role", kind === "problem" ? "alert" : "status");
  return found;
}

// Replace a link by the part of the page that it leads to.
async function loadPart(place) {
  const address = place.querySelector("a").href;
  const progress = document.createElement("progress");
  progress.setAttribute("aria-label", "Working");
  place.replaceChildren(paragraph(place.dataset.wait, "note"), progress);
  place.replaceWith(await fetchPart(place.dataset.load, address).catch(() => paragraph(NO_ANSWER, "problem")));
}

// Send a form, and show its answer in a part of this page.
async function sendInto(event) {
  const form = event.target.closest("form[data-into]");
  if (!form) return;
  event.preventDefault();
  const button = form.querySelector("button");
  button.disabled = true;
  const options = { method: "POST", body: new URLSearchParams(new FormData(form)) };
  const answer = await fetchPart(form.dataset.into, form.action, options).catch(() => paragraph(NO_ANSWER, "problem"));
  answer.id = form.dataset.into;
  document.getElementById(form.dataset.into).replaceWith(answer);
  button.disabled = false;
}

// Look at a running release again and again. Nothing changes on the page, and the focus stays, until it has ended.
async function follow() {
  const place = document.querySelector("[data-poll]");
  if (!place) return;
  const found = await fetchPart(place.id, location.pathname).catch(() => null);
  if (found?.id === place.id && found.dataset.status !== place.dataset.status) place.replaceWith(found);
  setTimeout(follow, Number(place.dataset.poll));
}

// The sliders of the page "Noise": one position is asked for at a time, and the last one counts.
function startSliders() {
  const sliders = document.getElementById("sliders");
  if (!sliders) return;
  const form = sliders.querySelector("form[data-preview]");
  const mechanism = document.getElementById("slider-mechanism");
  const use = mechanism.form.querySelector("button");
  let running = false;
  let waiting = false;

  function show(found) {
    document.getElementById("half-words").textContent = found.half ?? "";
    document.getElementById("slider-words").textContent = found.problem ?? found.words;
    document.getElementById("preview").innerHTML = found.part ?? ""; // escaped by the server; it has no scripts
  }

  async function redraw() {
    use.disabled = true; // it must not use the noise of an earlier position
    mechanism.value = "";
    waiting = true;
    if (running) return;
    running = true;
    let found;
    while (waiting) {
      waiting = false;
      try {
        found = await (await fetch(`${form.dataset.preview}?${new URLSearchParams(new FormData(form))}`)).json();
      } catch {
        found = { problem: "The workbench does not answer, so that this position cannot be used. Is it still running?" };
      }
      show(found);
    }
    running = false;
    mechanism.value = found.mechanism ?? "";
    use.disabled = !mechanism.value;
    if (!use.disabled) sliders.dataset.drawn = String(Number(sliders.dataset.drawn) + 1);
  }

  form.querySelector("button").hidden = true;
  for (const slider of form.querySelectorAll("[type=range]")) slider.addEventListener("input", redraw);
  form.addEventListener("submit", (event) => { event.preventDefault(); redraw(); });
  sliders.dataset.drawn = "1"; // by the server
}

// The tooltip of the nearest point of a chart. Points carry their text as a label, and are drawn when they are near.
function startTips() {
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.setAttribute("aria-hidden", "true"); // the chart has a text alternative
  let near = null;

  function mark(point) {
    near?.classList.remove("near");
    near = point;
    point?.classList.add("near");
    if (!point) tip.remove();
  }

  document.addEventListener("pointermove", (event) => {
    const chart = event.target.closest?.(".chart svg");
    let best = 40; // pixels
    let found = null;
    for (const point of chart?.querySelectorAll("[aria-roledescription=point]") ?? []) {
      const box = point.getBoundingClientRect();
      const distance = Math.hypot(box.x + box.width / 2 - event.clientX, box.y + box.height / 2 - event.clientY);
      if (distance < best) [best, found] = [distance, point];
    }
    mark(found);
    if (!found) return;
    tip.textContent = found.getAttribute("aria-label");
    document.body.append(tip);
    const { x, y } = found.getBoundingClientRect();
    tip.style.left = `${Math.max(4, Math.min(x + 12, innerWidth - tip.offsetWidth - 4))}px`;
    tip.style.top = `${Math.max(4, y - tip.offsetHeight - 8)}px`;
  });
  document.addEventListener("scroll", () => mark(null), true);
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") mark(null); });
}

document.querySelectorAll("[data-load]").forEach(loadPart);
document.addEventListener("submit", sendInto);
follow();
startSliders();
startTips();
