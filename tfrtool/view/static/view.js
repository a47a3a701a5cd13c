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

// Tags
const tagOf = (box) => box.value.split("/")[2] ?? "marked";
function showChip(item, tag, isSet) {
  let tags = item.querySelector("a .tags, td .tags");
  if (!tags && isSet) {
    tags = document.createElement("span");
    tags.className = "tags";
    (item.matches("li") ? item.querySelector("a") : item.querySelector("th")).append(tags);
  }
  const shown = [...(tags?.children ?? [])].find((one) => one.textContent === tag);
  if (isSet && !shown) {
    const chip = document.createElement("span");
    chip.className = "tag";
    chip.textContent = tag;
    tags.append(chip);
  } else if (!isSet) shown?.remove();
}
async function store(box) {
  const body = new URLSearchParams([["script", "1"], ["seen", box.value], ...(box.checked ? [["mark", box.value]] : [])]);
  const answer = await fetch("/marks", { method: "POST", body }).catch(() => null);
  if (answer === null || !answer.ok) return marks.requestSubmit($("store")); // the page says what is wrong
  const counts = await answer.json(), tag = tagOf(box), item = box.closest(".item");
  const shown = $("marked");
  if (shown && shown.dataset.tag === tag) shown.textContent = counts[tag].toLocaleString("en");
  if ($("commands")) $("commands").hidden = !counts[tag];
  if (!item) return;
  item.classList.toggle("marked", box.checked);
  showChip(item, tag, box.checked);
}
if (marks) {
  $("store")?.setAttribute("hidden", "");
  marks.addEventListener("change", (event) => { if (event.target.name === "mark") store(event.target); });
}

for (const button of document.querySelectorAll("button.copy")) {
  const code = button.parentElement.querySelector("code");
  button.hidden = false;
  button.addEventListener("click", async () => {
    getSelection().selectAllChildren(code);
    const isCopied = await navigator.clipboard?.writeText(code.textContent).then(() => true, () => false);
    button.textContent = isCopied ? "Copied" : "Selected"; // without a clipboard, Ctrl-C copies it
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
}

// Switches of the image stay as they are from record to record
const inputs = [...document.querySelectorAll(".media input:not([type=range], [type=hidden])")];
const keyOf = (input) => (input.type === "radio" ? `${input.name} ${input.value}` : input.name);
function apply() {
  for (const input of inputs) if (input.dataset.shows !== undefined) {
    for (const group of input.closest("figure").querySelectorAll("[data-class]"))
      if (group.dataset.class === input.dataset.shows) group.toggleAttribute("hidden", !input.checked);
  }
  const isZoomed = document.querySelector(".z0:not(:checked)");
  if (isZoomed) for (const image of document.querySelectorAll("[data-full]")) {
    image.src = image.dataset.full; // all its pixels
    image.removeAttribute("data-full");
  }
}
for (const input of inputs) {
  const kept = sessionStorage.getItem(keyOf(input));
  if (kept !== null) input.checked = kept === "true";
  input.addEventListener("change", () => {
    for (const one of inputs) if (one.name === input.name) sessionStorage.setItem(keyOf(one), one.checked);
    apply();
  });
}
for (const list of document.querySelectorAll(".classes")) list.hidden = false;
apply();

// Images: the wheel zooms around the pointer, and dragging moves
const levels = [...document.querySelectorAll(".zoom input")];
let lastWheel = 0;
for (const frame of document.querySelectorAll(".frame")) {
  frame.addEventListener("wheel", (event) => {
    if (event.ctrlKey) return;
    const image = frame.querySelector("img"), before = image.getBoundingClientRect();
    const widths = levels.map((level) => parseInt(level.value, 10) * Number(image.getAttribute("width")));
    const larger = levels.filter((_, number) => widths[number] > 1.01 * before.width);
    const smaller = levels.filter((_, number) => widths[number] < 0.99 * before.width && widths[number] > frame.clientWidth);
    const next = event.deltaY < 0 ? larger[0] : smaller.at(-1) ?? levels[0]; // the first level is Fit
    if (event.deltaY > 0 && levels[0]?.checked) return; // the page scrolls
    event.preventDefault();
    if (!next || event.timeStamp - lastWheel < 150) return;
    lastWheel = event.timeStamp;
    const [x, y] = [(event.clientX - before.left) / before.width, (event.clientY - before.top) / before.height];
    next.click();
    const after = image.getBoundingClientRect();
    frame.scrollLeft += after.left + x * after.width - event.clientX;
    frame.scrollTop += after.top + y * after.height - event.clientY;
  }, { passive: false });
  frame.addEventListener("dragstart", (event) => event.preventDefault());
  frame.addEventListener("pointerdown", (event) => {
    if (event.button || event.pointerType === "touch") return;
    frame.setPointerCapture(event.pointerId);
    frame.classList.add("dragged");
  });
  frame.addEventListener("pointermove", (event) => {
    if (!frame.classList.contains("dragged")) return;
    frame.scrollLeft -= event.movementX;
    frame.scrollTop -= event.movementY;
  });
  for (const end of ["pointerup", "pointercancel"]) frame.addEventListener(end, () => frame.classList.remove("dragged"));
}

// Steps: only the images of the step, and then those next to it, are loaded
const steps = $("steps");
if (steps) {
  const slider = steps.querySelector("[name=step]"), figures = [...steps.querySelectorAll("figure")];
  const body = steps.querySelector("tbody"), last = Number(slider.max);
  let shown = Number(slider.value), busy = false;
  const loaded = new Map([[shown, figures.map((figure) => figure.querySelector("img"))]]);
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
    for (const step of [shown + 1, shown - 1]) if (step >= 0 && step <= last) load(step);
  };
  const cellOf = (name) => {
    const known = [...body.rows].find((row) => row.cells[0].textContent === name);
    if (known) return known.cells[1];
    const row = body.insertRow(), head = document.createElement("th");
    head.scope = "row";
    head.textContent = name;
    row.append(head);
    return row.insertCell();
  };
  const update = (values) => {
    for (const row of body.rows) row.cells[1].textContent = "";
    for (const [name, text] of values) cellOf(name).textContent = text;
    for (const mark of body.querySelectorAll(".now")) mark.setAttribute("x", Math.max(160 * shown / Math.max(last, 1) - 0.5, 0));
    for (const link of steps.querySelectorAll(".film a"))
      if (Number(link.dataset.step) === shown) link.setAttribute("aria-current", "step");
      else link.removeAttribute("aria-current");
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
      update(values);
      steps.querySelector("output").textContent = step;
    }
    busy = false;
    loadNext();
  }
  steps.querySelector("button").hidden = true;
  slider.addEventListener("input", show);
  steps.querySelector("select")?.addEventListener("change", (event) => {
    const base = figures[Number(event.target.value)].dataset.base;
    for (const link of steps.querySelectorAll(".film a"))
      link.querySelector("img").src = `${base}${link.dataset.step}?box=120`;
  });
  steps.querySelector(".film").addEventListener("click", (event) => {
    const link = event.target.closest("a");
    if (!link || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    slider.value = link.dataset.step;
    show();
  });
  loadNext();
}

if (matchMedia("(max-width: 700px)").matches) document.querySelector(".facets details")?.removeAttribute("open");

// Bars of a histogram: Tab enters it once, and the arrow keys move in it
const barsOf = (bar) => [...bar.closest(".histogram").querySelectorAll("a")];
function moveTo(bar) {
  for (const one of barsOf(bar)) one.setAttribute("tabindex", one === bar ? 0 : -1);
}
for (const chart of document.querySelectorAll(".histogram:has(a)"))
  moveTo(chart.querySelector("[aria-current]") ?? chart.querySelector("a"));
function moveInBars(event, bar) {
  const bars = barsOf(bar), at = bars.indexOf(bar);
  const next = { ArrowLeft: bars[at - 1], ArrowRight: bars[at + 1], Home: bars[0], End: bars.at(-1) }[event.key];
  if (!next) return;
  event.preventDefault();
  moveTo(next);
  next.focus();
}

// Keys
const items = [...document.querySelectorAll(".item")];
const left = document.getElementById(location.hash.slice(1))?.closest(".item"); // the record that was left
if (left) addEventListener("load", () => setTimeout(() => left.querySelector("a").focus()));
document.querySelector("select[name=sort]")?.addEventListener("change", (event) => event.target.form.requestSubmit());
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey || event.target.closest("input:not([type=checkbox]), select, pre, audio, video")) return;
  const bar = event.target.closest(".histogram a");
  if (bar) return moveInBars(event, bar);
  const frame = event.target.closest(".frame"); // the keys scroll what is larger than its frame
  if (frame && event.key !== "Escape" && (frame.scrollWidth > frame.clientWidth || frame.scrollHeight > frame.clientHeight)) return;
  const at = items.findIndex((item) => item.contains(document.activeElement));
  if (event.key === "m") (at < 0 ? marks?.querySelector(".check.current > [name=mark]") : items[at].querySelector("[name=mark]"))?.click();
  const rel = { ArrowLeft: "prev", ArrowRight: "next", Escape: "up" }[event.key];
  if (items.length && event.key.startsWith("Arrow")) {
    const across = items.filter((item) => item.offsetTop === items[0].offsetTop).length;
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -across, ArrowDown: across }[event.key];
    const next = items[at < 0 ? 0 : at + step];
    if (next) next.querySelector("a").focus();
    event.preventDefault();
  } else if (rel && !items.length) document.querySelector(`main a[rel=${rel}]`)?.click();
});
