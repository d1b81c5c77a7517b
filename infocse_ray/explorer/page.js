"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const at = (id) => document.getElementById(id);
  const HUES = 8, MOST_CHANGES = 50, LANE = 36, WIDEST = 190, WIDEST_PHONE = 84;
  const iterations = data.iterations.map((one) => one.iteration);
  const byId = new Map(data.documents.map((one, place) => [one.id, place]));
  const lower = data.documents.map((one) => [one.id, ...one.sentences].map((text) => text.toLowerCase()));
  let found = data.documents.map((_, place) => place);
  let shown = { place: 0, iteration: iterations[iterations.length - 1] };

  // What a corpus says is only ever put in as text.
  function make(tag, text, classes) {
    const element = document.createElement(tag);
    if (text !== undefined) element.textContent = text;
    if (classes) element.className = classes;
    return element;
  }

  const many = (count, one, more) => `${count.toLocaleString("en")} ${count === 1 ? one : more || `${one}s`}`;
  const key = (low, high) => `${low},${high}`;
  const similarity = (weight) => weight.toFixed(2);

  function letters(number) {
    return (number < 26 ? "" : letters(Math.floor(number / 26) - 1)) + String.fromCharCode(65 + (number % 26));
  }

  // ---- A document at an iteration -----------------------------------------------------------------------------------

  // Clusters of two texts or more have a letter; pairs are of different texts, copies being none.
  function graphOf(one, iteration) {
    const found = one.iterations[iteration];
    const copies = new Map(found.copies);
    const members = new Map();
    found.clusters.forEach((cluster, number) => {
      if (!copies.has(number)) members.set(cluster, [...(members.get(cluster) || []), number]);
    });
    const names = new Map();
    for (const [cluster, numbers] of members) if (numbers.length > 1) names.set(cluster, names.size);
    const edges = new Map(found.edges.map(([low, high, weight]) => [key(low, high), weight]));
    const pairs = new Map();
    for (const [cluster, numbers] of members) {
      numbers.forEach((low, i) => numbers.slice(i + 1).forEach((high) => pairs.set(key(low, high), [low, high, cluster])));
    }
    return { found, copies, names, edges, pairs };
  }

  function badge(graph, cluster) {
    const name = graph.names.get(cluster);
    const element = make("span", undefined, name === undefined ? "badge alone" : `badge c${name % HUES}`);
    element.append(make("span", name === undefined ? "alone" : "cluster ", "hidden"));
    const letter = make("span", name === undefined ? "·" : letters(name));
    if (name === undefined) letter.setAttribute("aria-hidden", "true");
    element.append(letter);
    return element;
  }

  function render() {
    const one = data.documents[shown.place];
    const step = iterations.indexOf(shown.iteration);
    const before = step > 0 ? graphOf(one, iterations[step - 1]) : null;
    const graph = graphOf(one, shown.iteration);
    at("title").textContent = one.id;
    document.title = `${one.id} · Clusters of ${data.name}`;
    const pairs = graph.pairs.size;
    // Edges that were computed again may join sentences that weren't in one cluster: these are no pairs.
    const kept = [...graph.edges.keys()].filter((pair) => graph.pairs.has(pair)).length;
    at("summary").textContent =
      `${many(one.sentences.length, "sentence")}, ${many(graph.names.size, "cluster")} of two or more, ` +
      `${many(pairs, "pair")}` + (data.clustering === "partition" ? `: ${kept} kept, ${pairs - kept} chained` : "");
    renderNotes(one, graph);
    renderSentences(one, graph);
    renderChanges(one, graph, before, step);
    renderEdges(graph, before);
    drawArcs(graph, before);
    renderPlace();
    for (const input of document.querySelectorAll("#iterations input")) {
      input.checked = Number(input.value) === shown.iteration;
    }
  }

  function renderNotes(one, graph) {
    const notes = [];
    if (asked !== null && !byId.has(asked)) {
      notes.push(`There is no document “${asked}” on this page; infocse explorer RUN --ids ID puts one there.`);
    }
    if (one.sentences_in_all > one.sentences.length) {
      notes.push(`The first ${one.sentences.length} of its ${one.sentences_in_all.toLocaleString("en")} sentences are shown.`);
    }
    if (!graph.found.same) {
      notes.push("The edges were computed again, on another kind of processor than trained, and give slightly different " +
        "clusters. The clusters shown are those that were trained on.");
    }
    at("notes").replaceChildren(...notes.map((text) => make("p", text, "note")));
  }

  function renderSentences(one, graph) {
    at("sentences").replaceChildren(...one.sentences.map((text, number) => {
      const cluster = graph.found.clusters[number];
      const name = graph.names.get(cluster);
      const item = make("li", undefined, name === undefined ? "sentence alone" : `sentence in c${name % HUES}`);
      item.append(make("span", String(number + 1), "number"), badge(graph, cluster));
      const body = make("span", undefined, "text");
      body.dir = "auto";
      body.append(...marked(text));
      if (graph.copies.has(number)) {
        body.append(make("span", `reads like sentence ${graph.copies.get(number) + 1}, and counts once`, "aside"));
      }
      const joined = graph.found.edges.filter(([low, high]) => low === number || high === number)
        .map(([low, high, weight]) => `${(low === number ? high : low) + 1} (${similarity(weight)})`);
      if (joined.length) body.append(make("span", `joined with ${joined.join(", ")}`, "aside"));
      item.append(body);
      item.addEventListener("pointerenter", () => light(number));
      item.addEventListener("pointerleave", () => light(null));
      return item;
    }));
  }

  // Under a mouse only a sentence's own edges are bright; what they are is said beside it, too.
  function light(number) {
    for (const path of at("arcs").querySelectorAll("path")) {
      path.classList.toggle("faint", number !== null && !path.dataset.ends.split(",").includes(String(number)));
    }
  }

  function renderChanges(one, graph, before, step) {
    const title = at("changes-title"), place = at("changes");
    if (before === null) {
      title.textContent = "Changes";
      place.replaceChildren(make("p", `Iteration ${shown.iteration} is the first: there is none before it to compare with.`));
      return;
    }
    title.textContent = `Changes against iteration ${iterations[step - 1]}`;
    const gained = [...graph.pairs.keys()].filter((pair) => !before.pairs.has(pair));
    const lost = [...before.pairs.keys()].filter((pair) => !graph.pairs.has(pair));
    place.replaceChildren(
      ...changeList(one, "gained", "+ Gained", gained, graph), ...changeList(one, "lost", "− Lost", lost, before));
  }

  function changeList(one, kind, title, pairs, graph) {
    const heading = make("h4", `${title}: ${many(pairs.length, "pair")}`, kind);
    const list = make("ul", undefined, "changes");
    list.append(...pairs.slice(0, MOST_CHANGES).map((pair) => {
      const [low, high] = graph.pairs.get(pair);
      const item = make("li"), weight = graph.edges.get(pair);
      const joined = data.clustering !== "partition" ? "" : weight === undefined ? " · chained" : ` · kept, ${similarity(weight)}`;
      item.append(make("span", `${low + 1} and ${high + 1}${joined}`, "kind"));
      for (const number of [low, high]) {
        const quote = make("q", one.sentences[number]);
        quote.dir = "auto";
        item.append(quote);
      }
      return item;
    }));
    if (pairs.length > MOST_CHANGES) list.append(make("li", `and ${many(pairs.length - MOST_CHANGES, "pair")} more`));
    return pairs.length ? [heading, list] : [heading];
  }

  function renderEdges(graph, before) {
    at("edges").hidden = data.clustering !== "partition";
    at("edges-title").textContent = `Table of the ${many(graph.edges.size, "edge")}`;
    const rows = [...graph.found.edges].sort((a, b) => b[2] - a[2]).map(([low, high, weight]) => {
      const row = make("tr"), cell = make("td");
      cell.append(badge(graph, graph.found.clusters[low]));
      const since = before === null ? "–" : before.edges.has(key(low, high)) ? "before" : "new";
      row.append(make("td", `${low + 1} and ${high + 1}`), make("td", similarity(weight)), cell, make("td", since));
      return row;
    });
    at("edge-rows").replaceChildren(...rows);
  }

  // ---- Edges as brackets beside the sentences -----------------------------------------------------------------------

  function drawArcs(graph, before) {
    const svg = at("arcs"), items = [...at("sentences").children];
    svg.replaceChildren();
    const edges = [...graph.found.edges].sort((a, b) => (a[1] - a[0]) - (b[1] - b[0]) || a[0] - b[0]);
    svg.style.display = edges.length ? "" : "none";
    if (!edges.length) return;
    // Each in the innermost lane where none overlaps it, so that similarities don't either.
    const lanes = [];
    const placed = edges.map(([low, high, weight]) => {
      let lane = lanes.findIndex((taken) => taken.every(([a, b]) => high <= a || low >= b));
      if (lane < 0) lane = lanes.push([]) - 1;
      lanes[lane].push([low, high]);
      return { low, high, weight, lane };
    });
    const widest = window.innerWidth < 832 ? WIDEST_PHONE : WIDEST;
    const lane = Math.min(LANE, (widest - 12) / lanes.length);
    const width = Math.ceil(lanes.length * lane + 12);
    svg.setAttribute("width", width);
    const top = at("sentences").getBoundingClientRect().top;
    const height = at("sentences").getBoundingClientRect().height;
    svg.setAttribute("height", height);
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    // Ends at one sentence lie a little apart: the nearer the other end, the nearer to it.
    const ends = items.map(() => []);
    for (const edge of placed) { ends[edge.low].push(edge.high); ends[edge.high].push(edge.low); }
    ends.forEach((others) => others.sort((a, b) => a - b));
    const height_at = (number, other) => {
      const box = items[number].getBoundingClientRect();
      const count = ends[number].length, gap = Math.min(7, (box.height - 12) / count);
      return box.top - top + box.height / 2 + (order(ends[number], number).indexOf(other) - (count - 1) / 2) * gap;
    };
    for (const edge of placed) {
      const x = width - 8 - lane * (edge.lane + .6), low = height_at(edge.low, edge.high), high = height_at(edge.high, edge.low);
      const r = Math.min(8, (high - low) / 2);
      const name = graph.names.get(graph.found.clusters[edge.low]);
      const fresh = before !== null && !before.edges.has(key(edge.low, edge.high));
      const path = draw("path", {
        d: `M${width - 2},${low} H${x + r} Q${x},${low} ${x},${low + r} V${high - r} Q${x},${high} ${x + r},${high} H${width - 2}`,
        class: `c${(name || 0) % HUES}${fresh ? " new" : ""}`,
        "data-ends": key(edge.low, edge.high),
        "stroke-width": (1 + 2.5 * Math.max(0, edge.weight)).toFixed(1),
      });
      const title = draw("title", {});
      title.textContent = `${edge.low + 1} and ${edge.high + 1}: ${similarity(edge.weight)}${fresh ? ", new" : ""}`;
      path.append(title);
      svg.append(path);
    }
    if (lane >= 30) {
      for (const edge of placed) {
        const middle = (height_at(edge.low, edge.high) + height_at(edge.high, edge.low)) / 2;
        const label = draw("text", { x: width - 8 - lane * (edge.lane + .6), y: middle });
        label.textContent = similarity(edge.weight);
        svg.append(label);
      }
    }
    const first = placed.slice(0, 20).map((e) => `${e.low + 1} and ${e.high + 1} (${similarity(e.weight)})`).join(", ");
    svg.setAttribute("aria-label", `${many(placed.length, "edge")} between sentences: ${first}` +
      (placed.length > 20 ? " and more" : "") + ". A table of all is below.");
  }

  // From the top: ends of edges that go up, the farthest last, then of those that go down, the farthest first.
  function order(others, number) {
    const up = others.filter((other) => other < number).sort((a, b) => b - a);
    const down = others.filter((other) => other > number).sort((a, b) => b - a);
    return [...up, ...down];
  }

  function draw(tag, attributes) {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    return element;
  }

  // ---- Search and the list ------------------------------------------------------------------------------------------

  const query = () => at("search").value.trim().toLowerCase();

  function marked(text) {
    const wanted = query(), parts = [];
    const small = text.toLowerCase();
    // Where lower case has another length, places in it are none in the text.
    if (!wanted || small.length !== text.length) return [document.createTextNode(text)];
    let start = 0;
    for (let here = small.indexOf(wanted); here >= 0; here = small.indexOf(wanted, start)) {
      parts.push(document.createTextNode(text.slice(start, here)), make("mark", text.slice(here, here + wanted.length)));
      start = here + wanted.length;
    }
    return [...parts, document.createTextNode(text.slice(start))];
  }

  function excerpt(place) {
    const wanted = query(), { id, sentences } = data.documents[place];
    const number = wanted ? lower[place].slice(1).findIndex((text) => text.includes(wanted)) : 0;
    const text = sentences[Math.max(0, number)] || "";
    const from = whole(text, wanted && number >= 0 ? Math.max(0, lower[place][number + 1].indexOf(wanted) - 30) : 0);
    const to = whole(text, from + 90);
    return [marked(id), marked((from ? "… " : "") + text.slice(from, to) + (to < text.length ? " …" : ""))];
  }

  // A place where a text may be cut: emoji and rare letters are two of JavaScript's characters, of which one is none.
  const whole = (text, place) => /[\uDC00-\uDFFF]/.test(text.charAt(place)) ? place - 1 : place;

  function search() {
    const wanted = query();
    found = data.documents.map((_, place) => place).filter((place) => lower[place].some((text) => text.includes(wanted)));
    at("found").textContent = wanted ? `${many(found.length, "document")} found` : "";
    if (wanted) at("all").open = true;
    at("list").replaceChildren(...found.map((place) => {
      const item = make("li"), link = make("a"), [id, text] = excerpt(place);
      link.href = fragment(place, shown.iteration);
      link.dataset.place = place;
      const strong = make("strong"), span = make("span");
      strong.append(...id);
      span.append(...text);
      strong.dir = span.dir = "auto";
      link.append(strong, span);
      item.append(link);
      return item;
    }));
    render();
  }

  function renderPlace() {
    const here = found.indexOf(shown.place);
    at("place").textContent = here >= 0 ? `${here + 1} of ${found.length}` : `– of ${found.length}`;
    at("previous").disabled = neighbour(-1) === undefined;
    at("next").disabled = neighbour(1) === undefined;
    for (const link of at("list").querySelectorAll("a")) {
      const current = Number(link.dataset.place) === shown.place;
      link.href = fragment(Number(link.dataset.place), shown.iteration);
      if (current) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
  }

  // Of the documents found, the next after the one shown (or before it), which needn't be one of them.
  function neighbour(direction) {
    return direction > 0 ? found.find((place) => place > shown.place) : found.findLast((place) => place < shown.place);
  }

  // ---- Going somewhere: the address says where we are ---------------------------------------------------------------

  let asked = null, address = null;
  const fragment = (place, iteration) => `#${new URLSearchParams({ doc: data.documents[place].id, iteration })}`;

  function go(place, iteration) {
    if (place === undefined) return;
    location.hash = fragment(place, iteration);
    arrive(); // at once: the next key may be pressed before the browser tells of the address
  }

  function arrive() {
    address = location.hash;
    const given = new URLSearchParams(address.slice(1));
    asked = given.get("doc");
    const iteration = Number(given.get("iteration"));
    shown = {
      place: byId.get(asked) || 0,
      iteration: iterations.includes(iteration) ? iteration : iterations[iterations.length - 1],
    };
    render();
    showInList();
  }

  // Only the list is scrolled: `scrollIntoView` would scroll the page with it.
  function showInList() {
    const current = at("list").querySelector("a[aria-current]");
    if (!current || !at("all").open) return;
    const box = at("all"), place = current.getBoundingClientRect(), seen = box.getBoundingClientRect();
    const bottom = Math.min(seen.bottom, window.innerHeight);
    if (place.top < seen.top || place.bottom > bottom) box.scrollTop += place.top - (seen.top + bottom) / 2;
  }

  const writes = (element) => element.matches("input, select, textarea") || element.isContentEditable;

  function start() {
    at("rule").textContent = data.rule;
    at("iterations").replaceChildren(...iterations.map((iteration) => {
      const label = make("label"), input = make("input");
      Object.assign(input, { type: "radio", name: "iteration", value: iteration });
      input.addEventListener("change", () => go(shown.place, iteration));
      label.append(input, document.createTextNode(String(iteration)));
      return label;
    }));
    at("previous").addEventListener("click", () => go(neighbour(-1), shown.iteration));
    at("next").addEventListener("click", () => go(neighbour(1), shown.iteration));
    at("search").addEventListener("input", search);
    at("search").addEventListener("keydown", (event) => {
      if (event.key === "Enter" && found.length) go(found[0], shown.iteration);
    });
    at("skip").addEventListener("click", (event) => {
      event.preventDefault();
      at("document").focus();
    });
    document.addEventListener("keydown", (event) => {
      if (event.altKey || event.ctrlKey || event.metaKey || event.shiftKey || writes(event.target)) return;
      if (event.key === "ArrowLeft") go(neighbour(-1), shown.iteration);
      if (event.key === "ArrowRight") go(neighbour(1), shown.iteration);
    });
    window.addEventListener("hashchange", () => {
      if (location.hash !== address) arrive();
    });
    let width = 0;
    new ResizeObserver(() => {
      const now = at("document").clientWidth;
      if (now !== width) { width = now; render(); }
    }).observe(at("document"));
    at("all").open = window.innerWidth >= 832;
    search();
    arrive();
  }

  start();
})();
