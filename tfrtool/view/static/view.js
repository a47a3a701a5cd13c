"use strict";
// Everything works without this script. It shows progress, stores marks at once, keeps switches, and adds keys.
const $ = (id) => document.getElementById(id);
const marks = $("marks");

// Progress
async function follow() {
  const answer = await fetch("/state").catch(() => null);
  if (answer === null || !answer.ok) {
    $("progress").textContent = "The viewer has stopped. Run tfrtool view again and open the URL that it prints.";
    return;
  }
  const state = await answer.json();
  $("progress").textContent = state.text;
  $("more").hidden = state.version === document.body.dataset.version;
  if (!state.done) setTimeout(follow, 1000);
}
if (!("done" in document.body.dataset)) setTimeout(follow, 500);
addEventListener("focus", follow);
if ($("more")) $("more").href = location.href.split("#")[0];

// Marks
async function store(box) {
  const body = new URLSearchParams([["script", "1"], ["seen", box.value], ...(box.checked ? [["mark", box.value]] : [])]);
  const answer = await fetch("/marks", { method: "POST", body }).catch(() => null);
  if (answer === null || !answer.ok) return marks.requestSubmit($("store")); // the page says what is wrong
  $("marked").textContent = await answer.text();
  box.closest(".item")?.classList.toggle("marked", box.checked);
}
if (marks) {
  $("store")?.setAttribute("hidden", "");
  marks.addEventListener("change", (event) => { if (event.target.name === "mark") store(event.target); });
}

// Switches of the image stay as they are from record to record
for (const input of document.querySelectorAll("figure input")) {
  const key = input.type === "radio" ? `${input.name} ${input.value}` : input.name;
  const kept = sessionStorage.getItem(key);
  if (kept !== null) input.checked = kept === "true";
  input.addEventListener("change", () => {
    for (const one of document.querySelectorAll(`figure input[name=${input.name}]`))
      sessionStorage.setItem(one.type === "radio" ? `${one.name} ${one.value}` : one.name, one.checked);
  });
}

// Steps: only the images of the step, and then those next to it, are loaded
const steps = $("steps");
if (steps) {
  const slider = steps.querySelector("[name=step]"), figures = [...steps.querySelectorAll("figure")];
  let shown = Number(slider.value), busy = false;
  const loaded = new Map([[shown, [...steps.querySelectorAll("img")]]]);
  const load = (step) => {
    if (!loaded.has(step)) loaded.set(step, figures.map((figure) => {
      const image = new Image();
      image.alt = figure.querySelector("figcaption").textContent;
      image.src = figure.dataset.base + step;
      return image;
    }));
    return loaded.get(step);
  };
  const loadNext = () => {
    for (const step of loaded.keys()) if (Math.abs(step - shown) > 1) loaded.delete(step);
    for (const step of [shown + 1, shown - 1]) if (step >= 0 && step <= Number(slider.max)) load(step);
  };
  const row = ([name, text]) => {
    const line = document.createElement("tr"), head = document.createElement("th"), cell = document.createElement("td");
    head.scope = "row";
    head.textContent = name;
    cell.textContent = text;
    line.append(head, cell);
    return line;
  };
  async function show() {
    if (busy) return; // what the slider says in the end is shown
    busy = true;
    while (shown !== Number(slider.value)) {
      const step = shown = Number(slider.value);
      const images = load(step);
      const answer = await fetch(steps.dataset.values + step).catch(() => null);
      const values = answer !== null && answer.ok ? await answer.json() : [["", "The values can't be read."]];
      await Promise.all(images.map((image) => image.decode().catch(() => null)));
      figures.forEach((figure, number) => figure.querySelector("img").replaceWith(images[number]));
      steps.querySelector("tbody").replaceChildren(...values.map(row));
      steps.querySelector("output").textContent = step;
    }
    busy = false;
    loadNext();
  }
  steps.querySelector("button").hidden = true;
  slider.addEventListener("input", show);
  loadNext();
}

if (matchMedia("(max-width: 700px)").matches) document.querySelector(".facets details")?.removeAttribute("open");

// Keys
const items = [...document.querySelectorAll(".item")];
document.querySelector("select[name=sort]")?.addEventListener("change", (event) => event.target.form.requestSubmit());
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey || event.target.closest("input:not([type=checkbox]), select, pre, .frame")) return;
  const at = items.findIndex((item) => item.contains(document.activeElement));
  if (event.key === "m") (at < 0 ? marks?.querySelector(":not(.item) > .check > [name=mark]") : items[at].querySelector("[name=mark]"))?.click();
  const rel = { ArrowLeft: "prev", ArrowRight: "next", Escape: "up" }[event.key];
  if (items.length && event.key.startsWith("Arrow")) {
    const across = items.filter((item) => item.offsetTop === items[0].offsetTop).length;
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -across, ArrowDown: across }[event.key];
    const next = items[at < 0 ? 0 : at + step];
    if (next) next.querySelector("a").focus();
    event.preventDefault();
  } else if (rel && !items.length) document.querySelector(`main a[rel=${rel}]`)?.click();
});
