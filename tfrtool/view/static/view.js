"use strict";
// The viewer's page. Everything that comes from records is inserted as text, never as HTML;
// the sections are HTML from the server, which has escaped them.
(() => {
  const $ = (id) => document.getElementById(id);
  const grid = $("grid"), form = $("filter"), detail = $("detail");
  const MOST_HEIGHT = 8_000_000; // pixels that browsers can scroll through exactly
  const PAGE = 100, MOST_PAGES = 100, AROUND = 2; // lines drawn above and below the visible ones

  let state = { version: "", images: true, splits: [], errors: {} };
  let question = null; // the current query: the fields of the form that are filled in
  let total = 0, complete = false;
  let asked = 0; // counts queries: answers to earlier ones are discarded
  let open = -1; // the position among the results of the open record
  let line = 0, stood = 0; // the first visible line, with the fraction of it that is hidden; the scroll position then
  let columns = 1, soon = 0, frame = 0, next = 0, pieceShown = "";
  const pages = new Map(), cells = new Map(); // rows by page number, drawn buttons by position
  const marks = new Set(), off = new Set(); // marked rows, hidden layers over images
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
  const clamp = (value, low, high) => Math.max(low, Math.min(high, value));
  async function ask(address, options) {
    const answer = await fetch(address, options).catch(() => {
      throw new Error("The viewer has stopped. Run tfrtool view again and open the URL it prints.");
    });
    const kind = answer.headers.get("content-type") || "";
    const body = kind.includes("json") ? await answer.json() : await answer.text();
    if (answer.status === 503) throw new Error("The viewer is busy; try again.");
    if (!answer.ok) throw Object.assign(new Error(body.error || body), { status: answer.status });
    return body;
  }
  function setText(id, text) {
    if ($(id).textContent !== text) $(id).textContent = text; // otherwise screen readers would repeat it
    $(id).hidden = !text;
  }
  const terminal = (command) => make("p", { class: "command" }, make("code", {}, command), make("button", { onclick: async (event) => {
    getSelection().selectAllChildren(event.target.previousElementSibling); // browsers allow copying only on local pages
    await navigator.clipboard.writeText(command);
    event.target.textContent = "Copied";
  } }, "Copy"));

  // Progress
  function fillChoices(select, values) {
    const known = new Set([...select.options].map((option) => option.value));
    for (const value of values) if (!known.has(value)) select.append(make("option", { value }, value));
  }
  async function follow() {
    try {
      const before = state;
      state = await ask("/api/state");
      setText("counts", count(state.records, "record") + (state.counted ? "" : " so far") +
        (state.faults === null ? (state.damaged ? `, \u2717 ${count(state.damaged, "fault")} so far` : "")
          : state.faults ? `, \u2717 ${count(state.faults, "fault")}` : ", \u2713 no problems found"));
      if (state.step_total) $("progress").value = state.step_done / state.step_total;
      else $("progress").removeAttribute("value");
      setText("step", state.done ? "" : `${state.step || "counting records"} ...`);
      $("progress-line").hidden = state.done;
      for (const [name, values] of [["split", state.splits], ["label", state.classes], ["sort", state.columns]]) {
        fillChoices(form[name], values);
        form[name].parentElement.hidden = state.done && values.length < 2 && !form[name].value;
      }
      const problems = Object.entries(state.errors).filter(([step]) => step !== "schema" && step !== "statistics").map(([step, why]) => `${step}: ${why}`);
      if (state.changed.length)
        problems.push(`Changed since they were opened: ${state.changed.join(", ")}. Run tfrtool view again to see the changes.`);
      setText("warning", problems.join("; "));
      if (question && (before.version !== state.version || before.records !== state.records)) {
        if (!question.size || !complete) await look(false);
        await showPiece();
      } else if (question && before.read !== state.read) showCount();
    } catch (error) {
      setText("warning", error.message);
      state.done = true;
    }
    clearTimeout(next);
    next = setTimeout(follow, state.done ? 5000 : 700);
  }

  // The grid: only the visible lines exist, and a few around them
  function layout() {
    const tall = state.images ? 178 : 76;
    const wide = state.images ? Math.max(1, Math.floor(grid.clientWidth / 148)) : 1;
    const rows = Math.ceil(total / wide), seen = grid.clientHeight / tall;
    const height = Math.min(rows * tall, MOST_HEIGHT);
    return { tall, wide, rows, seen, height, most: Math.max(0, rows - seen),
      span: Math.max(1, height - grid.clientHeight), exact: rows * tall <= MOST_HEIGHT };
  }
  // Scrolls to a line. With more lines than browsers can scroll through, the scroll position is
  // proportional to the line, with room left to scroll on line by line.
  function put(to) {
    const shape = layout(), room = 4 * grid.clientHeight;
    line = clamp(to, 0, shape.most);
    $("space").style.height = `${shape.height}px`;
    grid.scrollTop = shape.exact ? line * shape.tall : clamp((shape.span * line) / shape.most,
      Math.min(line * shape.tall, room), shape.span - Math.min((shape.most - line) * shape.tall, room));
    stood = grid.scrollTop;
    draw();
  }
  function scrolled() {
    const shape = layout(), moved = grid.scrollTop - stood;
    const jumped = Math.abs(moved) > 2 * grid.clientHeight; // with the scroll bar, not the wheel
    if (shape.exact) line = grid.scrollTop / shape.tall;
    else line = clamp(jumped ? (shape.most * grid.scrollTop) / shape.span : line + moved / shape.tall, 0, shape.most);
    stood = grid.scrollTop;
    draw(jumped ? 80 : 0);
  }
  function draw(wait = 0) {
    const shape = layout();
    columns = shape.wide;
    const first = Math.max(0, Math.floor(line) - AROUND);
    const from = first * columns;
    const to = Math.min(total, (Math.ceil(line + shape.seen) + AROUND) * columns);
    $("space").style.height = `${shape.height}px`;
    $("cells").style.transform = `translateY(${grid.scrollTop - (line - first) * shape.tall}px)`;
    $("cells").style.gridTemplateColumns = `repeat(${columns}, minmax(0, 1fr))`;
    $("cells").className = state.images ? "pictures" : "lines";
    grid.hidden = !total;
    for (const [place, one] of cells) {
      if (place >= from && place < to) continue;
      if (one === document.activeElement) grid.focus({ preventScroll: true });
      one.remove();
      cells.delete(place);
    }
    let next = $("cells").firstChild;
    for (let place = from; place < to; place++) {
      const row = rowAt(place), old = cells.get(place);
      const looks = row ? `${marks.has(row.row)}${JSON.stringify(row)}` : "";
      const one = old && old.looks === looks ? old : Object.assign(cell(place, row), { looks });
      if (one === next) next = next.nextSibling;
      else $("cells").insertBefore(one, next);
      cells.set(place, one);
      if (!old || old === one) continue;
      if (old === document.activeElement) one.focus({ preventScroll: true });
      const image = old.querySelector("img"), other = one.querySelector("img");
      if (image && other && image.src === other.src) other.replaceWith(image); // already loaded
      if (old === next) next = old.nextSibling;
      old.remove();
    }
    clearTimeout(soon);
    soon = setTimeout(() => { for (let page = Math.floor(from / PAGE); page * PAGE < to; page++) load(page); }, wait);
  }
  function rowAt(place) {
    const page = pages.get(Math.floor(place / PAGE));
    return page && page.rows[place % PAGE];
  }
  function cell(place, row) {
    const marked = row && marks.has(row.row) ? "\u2713 marked " : "";
    const button = make("button", { class: marked ? "cell marked" : "cell", "data-place": place, tabindex: -1, onclick: () => show(place) });
    if (!row) button.append(make("span", { class: "none" }, "..."));
    if (!row) return button;
    if (state.images) {
      const image = make("img", { src: `/thumb/${row.row}`, alt: "" });
      image.addEventListener("error", () => image.replaceWith(make("span", { class: "none" }, "no preview")));
      button.append(image);
    }
    const text = row.damaged ? "\u2717 damaged" : row.features
      ? Object.entries(row.features).map(([name, value]) => `${name}: ${JSON.stringify(value)}`).join("   ")
      : String(row.label ?? "");
    const faint = [`#${row.row}`, row.width ? `${row.width} x ${row.height}` : "", state.splits.length > 1 ? row.split : ""].filter(Boolean).join(" ");
    button.append(make("span", { class: "caption" }, marked + text), make("span", { class: "faint" }, faint));
    button.setAttribute("aria-label", `record ${faint.slice(1)}, ${marked}${text || "no label"}`);
    return button;
  }
  async function load(page) {
    const held = pages.get(page);
    if (held && held.asked === asked) return;
    const mine = asked;
    pages.delete(page); // and insert it as the newest
    pages.set(page, { rows: held ? held.rows : [], asked: mine });
    for (const old of pages.keys()) if (pages.size > MOST_PAGES) pages.delete(old);
    try {
      const found = await ask(`/api/rows?start=${page * PAGE}&count=${PAGE}&${question}`);
      if (mine !== asked) return;
      pages.set(page, { rows: found.rows, asked: mine });
      ({ total, complete } = found);
      $("terminal").replaceChildren(...(found.command ? [terminal(found.command)] : []));
      setText("problem", "");
      form.where.removeAttribute("aria-invalid");
    } catch (error) {
      if (mine !== asked) return;
      pages.delete(page);
      if (!error.status) return setText("warning", error.message);
      [total, complete] = [0, true];
      $("terminal").replaceChildren();
      setText("problem", error.message);
      if (question.has("where")) form.where.setAttribute("aria-invalid", "true");
    }
    showCount();
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(() => draw());
  }
  function showCount() {
    const narrowed = ["split", "label", "text", "where"].some((name) => question.has(name));
    const so_far = question.size ? `${total.toLocaleString("en")} of ${count(state.read || 0, "record")} read so far` : `${count(total, "record")} so far`;
    const text = !complete ? so_far : total || !narrowed ? count(total, "record") : "No records match these filters.";
    setText("found", $("problem").textContent ? "" : text);
  }
  // Queries again; the current results stay until the answer arrives.
  async function look(redraw) {
    const mine = ++asked;
    await load(0);
    if (!redraw || mine !== asked) return;
    for (const [page, one] of pages) if (one.asked !== asked) pages.delete(page);
    put(0);
  }
  function go(to) { // focuses a cell and scrolls it into view
    if (!total) return;
    const place = clamp(to, 0, total - 1), shape = layout(), at = Math.floor(place / shape.wide);
    if (at < line) put(at);
    else if (at + 1 > line + shape.seen) put(at + 1 - shape.seen);
    cells.get(place).focus({ preventScroll: true });
  }

  // The filters are in the URL, so reloading, going back and bookmarks keep them.
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const asks = new URLSearchParams([...new FormData(form)].filter(([, value]) => value.trim()));
    if (location.hash === `#records?${asks}`) look(true);
    else location.hash = `records?${asks}`;
  });
  form.addEventListener("reset", () => { location.hash = "records?"; });
  for (const name of ["split", "label", "sort", "descending"]) form[name].addEventListener("change", () => form.requestSubmit());
  grid.addEventListener("scroll", scrolled); // fires once per frame
  grid.addEventListener("scrollend", () => { if (!layout().exact) put(line); });
  addEventListener("resize", () => put((Math.floor(line) * columns) / layout().wide));
  grid.addEventListener("keydown", (event) => {
    const shape = layout(), page = shape.wide * Math.max(1, Math.floor(shape.seen));
    const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: shape.wide, ArrowUp: -shape.wide,
      PageDown: page, PageUp: -page, Home: -total, End: total };
    const at = document.activeElement.dataset.place, row = at && rowAt(at);
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    if (event.key in steps) go(Number(at ?? Math.ceil(line) * shape.wide) + (at || !event.key.startsWith("Arrow") ? steps[event.key] : 0));
    else if (event.key === "m" && row) toggle(row.row);
    else return;
    event.preventDefault();
  });

  // Marks
  function toggle(...rows) {
    for (const row of rows) if (!marks.delete(row)) marks.add(row);
    setText("marked", marks.size ? `${count(marks.size, "record")} marked.` : "No records marked.");
    $("save").disabled = $("unmark").disabled = !marks.size;
    draw();
  }
  $("unmark").addEventListener("click", () => toggle(...marks));
  $("save").addEventListener("click", async () => {
    const text = await ask("/api/marks", { method: "POST", body: JSON.stringify({ rows: [...marks] }) }).catch((error) => setText("warning", error.message));
    if (text) make("a", { download: "marked.txt", href: URL.createObjectURL(new Blob([text], { type: "text/plain" })) }).click();
  });

  // One record
  async function show(place, row = null) {
    try {
      if (row === null && !rowAt(place)) await load(Math.floor(place / PAGE));
      const known = row ?? rowAt(place)?.row;
      if (known === undefined) return;
      open = place;
      const record = await ask(`/api/record/${known}`);
      if (open !== place) return;
      render(record);
      if (!detail.open) detail.showModal();
    } catch (error) {
      if (detail.open) $("detail-body").prepend(make("p", { class: "bad", role: "alert" }, error.message));
      setText("warning", error.message);
    }
  }
  function render(record) {
    $("detail-title").textContent = `Record #${record.row}`;
    const name = () => { $("mark").textContent = marks.has(record.row) ? "\u2713 Unmark" : "Mark"; };
    $("mark").onclick = () => { toggle(record.row); name(); };
    name();
    $("previous").disabled = open <= 0;
    $("next").disabled = open < 0 || open >= total - 1;
    const facts = { File: record.path, Split: record.split, "Record in file": record.record, Offset: record.offset,
      Payload: record.bytes === undefined ? null : count(record.bytes, "byte"), "Length CRC": record.length_crc,
      "Payload CRC": record.payload_crc };
    const body = (record.pictures || []).map((picture, number) => drawing(record, picture, number));
    if (record.damaged) body.push(make("p", { class: "bad" }, `\u2717 ${record.damaged}`));
    body.push(make("dl", { class: "facts" }, ...Object.entries(facts).filter(([, value]) => value !== null && value !== undefined)
      .flatMap(([what, value]) => [make("dt", {}, what), make("dd", {}, String(value))])));
    if (record.content) body.push(make("h3", {}, "Content"), make("pre", { class: "code wrap", tabindex: 0 },
      JSON.stringify(record.content, null, 2).replace(/\[\n\s+([^[\]{}]*?)\n\s+\]/g, (_, inside) => `[${inside.replace(/\n\s+/g, " ")}]`)));
    body.push(make("h3", {}, "Commands"), ...record.commands.map(terminal));
    if (record.hex !== undefined) body.push(make("h3", {}, "Raw bytes"), hex(record));
    $("detail-body").replaceChildren(...body);
  }
  function drawing(record, picture, number) {
    if (picture.problem) return make("p", { class: "bad" }, `\u2717 ${picture.problem}`);
    const [width, height] = picture.size.split(" x ");
    const image = make("img", { src: `/image/${record.row}?image=${number}`, alt: `image of record ${record.row}`, width, height, class: width < 160 ? "small" : null });
    const over = make("div", { class: "frame" }, image);
    const caption = make("figcaption", {}, [picture.label, picture.place, picture.size,
      picture.orientation > 1 ? `(shown as stored, EXIF orientation ${picture.orientation} not applied)` : ""].filter(Boolean).join(" "));
    const layer = (name, element, what) => {
      const box = make("input", { type: "checkbox" });
      const turn = () => { element.hidden = !box.checked; off[box.checked ? "delete" : "add"](name); };
      box.checked = !off.has(name);
      turn();
      box.addEventListener("change", turn);
      over.append(element);
      caption.append(" ", make("label", { class: "check", "data-layer": name }, box, ` ${what}`));
    };
    if (number === 0 && record.masks) {
      const shown = Math.min(record.masks, 50);
      layer("masks", make("div", { class: "masks" }, ...Array.from({ length: shown }, (_, n) =>
        make("img", { src: `/image/${record.row}/mask/${n}`, alt: `mask ${n + 1}` }))), count(record.masks, "mask"));
    }
    if (number === 0 && record.boxes.length) {
      const boxes = record.boxes.map((one, n) => {
        const name = make("span", { class: one.ymin > 0.09 ? "above" : null }, one.text || String(n + 1)), box = make("div", { class: "box" }, name);
        box.style.borderColor = name.style.background = one.colour;
        const sides = { left: one.xmin, top: one.ymin, width: one.xmax - one.xmin, height: one.ymax - one.ymin };
        for (const [side, share] of Object.entries(sides)) box.style[side] = `${100 * share}%`;
        return box;
      });
      layer("boxes", make("div", { class: "boxes" }, ...boxes), boxes.length === 1 ? "1 box" : `${boxes.length} boxes`);
    }
    return make("figure", {}, over, caption);
  }
  function hex(record) {
    const lines = (record.hex.match(/.{1,32}/g) || []).map((part, n) => {
      const bytes = part.match(/../g), text = bytes.map((one) => String.fromCharCode(parseInt(one, 16)));
      return `${(record.hex_start + 16 * n).toString(16).padStart(8, "0")}  ${bytes.join(" ").padEnd(47)}  ${text.join("").replace(/[^ -~]/g, ".")}`;
    });
    const box = make("div", {}, make("pre", { class: "code", tabindex: 0 }, lines.join("\n")));
    const turn = (start, name, there) => box.append(make("button", { disabled: !there && "", onclick: async () => {
      box.replaceWith(hex({ ...record, ...await ask(`/api/record/${record.row}?hex=${start}`) }));
    } }, name), " ");
    turn(Math.max(0, record.hex_start - 4096), "Previous bytes", record.hex_start > 0);
    turn(record.hex_start + 4096, "Next bytes", record.hex_start + 4096 < record.bytes);
    return box;
  }
  const step = (by) => { if (open >= 0 && open + by >= 0 && open + by < total) show(open + by); };
  for (const [name, act] of [["previous", () => step(-1)], ["next", () => step(1)], ["close", () => detail.close()]])
    $(name).addEventListener("click", act);
  detail.addEventListener("close", () => {
    if (open >= 0) go(open);
    open = -1;
  });
  detail.addEventListener("keydown", (event) => {
    const button = { ArrowLeft: "previous", ArrowRight: "next", m: "mark" }[event.key];
    if (button && !event.ctrlKey && !event.altKey && !event.metaKey && event.target.tagName !== "PRE") $(button).click();
  });

  // The other sections
  async function showPiece() {
    const name = location.hash.slice(1).split("?")[0] || "records";
    $("records").hidden = name !== "records";
    for (const link of $("tabs").querySelectorAll("a")) link.ariaCurrent = link.hash.split("?")[0] === `#${name}` ? "page" : null;
    if (name === "records") {
      pieceShown = "";
      $("piece").replaceChildren();
      return draw();
    }
    try {
      const html = await ask(`/piece/${name}`), why = name === "features" && state.errors.statistics;
      const none = why || (state.done ? "No data." : "Still reading records ...");
      if ((html || none) === pieceShown) return;
      pieceShown = html || none;
      const held = document.activeElement.dataset.row;
      const sections = new DOMParser().parseFromString(html, "text/html").body.children;
      $("piece").replaceChildren(...(html ? sections : [make("section", {}, make("p", {}, none))]));
      for (const tile of $("piece").querySelectorAll("li[data-row]")) {
        const row = Number(tile.dataset.row);
        const button = make("button", { "data-row": row, onclick: () => show(-1, row) }, ...tile.childNodes);
        tile.replaceChildren(button);
        if (held === tile.dataset.row) button.focus();
      }
    } catch (error) {
      setText("warning", error.message);
    }
  }
  async function arrive() {
    const [name, query = ""] = location.hash.slice(1).split("?");
    if (!question || ((name || "records") === "records" && query !== String(question))) {
      question = new URLSearchParams(query);
      for (const field of form.elements) {
        const value = question.get(field.name) || "";
        if (field.tagName === "SELECT" && value) fillChoices(field, [value]);
        if (field.type === "checkbox") field.checked = Boolean(value);
        else if (field.name) field.value = value;
      }
      $("tabs").querySelector("a").href = question.size ? `#records?${question}` : "#records";
      look(true);
    }
    await showPiece();
  }
  addEventListener("hashchange", arrive);
  addEventListener("focus", follow); // coming back to the page shows changes at once

  follow().then(arrive); // the state says whether there are images to load
})();
