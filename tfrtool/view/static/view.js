"use strict";
// The viewer's page. Everything that comes from records is put in as text, never as HTML;
// the pieces are HTML from the server, which has escaped them.
(() => {
  const $ = (id) => document.getElementById(id);
  const MOST_HEIGHT = 8_000_000; // pixels that browsers still scroll through exactly
  const PAGE = 100;

  let state = { records: 0, version: "", done: false, images: true };
  let question = new URLSearchParams();
  let total = 0;
  let complete = false;
  let asked = 0; // counts questions: answers to earlier ones are thrown away
  let open = -1; // the place, among what was found, of the record that is open
  const pages = new Map(); // pages of rows, by their number
  const marks = new Set();

  const make = (tag, attributes = {}, ...inside) => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name === "onclick") element.addEventListener("click", value);
      else if (value !== null && value !== false) element.setAttribute(name, value);
    }
    element.append(...inside.filter((one) => one !== null));
    return element;
  };
  const count = (n, noun) => `${n.toLocaleString("en")} ${noun}${n === 1 ? "" : "s"}`;

  async function ask(address, options) {
    let answer;
    try {
      answer = await fetch(address, options);
    } catch {
      throw new Error("the viewer has ended: start tfrtool view again");
    }
    if (answer.status === 503) throw new Error("busy, try again");
    const kind = answer.headers.get("content-type") || "";
    const body = kind.includes("json") ? await answer.json() : await answer.text();
    if (!answer.ok) throw new Error(body.error || body);
    return body;
  }

  const say = (id, text) => {
    $(id).textContent = text;
    $(id).hidden = !text;
  };

  // How far it is

  function fillChoices(select, values) {
    const chosen = select.value;
    const known = new Set([...select.options].map((option) => option.value));
    for (const value of values) if (!known.has(value)) select.append(make("option", { value }, value));
    select.value = chosen;
  }

  async function follow() {
    try {
      const before = state;
      state = await ask("/api/state");
      const more = state.counted ? "" : " so far";
      say("counts", `${count(state.records, "record")}${more}` +
        (state.faults === null ? (state.damaged ? `, ${count(state.damaged, "fault")} so far` : "")
          : state.faults ? `, \u2717 ${count(state.faults, "fault")}` : ", \u2713 nothing is wrong"));
      const share = state.step_total ? state.step_done / state.step_total : null;
      if (share === null) $("progress").removeAttribute("value");
      else $("progress").value = share;
      $("step").textContent = state.done ? "" : `${state.step || "counting"} ...`;
      $("progress-line").hidden = state.done;
      const form = $("filter");
      fillChoices(form.split, state.splits);
      fillChoices(form.label, state.classes);
      fillChoices(form.sort, state.columns);
      const problems = Object.entries(state.errors).map(([step, why]) => `${step}: ${why}`);
      if (state.changed.length)
        problems.push(`changed since they were opened: ${state.changed.join(", ")}; start the viewer again to see them as they are`);
      say("warning", problems.join("; "));
      if (before.version !== state.version || before.records !== state.records) {
        if (![...question.keys()].length || !complete) await look(false);
        await showPiece();
      }
    } catch (error) {
      say("warning", error.message);
    }
    setTimeout(follow, state.done ? 5000 : 700);
  }

  // The grid

  function layout() {
    const width = $("grid").clientWidth || 800;
    const cell = state.images ? { width: 148, height: 178 } : { width: width, height: 76 };
    const columns = Math.max(1, Math.floor(width / cell.width));
    const rows = Math.ceil(total / columns);
    const real = rows * cell.height;
    return { ...cell, columns, rows, real, height: Math.min(real, MOST_HEIGHT) };
  }

  // The first line that is seen; a page that is too high for the browser is scrolled by shares.
  function firstLine(shape) {
    const grid = $("grid");
    if (shape.real <= MOST_HEIGHT) return grid.scrollTop / shape.height ? grid.scrollTop / (shape.real / shape.rows) : 0;
    const span = Math.max(1, shape.height - grid.clientHeight);
    return (grid.scrollTop / span) * Math.max(0, shape.rows - grid.clientHeight / (shape.real / shape.rows));
  }

  function draw() {
    const shape = layout();
    const line = firstLine(shape);
    const first = Math.max(0, Math.floor(line) - 1);
    const last = Math.min(shape.rows, Math.ceil(line + $("grid").clientHeight / (shape.real / shape.rows || 1)) + 1);
    $("space").style.height = `${shape.height}px`;
    const top = $("grid").scrollTop - (line - first) * (state.images ? 178 : 76);
    $("cells").style.transform = `translateY(${Math.max(0, top)}px)`;
    $("cells").className = state.images ? "pictures" : "lines";
    const cells = [];
    for (let place = first * shape.columns; place < Math.min(total, last * shape.columns); place++)
      cells.push(cell(place));
    const held = document.activeElement && document.activeElement.dataset ? document.activeElement.dataset.place : null;
    $("cells").replaceChildren(...cells);
    if (held) {
      const again = $("cells").querySelector(`[data-place="${held}"]`);
      if (again) again.focus({ preventScroll: true });
    }
    for (let page = Math.floor((first * shape.columns) / PAGE); page * PAGE < Math.min(total, last * shape.columns); page++) load(page);
  }

  function rowAt(place) {
    const page = pages.get(Math.floor(place / PAGE));
    return page && page.rows ? page.rows[place % PAGE] : undefined;
  }

  function cell(place) {
    const row = rowAt(place);
    const button = make("button", { class: "cell", "data-place": place, onclick: () => show(place) });
    if (!row) {
      button.append(make("span", { class: "none" }, "..."));
      return button;
    }
    if (marks.has(row.row)) button.classList.add("marked");
    const label = row.label === undefined || row.label === null ? "" : String(row.label);
    const size = row.width ? ` ${row.width} x ${row.height}` : "";
    if (state.images) {
      const image = make("img", { src: `/thumb/${row.row}`, alt: "", loading: "eager" });
      image.addEventListener("error", () => image.replaceWith(make("span", { class: "none" }, "no picture")));
      button.append(image);
    }
    const text = row.damaged ? "damaged" : row.features
      ? Object.entries(row.features).map(([name, value]) => `${name}: ${JSON.stringify(value)}`).join("   ") : label;
    button.append(make("span", { class: "caption" }, `${marks.has(row.row) ? "\u2713 marked " : ""}${text}`),
      make("span", { class: "faint" }, `#${row.row}${size}${row.split ? ` ${row.split}` : ""}`));
    button.setAttribute("aria-label", `record ${row.row}, ${row.damaged ? "damaged" : label || "no label"}${size}${marks.has(row.row) ? ", marked" : ""}`);
    return button;
  }

  async function load(page) {
    if (pages.has(page)) return;
    const mine = asked;
    pages.set(page, {});
    try {
      const found = await ask(`/api/rows?start=${page * PAGE}&count=${PAGE}&${question}`);
      if (mine !== asked) return;
      pages.set(page, found);
      complete = found.complete;
      if (found.total !== total) { total = found.total; tell(); }
      say("problem", "");
      requestAnimationFrame(draw);
    } catch (error) {
      if (mine !== asked) return;
      pages.delete(page);
      total = page === 0 ? 0 : total;
      say("problem", error.message);
      tell();
      if (page === 0) draw();
    }
  }

  function tell() {
    const narrowed = [...question.keys()].some((name) => name !== "descending");
    const so_far = complete ? "" : narrowed ? ` of the ${count(state.read || 0, "record")} read so far` : " so far";
    $("found").textContent = `${count(total, "record")}${so_far}`;
  }

  async function look(anew = true) {
    asked++;
    pages.clear();
    if (anew) $("grid").scrollTop = 0;
    await load(0);
    tell();
    draw();
  }

  $("filter").addEventListener("submit", (event) => {
    event.preventDefault();
    question = new URLSearchParams([...new FormData($("filter"))].filter(([, value]) => value));
    look();
  });
  for (const name of ["split", "label", "sort", "descending"])
    $("filter")[name].addEventListener("change", () => $("filter").requestSubmit());
  let waiting = 0;
  $("grid").addEventListener("scroll", () => {
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(draw);
  });
  addEventListener("resize", draw);
  $("grid").addEventListener("keydown", (event) => {
    const shape = layout();
    const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: shape.columns, ArrowUp: -shape.columns };
    const at = document.activeElement.dataset.place;
    if (event.key === "Home" || event.key === "End") {
      $("grid").scrollTop = event.key === "Home" ? 0 : $("grid").scrollHeight;
    } else if (event.key in steps && at !== undefined) {
      const next = Math.min(total - 1, Math.max(0, Number(at) + steps[event.key]));
      const other = $("cells").querySelector(`[data-place="${next}"]`);
      if (other) other.focus();
    } else if (event.key === "m" && at !== undefined && rowAt(at)) {
      toggle(rowAt(at).row);
    } else return;
    event.preventDefault();
  });

  // Marks

  function toggle(row) {
    if (!marks.delete(row)) marks.add(row);
    $("marked").textContent = marks.size ? `${count(marks.size, "record")} marked.` : "Nothing is marked.";
    $("save").disabled = $("unmark").disabled = !marks.size;
    draw();
  }
  $("unmark").addEventListener("click", () => {
    const [last] = marks;
    marks.clear();
    marks.add(last);
    toggle(last);
  });
  $("save").addEventListener("click", async () => {
    try {
      const body = JSON.stringify({ rows: [...marks] });
      const text = await ask("/api/marks", { method: "POST", body });
      const link = make("a", { download: "marked.txt", href: URL.createObjectURL(new Blob([text], { type: "text/plain" })) });
      link.click();
      URL.revokeObjectURL(link.href);
    } catch (error) {
      say("problem", error.message);
    }
  });

  // One record

  async function show(place) {
    let row = rowAt(place);
    if (!row) {
      await load(Math.floor(place / PAGE));
      row = rowAt(place);
      if (!row) return;
    }
    open = place;
    try {
      const told = await ask(`/api/record/${row.row}`);
      if (open !== place) return;
      render(told);
      if (!$("detail").open) $("detail").showModal();
    } catch (error) {
      say("problem", error.message);
    }
  }

  function render(told) {
    $("detail-title").textContent = `Record ${told.row}`;
    $("mark").textContent = marks.has(told.row) ? "Unmark" : "Mark";
    $("mark").onclick = () => { toggle(told.row); render(told); };
    $("earlier").disabled = open <= 0;
    $("later").disabled = open >= total - 1;
    const facts = [["file", told.path], ["split", told.split], ["record", told.record], ["offset", told.offset]];
    if (told.bytes !== undefined) facts.push(["payload", count(told.bytes, "byte")], ["CRC of the length", told.length_crc], ["CRC of the payload", told.payload_crc]);
    const body = [];
    if (told.damaged) body.push(make("p", { class: "bad" }, told.damaged));
    for (const [number, picture] of (told.pictures || []).entries()) body.push(drawing(told, picture, number));
    body.push(make("dl", { class: "facts" }, ...facts.filter(([, value]) => value !== null && value !== undefined)
      .flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, String(value))])));
    if (told.content) body.push(make("h3", {}, "Content"), make("pre", { class: "code", tabindex: 0 }, JSON.stringify(told.content, null, 2)));
    body.push(make("h3", {}, "In the terminal"));
    for (const command of told.commands) body.push(make("p", { class: "command" }, make("code", {}, command),
      make("button", { onclick: (event) => { navigator.clipboard.writeText(command).then(() => { event.target.textContent = "Copied"; }); } }, "Copy")));
    if (told.hex !== undefined) body.push(make("h3", {}, "Payload"), hex(told));
    $("detail-body").replaceChildren(...body);
  }

  function drawing(told, picture, number) {
    const figure = make("figure");
    if (picture.problem) {
      figure.append(make("p", { class: "bad" }, picture.problem));
      return figure;
    }
    const frame = make("div", { class: "frame" });
    frame.append(make("img", { src: `/image/${told.row}?image=${number}`, alt: `image of record ${told.row}` }));
    const caption = make("figcaption", {}, `${picture.label} ${picture.place} ${picture.size}`);
    figure.append(frame, caption);
    const layer = (name, element, what) => {
      frame.append(element);
      const box = make("input", { type: "checkbox", checked: "" });
      box.addEventListener("change", () => element.toggleAttribute("hidden", !box.checked));
      caption.append(" ", make("label", { class: "check", "data-layer": name }, box, ` ${what}`));
    };
    if (number === 0 && told.boxes.length) {
      const space = "http://www.w3.org/2000/svg";
      const svg = document.createElementNS(space, "svg");
      svg.setAttribute("viewBox", "0 0 1000 1000");
      svg.setAttribute("preserveAspectRatio", "none");
      svg.setAttribute("class", "boxes");
      const names = make("div", { class: "names" });
      told.boxes.forEach((one, n) => {
        const rect = document.createElementNS(space, "rect");
        rect.setAttribute("x", 1000 * one.xmin);
        rect.setAttribute("y", 1000 * one.ymin);
        rect.setAttribute("width", Math.max(0, 1000 * (one.xmax - one.xmin)));
        rect.setAttribute("height", Math.max(0, 1000 * (one.ymax - one.ymin)));
        rect.setAttribute("class", `b${n % 10}`);
        const title = document.createElementNS(space, "title");
        title.textContent = one.text;
        rect.append(title);
        svg.append(rect);
      });
      layer("boxes", svg, `${told.boxes.length === 1 ? "1 box" : `${told.boxes.length} boxes`}: ${told.boxes.map((one) => one.text).join(", ")}`);
    }
    if (number === 0 && told.masks) {
      const masks = make("div", { class: "masks" });
      for (let n = 0; n < Math.min(told.masks, 50); n++) masks.append(make("img", { src: `/image/${told.row}/mask/${n}`, alt: `mask ${n}` }));
      layer("masks", masks, count(told.masks, "mask"));
    }
    return figure;
  }

  function hex(told) {
    const bytes = told.hex.match(/../g) || [];
    const lines = [];
    for (let n = 0; n < bytes.length; n += 16) {
      const part = bytes.slice(n, n + 16);
      const text = part.map((one) => { const code = parseInt(one, 16); return code > 31 && code < 127 ? String.fromCharCode(code) : "."; }).join("");
      lines.push(`${(told.hex_start + n).toString(16).padStart(8, "0")}  ${part.join(" ").padEnd(47)}  ${text}`);
    }
    const turn = async (start) => {
      const more = await ask(`/api/record/${told.row}?hex=${start}`);
      render({ ...told, hex: more.hex, hex_start: more.hex_start });
    };
    return make("div", {}, make("pre", { class: "code", tabindex: 0 }, lines.join("\n")),
      make("button", { disabled: told.hex_start === 0 ? "" : null, onclick: () => turn(Math.max(0, told.hex_start - 4096)) }, "Bytes before"), " ",
      make("button", { disabled: told.hex_start + 4096 >= told.bytes ? "" : null, onclick: () => turn(told.hex_start + 4096) }, "Bytes after"));
  }

  $("earlier").addEventListener("click", () => show(open - 1));
  $("later").addEventListener("click", () => show(open + 1));
  $("close").addEventListener("click", () => $("detail").close());
  $("detail").addEventListener("close", () => { open = -1; });
  $("detail").addEventListener("keydown", (event) => {
    if (event.key === "ArrowLeft" && open > 0) show(open - 1);
    if (event.key === "ArrowRight" && open < total - 1) show(open + 1);
    if (event.key === "m") $("mark").click();
  });

  // The other pieces

  async function showPiece() {
    const name = location.hash.slice(1) || "records";
    $("records").hidden = name !== "records";
    for (const link of $("tabs").querySelectorAll("a")) {
      if (link.hash === `#${name}`) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    if (name === "records") {
      $("piece").replaceChildren();
      draw();
      return;
    }
    try {
      const html = await ask(`/piece/${name}`);
      const page = new DOMParser().parseFromString(html, "text/html");
      const inside = [...page.body.children];
      $("piece").replaceChildren(...(inside.length ? inside : [make("p", {}, state.done ? "Nothing to show." : "Not known yet: the records are still being read.")]));
      for (const tile of $("piece").querySelectorAll("[data-row]")) {
        tile.tabIndex = 0;
        tile.setAttribute("role", "button");
      }
    } catch (error) {
      say("warning", error.message);
    }
  }
  addEventListener("hashchange", showPiece);
  const openTile = async (event) => {
    const tile = event.target.closest && event.target.closest("[data-row]");
    if (!tile || (event.type === "keydown" && event.key !== "Enter")) return;
    open = -1;
    render(await ask(`/api/record/${tile.dataset.row}`));
    $("earlier").disabled = $("later").disabled = true;
    $("detail").showModal();
  };
  $("piece").addEventListener("click", openTile);
  $("piece").addEventListener("keydown", openTile);

  follow();
})();
