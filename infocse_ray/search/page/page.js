"use strict";
// What documents say is set as text, never as HTML: a corpus is anybody's writing.

const SHORT = 180;
const PASSAGE = 360;
const $ = (id) => document.getElementById(id);
let about = null;
let asked = 0;
let shown = null;

function make(tag, name, text) {
  const element = document.createElement(tag);
  if (name) element.className = name;
  if (text !== undefined) element.textContent = text;
  return element;
}

function cut(text, most) {
  return text.length > most ? `${text.slice(0, most)} …` : text;
}

// What is of a document is written in its own direction.
function written(tag, text) {
  const element = make(tag, "", text);
  element.dir = "auto";
  return element;
}

// A document's text with the sentence that fits best marked in it.
function marked(text, passage) {
  const at = passage ? text.indexOf(passage) : -1;
  if (at < 0) return written("p", text);
  const whole = written("p", "");
  whole.append(text.slice(0, at), make("mark", "", passage), text.slice(at + passage.length));
  return whole;
}

function sideName(side) {
  return about.sides.length < 2 ? "" : side === 0 ? "Before" : "After";
}

function keyOf(hit) {
  return JSON.stringify([hit.doc_id, hit.number]);
}

// How a result stands against the other list; in the list before, what comes later has fallen behind or will rise.
function move(hit, side) {
  if (hit.other === null) {
    return side === 1 ? ["new", `new: beyond ${about.depth} before`] : ["down", `gone: beyond ${about.depth} after`];
  }
  const [before, after] = side === 1 ? [hit.other, hit.rank] : [hit.rank, hit.other];
  if (before === after) return ["", "= same rank"];
  const way = after < before ? ["up", "▲ up"] : ["down", "▼ down"];
  const words = side === 1 ? `from ${before}` : `to ${after}`;
  return [way[0], `${way[1]} ${words}`];
}

// A name and its value; what is an address of the web can be followed.
function entry(name, value) {
  const pair = make("div");
  const said = written("dd", "");
  if (/^https?:\/\/\S+$/i.test(value)) {
    const link = make("a", "", cut(value, SHORT));
    link.href = value;
    link.rel = "noopener noreferrer";
    link.target = "_blank";
    said.append(link);
  } else {
    said.append(cut(value, SHORT));
  }
  pair.append(make("dt", "", name), said);
  return pair;
}

function card(hit, side) {
  const item = make("li");
  item.tabIndex = -1;
  item.dataset.key = keyOf(hit);
  const head = make("div", "head");
  const words = hit.words === null ? "" : `, words ${hit.words.toFixed(1)}`;
  const best = hit.best_sentence === null ? "" : `, of its best sentence ${hit.best_sentence.toFixed(3)}`;
  const scores = `similarity ${hit.similarity.toFixed(3)}${best}${words}`;
  head.append(make("span", "rank", `${hit.rank}`), make("span", "similarity", scores));
  if (about.sides.length > 1) {
    const [kind, words] = move(hit, side);
    if (kind) item.classList.add(kind);
    const shown = hit.other !== null && hit.other <= about.top;
    const badge = make(shown ? "button" : "span", "moved", words);
    if (shown) {
      badge.type = "button";
      badge.title = "Go to it in the other list";
      badge.addEventListener("click", () => twin(item));
    }
    head.append(badge);
  }
  item.append(head, written("h3", hit.title));
  const begins = hit.title.replace(/ …$/, "");
  const text = begins === hit.title && hit.text.startsWith(begins) ? hit.text.slice(begins.length).trim() : hit.text;
  if (text) {
    // It may lie behind what was sent of a long text, or in the title, which is not repeated.
    const at = hit.passage === null ? 0 : text.indexOf(hit.passage);
    const within = at > 0 || (at < 0 && hit.cut);
    const brief = within ? `… ${cut(hit.passage, PASSAGE)}` : cut(text, SHORT);
    item.append(written("p", brief));
    if (brief !== text) {
      const more = make("details");
      more.append(make("summary", "", "All of it"), marked(hit.cut ? `${text} …` : text, hit.passage));
      more.addEventListener("toggle", () => item.classList.toggle("open", more.open));
      item.append(more);
    }
  }
  const said = Object.entries(hit.metadata);
  if (said.length) {
    const list = make("dl", "metadata");
    said.forEach(([name, value]) => list.append(entry(name, value)));
    item.append(list);
  }
  const id = make("p", "id");
  const name = make("span");
  name.append(make("bdi", "", hit.doc_id), hit.number === null ? "" : `, sentence ${hit.number + 1}`);
  id.append(name);
  if (hit.number === null) {
    const like = make("a", "like", "Similar documents");
    like.href = `/?like=${encodeURIComponent(hit.doc_id)}`;
    like.setAttribute("aria-label", `Documents similar to ${cut(hit.title, SHORT)}`);
    id.append(like);
  }
  item.append(id);
  return item;
}

function show(found) {
  const sides = $("sides");
  sides.replaceChildren();
  sides.className = found.sides.length > 1 ? "two" : "";
  found.sides.forEach((hits, side) => {
    const section = make("section");
    const title = make("h2", "", sideName(side) || "Results");
    title.id = `side-${side}`;
    section.setAttribute("aria-label", title.textContent);
    if (found.sides.length > 1) {
      const other = make("a", "other", side === 0 ? "to the list after" : "to the list before");
      other.href = `#side-${1 - side}`;
      title.append(other);
    }
    title.append(make("small", "", about.sides[side].name));
    const list = make("ol");
    list.append(...hits.map((hit) => card(hit, side)));
    section.append(title, list);
    sides.append(section);
  });
}

function items() {
  return [...document.querySelectorAll("#sides li")];
}

function twin(item) {
  const other = items().find((one) => one !== item && one.dataset.key === item.dataset.key);
  if (other) go(other);
}

function go(item) {
  item.focus();
  item.scrollIntoView({ block: "nearest" });
}

function mark() {
  const here = document.activeElement && document.activeElement.closest("#sides li");
  for (const one of items()) {
    one.classList.toggle("twin", Boolean(here) && one !== here && one.dataset.key === here.dataset.key);
  }
}

async function json(url) {
  const answer = await fetch(url);
  const value = await answer.json();
  if (!answer.ok) throw new Error(value.error);
  return value;
}

// What a query finds, or what is similar to a document.
async function search(name, value) {
  const mine = ++asked;
  $("status").textContent = "Searching …";
  try {
    const found = await json(`/search?${name}=${encodeURIComponent(value)}`);
    if (mine !== asked) return;
    show(found);
    shown = location.search;
    const number = found.sides[0].length;
    if (name === "q") {
      $("status").textContent = `${number} results for “${value}”`;
      document.title = `${value} – Search`;
    } else {
      const title = cut(found.title, SHORT);
      $("status").textContent = `${number} documents similar to “${title}” (${cut(value, SHORT)})`;
      document.title = `Similar to ${title} – Search`;
    }
  } catch (error) {
    if (mine !== asked) return;
    shown = null;
    $("sides").replaceChildren();
    $("status").textContent = `No results: ${error.message}`;
  }
}

function fromAddress() {
  const given = new URLSearchParams(location.search);
  const query = given.get("q") || "";
  $("query").value = query;
  if (given.get("like")) search("like", given.get("like"));
  else if (query.trim()) search("q", query);
}

document.querySelector("form").addEventListener("submit", (event) => {
  event.preventDefault();
  const query = $("query").value;
  if (!query.trim()) return;
  history.pushState(null, "", `/?q=${encodeURIComponent(query)}`);
  search("q", query);
});

document.addEventListener("focusin", mark);
document.addEventListener("focusout", mark);
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target === $("query")) return;
  const all = items();
  const here = all.indexOf(document.activeElement && document.activeElement.closest("#sides li"));
  if (event.key === "/") $("query").focus();
  else if (event.key === "j" && all.length) go(all[Math.min(here + 1, all.length - 1)]);
  else if (event.key === "k" && all.length) go(all[Math.max(here - 1, 0)]);
  else if (event.key === "o" && here >= 0) twin(all[here]);
  else return;
  event.preventDefault();
});
window.addEventListener("popstate", () => {
  if (location.search !== shown) fromAddress(); // else it is a jump on the page
});

(async () => {
  try {
    about = await json("/about");
  } catch (error) {
    $("status").textContent = `No answer: ${error.message}`;
    return;
  }
  const size = Math.max(...about.sides.map((side) => side.size)).toLocaleString();
  const exact = about.sides.some((side) => side.approximate) ? "approximate search" : "exact search";
  const { words, best_sentence: sentence } = about.sides[0];
  const beside = [
    ...(sentence ? [`documents' best sentences, which count ${sentence}`] : []),
    ...(words ? [`words, which count ${words}`] : []),
  ];
  const how = beside.length ? `${exact} by vectors and ${beside.join(", and ")}` : exact;
  const where = about.where === null ? "" : `; where ${about.where}`;
  const whose = about.sides.map((side, i) => [sideName(i), side.name].filter(Boolean).join(": ")).join(" · ");
  $("about").textContent = `${size} ${about.over}, ${how}${where}. ${whose}`;
  $("jump").hidden = about.sides.length < 2;
  fromAddress();
})();
